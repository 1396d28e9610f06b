//! Counters in Redis or Valkey: limits that hold across machines.
//!
//! One script (`redis/script`) does everything that must be atomic; this module
//! gathers checks into batches for it, and sees to it that a server in trouble
//! costs its callers next to nothing.
//!
//! ```no_run
//! use ratekeeper::{Limiter, RedisStore, Rule};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::builder("redis://127.0.0.1:6379").build()?;
//! let limiter = Limiter::<str>::builder(store)
//!     .rule(Rule::new("per-user", |user: &str| Some(user.into())).quotas("{rps=20, rpm=1000}"))
//!     .build()?;
//! let decision = limiter.check("ann").await?;
//! # Ok(())
//! # }
//! ```

mod answer;
mod breaker;
mod control;
mod encode;
mod error;
mod lane;
mod layout;
mod link;
mod overload;
mod override_hash;
mod overrides;
mod penal;
mod record;
mod rehearsal;
mod script;
mod silence;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::io::tcp::TcpSettings;
use ::redis::{Client, ConnectionAddr, IntoConnectionInfo, TlsCertificates, Value};
use ratekeeper_core::{
    Algorithm, Charge, Check, Clock, Decision, Field, GiveBack, InvalidInput, Key, Reservation, Settled,
    Timestamp,
};
use tokio::runtime::Handle;

pub use self::breaker::BreakerPolicy;
use self::encode::{Change, Item, Target, Units, tag_of};
use self::lane::{Bounds, Lane};
use self::layout::{Class, Layout};
use self::link::{Link, Script};
use self::record::Record;
#[doc(hidden)]
pub use self::rehearsal::Rehearsal;
pub use self::script::SCRIPT;
use self::script::TEST_TTL_MILLIS;
use crate::control::{Control, ControlCell};
use crate::store::meetings::Meetings;
use crate::store::{
    Health, Overrides, SECRET_BYTES, Store, StoreError, StoreFuture, StoreUrl, random_secret,
};

/// How long a call may take unless told otherwise.
pub const DEADLINE_DEFAULT: Duration = Duration::from_millis(25);
/// How many checks may wait for one connection unless told otherwise.
pub const QUEUE_MAX_DEFAULT: usize = 10_000;
/// How long a check may wait for one connection unless told otherwise, while the server answers.
pub const QUEUE_WAIT_DEFAULT: Duration = Duration::from_secs(1);
/// The most connections one store may have.
pub const CONNECTIONS_MAX: usize = 64;
/// How long the secret that signs receipts is kept since it was last asked for.
const SECRET_LIFE: Duration = Duration::from_secs(30 * 24 * 3_600);
/// The longest prefix of keys, in bytes.
pub const PREFIX_BYTES_MAX: usize = 128;

/// What should come with a certificate authority.
const AUTHORITY: &str = "rediss:// or valkeys://, and certificates in PEM form, with a certificate authority";

/// A store on Redis (6.2 and later) or Valkey (7.2 and later).
///
/// Clones share the connections.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    layout: Layout,
    lanes: Box<[Arc<Lane>]>,
    next: AtomicUsize,
    control: ControlCell,
    meetings: Meetings,
    /// Keys live at least so long: with a clock of their own, tests must not
    /// lose them to the server's.
    ttl_millis_min: u64,
}

/// How to reach the server, and how long to wait for it.
#[derive(Clone)]
pub struct RedisStoreBuilder {
    url: String,
    prefix: String,
    deadline: Duration,
    queue_max: usize,
    queue_wait: Duration,
    connections: usize,
    breaker: BreakerPolicy,
    clock: Option<Arc<dyn Clock>>,
    ca: Option<Vec<u8>>,
    script: String,
}

impl RedisStore {
    /// A store on the server at `url`: `redis://`, `rediss://` (TLS) or `redis+unix://`, or the
    /// same with `valkey`, with user, password and database number as usual
    /// (`redis://user:password@host:6379/2`). What can also be `memory` is for
    /// [`open`](crate::store::open).
    #[must_use]
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder {
            url: url.to_owned(),
            prefix: String::new(),
            deadline: DEADLINE_DEFAULT,
            queue_max: QUEUE_MAX_DEFAULT,
            queue_wait: QUEUE_WAIT_DEFAULT,
            connections: 1,
            breaker: BreakerPolicy::default(),
            clock: None,
            ca: None,
            script: SCRIPT.to_owned(),
        }
    }

    /// Asks every connection to decide nothing: whether the server can be
    /// reached, lets us in, and runs the script.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        for lane in &self.inner.lanes {
            lane.link().run(&encode::call(&[], None)).await?;
        }
        Ok(())
    }
}

