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
mod audit;
mod breaker;
mod cluster;
mod control;
mod encode;
mod error;
mod inspect;
mod lane;
mod lanes;
mod layout;
mod link;
mod locate;
mod overload;
mod override_hash;
mod overrides;
mod packed;
mod password;
mod penal;
mod record;
mod redirect;
mod rehearsal;
mod role;
mod round_trip;
mod route;
mod script;
mod sentinel;
mod silence;
mod socket;
mod spread;
mod stored;
mod stored_lists;
mod tag;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use ::redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo, Value};
use ratekeeper_core::{
    Algorithm, Charge, Check, Clock, Decision, Field, GiveBack, InvalidInput, Key, Origin, Reservation,
    Settled, Timestamp,
};
use tokio::runtime::Handle;

pub use self::breaker::BreakerPolicy;
use self::cluster::Cluster;
pub use self::cluster::{ClusterNode, ClusterReport};
use self::encode::{Change, Item, Target, Units, tag_of};
use self::lane::Bounds;
use self::lanes::LaneMaker;
use self::layout::{Class, Layout};
use self::locate::{Locator, NoPlace};
pub use self::password::PASSWORD_BYTES_MAX;
use self::password::Password;
use self::record::Record;
#[doc(hidden)]
pub use self::rehearsal::Rehearsal;
use self::route::{Route, Way};
pub use self::script::SCRIPT;
use self::script::TEST_TTL_MILLIS;
pub use self::sentinel::SentinelAnswer;
use self::sentinel::{Sentinels, follow};
pub use self::spread::SpreadStore;
pub use self::stored::STORED_PAGE_MAX;
use self::wire::Address;
use crate::audit::Audit;
use crate::control::{Control, ControlCell};
use crate::store::failures::FailureLog;
use crate::store::meetings::Meetings;
use crate::store::{
    CounterClaims, Health, Overrides, SECRET_BYTES, SentinelParts, ServerParts, Store, StoreError,
    StoreFuture, StoreUrl, StoredFilter, StoredPage, random_secret,
};

/// How long a server may be silent unless told otherwise.
pub const DEADLINE_DEFAULT: Duration = Duration::from_millis(25);
/// How many checks may wait for one connection unless told otherwise.
pub const QUEUE_MAX_DEFAULT: usize = 10_000;
/// How many deadlines a call may take in all unless told otherwise.
pub const TOTAL_DEADLINES_DEFAULT: u32 = 4;
/// The longest deadline.
pub const DEADLINE_MAX: Duration = Duration::from_secs(60);
/// The longest total of a call.
pub const TOTAL_MAX: Duration = Duration::from_secs(240);
/// The most connections one store may have.
pub const CONNECTIONS_MAX: usize = 64;
/// The most replicas that a store may wait for.
pub const REPLICAS_MAX: usize = 16;
/// How long the secret that signs receipts is kept since it was last asked for.
const SECRET_LIFE: Duration = Duration::from_secs(30 * 24 * 3_600);
/// The longest prefix of keys, in bytes.
pub const PREFIX_BYTES_MAX: usize = 128;

/// What should come with a certificate authority.
const AUTHORITY: &str = "rediss:// or valkeys://, and certificates in PEM form, with a certificate authority";
/// The same where sentinels are asked.
const SENTINEL_AUTHORITY: &str =
    "rediss+sentinel:// or valkeys+sentinel://, and certificates in PEM form, with a certificate authority";
/// The same on a cluster.
const CLUSTER_AUTHORITY: &str =
    "rediss+cluster:// or valkeys+cluster://, and certificates in PEM form, with a certificate authority";

/// A store on Redis (6.2 and later) or Valkey (7.2 and later).
///
/// Clones share the connections.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    layout: Layout,
    route: Route,
    control: ControlCell,
    meetings: Meetings,
    claims: CounterClaims,
    failures: Arc<FailureLog>,
    /// Who says where the server is, and the server without its place.
    sentinels: Option<(Arc<Sentinels>, ServerParts)>,
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
    total: Option<Duration>,
    password: Option<Password>,
    sentinel_password: Option<Password>,
    connections: usize,
    replicas: usize,
    breaker: BreakerPolicy,
    clock: Option<Arc<dyn Clock>>,
    ca: Option<Vec<u8>>,
    script: String,
    one_tag: Option<String>,
}

