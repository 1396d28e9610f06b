//! Penalties at work, and what is noted about decisions.
//!
//! A penalty is a counter that is full while it lasts (see `compile/penalty.rs`).
//! Every check of a rule with penalties asks for it at a cost of 0, which tells
//! and changes nothing. Who is found to be penalised is denied, gets back what
//! the check charged, and is remembered in this process: until the penalty ends,
//! their requests reach no store.

use std::ops::Deref;
use std::time::Duration;

use ratekeeper_core::{
    Charge, Check, Decision, Emergency, Enforcement, InvalidInput, Key, LIMIT_MAX, Quota, Verdict, Wait,
};

use super::apply::{Applied, AppliedRule};
use super::compile::{Penalty, Policy, Rule};
use super::spec::Scope;
use crate::engine::Engine;
use crate::store::{Store, StoreError};

/// Whether denials lead to penalties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denials {
    /// They do.
    Count,
    /// Whoever asks waits for its turn, as it was told to.
    Forgiven,
}

impl<P: Deref<Target = Policy>> Applied<P> {
    /// The verdict by which a penalty denies the request: of several, the one
    /// that does so longest.
    fn veto(&self, decision: &Decision) -> Option<usize> {
        let denies = |verdict: &Verdict| {
            let shut = !verdict.is_admitted() && verdict.enforcement() == Enforcement::Enforce;
            shut && self.penal().any(|(_, _, penalty)| penalty.gate.0 == verdict.name())
        };
        let shut = decision.verdicts().iter().enumerate().filter(|(_, verdict)| denies(verdict));
        shut.max_by_key(|(_, verdict)| verdict.retry_after()).map(|(index, _)| index)
    }

    /// The decision as it is told: penalties that are not in force are not.
    pub(super) fn judged(&self, decision: Decision) -> Decision {
        let decision = match self.veto(&decision) {
            Some(index) => decision.vetoed_by(index),
            None => decision,
        };
        let is_gate =
            |verdict: &Verdict| self.penal().any(|(_, _, penalty)| penalty.gate.0 == verdict.name());
        decision.without(|verdict| !verdict.is_denied() && is_gate(verdict))
    }

    /// Notes who was denied, and who would have been.
    fn note(&self, decision: &Decision) {
        let mut watched = false;
        for applied in &self.rules {
            let rule = self.rule(applied);
            let mut own = decision.verdicts().iter().filter(|verdict| verdict.name().rule() == rule.name);
            if !own.any(|verdict| !verdict.is_admitted() && verdict.cost() > 0) {
                continue;
            }
            match applied.enforcement {
                Enforcement::Enforce => rule.counters.denied(),
                Enforcement::Shadow => {
                    rule.counters.over_limit();
                    watched = true;
                }
            }
        }
        if watched {
            tracing::Span::current().record("ratelimit.over_limit", true);
        }
    }
}