impl RedisStoreBuilder {
    /// The same for another server.
    pub(super) fn at(self, url: &StoreUrl) -> Self {
        Self { url: url.as_str().to_owned(), ..self }
    }

    /// A text before the name of every key: stores with different prefixes
    /// know nothing of each other. None by default, so that overrides are
    /// shared with services on Application Kit.
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// How long the server may be silent before the rule's failure policy decides: counted
    /// for each call from when it is made, or from the last answer if that was later. What
    /// waits behind others on a server that answers is no outage; see
    /// [`RedisStoreBuilder::queue_wait`].
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// How many checks may wait for one connection; more fail at once.
    #[must_use]
    pub fn queue_max(self, queue_max: usize) -> Self {
        Self { queue_max, ..self }
    }

    /// How long a check may wait for one connection although the server answers, if that is
    /// longer than the deadline; then it fails without having been sent.
    #[must_use]
    pub fn queue_wait(self, queue_wait: Duration) -> Self {
        Self { queue_wait, ..self }
    }

    /// How many connections to have. One suffices for a server that works on
    /// one core, as they do.
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// When to stop asking a server that fails, and how soon to try again.
    #[must_use]
    pub fn breaker(self, breaker: BreakerPolicy) -> Self {
        Self { breaker, ..self }
    }

    /// Judges checks at the time of `clock` instead of the server's: for tests,
    /// and for servers that do not let scripts ask for the time. Keys then live
    /// for a minute at least.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// The certificate authority to trust for `rediss://`, in PEM form, instead
    /// of the system's.
    #[must_use]
    pub fn certificate_authority(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { ca: Some(pem.into()), ..self }
    }

    /// Another script: for tests of the script's tests.
    #[doc(hidden)]
    #[must_use]
    pub fn script(self, script: &str) -> Self {
        Self { script: script.to_owned(), ..self }
    }

    /// Makes the store and begins to connect. A server that is down is no
    /// error: the store answers when it is up.
    ///
    /// # Errors
    /// If the URL or a setting is not valid, or no tokio runtime is at hand.
    pub fn build(self) -> Result<RedisStore, InvalidInput> {
        let store = |got: String, expected: &str| InvalidInput::new(Field::Store, got, expected);
        let runtime = Handle::try_current()
            .map_err(|_| store("no tokio runtime".into(), "a store that is made inside of one"))?;
        let url = StoreUrl::server(&self.url)?;
        if let Some((got, expected)) = self.out_of_bounds(&url) {
            return Err(store(got, expected));
        }
        let client = self.client(&url).map_err(|(reason, expected)| store(reason, &expected))?;
        let lane = |_| {
            let (script, deadline) = (Script::new(&self.script), self.deadline);
            let link = Link::start(client.clone(), script, deadline, self.breaker, runtime.clone());
            let queue_wait = self.queue_wait.max(deadline);
            Lane::new(link, Bounds { deadline, queue_max: self.queue_max, queue_wait }, self.clock.clone())
        };
        let lanes = (0..self.connections).map(lane).collect();
        let ttl_millis_min = if self.clock.is_some() { TEST_TTL_MILLIS } else { 1 };
        let layout = Layout::new(&self.prefix);
        let next = AtomicUsize::new(0);
        let (control, meetings) = (ControlCell::default(), Meetings::new());
        let inner = Arc::new(Inner { layout, lanes, next, control, meetings, ttl_millis_min });
        runtime.spawn(control::follow(Arc::downgrade(&inner)));
        Ok(RedisStore { inner })
    }

