//! Every verb, once: what can be done with a demand.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ratekeeper_core::{
    Charge, Charges, Check, Decision, Field, InvalidInput, LIMIT_MAX, Labels, Origin, Outcome, Reservation,
    Verdict,
};

use super::outage::{Away, ByRules, OnOutage, Share, Undecided};
use super::{Asked, Demand, Engine, Held, Limits, Scope};
use crate::store::{Store, StoreError, StoreErrorKind};

/// What a demand is judged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Check,
    /// Changes nothing.
    Peek,
    /// The caller waits for its turn: denials are no strikes.
    Wait,
}

/// A purpose, and the id it is charged under.
pub(super) struct Terms<'r> {
    purpose: Purpose,
    under: Option<Reservation<'r>>,
}

impl<'r> Terms<'r> {
    pub(super) fn held(id: &'r str, hold: Duration) -> Result<Self, InvalidInput> {
        Ok(Self { purpose: Purpose::Check, under: Some(Reservation::hold(id, hold)?) })
    }

    pub(super) fn is_peek(&self) -> bool {
        self.purpose == Purpose::Peek
    }

    /// The id it is charged under.
    pub(super) fn under(&self) -> Option<&Reservation<'r>> {
        self.under.as_ref()
    }

    /// The id, if the charge under it is final.
    pub(super) fn once(&self) -> Option<&Reservation<'r>> {
        self.under.as_ref().filter(|under| under.held_for().is_none())
    }

    /// Whether a denial is a strike.
    pub(super) fn strikes(&self) -> bool {
        self.purpose == Purpose::Check
    }
}

impl<'a> Demand<'a> {
    /// Judges the request and charges it.
    ///
    /// A denial is a decision, and so is what a rule says to an outage.
    ///
    /// # Errors
    /// Only if no store could judge the request: a key that is empty or too long, a cost beyond 10^9, more than
    /// 64 quotas at once, or an id that was used for another request.
    pub async fn check(&self) -> Result<Decision, InvalidInput> {
        self.decide::<ByRules>(&self.purpose(Purpose::Check)?).await
    }

    /// [`Demand::check`], unless the store needs I/O for it: then nothing has happened. The decision is
    /// written over the caller's, because it is large.
    #[inline]
    pub fn try_check(&self, decision: &mut Decision) -> Option<Result<(), InvalidInput>> {
        self.decide_now::<ByRules>(decision)
    }