impl Engine {
    /// Decides, unless the store needs I/O for it. The decision is written over the
    /// caller's, because it is large.
    #[inline]
    pub(super) fn decide_now<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
        decision: &mut Decision,
    ) -> Option<Result<(), InvalidInput>> {
        let penal = applied.has_penalties();
        if penal && let Some(known) = self.penalised(applied).transpose() {
            return Some(known.map(|denied| *decision = denied));
        }
        if let Err(error) = self.try_check(applied, decision)? {
            return Some(Err(error));
        }
        if !penal && decision.verdicts().iter().all(Verdict::is_admitted) {
            return Some(Ok(()));
        }
        // What answered one question at once answers the others at once.
        let followed = now(self.followed_up(applied, std::mem::take(decision), Denials::Count))?;
        Some(followed.map(|followed| *decision = followed))
    }

    /// The denial of a request whose penalty this process knows of.
    pub(super) fn penalised<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
    ) -> Result<Option<Decision>, InvalidInput> {
        let mut denied: Option<Decision> = None;
        for (rule, compiled, penalty) in applied.penal() {
            if rule.enforcement != Enforcement::Enforce || rule.emergency == Emergency::Lift {
                continue;
            }
            let gate = rule.gate(penalty)?;
            // A full memory knows of nobody.
            let Ok(decision) = self.process.decide(&Check::one(&gate).peek()) else { continue };
            if decision.verdicts().iter().any(|verdict| !verdict.is_admitted()) {
                if compiled.scope == Scope::Shared && !self.is_fresh(rule, penalty)? {
                    // Somebody may have pardoned them: the store tells.
                    let _ = self.process.reset(gate.key(), gate.quota().algorithm()).now();
                    continue;
                }
                compiled.counters.denied();
                let shut = decision.vetoed_by(0);
                denied = Some(denied.map_or(shut.clone(), |others| others.joined(&shut)));
            }
        }
        Ok(denied)
    }

    /// Whether what is remembered of a penalty is as good as what the store says.
    fn is_fresh(&self, rule: &AppliedRule, penalty: &Penalty) -> Result<bool, InvalidInput> {
        let marker = rule.marker(penalty)?;
        let told = self.process.decide(&Check::one(&marker).peek());
        Ok(told.is_ok_and(|told| !told.verdicts().iter().all(Verdict::is_admitted)))
    }

    /// Remembers in this process that a gate of the shared store is shut.
    fn shut_here(
        &self,
        rule: &AppliedRule,
        penalty: &Penalty,
        gate: &Charge<'_>,
    ) -> Result<(), InvalidInput> {
        // A full memory does without.
        let _ = self.process.decide(&Check::one(gate));
        let marker = rule.marker(penalty)?;
        let _ = self.process.decide(&Check::one(&marker));
        Ok(())
    }

    /// The denial of a request whose penalty the store knows of; nothing is charged.
    pub(super) async fn found_penalised<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
    ) -> Result<Option<Decision>, InvalidInput> {
        if !applied.has_penalties() {
            return Ok(None);
        }
        let told = self.peek(applied).await?;
        self.vetoed(applied, &told)
    }

    /// The denial by a penalty that a decision tells of. It is noted, and remembered.
    fn vetoed<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
        decision: &Decision,
    ) -> Result<Option<Decision>, InvalidInput> {
        let Some(index) = applied.veto(decision) else { return Ok(None) };
        self.remember(applied, decision)?;
        applied.note(&decision.clone().vetoed_by(index));
        Ok(Some(applied.judged(decision.clone())))
    }

    /// What follows from a decision: penalties that it found or that it leads to.
    pub(super) async fn followed_up<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
        decision: Decision,
        denials: Denials,
    ) -> Result<Decision, InvalidInput> {
        if decision.verdicts().iter().all(Verdict::is_admitted) {
            return Ok(if applied.has_penalties() { applied.judged(decision) } else { decision });
        }
        if let Some(denied) = self.vetoed(applied, &decision)? {
            if !decision.is_allowed() {
                return Ok(denied);
            }
            self.refund(applied, &decision, LIMIT_MAX).await?;
            let told = self.peek(applied).await?;
            // It may have ended meanwhile; but what was given back is not charged.
            return Ok(if applied.veto(&told).is_some() { applied.judged(told) } else { denied });
        }
        applied.note(&decision);
        if !applied.has_penalties() {
            return Ok(decision);
        }
        if denials == Denials::Forgiven {
            return Ok(applied.judged(decision));
        }
        let sentences = self.strikes(applied, &decision).await;
        Ok(sentences.iter().fold(applied.judged(decision), Decision::joined))
    }

    /// Remembers the penalties that the shared store told of, in whole
    /// milliseconds, as windows are: what is left of the last one the store
    /// tells again.
    fn remember<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
        decision: &Decision,
    ) -> Result<(), InvalidInput> {
        for (rule, _, penalty) in applied.penal() {
            let mut shut = decision.verdicts().iter().filter(|verdict| verdict.name() == penalty.gate.0);
            let left = shut.find_map(|verdict| verdict.retry_after().as_micros()).unwrap_or(0);
            let whole = Duration::from_millis(left / 1_000);
            if whole.is_zero() {
                continue;
            }
            let quota = penalty.gate.1.overridden(1, Some(whole));
            let key = Key::new(penalty.gate.0, &rule.subject)?;
            self.shut_here(rule, penalty, &Charge::new(key, &quota))?;
        }
        Ok(())
    }

    /// Counts a denial against the rules that made it; the denials by penalties
    /// that follow from it. An outage of the store is no penalty, and being
    /// blocked by an operator is no offence.
    async fn strikes<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
        decision: &Decision,
    ) -> Vec<Decision> {
        let mut sentences = Vec::new();
        let judged = applied.penal().filter(|(rule, _, _)| rule.emergency == Emergency::Off);
        for (rule, compiled, penalty) in judged {
            let mut own = decision.verdicts().iter().filter(|verdict| verdict.name().rule() == compiled.name);
            let over = own.any(|verdict| {
                verdict.name() != penalty.gate.0 && !verdict.is_admitted() && verdict.cost() > 0
            });
            if over && let Ok(Some(sentence)) = self.strike(rule, compiled, penalty).await {
                compiled.counters.penalised();
                sentences.extend((rule.enforcement == Enforcement::Enforce).then_some(sentence));
            }
        }
        sentences
    }

    /// Counts one denial; the denial by the penalty, if it is one too many.
    async fn strike(
        &self,
        applied: &AppliedRule,
        rule: &Rule,
        penalty: &Penalty,
    ) -> Result<Option<Decision>, StoreError> {
        let store: &dyn Store = match rule.scope {
            Scope::Shared => &*self.store,
            Scope::Process => &*self.process,
        };
        let (strikes, quota) = &penalty.strikes;
        let strikes = Key::new(*strikes, &applied.subject)?;
        let counted = store.check(&Check::one(&Charge::new(strikes, quota))).await?;
        if counted.is_allowed() && counted.verdicts().iter().any(|verdict| verdict.remaining() > 0) {
            return Ok(None);
        }
        let sentence = self.sentence(applied, store, penalty).await?;
        let gate = Charge::new(Key::new(penalty.gate.0, &applied.subject)?, sentence);
        let shut = store.check(&Check::one(&gate)).await?;
        store.reset(strikes, quota.algorithm()).await?;
        // Another request of the same key has shut it already: one offence, not two.
        if !shut.is_allowed() {
            return Ok(None);
        }
        if rule.scope == Scope::Shared {
            self.shut_here(applied, penalty, &gate)?;
        }
        if let Some((offences, quota)) = &penalty.offences {
            let offence = Charge::new(Key::new(*offences, &applied.subject)?, quota);
            store.check(&Check::one(&offence)).await?;
        }
        let gate = applied.gate(penalty)?;
        let told = store.check(&Check::one(&gate).peek()).await?;
        let is_shut = told.verdicts().iter().any(|verdict| verdict.retry_after() > Wait::NONE);
        Ok(is_shut.then(|| told.vetoed_by(0)))
    }

    /// How long the gate would be shut this time.
    async fn sentence<'p>(
        &self,
        applied: &AppliedRule,
        store: &dyn Store,
        penalty: &'p Penalty,
    ) -> Result<&'p Quota, StoreError> {
        let last = penalty.sentences.len() - 1;
        let Some((offences, quota)) = &penalty.offences else { return Ok(&penalty.sentences[last]) };
        let charge = Charge::new(Key::new(*offences, &applied.subject)?, quota);
        let told = store.check(&Check::one(&charge).peek()).await?;
        let left = told.verdicts().first().map_or(0, Verdict::remaining);
        // Nothing left is the longest, again and again.
        let so_far = quota.limit().saturating_sub(left) as usize;
        Ok(&penalty.sentences[so_far.min(last)])
    }

    /// Forgets penalties; says how many counters there were.
    pub(super) async fn pardon<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
    ) -> Result<usize, StoreError> {
        let mut forgotten = 0;
        for (rule, compiled, penalty) in applied.penal() {
            let counters = [&penalty.strikes, &penalty.gate].into_iter().chain(&penalty.offences);
            for (name, quota) in counters {
                let key = Key::new(*name, &rule.subject)?;
                let here = self.process.reset(key, quota.algorithm()).await?;
                forgotten += usize::from(match compiled.scope {
                    Scope::Process => here,
                    Scope::Shared => self.store.reset(key, quota.algorithm()).await?,
                });
            }
        }
        Ok(forgotten)
    }
}

/// What a future says that does not have to wait.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    }
}
