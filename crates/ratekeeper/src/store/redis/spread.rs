//! One store over several places: independent servers, or the slots of a cluster.
//!
//! A *part* is where one call of the script goes. Each counter is in the part of its [tag](super::tag). A check in one
//! part goes straight through. One that spans parts charges all of them at once, each at the time of its node; if one
//! denies, the others give their charges back by receipt. In between, others may find these taken and be denied
//! wrongly; never is more admitted than there is. What a part cannot decide is for the rules of its charges to say.

mod control;
mod ids;
mod overrides;
mod part;
mod servers;
mod split;
mod stored;
mod together;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::{
    Algorithm, Charge, Check, Decision, Field, InvalidInput, Key, LIMIT_MAX, Reservation, Settled, Timestamp,
};
use tokio::time::{Instant, timeout_at};

use self::control::Merged;
use self::part::Judged;
use self::servers::Rendezvous;
use self::split::{Portion, Split, split};
use self::together::all;
use super::link::out_of_time;
use super::tag::slot_of;
use super::{RedisStore, RedisStoreBuilder};
use crate::audit::Audit;
use crate::control::Control;
use crate::store::{
    Answered, CounterClaims, Health, Overrides, SECRET_BYTES, Store, StoreError, StoreErrorKind, StoreFuture,
    StoreUrl, StoredCounter, StoredFilter, StoredPage,
};

/// What stands for everything that a store has once: switches and the secret of receipts.
const COMMON: &[u8] = b"rk";

/// A store over several servers. Clones share the connections.
#[derive(Clone)]
pub struct SpreadStore {
    inner: Arc<Spread>,
}

struct Spread {
    servers: Box<[Server]>,
    by: By,
    /// How long a call may take in all its steps.
    total: Duration,
    counts: Counts,
    switches: Merged,
}

/// A server, or a cluster, under the name that people know it by.
struct Server {
    name: String,
    store: RedisStore,
}

/// What says where a tag is.
enum By {
    /// Each server is a part.
    Servers(Rendezvous),
    /// Each slot of the only store is, which is a cluster.
    Slots,
}

/// Where one call of the script goes: the number of a server, or a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part(u16);

/// What became of checks that span parts.
#[derive(Default)]
struct Counts {
    spanning: AtomicU64,
    refunds: AtomicU64,
    refunds_failed: AtomicU64,
}

impl RedisStoreBuilder {
    /// One store over the servers at several URLs, with these settings for each.
    pub(in crate::store) fn build_spread(self, urls: &[StoreUrl]) -> Result<SpreadStore, InvalidInput> {
        let by = By::Servers(Rendezvous::new(urls)?);
        let servers = urls.iter().map(|url| {
            let store = self.clone().at(url).build()?;
            Ok(Server { name: url.to_string(), store })
        });
        let servers = servers.collect::<Result<Box<[Server]>, InvalidInput>>()?;
        Ok(SpreadStore::over(servers, by, self.whole()))
    }
}

impl RedisStoreBuilder {
    /// One store over the slots of a cluster.
    pub(in crate::store) fn build_slots(self) -> Result<SpreadStore, InvalidInput> {
        let (total, name) = (self.whole(), StoreUrl::server(&self.url)?.to_string());
        let servers = Box::new([Server { name, store: self.build()? }]);
        Ok(SpreadStore::over(servers, By::Slots, total))
    }
}

impl SpreadStore {
    fn over(servers: Box<[Server]>, by: By, total: Duration) -> Self {
        let (counts, switches) = (Counts::default(), Merged::default());
        Self { inner: Arc::new(Spread { servers, by, total, counts, switches }) }
    }

    /// The servers, by their URLs without secrets, in the order in which they were named; of a cluster one store, which
    /// decides checks of one slot only.
    pub fn servers(&self) -> impl ExactSizeIterator<Item = (&str, &RedisStore)> {
        self.inner.servers.iter().map(|server| (server.name.as_str(), &server.store))
    }

    /// Asks every server to decide nothing: whether it can be reached, lets us in, and runs the script.
    ///
    /// # Errors
    /// Which does not, and why.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let pinged = all(self
            .inner
            .servers
            .iter()
            .map(|server| async move { server.store.ping().await.map_err(|error| server.named(error)) }));
        pinged.await.into_iter().collect()
    }

    /// The packed counters of a rule and subject, with the server, or the node of a cluster, that they are on: more than
    /// one server has some after servers were added or taken away.
    ///
    /// # Errors
    /// If a server does not answer, or has something else at the key.
    pub async fn stored_counters(
        &self,
        rule: &str,
        subject: &[u8],
    ) -> Result<Vec<(String, StoredCounter)>, StoreError> {
        let found = all(self.inner.servers.iter().map(|server| async move {
            let counters = server.store.counters_on(rule, subject).await;
            let counters = counters.map_err(|error| server.named(error))?.into_iter();
            let named =
                |(node, counter): (Option<String>, _)| (node.unwrap_or_else(|| server.name.clone()), counter);
            Ok(counters.map(named).collect::<Vec<_>>())
        }));
        let found: Result<Vec<_>, StoreError> = found.await.into_iter().collect();
        Ok(found?.into_iter().flatten().collect())
    }
}

