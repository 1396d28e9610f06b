//! For clients: a limit on requests that go out, which waits or refuses, and honours what the other side says.
//!
//! ```no_run
//! use ratekeeper_web::client::OutgoingLimit;
//! use std::time::Duration;
//! use tower::{Layer, ServiceExt};
//!
//! # async fn run<S, B>(http_client: S, request: http::Request<B>) -> Result<(), Box<dyn std::error::Error>>
//! # where S: tower::Service<http::Request<B>, Response = http::Response<B>, Error = std::io::Error> + Clone + Send + 'static,
//! # S::Future: Send, B: Send + 'static {
//! let limit = OutgoingLimit::per_host("10/s burst 20")?.wait_at_most(Duration::from_secs(5)).queue_max(100);
//! let client = limit.layer(http_client);     // any tower service for requests of the `http` crate
//! let response = client.oneshot(request).await?;
//! # Ok(())
//! # }
//! ```
//!
//! - Requests to one host (or under one key of your own) share the limit. One that has no room waits its time, or is
//!   refused at once with [`OutgoingLimit::refuse`]. How many wait is bounded.
//! - `Retry-After` of a 429 or a 503 stops all requests under the key until then; `RateLimit` (also the fields of old,
//!   `RateLimit-Remaining` and `X-RateLimit-Remaining`) lets as many go on as the other side says are left.
//! - With the feature `reqwest`, it is a middleware of reqwest-middleware as well.

mod fields;
mod gate;
mod layer;
#[cfg(feature = "reqwest")]
mod reqwest;
mod state;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use ratekeeper::{Algorithm, Field, InvalidInput, Limiter, MemoryStore, Quotas, Rule, Store};

use gate::OutgoingGate;
pub use layer::{OutgoingError, OutgoingService};

/// How long a request waits at most, unless it is said.
pub const WAIT_MAX_DEFAULT: Duration = Duration::from_secs(30);
/// How many requests under one key wait at once, unless it is said.
pub const QUEUE_MAX_DEFAULT: usize = 1_000;
/// The longest that the other side is believed to be busy: an hour.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);
/// Keys whose other side is remembered. What was heard longest ago is forgotten first.
pub const KEYS_MAX: usize = 10_000;

type Key = dyn for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync;

/// A limit on requests that go out: a layer of tower, and with the feature `reqwest` a middleware of reqwest-middleware.
/// Clones share it.
#[derive(Clone)]
pub struct OutgoingLimit {
    quotas: Quotas,
    store: Arc<dyn Store>,
    key: Arc<Key>,
    patience: Duration,
    queue_max: usize,
    gate: Arc<OutgoingGate>,
}

impl OutgoingLimit {
    /// So many requests to each host and port.
    ///
    /// # Errors
    /// If the quota is none, or one for requests at once (`concurrency`).
    pub fn per_host(quota: &str) -> Result<Self, InvalidInput> {
        Self::per_key(quota, |request| Some(host_of(request)))
    }

    /// So many requests under each key that the function finds. Where it finds none, a request goes on at once.
    ///
    /// ```
    /// use ratekeeper_web::client::OutgoingLimit;
    ///
    /// let per_account = OutgoingLimit::per_key("100/min", |request| {
    ///     request.headers.get("x-account")?.to_str().ok().map(Into::into)
    /// })?;
    /// # Ok::<(), ratekeeper::InvalidInput>(())
    /// ```
    ///
    /// # Errors
    /// As [`OutgoingLimit::per_host`].
    pub fn per_key<K>(quota: &str, key: K) -> Result<Self, InvalidInput>
    where
        K: for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    {
        let quotas: Quotas = quota.parse()?;
        if quotas.iter().any(|(_, quota)| quota.algorithm() == Algorithm::Concurrency) {
            let expected =
                "a rate such as `10/s`; for requests at once, there is tower's `ConcurrencyLimitLayer`";
            return Err(InvalidInput::new(Field::Algorithm, "concurrency", expected));
        }
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_max_keys(KEYS_MAX));
        let (patience, queue_max) = (WAIT_MAX_DEFAULT, QUEUE_MAX_DEFAULT);
        let gate = Arc::new(OutgoingGate::new(limiter(&quotas, &store)?, patience, queue_max));
        Ok(Self { quotas, store, key: Arc::new(key), patience, queue_max, gate })
    }

    /// How long a request waits at most; one that would have to wait longer is refused at once, as far as that is known.
    /// 30 seconds, unless said otherwise.
    #[must_use]
    pub fn wait_at_most(self, patience: Duration) -> Self {
        Self { patience, ..self }.anew()
    }

    /// Refuses what has no room, instead of waiting.
    #[must_use]
    pub fn refuse(self) -> Self {
        self.wait_at_most(Duration::ZERO)
    }

    /// How many requests under one key wait at once; what comes beyond is refused. 1000, unless said otherwise.
    #[must_use]
    pub fn queue_max(self, queue_max: usize) -> Self {
        Self { queue_max, ..self }.anew()
    }

    /// Where requests are counted, such as a `RedisStore` that several processes share; in memory, unless said otherwise. What
    /// the other side says is known to this process alone.
    ///
    /// # Errors
    /// If the store cannot have this limit.
    pub fn store(self, store: Arc<dyn Store>) -> Result<Self, InvalidInput> {
        limiter(&self.quotas, &store)?;
        Ok(Self { store, ..self }.anew())
    }

    /// Nothing was asked before, so nothing is forgotten.
    fn anew(mut self) -> Self {
        if let Ok(limiter) = limiter(&self.quotas, &self.store) {
            self.gate = Arc::new(OutgoingGate::new(limiter, self.patience, self.queue_max));
        }
        self
    }
}

fn limiter(quotas: &Quotas, store: &Arc<dyn Store>) -> Result<Limiter<str>, InvalidInput> {
    let mut rule = Rule::new("outgoing", |key: &str| Some(key.into()));
    for (name, quota) in quotas.iter() {
        rule = if name.is_empty() { rule.quota(quota) } else { rule.also(name, &quota.to_string()) };
    }
    Limiter::builder_on(Arc::clone(store)).rule(rule).build().map_err(|error| error.source)
}

impl fmt::Debug for OutgoingLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingLimit").field("gate", &self.gate).finish_non_exhaustive()
    }
}

/// The host and port that a request goes to; without one in the address, what its field `Host` says.
fn host_of(request: &Parts) -> Cow<'_, str> {
    let named = request.uri.authority().map(|authority| {
        // Without user and password, which are nobody else's business.
        let authority = authority.as_str();
        authority.rsplit_once('@').map_or(authority, |(_, host)| host)
    });
    let field = || request.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let host = named.or_else(field).unwrap_or("unknown");
    match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    }
}

/// A request that does not go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotSent {
    /// It would have had to wait longer than it may.
    TooLong {
        /// When it would have room, as far as that is known.
        retry_after: Option<Duration>,
    },
    /// As many requests wait under its key as may.
    QueueFull {
        /// How many that is.
        waiting: usize,
    },
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { retry_after: Some(after) } => {
                write!(f, "not sent: there is room in {after:?}, which is longer than it may wait")
            }
            Self::TooLong { retry_after: None } => {
                f.write_str("not sent: it asks for more than its limit ever has")
            }
            Self::QueueFull { waiting } => write!(f, "not sent: {waiting} requests wait already"),
        }
    }
}

impl std::error::Error for NotSent {}