    /// Reports what the request would meet, and changes nothing. Under an id that is known, the decision that is
    /// remembered.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn peek(&self) -> Result<Decision, InvalidInput> {
        self.decide::<ByRules>(&self.purpose(Purpose::Peek)?).await
    }

    /// One sentence on what the request would meet now, and a line for every quota that applies. `labels`
    /// are the names of raw charges.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn explain(&self, labels: Labels<'_>) -> Result<String, InvalidInput> {
        Ok(explained(&self.peek().await?, labels))
    }

    /// Charges what is asked as an estimate under `id`, which is settled or cancelled within `hold`, or
    /// else lapses and stays charged. Sent again under the same id, it is charged once.
    ///
    /// # Errors
    /// As [`Demand::check`]; also if the id or `hold` is out of bounds, or the estimate is 0.
    pub async fn reserve(&self, id: &str, hold: Duration) -> Result<Decision, InvalidInput> {
        if self.units == 0 {
            let expected = "at least 1: nothing cannot be settled";
            return Err(InvalidInput::new(Field::Cost, "an estimate of 0", expected));
        }
        self.decide::<ByRules>(&Terms::held(id, hold)?).await
    }

    /// Gives up to `units` of each charge of an earlier decision back. Charges and verdicts are paired by
    /// counter, and the decision keeps count: together, never more is given back than was charged. Says how
    /// many units that was. An outage is no error: what cannot be given back comes back with time.
    ///
    /// # Errors
    /// As [`Demand::check`]; also if the decision charged something, and none of it on a counter of this demand: then
    /// one of the two is another request's.
    pub async fn refund(&self, decision: &Decision, units: u32) -> Result<u64, InvalidInput> {
        let refunded = self.try_refund(decision, units).await;
        refunded.or_else(|error| error.into_input().map_or(Ok(0), Err))
    }

    /// [`Demand::refund`] for callers that want to know of an outage.
    ///
    /// # Errors
    /// As [`Demand::refund`]; also if a store could not answer.
    pub async fn try_refund(&self, decision: &Decision, units: u32) -> Result<u64, StoreError> {
        self.is_about(decision)?;
        let (engine, own, shared) =
            (&*self.engine, self.charges(Scope::Process)?, self.charges(Scope::Shared)?);
        let own = match own.check() {
            Ok(check) => engine.process.refund(&check, decision, units).await,
            Err(_) => Ok(0),
        };
        let shared = if decision.origin() == Origin::Outage {
            // Only this process has counted meanwhile, if at all.
            let share = Share::of(self);
            let charges = share.charges(self)?;
            match charges.check() {
                Ok(check) => engine.process.refund(&check, decision, units).await,
                Err(_) => Ok(0),
            }
        } else {
            match shared.check() {
                Ok(check) => engine.store.refund(&check, decision, units).await,
                Err(_) => Ok(0),
            }
        };
        // What is wrong with the call says more than what is wrong with a store.
        match (own, shared) {
            (Err(own), Err(shared)) if shared.kind() != StoreErrorKind::Input => Err(own),
            (own, shared) => Ok(shared? + own?),
        }
    }

    /// [`Demand::try_refund`] of a decision that left the process and came back: its verdicts have the
    /// numbers of [`Demand::number_of`]. Says how many units were given back.
    ///
    /// # Errors
    /// As [`Demand::try_refund`].
    pub async fn refund_told(&self, mut decision: Decision, units: u32) -> Result<u64, StoreError> {
        let (engine, share) = (&*self.engine, Share::of(self));
        let is_outage = decision.origin() == Origin::Outage;
        let own = self.charges(Scope::Process)?;
        let shared = if is_outage { share.charges(self)? } else { self.charges(Scope::Shared)? };
        let store: &dyn Store = if is_outage { &*engine.process } else { &*engine.store };
        let parts: [(&Charges<'_>, &dyn Store); 2] = [(&own, &*engine.process), (&shared, store)];
        let mut is_found = false;
        decision.renumber(|verdict| {
            let (charge, store) = parts.iter().find_map(|(charges, store)| {
                let check = charges.check().ok()?;
                let same = |charge: &&Charge<'_>| {
                    let (known, charged) = (charge.quota().algorithm(), verdict.quota().algorithm());
                    known == charged && charge.key().digest() == verdict.counter()
                };
                Some((check.charges().iter().find(same)?, store))
            })?;
            is_found |= verdict.receipt().is_some();
            Some(store.number_of(charge))
        });
        drop((own, shared));
        if is_found { self.try_refund(&decision, units).await } else { Ok(0) }
    }

    /// A number for the counter of a verdict on this demand that means the same in every process.
    #[must_use]
    pub fn number_of(&self, verdict: &Verdict) -> u64 {
        let mut charges = self.rules.iter().enumerate().flat_map(|(at, asked)| {
            let is_own = move |name| match &asked.limits {
                Limits::Set(_) => name == verdict.name(),
                Limits::Raw(_) => at == verdict.index(),
            };
            let own = asked.limits.quotas().iter().filter(move |(name, _)| is_own(*name));
            own.filter_map(|(name, quota)| asked.charge(*name, quota).ok())
        });
        charges.next().map_or(0, |charge| charge.key().digest())
    }

    /// The counters with a number of [`Demand::number_of`]. More than one only if keys were made up for it.
    #[must_use]
    pub fn counters_of(&self, number: u64) -> Vec<CounterName> {
        let mut found: Vec<CounterName> = Vec::new();
        for asked in &self.rules {
            let is_own = asked.terms.scope == Scope::Process || !self.engine.store().outlives_process();
            for (name, quota) in asked.limits.quotas() {
                let Ok(charge) = asked.charge(*name, quota) else { continue };
                if charge.key().digest() == number {
                    let counter =
                        CounterName { name: charge.key().in_words(), is_own, is_long: charge.is_long() };
                    let is_known =
                        |known: &CounterName| (&known.name, known.is_own) == (&counter.name, is_own);
                    if !found.iter().any(is_known) {
                        found.push(counter);
                    }
                }
            }
        }
        found
    }

    /// Gives back what is only held while the request is under way: places in quotas for concurrency.
    ///
    /// # Errors
    /// As [`Demand::refund`].
    pub async fn release(&self, decision: &Decision) -> Result<(), InvalidInput> {
        let held = decision.clone().without(|verdict| !verdict.is_at_latest());
        self.refund(&held, LIMIT_MAX).await.map(|_| ())
    }

    /// Forgets the counters of the request, and its penalties; says how many there were.
    ///
    /// # Errors
    /// If the request cannot be judged, or a store could not answer.
    pub async fn reset(&self) -> Result<usize, StoreError> {
        let (engine, mut forgotten) = (&*self.engine, 0);
        let (own, shared) = (self.charges(Scope::Process)?, self.charges(Scope::Shared)?);
        for charge in own.check().iter().flat_map(Check::charges) {
            forgotten += usize::from(engine.process.reset(charge.key(), charge.quota().algorithm()).await?);
        }
        for charge in shared.check().iter().flat_map(Check::charges) {
            forgotten += usize::from(engine.store.reset(charge.key(), charge.quota().algorithm()).await?);
        }
        Ok(forgotten + self.pardon().await?)
    }

    /// The same verbs without async, for stores that need no I/O.
    #[must_use]
    pub fn now(&self) -> Now<'_, 'a> {
        Now(self)
    }

    /// Refuses to go on without async on a store that needs I/O: it is not asked at all.
    pub(super) fn local(&self) -> Result<(), InvalidInput> {
        if self.engine.needs_io { Err(needs_io()) } else { Ok(()) }
    }
}