impl RedisStore {
    /// A store on the server at `url`: `redis://`, `rediss://` (TLS) or `redis+unix://`, or the
    /// same with `valkey`, with user, password and database number as usual
    /// (`redis://user:password@host:6379/2`). `redis+sentinel://host:26379,host:26379/service` asks sentinels
    /// where the server is. What can also be `memory` is for [`open`](crate::store::open).
    #[must_use]
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder {
            url: url.to_owned(),
            prefix: String::new(),
            deadline: DEADLINE_DEFAULT,
            queue_max: QUEUE_MAX_DEFAULT,
            total: None,
            password: None,
            sentinel_password: None,
            connections: 1,
            replicas: 0,
            breaker: BreakerPolicy::default(),
            clock: None,
            ca: None,
            script: SCRIPT.to_owned(),
            one_tag: None,
        }
    }

    /// Asks every connection to decide nothing: whether the server can be
    /// reached, lets us in, and runs the script.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        match &self.inner.route {
            Route::Server(lanes) => {
                for lane in lanes.all() {
                    lane.link().run(&encode::call(&[], None)).await?;
                }
                Ok(())
            }
            Route::Cluster(cluster) => cluster.ping().await,
        }
    }

    /// Asks every node that the URL names what it says of its cluster, which takes a bounded time. `None` without a
    /// cluster.
    pub async fn cluster(&self) -> Option<ClusterReport> {
        Some(self.inner.route.cluster()?.report().await)
    }

    /// Asks every sentinel where the server is, which takes a bounded time; then, where it is by what they said, for
    /// another client of the same server. `None` without sentinels.
    pub async fn sentinels(&self) -> Option<(Vec<SentinelAnswer>, Result<ServerParts, StoreError>)> {
        let (sentinels, parts) = self.inner.sentinels.as_ref()?;
        let (answers, found) = sentinels.report().await;
        let server = found.map(|node| ServerParts { host: node.host, port: node.port, ..parts.clone() });
        Some((answers, server.map_err(|NoPlace { kind, why }| StoreError::new(kind, why))))
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

    /// How long the server may be silent before the rule's failure policy decides: counted from when a call was
    /// sent, or from the last answer if that was later. What this process itself was late does not count, up to
    /// a second deadline. What waits behind others on a server that answers is no outage; see
    /// [`RedisStoreBuilder::total`].
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// How long a call may take in all, wherever it waits: four deadlines, unless this says otherwise. Then it fails:
    /// as an overload if it was not sent, and so not charged, else as a timeout. An answer that has arrived by then is used.
    #[must_use]
    pub fn total(self, total: Duration) -> Self {
        Self { total: Some(total), ..self }
    }

    /// How many checks may wait for one connection; more fail at once.
    #[must_use]
    pub fn queue_max(self, queue_max: usize) -> Self {
        Self { queue_max, ..self }
    }

    /// A file that holds the password, instead of the URL. It is read again for every new connection: so a
    /// password can be changed while the store is open. The end of its last line is no part of it.
    #[must_use]
    pub fn password_file(self, file: impl Into<PathBuf>) -> Self {
        Self { password: Some(Password::in_file(file.into())), ..self }
    }

    /// A function that says the password, instead of the URL. It is called for every new connection, and must not block.
    #[must_use]
    pub fn password_from(self, read: impl Fn() -> io::Result<String> + Send + Sync + 'static) -> Self {
        Self { password: Some(Password::new(read)), ..self }
    }

    /// A file that holds the password of the sentinels, instead of the URL; otherwise as
    /// [`RedisStoreBuilder::password_file`].
    #[must_use]
    pub fn sentinel_password_file(self, file: impl Into<PathBuf>) -> Self {
        Self { sentinel_password: Some(Password::in_file(file.into())), ..self }
    }

    /// A function that says the password of the sentinels, instead of the URL; otherwise as
    /// [`RedisStoreBuilder::password_from`].
    #[must_use]
    pub fn sentinel_password_from(
        self,
        read: impl Fn() -> io::Result<String> + Send + Sync + 'static,
    ) -> Self {
        Self { sentinel_password: Some(Password::new(read)), ..self }
    }

    /// How many connections to have. One suffices for a server that works on
    /// one core, as they do.
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// How many replicas must have a charge before it is answered (`WAIT`): none, unless this says otherwise. A failover to
    /// one of them loses nothing that was admitted. An admission that fewer confirm within half a deadline is an error (it
    /// stays charged), which the rule's failure policy decides; denials stand. It costs a round trip to the replicas
    /// for each batch.
    #[must_use]
    pub fn replicas(self, replicas: usize) -> Self {
        Self { replicas, ..self }
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

    /// On a cluster, one tag for everything, so that no check is of several slots: for tests that compare whole
    /// checks with the model.
    #[doc(hidden)]
    #[must_use]
    pub fn one_tag(self, tag: &str) -> Self {
        Self { one_tag: Some(tag.to_owned()), ..self }
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
        if url.has_several() {
            return Err(store(url.to_string(), "one server; several are opened by ratekeeper::store::open"));
        }
        if let Some((got, expected)) = self.out_of_bounds(&url) {
            return Err(store(got, expected));
        }
        let refused = |(reason, expected): (String, String)| store(reason, &expected);
        let ttl_millis_min = if self.clock.is_some() { TEST_TTL_MILLIS } else { 1 };
        let (control, meetings, claims) = (ControlCell::default(), Meetings::new(), CounterClaims::default());
        let (route, failures, sentinels, layout);
        if url.has_nodes() {
            let seeds = self.seeds(&url).map_err(refused)?;
            let places: Vec<String> = seeds.iter().map(Address::server).collect();
            let name = format!("cluster ({})", places.join(", "));
            failures = Arc::new(FailureLog::new(name.clone()));
            route = Route::Cluster(Cluster::start(name, seeds, self.maker(&failures, &runtime)));
            (sentinels, layout) = (None, Layout::tagged(&self.prefix, self.one_tag.as_deref()));
        } else {
            let locator = self.locator(&url, &runtime).map_err(refused)?;
            failures = Arc::new(FailureLog::new(locator.name()));
            let lanes = self.maker(&failures, &runtime).lanes(&locator);
            sentinels = locator.sentinels().cloned().zip(url.server_parts());
            if let Some((sentinels, _)) = &sentinels {
                let links = lanes.all().iter().map(|lane| Arc::downgrade(lane.link())).collect();
                runtime.spawn(follow(Arc::downgrade(sentinels), links));
            }
            (route, layout) = (Route::Server(lanes), Layout::new(&self.prefix));
        }
        let inner =
            Arc::new(Inner { layout, route, control, meetings, claims, failures, sentinels, ttl_millis_min });
        runtime.spawn(control::follow(Arc::downgrade(&inner)));
        Ok(RedisStore { inner })
    }

    /// What makes connections.
    fn maker(&self, failures: &Arc<FailureLog>, runtime: &Handle) -> LaneMaker {
        let bounds = Bounds { deadline: self.deadline, queue_max: self.queue_max, total: self.whole() };
        LaneMaker {
            script: self.script.clone(),
            breaker: self.breaker,
            bounds,
            clock: self.clock.clone(),
            connections: self.connections,
            replicas: self.replicas,
            failures: Arc::clone(failures),
            runtime: runtime.clone(),
        }
    }

    /// The nodes that a URL of a cluster names.
    fn seeds(&self, url: &StoreUrl) -> Result<Vec<Address>, (String, String)> {
        let because = |error: ::redis::RedisError| (error.to_string(), StoreUrl::expected());
        let info = url.connection_info().map_err(because)?;
        let first = self.address(url, info, self.password.as_ref())?;
        let nodes = url.server_parts().map(|parts| parts.nodes).unwrap_or_default();
        Ok(nodes.iter().map(|(host, port)| first.at(host, *port)).collect())
    }

    /// What was given that cannot be, and what could.
    fn out_of_bounds(&self, url: &StoreUrl) -> Option<(String, &'static str)> {
        let Self { prefix, deadline, queue_max, connections, replicas, .. } = self;
        let total = self.whole();
        let bounds = [
            (
                self.has_valid_prefix(),
                format!("prefix {prefix:?}"),
                "a prefix of at most 128 printable characters",
            ),
            (
                !url.has_nodes() || !prefix.contains(['{', '}']),
                format!("prefix {prefix:?} on a cluster"),
                "a prefix without braces: they would put all keys into one slot",
            ),
            (
                (Duration::from_millis(1)..=DEADLINE_MAX).contains(deadline),
                format!("a deadline of {deadline:?}"),
                "a deadline from 1 ms to 60 s",
            ),
            (*queue_max > 0, format!("a queue of {queue_max}"), "a queue of at least 1"),
            (
                (*deadline..=TOTAL_MAX).contains(&total),
                format!("a total of {total:?} with a deadline of {deadline:?}"),
                "a total from the deadline to 240 s",
            ),
            (
                (1..=CONNECTIONS_MAX).contains(connections),
                format!("{connections} connections"),
                "1 to 64 connections",
            ),
            (
                *replicas <= REPLICAS_MAX,
                format!("{replicas} replicas to wait for"),
                "at most 16 replicas that confirm a charge",
            ),
            (self.has_valid_ca(url), "a certificate authority".to_owned(), authority_of(url)),
            (
                self.sentinel_password.is_none() || url.has_sentinels(),
                "a password for sentinels".to_owned(),
                "redis+sentinel:// with a password for sentinels",
            ),
        ];
        let broken = bounds.into_iter().find(|(holds, ..)| !holds);
        broken.map(|(_, got, expected)| (got, expected))
    }

    /// How long a call may take in all.
    fn whole(&self) -> Duration {
        self.total.unwrap_or(self.deadline.saturating_mul(TOTAL_DEADLINES_DEFAULT))
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
    fn locator(&self, url: &StoreUrl, runtime: &Handle) -> Result<Locator, (String, String)> {
        let because = |error: ::redis::RedisError| (error.to_string(), StoreUrl::expected());
        let info = url.connection_info().map_err(because)?;
        let server = self.address(url, info.clone(), self.password.as_ref())?;
        let Some(SentinelParts { hosts, service, user, password, .. }) =
            url.server_parts().and_then(|parts| parts.sentinels)
        else {
            return Ok(Locator::Fixed(Arc::new(server)));
        };
        let mut login = RedisConnectionInfo::default();
        if let Some(user) = user {
            login = login.set_username(user);
        }
        if let Some(password) = password {
            login = login.set_password(password);
        }
        let own = self.address(url, info.set_redis_settings(login), self.sentinel_password.as_ref())?;
        let sentinels = hosts.iter().map(|(host, port)| own.at(host, *port)).collect();
        let sentinels = Sentinels::new(&service, sentinels, server, self.deadline, runtime.clone());
        Ok(Locator::Sentinels(Arc::new(sentinels)))
    }

    /// A server, or a sentinel, and who to be to it.
    fn address(
        &self,
        url: &StoreUrl,
        info: ConnectionInfo,
        password: Option<&Password>,
    ) -> Result<Address, (String, String)> {
        if let Some(password) = password {
            let expected = "a password that can be read, and none in the URL";
            if info.redis_settings().password().is_some() {
                return Err(("a password in the URL and elsewhere".to_owned(), expected.to_owned()));
            }
            password.read().map_err(|error| (error.to_string(), expected.to_owned()))?;
        }
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            choose_ciphers();
        }
        Address::new(info, self.ca.as_deref(), password.cloned())
            .map_err(|got| (got, authority_of(url).to_owned()))
    }
}

fn authority_of(url: &StoreUrl) -> &'static str {
    match (url.has_sentinels(), url.has_nodes()) {
        (true, _) => SENTINEL_AUTHORITY,
        (_, true) => CLUSTER_AUTHORITY,
        _ => AUTHORITY,
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
    /// The way of a check, all of whose counters are in one part.
    fn way(&self, check: &Check<'_>) -> Result<Way<'_>, StoreError> {
        Ok(self.route.way(self.layout.part_of(check)?))
    }

    async fn reserve(
        &self,
        check: &Check<'_>,
        reservation: &Reservation<'_>,
    ) -> Result<Decision, StoreError> {
        self.meetings.note(check);
        let kept = record::keep(&self.layout, check);
        let item = Item::once(&self.layout, check, reservation, kept);
        let way = self.way(check)?;
        let reply = way.ask(item).await?;
        if reply.answer().is_conflict() {
            return Err(reservation.conflict().into());
        }
        let mut decision = reply.decision(check).inspect_err(|error| way.note(error))?;
        // A record that is repeated knows for itself.
        if reservation.held_for().is_some() && decision.origin() != Origin::Repeat {
            decision.set_held();
        }
        Ok(decision)
    }

    /// Two steps, because only the record knows which keys a reservation
    /// touched: it is read, and then settled if it is still the same.
    async fn settle(&self, tag: &[u8], id: &[u8], actual: Option<u32>) -> Result<Settled, StoreError> {
        let key = self.layout.id_under(tag, id);
        let way = self.route.way(self.layout.part_under(tag));
        let end = way.end_of_call();
        let found = way.send_until(end, ::redis::Cmd::get(&key)).await?;
        let Value::BulkString(bytes) = found else { return Ok(Settled::Unknown) };
        let record = Record::read(&bytes)?;
        let changes = record.changes(actual)?;
        let item = Item::adjust(Some((&key, record.digest)), changes.into_iter());
        way.ask_until(end, item).await?.answer().settled()
    }

    /// On a cluster only the check says where the record is.
    async fn settle_alone(&self, id: &[u8], actual: Option<u32>) -> Result<Settled, StoreError> {
        if self.route.cluster().is_some() && !self.layout.has_one_tag() {
            let expected = "a store that was opened by its URL (ratekeeper::store::open), which finds it";
            return Err(InvalidInput::new(Field::Reservation, "a reservation on a cluster", expected).into());
        }
        self.settle(&[], id, actual).await
    }

    async fn refund(&self, check: &Check<'_>, decision: &Decision, units: u32) -> Result<u64, StoreError> {
        let way = self.way(check)?;
        if let Some(refusal) = way.refusal() {
            return Err(refusal);
        }
        let charges = decision.given_back_to(check, units, |charge| charge.key().digest());
        let named: Vec<(Class, Vec<u8>, GiveBack<'_, '_>)> = charges
            .map(|back| {
                let mut name = Vec::new();
                (self.layout.counter(&back.charge_made(), &mut name), name, back)
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
                    own_window: back.charge_made().quota().window_micros(),
                    any_window: back.charge.is_in_any_window(),
                },
                units: Units::Refund(back.units),
                receipt: back.receipt,
                note,
            }
        });
        let item = Item::adjust(None, changes);
        let given_back = match way.ask(item).await {
            Ok(reply) => reply.answer().given_back(),
            Err(error) => Err(error),
        };
        given_back.inspect_err(|error| {
            way.doubt(error);
            if error.is_without_effect() {
                named.iter().for_each(|(.., back)| back.put_back());
            }
        })
    }

    /// Kept as long as anybody asks for it within 30 days.
    async fn shared_secret(&self) -> Result<[u8; SECRET_BYTES], StoreError> {
        let (key, fresh, end) = (self.layout.secret(), random_secret()?, self.end_of_call());
        let life = SECRET_LIFE.as_millis() as u64;
        let part = self.layout.part_of_name(&key);
        let made =
            ::redis::Cmd::new().arg("SET").arg(&key).arg(&fresh).arg("NX").arg("PX").arg(life).to_owned();
        let _: Value = self.send_until(end, part, made).await?;
        let known: Vec<u8> = self.send_until(end, part, ::redis::Cmd::get(&key)).await?;
        let renewed = ::redis::Cmd::new().arg("PEXPIRE").arg(&key).arg(life).to_owned();
        let _: Value = self.send_until(end, part, renewed).await?;
        known.try_into().map_err(|_| StoreError::unreadable())
    }

    async fn reset(&self, key: Key<'_>, algorithm: Algorithm) -> Result<bool, StoreError> {
        let (end, mut was_there) = (self.end_of_call(), false);
        for (part, counters) in self.layout.counters_by_part(key, algorithm) {
            let item = Item::reset(&counters, algorithm, tag_of(key, algorithm));
            was_there |= self.route.way(part).ask_until(end, item).await?.answer().was_there()?;
        }
        Ok(was_there)
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
        let way = match self.inner.way(check) {
            Ok(way) => way,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        if let Some(refusal) = way.refusal() {
            return StoreFuture::ready(Err(refusal));
        }
        StoreFuture::pending(async move {
            self.inner.meetings.note(check);
            let reply = way.ask(Item::check(&self.inner.layout, check)).await?;
            // Answered, but perhaps only that nothing could be written.
            reply.decision(check).inspect_err(|error| way.note(error))
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
        StoreFuture::pending(self.inner.settle_alone(id, actual))
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

    fn audit(&self) -> &dyn Audit {
        self
    }

    fn stored<'a>(
        &'a self,
        filter: &'a StoredFilter,
        cursor: u64,
        count: usize,
    ) -> StoreFuture<'a, Option<StoredPage>> {
        StoreFuture::pending(async move { self.inner.stored_page(filter, cursor, count).await.map(Some) })
    }

    fn now(&self) -> Timestamp {
        self.inner.route.now()
    }

    fn counter_claims(&self) -> Option<&CounterClaims> {
        Some(&self.inner.claims)
    }

    fn health(&self) -> Health {
        Health { by_kind: self.inner.failures.by_kind(), ..self.inner.route.health() }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("servers", &self.inner.route.servers()).finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisStoreBuilder {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("deadline", &self.deadline)
            .field("queue_max", &self.queue_max)
            .field("total", &self.whole())
            .field("connections", &self.connections)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
