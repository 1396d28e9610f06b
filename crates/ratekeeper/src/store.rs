//! The seam between the limiter and where counters live.

mod claims;
mod failures;
mod meetings;
pub mod memory;
mod open;
#[cfg(feature = "redis")]
pub mod redis;
mod stored;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

pub use self::claims::{CLAIMS_MAX, CounterClaim, CounterClaims};
pub use self::failures::FailureKinds;
pub use self::open::{
    CLUSTER_SEEDS_MAX, OpenOptions, OpenedStore, SENTINEL_PORT, SENTINELS_MAX, SERVERS_MAX, StoreUrl,
    URL_BYTES_MAX, open, schemes,
};
#[cfg(feature = "redis")]
pub use self::open::{SentinelParts, ServerParts};
pub use self::stored::{StoredCounter, StoredFilter, StoredKey, StoredList, StoredPage};
use crate::audit::Audit;
use crate::control::Control;
use ratekeeper_core::{
    Algorithm, Charge, Check, Decision, InvalidInput, Key, LIMIT_MAX, Override, OverrideScope, Reservation,
    Settled, Timestamp,
};

/// Bytes of the secret that those who use a store share.
pub const SECRET_BYTES: usize = 32;

/// Bytes that nobody can guess.
fn random_secret() -> Result<[u8; SECRET_BYTES], StoreError> {
    let mut secret = [0; SECRET_BYTES];
    let filled = getrandom::fill(&mut secret);
    filled.map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error.to_string()))?;
    Ok(secret)
}

/// Where counters live. The limiter knows no more of a store than this.
///
/// Every method keeps the decision contract; see `ARCHITECTURE.md`. A store
/// that needs no I/O answers everything with [`StoreFuture::ready`].
pub trait Store: Send + Sync + fmt::Debug {
    /// Whether answers wait for I/O. If not, every call of it is ready when it returns, and
    /// [`Store::try_check`] always answers.
    fn needs_io(&self) -> bool;

    /// Whether its counters outlive this process, so that receipts for them are good in the next one as well.
    fn outlives_process(&self) -> bool {
        self.needs_io()
    }

    /// Judges a check without I/O and writes the answer over `decision`, or
    /// says (`None`) that it would need some.
    fn try_check(&self, check: &Check<'_>, decision: &mut Decision) -> Option<Result<(), StoreError>>;

    /// Judges a check.
    fn check<'a>(&'a self, check: &'a Check<'a>) -> StoreFuture<'a, Decision>;

    /// Judges a check under an id: charged once however often it is sent, and
    /// settled later if the reservation says so.
    fn reserve<'a>(
        &'a self,
        check: &'a Check<'a>,
        reservation: &'a Reservation<'a>,
    ) -> StoreFuture<'a, Decision>;

    /// Settles a reservation at `actual` units; `None` cancels it.
    fn settle<'a>(&'a self, id: &'a [u8], actual: Option<u32>) -> StoreFuture<'a, Settled>;

    /// Gives up to `units` of each charge of an admitted check back; says how many in all. However often a
    /// decision is given back, it is never more than was charged: the decision keeps count, and the store
    /// does for receipts that left the process ([`ReceiptNote`](ratekeeper_core::ReceiptNote)).
    fn refund<'a>(&'a self, check: &'a Check<'a>, decision: &'a Decision, units: u32)
    -> StoreFuture<'a, u64>;

    /// Takes a charge back that was made in vain, because what the store could not decide was denied; says how many
    /// units that were.
    fn undo<'a>(&'a self, check: &'a Check<'a>, decision: &'a Decision) -> StoreFuture<'a, u64> {
        self.refund(check, decision, LIMIT_MAX)
    }

    /// A secret that all who use this store share, made when it is first asked for. Receipts that leave the
    /// process are signed with it.
    fn shared_secret(&self) -> StoreFuture<'_, [u8; SECRET_BYTES]>;

    /// The store's own number for the counter of a charge, as in the verdicts of its decisions
    /// ([`Verdict::counter`](ratekeeper_core::Verdict::counter)).
    fn number_of(&self, charge: &Charge<'_>) -> u64;

    /// Forgets a counter; says whether something counted in it. What is over does not, whether it was still kept or not.
    fn reset<'a>(&'a self, key: Key<'a>, algorithm: Algorithm) -> StoreFuture<'a, bool>;

    /// The overrides it resolves inside its checks.
    fn overrides(&self) -> &dyn Overrides;

    /// The switches that operators throw.
    fn control(&self) -> &dyn Control;

    /// What operators changed.
    fn audit(&self) -> &dyn Audit;

    /// About `count` counters as they are stored, from `cursor` on, which is 0 at first; none from a store that keeps no
    /// names of keys.
    fn stored<'a>(
        &'a self,
        filter: &'a StoredFilter,
        cursor: u64,
        count: usize,
    ) -> StoreFuture<'a, Option<StoredPage>> {
        let _ = (filter, cursor, count);
        StoreFuture::ready(Ok(None))
    }

    /// The instant a check would be judged at now, as far as this process can
    /// tell without asking.
    fn now(&self) -> Timestamp;

    /// The servers that it is spread over, each with its name and as a store of its own: one may be away while the
    /// others decide. None if the store is in one place.
    fn places(&self) -> Vec<(&str, &dyn Store)> {
        Vec::new()
    }

    /// Who uses which counters of Application Kit. With `None`, limits that share one are not noticed before
    /// requests come.
    fn counter_claims(&self) -> Option<&CounterClaims> {
        None
    }

    /// How the store is doing, for metrics and status pages.
    fn health(&self) -> Health {
        Health::default()
    }
}