impl Server {
    /// Says which server it was.
    fn named(&self, error: StoreError) -> StoreError {
        error.at(&self.name)
    }
}

impl Spread {
    fn part_of(&self, tag: &[u8]) -> Part {
        match &self.by {
            By::Servers(servers) => servers.part_of(tag),
            By::Slots => Part(slot_of(tag)),
        }
    }

    fn server(&self, part: Part) -> &Server {
        match &self.by {
            By::Servers(_) => &self.servers[usize::from(part.0)],
            By::Slots => &self.servers[0],
        }
    }

    fn store(&self, part: Part) -> &RedisStore {
        &self.server(part).store
    }

    /// Where an organisation's overrides are.
    fn home_of(&self, organisation: &str) -> &Server {
        let mut tag = Vec::new();
        super::tag::tag_of_organisation(organisation, &mut tag);
        self.server(self.part_of(&tag))
    }

    fn split<'a>(&self, check: &Check<'a>) -> Result<Split<'a>, InvalidInput> {
        split(check, |tag| self.part_of(tag))
    }

    /// All parts at once, and then back to those that admitted if another denied.
    async fn check(&self, check: &Check<'_>, portions: &[Portion<'_>]) -> Result<Decision, StoreError> {
        let end = Instant::now() + self.total;
        if !check.is_peek() {
            self.counts.spanning.fetch_add(1, Ordering::Relaxed);
        }
        let answers = all(portions.iter().map(|portion| async move {
            self.store(portion.part).judged(portion.part.0, &portion.of(check)).await
        }));
        let answers = Answers::new(portions, answers.await);
        if !check.is_peek() && !answers.may_stand() {
            self.give_back(check, &answers, end).await;
        }
        answers.joined(check, end)
    }

    /// Gives back what was charged in vain, within what is left of the time of the call.
    async fn give_back(&self, check: &Check<'_>, answers: &Answers<'_, '_>, end: Instant) {
        let refunds = all(answers.admitted().map(|(portion, judged)| async move {
            let refund = self.refund_in(portion, check, &judged.decision, LIMIT_MAX);
            self.count_refund(&by(end, refund).await);
        }));
        refunds.await;
    }

    /// Gives charges of a part back.
    async fn refund_in(
        &self,
        portion: &Portion<'_>,
        check: &Check<'_>,
        decision: &Decision,
        units: u32,
    ) -> Result<u64, StoreError> {
        self.store(portion.part).refund(&portion.of(check), decision, units).await
    }

    fn count_refund(&self, outcome: &Result<u64, StoreError>) {
        let counter = match outcome {
            Ok(_) => &self.counts.refunds,
            Err(_) => &self.counts.refunds_failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives `units` of a decision back, in every part that has charged some, within the total of a call.
    async fn refund(&self, check: &Check<'_>, decision: &Decision, units: u32) -> Result<u64, StoreError> {
        let portions = self.split(check)?.into_portions(check);
        let charged = portions.iter().filter(|portion| portion.is_charged_by(decision));
        let refunds = all(charged.map(|portion| self.refund_in(portion, check, decision, units)));
        refunds.await.into_iter().sum()
    }

    /// The same as the second step of a call, which must be over by `end`: what a check has charged in vain.
    async fn undo(&self, check: &Check<'_>, decision: &Decision, end: Instant) -> Result<u64, StoreError> {
        let portions = self.split(check)?.into_portions(check);
        let charged = portions.iter().filter(|portion| portion.is_charged_by(decision));
        let refunds = all(charged.map(|portion| async move {
            let outcome = by(end, self.refund_in(portion, check, decision, LIMIT_MAX)).await;
            self.count_refund(&outcome);
            outcome
        }));
        refunds.await.into_iter().sum()
    }

    /// Wherever a counter may be: before servers were added it was elsewhere.
    async fn reset(&self, key: Key<'_>, algorithm: Algorithm) -> Result<bool, StoreError> {
        let resets = all(self.servers.iter().map(|server| async move {
            server.store.reset(key, algorithm).await.map_err(|error| server.named(error))
        }));
        let was_there: Result<Vec<bool>, StoreError> = resets.await.into_iter().collect();
        Ok(was_there?.contains(&true))
    }
}

/// What the parts of a check said.
struct Answers<'p, 'a> {
    portions: &'p [Portion<'a>],
    answers: Vec<Result<Judged, StoreError>>,
}