/// What a counter is called in every process, for receipts that leave this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterName {
    /// Its rule and subject.
    pub name: Vec<u8>,
    /// Whether it is in the memory of this process.
    pub is_own: bool,
    /// Whether its charge is on the side of [long](ratekeeper_core::Charge::is_long) windows.
    pub is_long: bool,
}

// How a demand is judged: this process's part, then the shared one, then what follows.
impl Demand<'_> {
    pub(super) fn purpose(&self, purpose: Purpose) -> Result<Terms<'_>, InvalidInput> {
        let under = self.once.as_ref().map(|(id, keep)| Reservation::once(&**id, *keep)).transpose()?;
        Ok(Terms { purpose, under })
    }

    /// A check, if the store needs no I/O for it.
    #[inline]
    pub(super) fn decide_now<A: Away>(&self, decision: &mut Decision) -> Option<Result<(), A::Error>> {
        let engine = &*self.engine;
        if engine.needs_io {
            return None;
        }
        if !self.is_plain() {
            return self.decide_steps_now::<A>(decision);
        }
        if let [asked] = &*self.rules
            && let Some(charge) = asked.only_charge()
        {
            return match charge {
                Ok(charge) => {
                    let answer = engine.store.try_check(&Check::one(&charge), decision)?;
                    Some(self.follow::<A>(answer, decision))
                }
                Err(error) => Some(Err(error.into())),
            };
        }
        let mut charges = Charges::new();
        if let Err(error) = self.charge_all(Scope::Shared, &mut charges) {
            return Some(Err(error.into()));
        }
        let Ok(check) = charges.check() else {
            *decision = self.without_rules();
            return Some(Ok(()));
        };
        let answer = engine.store.try_check(&check, decision)?;
        Some(self.follow::<A>(answer, decision))
    }

    /// What follows when the store has answered.
    #[inline]
    fn follow<A: Away>(
        &self,
        answer: Result<(), StoreError>,
        decision: &mut Decision,
    ) -> Result<(), A::Error> {
        if let Err(error) = answer {
            *decision = A::decide(self, error, &Undecided::All, false)?;
        } else if !decision.verdicts().iter().all(Verdict::is_admitted) {
            self.note(decision);
        }
        self.count(decision);
        Ok(())
    }

    /// What is decided where no rule counts: allowed, unless it was too much work to find that out.
    fn without_rules(&self) -> Decision {
        let unlimited = self.engine.unlimited();
        if self.is_beyond_budget { Decision::beyond_budget(unlimited.at()) } else { unlimited }
    }

    fn decide_steps_now<A: Away>(&self, decision: &mut Decision) -> Option<Result<(), A::Error>> {
        let terms = match self.purpose(Purpose::Check) {
            Ok(terms) => terms,
            Err(error) => return Some(Err(error.into())),
        };
        at_once(self.decide::<A>(&terms)).map(|answer| answer.map(|answer| *decision = answer))
    }

    /// This process's part is charged first, because it costs nothing, and given back if the shared part
    /// denies. For that moment others may find it taken, but never more is admitted than there is.
    pub(super) async fn decide<A: Away>(&self, terms: &Terms<'_>) -> Result<Decision, A::Error> {
        if let Some(denied) = self.penalised_here(terms)? {
            self.count_final(&denied, terms);
            return Ok(denied);
        }
        let (own, shared) = (self.charges(Scope::Process)?, self.charges(Scope::Shared)?);
        let is_alone = shared.check().is_err();
        if !is_alone && let Some(known) = self.admitted_before(terms) {
            self.count_final(&known, terms);
            return Ok(known);
        }
        let first = self.own_part(&own, terms, is_alone).await?;
        let Ok(check) = shared.check() else { return Ok(self.followed(first, terms)) };
        if !first.is_allowed() && !terms.is_peek() {
            return Ok(self.followed(first, terms));
        }
        let mut undo = Undo { demand: self, own: &own, terms, first: Some(first) };
        let second = self.shared_part::<A>(check, terms).await?;
        let first = undo.first.take().unwrap_or_default();
        // A repeated request was charged when it was new.
        let is_new = second.origin() != Origin::Repeat || first.origin() == Origin::Repeat;
        if terms.is_peek() || second.is_allowed() && is_new {
            let decision = first.joined(&second);
            if second.origin() == Origin::Outage {
                self.keep_admitted(&decision, terms);
            }
            return Ok(self.followed(decision, terms));
        }
        self.undo(&own, &first, terms);
        let first = self.own_part(&own, &Terms { purpose: Purpose::Peek, under: None }, true).await?;
        Ok(self.followed(first.joined(&second), terms))
    }

    async fn shared_part<A: Away>(&self, check: Check<'_>, terms: &Terms<'_>) -> Result<Decision, A::Error> {
        let store = &*self.engine.store;
        let penalties = self.penalties(Scope::Shared, terms);
        let check = check.with_penalties(&penalties)?;
        let check = if terms.is_peek() { check.peek() } else { check };
        let answer = match &terms.under {
            // What rules ask for under an id stays the same request when the rules change.
            Some(under) if !self.is_raw() => store.reserve(&check.by_rules(), under).await,
            Some(under) => store.reserve(&check, under).await,
            None => store.check(&check).await,
        };
        match answer {
            Ok(decision) => Ok(decision),
            Err(error) => self.undecided::<A>(&check, error, terms.is_peek()).await,
        }
    }

    /// What this process counts for itself. Beside a shared part, only reservations are kept under an id
    /// here: the shared part knows a repeated request, or the outage that admitted it
    /// ([`Demand::admitted_before`]).
    async fn own_part(
        &self,
        own: &Charges<'_>,
        terms: &Terms<'_>,
        is_alone: bool,
    ) -> Result<Decision, InvalidInput> {
        let (engine, peek) = (&*self.engine, terms.is_peek());
        let Ok(check) = own.check() else { return Ok(self.without_rules()) };
        let penalties = self.penalties(Scope::Process, terms);
        let check = check.with_penalties(&penalties)?;
        let check = if peek { check.peek() } else { check };
        let answer = match &terms.under {
            Some(under) if is_alone || under.held_for().is_some() => {
                engine.process.reserve(&check.by_rules(), under).await
            }
            _ => engine.process.decide(&check),
        };
        answer.or_else(|error| match (error.kind(), error.into_input()) {
            (_, Some(input)) => Err(input),
            // Full of keys that are limited.
            (kind, None) if self.on_outage(&Undecided::All) == OnOutage::Deny => {
                Ok(self.without_store(kind, Outcome::Deny, peek))
            }
            (kind, None) => Ok(self.without_store(kind, Outcome::Allow, peek)),
        })
    }

    /// Gives this process's part back. In memory, so it is done when the call returns.
    fn undo(&self, own: &Charges<'_>, first: &Decision, terms: &Terms<'_>) {
        let Ok(check) = own.check() else { return };
        match &terms.under {
            Some(under) if under.held_for().is_some() => {
                let _ = self.engine.process.settle(under.id(), None).now();
            }
            _ => {
                let _ = self.engine.process.refund(&check, first, LIMIT_MAX).now();
            }
        }
    }
}