/// How a store is doing. Counts are since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// What the circuit breaker does with calls; the worst of all connections.
    pub breaker: BreakerState,
    /// How often a breaker has opened.
    pub breaker_opened: u64,
    /// Calls that were not answered within the deadline.
    pub timeouts: u64,
    /// Checks that found the queue for a connection full, or waited in it too long, although
    /// the server answers.
    pub overloads: u64,
    /// Checks that failed for want of room: for another id, for all counters of the check together, or on the server.
    pub full: u64,
    /// Whether a check failed for want of room in a store in memory within the last minute.
    pub is_full: bool,
    /// Live counters that a store in memory forgot at its bound, because others needed their place ...
    pub evicted: u64,
    /// ... and how many of them were exhausted, so that a limit was lifted early.
    pub evicted_exhausted: u64,
    /// Charges that a store in memory did not give back, because it can remember no more receipts.
    pub refunds_refused: u64,
    /// Checks that failed for any reason, those the breaker refused included.
    pub failures: u64,
    /// The same by kind, and which kinds go on.
    pub by_kind: FailureKinds,
    /// Calls to the server, ...
    pub batches: u64,
    /// ... and how many checks and other items travelled in them.
    pub batched: u64,
    /// Items that wait for a connection now.
    pub waiting: usize,
    /// Checks whose counters are on several servers, ...
    pub spanning: u64,
    /// ... how often one of these gave its charge back, because another denied, ...
    pub spanning_refunds: u64,
    /// ... and how often that failed, so that the charge stays until its window ends.
    pub spanning_refunds_failed: u64,
    /// The servers that the counters are on, ...
    pub nodes: usize,
    /// ... and how many of them take charges now, as far as this process knows.
    pub nodes_up: usize,
    /// How the data directory is doing, if the store has one.
    pub data: Option<DataHealth>,
}

/// How the data directory of a store in memory is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataHealth {
    /// How large its file is.
    pub bytes: u64,
    /// How long ago everything was saved: what happened since would be lost in a crash, overrides and switches excepted.
    pub age: Duration,
    /// How often it could not be read or written.
    pub failures: u64,
    /// Whether the last attempt to write failed: nothing lasts, and overrides and switches are refused.
    pub is_failing: bool,
    /// Whether its file was damaged at the start, and was set aside.
    pub was_damaged: bool,
    /// Records that could not be read at the start, and were left out.
    pub unreadable: u64,
}

