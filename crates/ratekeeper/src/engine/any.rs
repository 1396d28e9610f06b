//! Groups of rules of which one that admits is enough.
//!
//! A store knows charges that veto and charges that only watch, and judges all at one instant. So one rule of each
//! group has a veto and the others watch: whoever admits is charged. If the one with the veto denies and another
//! would have admitted, nothing was charged, and that one gets the veto.

use ratekeeper_core::{Decision, Enforcement, Wait};

use super::outage::Away;
use super::verbs::Terms;
use super::{Asked, Demand, Scope};

/// How often the veto goes to another rule. Each time, somebody else has used up what had room a moment ago.
const CHOICES_MAX: usize = 4;

impl Demand<'_> {
    /// Whether rules apply of which one that admits is enough. One alone is a rule like any other.
    #[inline]
    pub(super) fn has_alternatives(&self) -> bool {
        self.rules.iter().filter(|asked| asked.terms.any_of.is_some()).count() > 1
    }

    pub(super) async fn decide_any<A: Away>(&self, terms: &Terms<'_>) -> Result<Decision, A::Error> {
        let mut attempt = self.clone();
        let grouped = attempt.rules.iter_mut().filter(|asked| asked.terms.any_of.is_some());
        grouped.for_each(|asked| asked.enforcement = Enforcement::Shadow);
        let mut seen = attempt.decide_together::<A>(&Terms::look()).await?;
        attempt.choose(self, &seen);
        for _ in 0..CHOICES_MAX {
            seen = attempt.decide_together::<A>(terms).await?;
            if seen.is_allowed() || !attempt.choose(self, &seen) {
                break;
            }
        }
        Ok(seen)
    }

    /// Gives the veto in each group to the rule that has room, or else to the one that has it first; says whether any
    /// veto went to another one. `asked` is what was asked for before vetoes were given.
    fn choose(&mut self, asked: &Demand<'_>, seen: &Decision) -> bool {
        let mut is_changed = false;
        for first in 0..self.rules.len() {
            let Some(group) = asked.rules[first].terms.any_of.as_deref() else { continue };
            let members: Vec<usize> = (0..self.rules.len())
                .filter(|at| asked.rules[*at].terms.any_of.as_deref() == Some(group))
                .collect();
            if members[0] != first {
                continue;
            }
            // One that only watches denies nothing, and so its group does not.
            let is_watched = members.iter().any(|at| asked.rules[*at].enforcement == Enforcement::Shadow);
            let rank = |at: &usize| {
                let is_other = self.rules[*at].enforcement == Enforcement::Shadow;
                (asked.wait_of(&asked.rules[*at], seen), is_other)
            };
            let chosen = members.iter().copied().min_by_key(rank).filter(|_| !is_watched);
            for at in members {
                let veto = if Some(at) == chosen { Enforcement::Enforce } else { Enforcement::Shadow };
                is_changed |= std::mem::replace(&mut self.rules[at].enforcement, veto) != veto;
            }
        }
        is_changed
    }

    /// When a rule alone would admit, as far as a decision tells.
    fn wait_of(&self, asked: &Asked<'_>, seen: &Decision) -> Wait {
        let store = match asked.terms.scope {
            Scope::Shared => &**self.engine.store(),
            Scope::Process => &*self.engine.process,
        };
        let waits = asked.limits.quotas().iter().filter_map(|(name, quota)| {
            let counter = store.number_of(&asked.charge(*name, quota).ok()?);
            let mut verdicts = seen.verdicts().iter();
            let verdict = verdicts.find(|verdict| verdict.name() == *name && verdict.counter() == counter)?;
            Some(verdict.retry_after())
        });
        waits.max().unwrap_or_default()
    }
}