impl Engine {
    /// A check of one rule, if one call of the store decides it and nothing follows from the answer. Otherwise the
    /// store's answer, if it was asked: it belongs to a demand.
    #[inline]
    fn ask_one(&self, asked: &Asked<'_>, decision: &mut Decision) -> Result<(), Unfinished> {
        if self.needs_io || !asked.is_plain() {
            return Err(Unfinished::Unasked);
        }
        let Some(Ok(charge)) = asked.only_charge() else { return Err(Unfinished::Unasked) };
        match self.store.try_check(&Check::one(&charge), decision) {
            Some(Ok(())) if decision.verdicts().iter().all(Verdict::is_admitted) => {
                asked.count(decision);
                Ok(())
            }
            Some(answer) => Err(Unfinished::Answered(answer)),
            None => Err(Unfinished::Unasked),
        }
    }

    /// A check of one rule. The demand, which is large, is made only if something follows from the answer.
    #[inline]
    pub(crate) fn check_one(
        self: &Arc<Self>,
        asked: Asked<'_>,
        units: u64,
        decision: &mut Decision,
    ) -> Result<(), InvalidInput> {
        match self.ask_one(&asked, decision) {
            Ok(()) => Ok(()),
            Err(unfinished) => self.finish_one(asked, units, unfinished, decision),
        }
    }