#[cfg(feature = "redis")]
impl Health {
    /// Two connections taken together.
    fn and(self, other: Self) -> Self {
        Self {
            breaker: self.breaker.max(other.breaker),
            breaker_opened: self.breaker_opened + other.breaker_opened,
            timeouts: self.timeouts + other.timeouts,
            overloads: self.overloads + other.overloads,
            full: self.full + other.full,
            is_full: self.is_full || other.is_full,
            evicted: self.evicted + other.evicted,
            evicted_exhausted: self.evicted_exhausted + other.evicted_exhausted,
            refunds_refused: self.refunds_refused + other.refunds_refused,
            failures: self.failures + other.failures,
            // Of the store as a whole, which knows them.
            by_kind: self.by_kind,
            batches: self.batches + other.batches,
            batched: self.batched + other.batched,
            waiting: self.waiting + other.waiting,
            data: self.data.or(other.data),
            spanning: self.spanning + other.spanning,
            spanning_refunds: self.spanning_refunds + other.spanning_refunds,
            spanning_refunds_failed: self.spanning_refunds_failed + other.spanning_refunds_failed,
            nodes: self.nodes + other.nodes,
            nodes_up: self.nodes_up + other.nodes_up,
        }
    }

    /// What was counted, without what is so now: of a server that has nothing to do any more.
    pub(crate) fn counts_alone(self) -> Self {
        Self { breaker: BreakerState::Closed, waiting: 0, nodes: 0, nodes_up: 0, ..self }
    }
}

/// What a circuit breaker does with calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BreakerState {
    /// They pass.
    #[default]
    Closed = 0,
    /// One probe is under way; everything else fails at once.
    HalfOpen = 1,
    /// They fail at once.
    Open = 2,
}

/// Limits of their own for projects and organisations.
pub trait Overrides: Send + Sync {
    /// Sets an override, or replaces the one there is.
    fn set<'a>(&'a self, scope: OverrideScope<'a>, to: Override) -> StoreFuture<'a, ()>;

    /// The override of exactly this scope, if it is live.
    fn get<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, Option<Override>>;

    /// Deletes an override; says whether there was one.
    fn delete<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, bool>;

    /// Endpoints with their overrides: of a project, or with `None` of the
    /// organisation itself. Sorted by endpoint.
    fn list<'a>(
        &'a self,
        organisation: &'a str,
        project: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<(String, Override)>>;

    /// Every override of the store, by endpoint, organisation and project: to keep them elsewhere as well.
    fn all(&self) -> StoreFuture<'_, Vec<ScopedOverride>>;

    /// Deletes what [`Overrides::list`] would list; says how many.
    fn clear<'a>(&'a self, organisation: &'a str, project: Option<&'a str>) -> StoreFuture<'a, usize>;
}

/// An override, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopedOverride {
    /// What it is about.
    pub endpoint: String,
    /// The organisation.
    pub organisation: String,
    /// The project, unless it is the organisation's.
    pub project: Option<String>,
    /// The override.
    pub to: Override,
}

impl ScopedOverride {
    /// The scope.
    ///
    /// # Errors
    /// If a part is empty or too long.
    pub fn scope(&self) -> Result<OverrideScope<'_>, InvalidInput> {
        match &self.project {
            Some(project) => OverrideScope::project(&self.endpoint, &self.organisation, project),
            None => OverrideScope::organisation(&self.endpoint, &self.organisation),
        }
    }

    fn by(&self) -> (&str, &str, Option<&str>) {
        (&self.endpoint, &self.organisation, self.project.as_deref())
    }
}

/// Why a store could not answer. A denial is not among the reasons.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    #[source]
    input: Option<InvalidInput>,
    answered: Option<Box<Answered>>,
    is_no_node: bool,
}

/// What the rest of a store has decided where a part of it could not.
#[derive(Debug)]
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only servers are several"))]
pub(crate) struct Answered {
    /// It is allowed, and charged.
    pub(crate) decision: Decision,
    /// The places, in the check, of the charges that were not decided on.
    pub(crate) undecided: Vec<usize>,
}

/// The kinds of failure that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store has no room: for an id, for the counters of one check together, or a server is out of memory.
    Capacity,
    /// The call itself is wrong; no store could answer it.
    Input,
    /// No answer within the deadline. What was asked may have been charged.
    Timeout,
    /// More is asked of the store than it can answer: the queue for it is full, or the wait in
    /// it was too long. What was asked has not been charged.
    Overloaded,
    /// There is no connection, the server is not ready to answer, or the circuit
    /// breaker is open.
    Unavailable,
    /// The server does not write: a replica, or a disk that is full.
    ReadOnly,
    /// Something that is not ours is at a key of the check.
    Unreadable,
    /// The server does not let us in, or not do what we need.
    Permission,
    /// The answer is not one that this version understands.
    Protocol,
}

