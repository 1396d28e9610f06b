//! Penalties at work, and what is noted about decisions.
//!
//! A penalty is a counter that is full while it lasts (see `compile/penalty.rs`).
//! Every check of a rule with penalties asks for it at a cost of 0, which tells
//! and changes nothing. Who is found to be penalised is denied, gets back what
//! the check charged, and is remembered in this process: until the penalty ends,
//! their requests reach no store.

use std::ops::Deref;

use ratekeeper_core::{
    Charge, Check, Decision, Enforcement, InvalidInput, Key, LIMIT_MAX, Quota, Verdict, Wait,
};

use super::apply::{Applied, AppliedRule};
use super::compile::{Penalty, Policy, Rule};
use super::spec::Scope;
use crate::engine::Engine;
use crate::store::{Store, StoreError};

impl<P: Deref<Target = Policy>> Applied<P> {
    /// The verdict by which a penalty denies the request.
    fn veto(&self, decision: &Decision) -> Option<usize> {
        let denies = |verdict: &Verdict| {
            let shut = !verdict.is_admitted() && verdict.enforcement() == Enforcement::Enforce;
            shut && self.penal().any(|(_, _, penalty)| penalty.gate.0 == verdict.name())
        };
        decision.verdicts().iter().position(denies)
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
    /// The denial of a request whose penalty this process knows of.
    pub(super) fn penalised<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
    ) -> Result<Option<Decision>, InvalidInput> {
        for (rule, compiled, penalty) in applied.penal() {
            if rule.enforcement != Enforcement::Enforce {
                continue;
            }
            let gate = rule.gate(penalty)?;
            // A full memory knows of nobody.
            let Ok(decision) = self.process.decide(&Check::one(&gate).peek()) else { continue };
            if decision.verdicts().iter().any(|verdict| !verdict.is_admitted()) {
                compiled.counters.denied();
                return Ok(Some(decision.vetoed_by(0)));
            }
        }
        Ok(None)
    }

    /// What follows from a decision: penalties that it found or that it leads to.
    pub(super) async fn followed_up<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
        decision: Decision,
    ) -> Result<Decision, InvalidInput> {
        if decision.verdicts().iter().all(Verdict::is_admitted) {
            return Ok(if applied.has_penalties() { applied.judged(decision) } else { decision });
        }
        applied.note(&decision);
        if !applied.has_penalties() {
            return Ok(decision);
        }
        if let Some(index) = applied.veto(&decision) {
            self.remember(applied, &decision, index)?;
            if !decision.is_allowed() {
                return Ok(applied.judged(decision));
            }
            self.refund(applied, &decision, LIMIT_MAX).await?;
            return Ok(applied.judged(self.peek(applied).await?));
        }
        let sentences = self.strikes(applied, &decision).await;
        Ok(sentences.iter().fold(applied.judged(decision), Decision::joined))
    }

    /// Remembers a penalty that the shared store told of.
    fn remember<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
        decision: &Decision,
        index: usize,
    ) -> Result<(), InvalidInput> {
        let verdict = &decision.verdicts()[index];
        let known = applied.penal().find(|(_, _, penalty)| penalty.gate.0 == verdict.name());
        if let (Some((rule, _, penalty)), Some(left)) = (known, verdict.retry_after().duration()) {
            let quota = penalty.gate.1.overridden(1, Some(left))?;
            let _ = self
                .process
                .decide(&Check::one(&Charge::new(Key::new(penalty.gate.0, &rule.subject)?, &quota)));
        }
        Ok(())
    }

    /// Counts a denial against the rules that made it; the denials by penalties
    /// that follow from it. An outage of the store is no penalty.
    async fn strikes<P: Deref<Target = Policy>>(
        &self,
        applied: &Applied<P>,
        decision: &Decision,
    ) -> Vec<Decision> {
        let mut sentences = Vec::new();
        for (rule, compiled, penalty) in applied.penal() {
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
        if rule.scope == Scope::Shared {
            let _ = self.process.decide(&Check::one(&gate));
        }
        store.reset(strikes, quota.algorithm()).await?;
        // Another request of the same key has shut it already.
        if !shut.is_allowed() {
            return Ok(None);
        }
        let gate = applied.gate(penalty)?;
        let told = store.check(&Check::one(&gate).peek()).await?;
        let is_shut = told.verdicts().iter().any(|verdict| verdict.retry_after() > Wait::NONE);
        Ok(is_shut.then(|| told.vetoed_by(0)))
    }

    /// How long the gate is shut this time.
    async fn sentence<'p>(
        &self,
        applied: &AppliedRule,
        store: &dyn Store,
        penalty: &'p Penalty,
    ) -> Result<&'p Quota, StoreError> {
        let last = penalty.sentences.len() - 1;
        let Some((offences, quota)) = &penalty.offences else { return Ok(&penalty.sentences[last]) };
        let charge = Charge::new(Key::new(*offences, &applied.subject)?, quota);
        let counted = store.check(&Check::one(&charge)).await?;
        let left = counted.verdicts().first().map_or(0, Verdict::remaining);
        // With this one; nothing left is the longest, again and again.
        let so_far = quota.limit().saturating_sub(left).max(1) as usize;
        Ok(&penalty.sentences[if counted.is_allowed() { (so_far - 1).min(last) } else { last }])
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
                let there =
                    compiled.scope == Scope::Shared && self.store.reset(key, quota.algorithm()).await?;
                forgotten += usize::from(here || there);
            }
        }
        Ok(forgotten)
    }
}