    /// What was given that cannot be, and what could.
    fn out_of_bounds(&self, url: &StoreUrl) -> Option<(String, &'static str)> {
        let Self { prefix, deadline, queue_max, queue_wait, connections, .. } = self;
        let bounds = [
            (
                self.has_valid_prefix(),
                format!("prefix {prefix:?}"),
                "a prefix of at most 128 printable characters",
            ),
            (
                (1..=60_000).contains(&deadline.as_millis()),
                format!("a deadline of {deadline:?}"),
                "a deadline from 1 ms to 60 s",
            ),
            (*queue_max > 0, format!("a queue of {queue_max}"), "a queue of at least 1"),
            (
                (1..=60_000).contains(&queue_wait.as_millis()),
                format!("a wait of {queue_wait:?} in the queue"),
                "a wait from 1 ms to 60 s in the queue",
            ),
            (
                (1..=CONNECTIONS_MAX).contains(connections),
                format!("{connections} connections"),
                "1 to 64 connections",
            ),
            (self.has_valid_ca(url), "a certificate authority".to_owned(), AUTHORITY),
        ];
        let broken = bounds.into_iter().find(|(holds, ..)| !holds);
        broken.map(|(_, got, expected)| (got, expected))
    }

    fn has_valid_prefix(&self) -> bool {
        self.prefix.len() <= PREFIX_BYTES_MAX && self.prefix.bytes().all(|byte| byte.is_ascii_graphic())
    }

    /// Without a certificate in it, every server would be refused.
    fn has_valid_ca(&self, url: &StoreUrl) -> bool {
        let Some(pem) = &self.ca else { return true };
        url.is_tls() && String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----")
    }

    /// Or why not, without the URL, which may hold a password; and what would be right.
    fn client(&self, url: &StoreUrl) -> Result<Client, (String, String)> {
        let because = |error: ::redis::RedisError| (error.to_string(), StoreUrl::expected());
        let info = url.as_str().into_connection_info().map_err(because)?;
        // Without it, a small packet waits for the acknowledgement of the last.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            choose_ciphers();
        }
        match &self.ca {
            None => Client::open(info).map_err(because),
            Some(pem) => {
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) };
                let because = |error: ::redis::RedisError| (error.to_string(), AUTHORITY.to_owned());
                Client::build_with_tls(info, certificates).map_err(because)
            }
        }
    }
}

/// TLS needs a provider of ciphers, one for the whole process: ours, if nobody has chosen.
fn choose_ciphers() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if somebody has chosen in this instant.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

impl Inner {
    fn lane(&self) -> &Arc<Lane> {
        let lanes = &self.lanes;
        if let [lane] = &**lanes {
            return lane;
        }
        &lanes[self.next.fetch_add(1, Ordering::Relaxed) % lanes.len()]
    }

    async fn reserve(
        &self,
        check: &Check<'_>,
        reservation: &Reservation<'_>,
    ) -> Result<Decision, StoreError> {
        self.meetings.note(check);
        let kept = record::keep(&self.layout, check);
        let item = Item::once(&self.layout, check, reservation, kept);
        let lane = self.lane();
        let reply = lane.ask(item).await?;
        if reply.answer().is_conflict() {
            return Err(reservation.conflict().into());
        }
        reply.answer().decision(check).inspect_err(|error| lane.count(error))
    }

    /// Two steps, because only the record knows which keys a reservation
    /// touched: it is read, and then settled if it is still the same.
    async fn settle(&self, id: &[u8], actual: Option<u32>) -> Result<Settled, StoreError> {
        let key = self.layout.id(id);
        let lane = self.lane();
        let get = ::redis::Cmd::get(&key);
        let found = lane.link().send(|mut link| async move { link.send_packed_command(&get).await }).await?;
        let Value::BulkString(bytes) = found else { return Ok(Settled::Unknown) };
        let record = Record::read(&bytes)?;
        let changes = record.changes(actual)?;
        let item = Item::adjust(Some((&key, record.digest)), changes.into_iter());
        lane.ask(item).await?.answer().settled()
    }

    async fn refund(&self, check: &Check<'_>, decision: &Decision, units: u32) -> Result<u64, StoreError> {
        let charges = decision.given_back_to(check, units, |charge| charge.key().digest());
        let named: Vec<(Class, Vec<u8>, GiveBack<'_, '_>)> = charges
            .map(|back| {
                let mut name = Vec::new();
                (self.layout.counter(back.charge, &mut name), name, back)
            })
            .collect();
        if named.is_empty() {
            return Ok(0);
        }
        let changes = named.iter().map(|(class, name, back)| {
            let quota = *back.verdict.quota();
            let tag = tag_of(back.charge.key(), quota.algorithm());
            let note = back.note.map(|note| (self.layout.receipt(note.nonce, tag, name), note));
            Change {
                target: Target {
                    class: *class,
                    name,
                    tag,
                    quota,
                    any_window: back.charge.is_in_any_window(),
                },
                units: Units::Refund(back.units),
                receipt: back.receipt,
                note,
            }
        });
        let item = Item::adjust(None, changes);
        self.lane().ask(item).await?.answer().given_back()
    }

