//! What the tests share: stores, gates, requests, and what was logged.

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use axum::body::Body;
use http::{Request, Response};
use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper::{
    Algorithm, Check, Control, Decision, Key, ManualClock, MemoryStore, Overrides, Reservation, Settled,
    Store, StoreError, StoreErrorKind, StoreFuture, Timestamp,
};
use ratekeeper_web::Gate;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// A store whose time stands still until it is told otherwise.
pub(crate) fn store() -> (Arc<MemoryStore>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_secs(1_700_000_000)));
    (Arc::new(MemoryStore::with_clock(10_000, clock.clone())), clock)
}

/// A gate with the rules of a policy in TOML, on a store of its own.
pub(crate) fn gate(rules: &str) -> (Gate, Arc<ManualClock>) {
    let (store, clock) = store();
    (gate_on(store, rules), clock)
}

pub(crate) fn gate_on(store: Arc<dyn Store>, rules: &str) -> Gate {
    let policies = Policies::builder().mode(None).build().unwrap();
    let policy = format!("service = \"test\"\n{rules}");
    policies.install("test", PolicySpec::read("test", Format::Toml, policy.as_bytes()), None).unwrap();
    Gate::new(PolicyLimiter::on(store, policies).service("test").unwrap())
}

pub(crate) fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

pub(crate) fn field<'r, B>(response: &'r Response<B>, name: &str) -> Option<&'r str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

/// The names of all fields about limits.
pub(crate) fn fields<B>(response: &Response<B>) -> Vec<&str> {
    let names = response.headers().keys().map(http::HeaderName::as_str);
    names.filter(|name| name.contains("ratelimit") || *name == "retry-after").collect()
}

pub(crate) async fn text<B>(response: Response<B>) -> String
where
    B: http_body::Body<Error: Debug>,
{
    use http_body_util::BodyExt as _;
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// A store that needs I/O, or so it says: every answer takes a turn of the runtime.
#[derive(Debug)]
pub(crate) struct Remote {
    inner: Arc<MemoryStore>,
    pub(crate) is_away: AtomicBool,
    pub(crate) checks: AtomicUsize,
    pub(crate) refunds: AtomicUsize,
}

impl Remote {
    pub(crate) fn new() -> Arc<Self> {
        let (is_away, checks, refunds) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { inner: store().0, is_away, checks, refunds })
    }

    pub(crate) fn away() -> Arc<Self> {
        let store = Self::new();
        store.is_away.store(true, Ordering::SeqCst);
        store
    }

    async fn journey(&self) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "it is away")),
            false => Ok(()),
        }
    }
}

impl Store for Remote {
    fn try_check(&self, _: &Check<'_>, _: &mut Decision) -> Option<Result<(), StoreError>> {
        None
    }

    fn check<'a>(&'a self, check: &'a Check<'a>) -> StoreFuture<'a, Decision> {
        StoreFuture::pending(async move {
            self.checks.fetch_add(1, Ordering::SeqCst);
            self.journey().await?;
            self.inner.check(check).await
        })
    }

    fn reserve<'a>(&'a self, check: &'a Check<'a>, by: &'a Reservation<'a>) -> StoreFuture<'a, Decision> {
        self.inner.reserve(check, by)
    }

    fn settle<'a>(&'a self, id: &'a [u8], actual: Option<u32>) -> StoreFuture<'a, Settled> {
        self.inner.settle(id, actual)
    }

    fn refund<'a>(&'a self, check: &'a Check<'a>, decision: &'a Decision, units: u32) -> StoreFuture<'a, ()> {
        StoreFuture::pending(async move {
            self.refunds.fetch_add(1, Ordering::SeqCst);
            self.journey().await?;
            self.inner.refund(check, decision, units).await
        })
    }

    fn reset<'a>(&'a self, key: Key<'a>, algorithm: Algorithm) -> StoreFuture<'a, bool> {
        self.inner.reset(key, algorithm)
    }

    fn overrides(&self) -> &dyn Overrides {
        self.inner.overrides()
    }

    fn control(&self) -> &dyn Control {
        self.inner.control()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}

/// What is traced in this thread while the guard lives: events and spans as lines of text,
/// a span when it closes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Arc<Mutex<Vec<String>>>);

/// While there is but one subscriber, what a thread without it meets first is
/// off for all threads. So there are always more.
static OTHERS: LazyLock<[Dispatch; 2]> =
    LazyLock::new(|| [0; 2].map(|_| Dispatch::new(Registry::default().with(Traces::default()))));

impl Traces {
    pub(crate) fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        LazyLock::force(&OTHERS);
        let traces = Self::default();
        let guard = tracing::subscriber::set_default(Registry::default().with(traces.clone()));
        (traces, guard)
    }

    /// The lines with this in them.
    pub(crate) fn with(&self, part: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl<S: Subscriber + for<'l> LookupSpan<'l>> Layer<S> for Traces {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut line = Line(format!("span {}", attributes.metadata().name()));
        attributes.record(&mut line);
        context.span(id).unwrap().extensions_mut().insert(line);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        values.record(context.span(id).unwrap().extensions_mut().get_mut::<Line>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let line = context.span(&id).unwrap().extensions_mut().remove::<Line>().unwrap();
        self.0.lock().unwrap().push(line.0);
    }
}
