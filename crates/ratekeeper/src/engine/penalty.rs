//! Penalties, and what is noted about decisions.
//!
//! A penalty is a counter that is full while it lasts: its gate. The gate, the strikes that lead to it and the
//! offences that lengthen it are judged by the store together with the rule's charges, in one step (see
//! `ratekeeper_core::Penalty`). If the store needs I/O, a key that was found penalised is remembered in this process:
//! for a moment at a time, its requests reach no store.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use ratekeeper_core::{
    Charge, Check, Decision, Emergency, Enforcement, InvalidInput, Key, Name, Quota, Timestamp, Verdict,
};
use smallvec::SmallVec;

use super::verbs::Terms;
use super::{Asked, Demand, Scope};
use crate::store::{Store, StoreError};

/// What happens to a key that is denied again and again.
#[derive(Clone, Debug)]
pub(crate) struct Penalty {
    /// Denials, in a window that begins with the first.
    pub(crate) strikes: (Name, Quota),
    /// A window with one unit: taken while the penalty lasts.
    pub(crate) gate: (Name, Quota),
    /// Penalties so far; one is forgotten in twice the time of the longest, so not while that one lasts.
    pub(crate) offences: Option<(Name, Quota)>,
    /// The gate for the first penalty, the second, and so on; the last for all others.
    pub(crate) sentences: Vec<Quota>,
    /// For how long a process believes what it remembers of a shared penalty.
    pub(crate) fresh: Quota,
}