impl StoreError {
    /// A failure of a kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), input: None, answered: None, is_no_node: false }
    }

    /// A store at its bound.
    #[must_use]
    pub fn capacity(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Capacity, message)
    }

    /// A server that answers, by itself, where a node of a cluster was named.
    #[cfg(feature = "redis")]
    pub(crate) fn no_node(message: impl Into<String>) -> Self {
        Self { is_no_node: true, ..Self::new(StoreErrorKind::Unavailable, message) }
    }

    /// The failure of a part of the store alone.
    #[cfg(feature = "redis")]
    pub(crate) fn beside(self, answered: Answered) -> Self {
        Self { answered: Some(Box::new(answered)), ..self }
    }

    /// What the rest of the store has decided.
    pub(crate) fn take_answered(&mut self) -> Option<Answered> {
        self.answered.take().map(|answered| *answered)
    }

    /// The same failure for another caller that it struck.
    #[cfg(feature = "redis")]
    pub(crate) fn duplicate(&self) -> Self {
        let same = Self::new(self.kind, self.message.clone());
        Self { input: self.input.clone(), is_no_node: self.is_no_node, ..same }
    }

    /// What kind of failure it is.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether a server answers that is no node of a cluster, although it was named as one.
    #[must_use]
    pub const fn is_no_node(&self) -> bool {
        self.is_no_node
    }

    /// What is wrong with the call, if that is why.
    #[must_use]
    pub fn into_input(self) -> Option<InvalidInput> {
        self.input
    }

    /// Whether the server has certainly done nothing: the call was not sent, or refused as a whole.
    #[cfg(feature = "redis")]
    pub(crate) const fn is_without_effect(&self) -> bool {
        match self.kind {
            StoreErrorKind::Capacity
            | StoreErrorKind::Input
            | StoreErrorKind::Overloaded
            | StoreErrorKind::ReadOnly
            | StoreErrorKind::Unreadable => true,
            // A connection may be lost after the call was carried out.
            StoreErrorKind::Timeout
            | StoreErrorKind::Unavailable
            | StoreErrorKind::Permission
            | StoreErrorKind::Protocol => false,
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self.kind {
            StoreErrorKind::Capacity
            | StoreErrorKind::Timeout
            | StoreErrorKind::Overloaded
            | StoreErrorKind::Unavailable
            | StoreErrorKind::ReadOnly => true,
            StoreErrorKind::Input
            | StoreErrorKind::Unreadable
            | StoreErrorKind::Permission
            | StoreErrorKind::Protocol => false,
        }
    }
}

impl From<InvalidInput> for StoreError {
    fn from(error: InvalidInput) -> Self {
        Self { input: Some(error), ..Self::new(StoreErrorKind::Input, "the call is not valid") }
    }
}

/// The answer of a store: there already, or on its way.
///
/// Answers that need no I/O cost no allocation.
#[must_use = "futures do nothing unless polled"]
pub struct StoreFuture<'a, T>(Inner<'a, T>);

enum Inner<'a, T> {
    Ready(Option<Result<T, StoreError>>),
    Pending(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>),
}

impl<'a, T> StoreFuture<'a, T> {
    /// An answer that is there already.
    pub const fn ready(result: Result<T, StoreError>) -> Self {
        Self(Inner::Ready(Some(result)))
    }

    /// An answer that takes I/O.
    pub fn pending(future: impl Future<Output = Result<T, StoreError>> + Send + 'a) -> Self {
        Self(Inner::Pending(Box::pin(future)))
    }

    /// The answer, if it is there already.
    pub fn now(self) -> Option<Result<T, StoreError>> {
        match self.0 {
            Inner::Ready(result) => result,
            Inner::Pending(_) => None,
        }
    }
}

// A ready answer is moved out, never pinned.
impl<T> Unpin for StoreFuture<'_, T> {}

impl<T> Future for StoreFuture<'_, T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Inner::Ready(result) => result.take().map_or(Poll::Pending, Poll::Ready),
            Inner::Pending(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Inner::Ready(_) => "StoreFuture(ready)",
            Inner::Pending(_) => "StoreFuture(pending)",
        })
    }
}