    #[cold]
    fn finish_one(
        self: &Arc<Self>,
        asked: Asked<'_>,
        units: u64,
        unfinished: Unfinished,
        decision: &mut Decision,
    ) -> Result<(), InvalidInput> {
        let demand = Demand::new(Held::Borrowed(self), units, [asked]);
        match unfinished {
            Unfinished::Unasked => demand.now().check_into(decision),
            Unfinished::Answered(answer) => demand.follow::<ByRules>(answer, decision),
        }
    }
}

/// Why a check of one rule is no decision yet.
enum Unfinished {
    /// The store was not asked.
    Unasked,
    Answered(Result<(), StoreError>),
}

/// Gives this process's part back if the caller does not wait for the shared one.
struct Undo<'d, 'a, 'c, 't> {
    demand: &'d Demand<'a>,
    own: &'d Charges<'c>,
    terms: &'d Terms<'t>,
    first: Option<Decision>,
}

impl Drop for Undo<'_, '_, '_, '_> {
    fn drop(&mut self) {
        if let Some(first) = self.first.take().filter(|_| !self.terms.is_peek()) {
            self.demand.undo(self.own, &first, self.terms);
        }
    }
}

/// The verbs of a [`Demand`] without async, for stores that need no I/O.
///
/// # Errors
/// Each as its namesake; also if the store does need I/O. Then nothing was charged.
#[derive(Clone, Copy, Debug)]
pub struct Now<'d, 'a>(pub(super) &'d Demand<'a>);

#[allow(clippy::missing_errors_doc, reason = "said once, for the type")]
impl Now<'_, '_> {
    /// [`Demand::check`].
    pub fn check(&self) -> Result<Decision, InvalidInput> {
        let mut decision = Decision::default();
        self.check_into(&mut decision)?;
        Ok(decision)
    }

    /// [`Demand::check`], written over a decision that the caller keeps, because it is large.
    #[inline]
    pub fn check_into(&self, decision: &mut Decision) -> Result<(), InvalidInput> {
        self.0.try_check(decision).unwrap_or_else(|| Err(needs_io()))
    }

    /// [`Demand::peek`].
    pub fn peek(&self) -> Result<Decision, InvalidInput> {
        self.0.local()?;
        now(self.0.peek())
    }

    /// [`Demand::standing`].
    pub fn standing(&self) -> Result<Decision, InvalidInput> {
        self.0.local()?;
        now(self.0.standing())
    }

    /// [`Demand::explain`].
    pub fn explain(&self, labels: Labels<'_>) -> Result<String, InvalidInput> {
        self.0.local()?;
        now(self.0.explain(labels))
    }

    /// [`Demand::reserve`].
    pub fn reserve(&self, id: &str, hold: Duration) -> Result<Decision, InvalidInput> {
        self.0.local()?;
        now(self.0.reserve(id, hold))
    }

    /// [`Demand::until_allowed`]: this thread waits.
    pub fn until_allowed(&self, patience: Duration) -> Result<Decision, InvalidInput> {
        self.0.wait_here::<ByRules>(patience)
    }

    /// [`Demand::refund`].
    pub fn refund(&self, decision: &Decision, units: u32) -> Result<u64, InvalidInput> {
        self.0.local()?;
        now(self.0.refund(decision, units))
    }

    /// [`Demand::release`].
    pub fn release(&self, decision: &Decision) -> Result<(), InvalidInput> {
        self.0.local()?;
        now(self.0.release(decision))
    }

    /// [`Demand::reset`].
    pub fn reset(&self) -> Result<usize, StoreError> {
        self.0.local()?;
        now(self.0.reset())
    }
}

/// The sentence of a decision, and a line for each of its verdicts.
pub(super) fn explained(decision: &Decision, labels: Labels<'_>) -> String {
    let lines = decision.verdicts().iter().map(|verdict| {
        let (name, left, level) = (labels.of(verdict), verdict.remaining(), verdict.level().as_str());
        let (capacity, quota) = (verdict.quota().capacity(), verdict.quota());
        format!("\n- {name}: {left} of {capacity} left, {quota} (set by: {level})")
    });
    std::iter::once(decision.labelled(labels).to_string()).chain(lines).collect()
}

#[cold]
pub(super) fn needs_io() -> InvalidInput {
    InvalidInput::new(Field::Check, "a store that needs I/O", "the form of this call that is awaited")
}

/// What a call says that does not have to wait.
pub(super) fn now<T, E: From<InvalidInput>>(call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    at_once(call).unwrap_or_else(|| Err(needs_io().into()))
}

/// What a future says that does not have to wait.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}