impl<'p, 'a> Answers<'p, 'a> {
    fn new(portions: &'p [Portion<'a>], answers: Vec<Result<Judged, StoreError>>) -> Self {
        Self { portions, answers }
    }

    fn denied(&self) -> bool {
        self.answers.iter().flatten().any(|judged| !judged.decision.is_allowed())
    }

    /// Whether what was charged may stay: not if a part denied, or no store could judge the check.
    fn may_stand(&self) -> bool {
        let is_input = |answer: &Result<Judged, StoreError>| {
            answer.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::Input)
        };
        !self.denied() && !self.answers.iter().any(is_input)
    }

    fn admitted(&self) -> impl Iterator<Item = (&'p Portion<'a>, &Judged)> {
        let pairs = self.portions.iter().zip(&self.answers);
        let answered = pairs.filter_map(|(portion, answer)| Some((portion, answer.as_ref().ok()?)));
        answered.filter(|(_, judged)| judged.decision.is_allowed())
    }

    /// One decision of all, or why there is none. A part that did not answer has no say in a denial.
    fn joined(self, check: &Check<'_>, end: Instant) -> Result<Decision, StoreError> {
        let (is_denied, portions) = (self.denied(), self.portions);
        let (mut decided, mut failed, mut undecided) = (Vec::new(), Vec::new(), Vec::new());
        for (portion, answer) in portions.iter().zip(self.answers) {
            match answer {
                Ok(judged) if is_denied && judged.decision.is_allowed() => {
                    let decision = judged.uncharged(&portion.of(check));
                    decided.push((portion.told(decision), portion.places()));
                }
                Ok(judged) => decided.push((portion.told(judged.decision), portion.places())),
                Err(error) => {
                    failed.push(error);
                    undecided.extend_from_slice(portion.places());
                }
            }
        }
        let input = failed.iter().position(|error| error.kind() == StoreErrorKind::Input);
        let failure = (!failed.is_empty()).then(|| failed.swap_remove(input.unwrap_or(0)));
        match failure {
            Some(failure) if input.is_some() || decided.is_empty() => Err(failure),
            Some(failure) if !is_denied => {
                let decision = Decision::of_parts(decided);
                Err(failure.beside(Answered { decision, undecided, end: end.into_std() }))
            }
            _ => Ok(Decision::of_parts(decided)),
        }
    }
}

impl Store for SpreadStore {
    fn needs_io(&self) -> bool {
        true
    }

    fn try_check(&self, _: &Check<'_>, _: &mut Decision) -> Option<Result<(), StoreError>> {
        None
    }

    fn check<'a>(&'a self, check: &'a Check<'a>) -> StoreFuture<'a, Decision> {
        match self.inner.split(check) {
            // A server by itself has one part, whatever the number.
            Ok(Split::One(part)) => self.inner.store(part).check_in(part.0, check),
            Ok(Split::Several(portions)) => {
                StoreFuture::pending(async move { self.inner.check(check, &portions).await })
            }
            Err(error) => StoreFuture::ready(Err(error.into())),
        }
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

    fn undo<'a>(
        &'a self,
        check: &'a Check<'a>,
        decision: &'a Decision,
        end: std::time::Instant,
    ) -> StoreFuture<'a, u64> {
        StoreFuture::pending(self.inner.undo(check, decision, end.into()))
    }

    fn shared_secret(&self) -> StoreFuture<'_, [u8; SECRET_BYTES]> {
        self.inner.store(self.inner.part_of(COMMON)).shared_secret()
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
        self.inner.store(self.inner.part_of(COMMON)).audit()
    }

    fn stored<'a>(
        &'a self,
        filter: &'a StoredFilter,
        cursor: u64,
        count: usize,
    ) -> StoreFuture<'a, Option<StoredPage>> {
        StoreFuture::pending(self.inner.stored(filter, cursor, count))
    }

    fn now(&self) -> Timestamp {
        self.inner.servers.iter().map(|server| server.store.now()).max().unwrap_or_default()
    }

    fn health(&self) -> Health {
        let health = self.inner.servers.iter().map(|server| server.store.health());
        let health =
            health.reduce(|one, other| Health { by_kind: one.by_kind.and(other.by_kind), ..one.and(other) });
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { spanning, refunds, refunds_failed } = &self.inner.counts;
        Health {
            spanning: read(spanning),
            spanning_refunds: read(refunds),
            spanning_refunds_failed: read(refunds_failed),
            ..health.unwrap_or_default()
        }
    }

    /// Of all servers together: whatever server a counter is on, two limits must not share it.
    fn counter_claims(&self) -> Option<&CounterClaims> {
        self.inner.servers.first()?.store.counter_claims()
    }

    fn places(&self) -> Vec<(&str, &dyn Store)> {
        match self.inner.by {
            By::Servers(_) => self.servers().map(|(name, store)| (name, store as &dyn Store)).collect(),
            By::Slots => Vec::new(),
        }
    }
}

impl fmt::Debug for SpreadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.servers().map(|(name, _)| name).collect();
        f.debug_struct("SpreadStore").field("servers", &names).finish_non_exhaustive()
    }
}

/// A step of a call that must be over by `end`. Behind it, nothing is begun any more.
async fn by<T>(end: Instant, step: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    if Instant::now() >= end {
        return Err(out_of_time());
    }
    timeout_at(end, step).await.unwrap_or_else(|_| Err(out_of_time()))
}

/// What is wrong with several servers.
fn refused(got: String, expected: &str) -> InvalidInput {
    InvalidInput::new(Field::Store, got, expected)
}