    /// Kept as long as anybody asks for it within 30 days.
    async fn shared_secret(&self) -> Result<[u8; SECRET_BYTES], StoreError> {
        let (key, fresh) = (self.layout.secret(), random_secret()?);
        let life = SECRET_LIFE.as_millis() as u64;
        let made =
            ::redis::Cmd::new().arg("SET").arg(&key).arg(&fresh).arg("NX").arg("PX").arg(life).to_owned();
        let _: Value = self.send(made).await?;
        let known: Vec<u8> = self.send(::redis::Cmd::get(&key)).await?;
        let _: Value = self.send(::redis::Cmd::new().arg("PEXPIRE").arg(&key).arg(life).to_owned()).await?;
        known.try_into().map_err(|_| StoreError::unreadable())
    }

    async fn reset(&self, key: Key<'_>, algorithm: Algorithm) -> Result<bool, StoreError> {
        let mut name = Vec::new();
        let class = self.layout.own_counter(key, algorithm, &mut name);
        let item = Item::reset(class, &name, algorithm, tag_of(key, algorithm));
        let own = self.lane().ask(item).await?.answer().was_there()?;
        let shared = self.layout.kit_counter_of(key).filter(|_| algorithm == Algorithm::FixedWindow);
        match shared {
            None => Ok(own),
            Some(name) => {
                let item = Item::reset(Class::Kit, &name, algorithm, 0);
                Ok(self.lane().ask(item).await?.answer().was_there()? || own)
            }
        }
    }
}

impl Store for RedisStore {
    fn needs_io(&self) -> bool {
        true
    }

    fn try_check(&self, _: &Check<'_>, _: &mut Decision) -> Option<Result<(), StoreError>> {
        None
    }

    fn check<'a>(&'a self, check: &'a Check<'a>) -> StoreFuture<'a, Decision> {
        let lane = self.inner.lane();
        if let Some(refusal) = lane.link().refusal() {
            lane.count(&refusal);
            return StoreFuture::ready(Err(refusal));
        }
        StoreFuture::pending(async move {
            self.inner.meetings.note(check);
            let reply = lane.ask(Item::check(&self.inner.layout, check)).await?;
            // Answered, but perhaps only that nothing could be written.
            reply.answer().decision(check).inspect_err(|error| lane.count(error))
        })
    }

    fn reserve<'a>(
        &'a self,
        check: &'a Check<'a>,
        reservation: &'a Reservation<'a>,
    ) -> StoreFuture<'a, Decision> {
        StoreFuture::pending(self.inner.reserve(check, reservation))
    }

    fn settle<'a>(&'a self, id: &'a [u8], actual: Option<u32>) -> StoreFuture<'a, Settled> {
        StoreFuture::pending(self.inner.settle(id, actual))
    }

    fn refund<'a>(
        &'a self,
        check: &'a Check<'a>,
        decision: &'a Decision,
        units: u32,
    ) -> StoreFuture<'a, u64> {
        StoreFuture::pending(self.inner.refund(check, decision, units))
    }

    fn shared_secret(&self) -> StoreFuture<'_, [u8; SECRET_BYTES]> {
        StoreFuture::pending(self.inner.shared_secret())
    }

    fn number_of(&self, charge: &Charge<'_>) -> u64 {
        charge.key().digest()
    }

    fn reset<'a>(&'a self, key: Key<'a>, algorithm: Algorithm) -> StoreFuture<'a, bool> {
        StoreFuture::pending(self.inner.reset(key, algorithm))
    }

    fn overrides(&self) -> &dyn Overrides {
        self
    }

    fn control(&self) -> &dyn Control {
        self
    }

    fn now(&self) -> Timestamp {
        self.inner.lane().now()
    }

    fn health(&self) -> Health {
        let lanes = self.inner.lanes.iter().map(|lane| lane.health());
        lanes.reduce(Health::and).unwrap_or_default()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = self.inner.lanes.iter().map(|lane| lane.link().server.as_str()).collect();
        f.debug_struct("RedisStore").field("servers", &servers).finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisStoreBuilder {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("deadline", &self.deadline)
            .field("queue_max", &self.queue_max)
            .field("queue_wait", &self.queue_wait)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