impl Demand<'_> {
    /// The rules that have penalties.
    fn penal(&self) -> impl Iterator<Item = (&Asked<'_>, &Penalty)> {
        self.rules.iter().filter_map(|asked| Some((asked, asked.terms.penalty.as_ref()?)))
    }

    /// The penalties of the rules of a scope, for the store to judge with their charges.
    pub(super) fn penalties(
        &self,
        scope: Scope,
        terms: &Terms<'_>,
    ) -> SmallVec<[ratekeeper_core::Penalty<'_>; 1]> {
        let mut penalties = SmallVec::new();
        let mut end = 0;
        for asked in self.rules.iter().filter(|asked| asked.terms.scope == scope) {
            let start = end;
            end += asked.limits.quotas().len();
            let Some(penalty) = &asked.terms.penalty else { continue };
            // A lifted rule denies nothing, its penalties included.
            if asked.emergency == Emergency::Lift {
                continue;
            }
            penalties.push(ratekeeper_core::Penalty {
                gate: (penalty.gate.0, &penalty.gate.1),
                strikes: (penalty.strikes.0, &penalty.strikes.1),
                offences: penalty.offences.as_ref().map(|(name, quota)| (*name, quota)),
                sentences: &penalty.sentences,
                subject: asked.subject.as_bytes(),
                enforcement: asked.enforcement,
                charges: start..end,
                // Being blocked by an operator is no offence.
                counts: terms.strikes() && asked.emergency == Emergency::Off,
            });
        }
        penalties
    }

    /// The denial of a request whose penalty this process remembers. Only stores that need I/O are
    /// spared a call by that.
    pub(super) fn penalised_here(&self, terms: &Terms<'_>) -> Result<Option<Decision>, InvalidInput> {
        let engine = &*self.engine;
        if !engine.needs_io || terms.is_peek() {
            return Ok(None);
        }
        let mut denied: Option<Decision> = None;
        for (asked, penalty) in self.penal().filter(|(asked, _)| asked.is_denied_by_gate()) {
            let marker = asked.marker(penalty)?;
            let is_full = |charge: &Charge<'_>| {
                // A full memory remembers nothing.
                let seen = engine.process.decide(&Check::one(charge).peek()).ok()?;
                seen.verdicts().iter().any(|verdict| !verdict.is_admitted()).then_some(seen)
            };
            // Somebody may have been pardoned meanwhile: what is not fresh, the store says.
            if is_full(&marker).is_none() {
                continue;
            }
            let subject = self.remembered_subject(asked);
            let gate = Key::new(penalty.gate.0, &subject)
                .and_then(|key| Charge::new(key, &penalty.gate.1).any_window().cost(0));
            let Some(shut) = gate.ok().and_then(|gate| is_full(&gate)) else { continue };
            asked.terms.counters.denied();
            let shut = shut.vetoed_by(0);
            denied = Some(match denied {
                None => shut,
                Some(others) => others.joined(&shut),
            });
        }
        Ok(denied)
    }

    /// Remembers in this process how long the penalties in a decision last, or what else denies
    /// longer: the answer from memory is the latest, too, and to the microsecond.
    fn remember(&self, decision: &Decision) {
        let Some(wait) = decision.retry_after().as_micros().filter(|wait| *wait > 0) else { return };
        // Windows are whole milliseconds: one that ends at the right instant began a little earlier.
        let whole = wait.next_multiple_of(1_000);
        let process = &self.engine.process;
        let began = Timestamp::from_micros(process.now().as_micros().saturating_sub(whole - wait));
        let whole = Duration::from_micros(whole);
        for (asked, penalty) in self.penal().filter(|(asked, _)| asked.terms.scope == Scope::Shared) {
            if !decision.verdicts().iter().any(|verdict| verdict.name() == penalty.gate.0) {
                continue;
            }
            let quota = penalty.gate.1.overridden(1, Some(whole));
            // No window is that long: the store is asked.
            if quota.window() < whole {
                continue;
            }
            let subject = self.remembered_subject(asked);
            let shut = Key::new(penalty.gate.0, &subject).map(|key| Charge::new(key, &quota).any_window());
            let (Ok(shut), Ok(marker)) = (shut, asked.marker(penalty)) else { continue };
            for (charge, at) in [(shut, began), (marker, process.now())] {
                let _ = process.reset(charge.key(), charge.quota().algorithm()).now();
                // A full memory does without.
                let _ = process.charge_at(&charge, at);
            }
        }
    }

    /// Under what an answer is remembered for a rule: its subject, and what else this request asks for. Another
    /// request of the same subject may meet other rules, and so pass earlier or later.
    fn remembered_subject(&self, asked: &Asked<'_>) -> Vec<u8> {
        let mut hasher = DefaultHasher::new();
        for asked in &self.rules {
            let is_enforced = asked.enforcement == Enforcement::Enforce;
            (asked.terms.name.as_str(), &*asked.subject, asked.cost, is_enforced).hash(&mut hasher);
        }
        let mut subject = asked.subject.as_bytes().to_vec();
        subject.extend(hasher.finish().to_be_bytes());
        subject
    }

    /// What follows from a decision: it is noted, and penalties are remembered.
    pub(super) fn followed(&self, mut decision: Decision, terms: &Terms<'_>) -> Decision {
        if let Some(under) = terms.under() {
            decision.set_nonce(under.nonce(decision.at()));
        }
        if !terms.is_peek() && !decision.verdicts().iter().all(Verdict::is_admitted) {
            self.note(&decision);
            if self.engine.needs_io && !decision.is_allowed() {
                self.remember(&decision);
            }
        }
        self.count_final(&decision, terms);
        decision
    }

    /// Counts a decision that is no look and no turn that is still waited for.
    #[inline]
    pub(super) fn count_final(&self, decision: &Decision, terms: &Terms<'_>) {
        if terms.strikes() || !terms.is_peek() && decision.is_allowed() {
            self.count(decision);
        }
    }

    /// Notes which rules denied, and which would have.
    #[cold]
    pub(super) fn note(&self, decision: &Decision) {
        for (asked, penalty) in self.penal() {
            if decision.tipped().contains(&penalty.gate.0) {
                asked.terms.counters.penalised();
            }
        }
        let mut watched = false;
        for asked in &self.rules {
            let counters = &asked.terms.counters;
            let mut own =
                decision.verdicts().iter().filter(|verdict| verdict.name().rule() == asked.terms.name);
            if !own.any(|verdict| !verdict.is_admitted() && verdict.cost() > 0) {
                continue;
            }
            match asked.enforcement {
                Enforcement::Enforce => counters.denied(),
                Enforcement::Shadow => {
                    counters.over_limit();
                    watched = true;
                }
            }
        }
        if watched {
            tracing::Span::current().record("ratelimit.over_limit", true);
        }
    }

    /// Forgets penalties; says how many counters there were.
    pub(super) async fn pardon(&self) -> Result<usize, StoreError> {
        let mut forgotten = 0;
        for (asked, penalty) in self.penal() {
            let counters = [&penalty.strikes, &penalty.gate].into_iter().chain(&penalty.offences);
            for (name, quota) in counters {
                let key = Key::new(*name, &*asked.subject)?;
                let here = self.engine.process.reset(key, quota.algorithm()).await?;
                forgotten += usize::from(match asked.terms.scope {
                    Scope::Process => here,
                    Scope::Shared => self.engine.store.reset(key, quota.algorithm()).await?,
                });
            }
        }
        Ok(forgotten)
    }
}

impl Asked<'_> {
    fn is_denied_by_gate(&self) -> bool {
        let enforced = self.enforcement == Enforcement::Enforce && self.emergency != Emergency::Lift;
        enforced && self.terms.scope == Scope::Shared
    }

    /// Full while what this process remembers of a penalty is fresh. Strikes of a shared rule are counted in the
    /// store, so their name is free here.
    fn marker<'s>(&'s self, penalty: &'s Penalty) -> Result<Charge<'s>, InvalidInput> {
        Ok(Charge::new(Key::new(penalty.strikes.0, &*self.subject)?, &penalty.fresh))
    }
}
