//! What checks of a history are made of.

use std::time::Duration;

use ratekeeper_core::{
    Algorithm, Charge, Charges, Emergency, Enforcement, Key, Name, OverrideScope, Penalty, Quota,
};

use super::plan::{ChargePlan, CheckPlan, OTHERS, PENAL, PenaltyPlan, QUOTAS, SUBJECTS, TIERS};
use crate::penal::PenalRule;

const ENDPOINT: &str = "/search";

/// What a history needs that outlives its checks.
pub(super) struct Stage {
    pub(super) quotas: Vec<(Name, Quota)>,
    /// The quotas that each of them may give way to: another limit and burst, another window, another algorithm.
    others: Vec<[Quota; OTHERS]>,
    pub(super) penal: Vec<PenalRule>,
    pub(super) scope: OverrideScope<'static>,
}

/// A penalty as a check has it: for the subject of the rule's first charge.
fn penalty<'a>(rule: &'a PenalRule, plan: &PenaltyPlan, charges: &[Charge<'_>]) -> Penalty<'a> {
    let is_own = |charge: &Charge<'_>| charge.key().scope().rule() == rule.name;
    let first = charges.iter().position(is_own);
    let last = charges.iter().rposition(is_own);
    let subject = first.and_then(|first| {
        SUBJECTS.iter().find(|subject| subject.as_bytes() == charges[first].key().subject())
    });
    let charges = first.unwrap_or(0)..last.map_or(0, |last| last + 1);
    Penalty {
        enforcement: if plan.shadow { Enforcement::Shadow } else { Enforcement::Enforce },
        counts: plan.counts,
        ..rule.penalty(subject.unwrap_or(&SUBJECTS[0]), charges)
    }
}

/// The same quota after a change of plan.
fn others(quota: &Quota) -> [Quota; OTHERS] {
    let limit = u64::from(quota.limit());
    let longer = quota.window() + Duration::from_secs(2);
    let algorithm = match quota.algorithm() {
        Algorithm::FixedWindow => Algorithm::SlidingWindow,
        Algorithm::SlidingWindow | Algorithm::LeakyBucket => Algorithm::TokenBucket,
        Algorithm::TokenBucket | Algorithm::SlidingLog => Algorithm::FixedWindow,
        Algorithm::Concurrency => Algorithm::SlidingLog,
    };
    let other = Quota::new(algorithm, limit, quota.window()).expect("a small quota");
    [quota.overridden(2 * limit + 1, None), quota.overridden(limit, Some(longer)), other]
}

impl Stage {
    pub(super) fn new() -> Self {
        let quotas = QUOTAS.iter().enumerate().map(|(index, text)| {
            let rule = TIERS.iter().find(|(_, tiers)| tiers.contains(&index));
            let name = format!("q{index}");
            let name = match rule {
                Some((rule, _)) => Name::new(rule).and_then(|rule| Name::joined(rule, &name)),
                None => Name::new(&name),
            };
            (name.expect("a short name"), text.parse().expect("a quota of the table"))
        });
        let scope = OverrideScope::project(ENDPOINT, "1", "42").expect("a short scope");
        let quotas: Vec<(Name, Quota)> = quotas.collect();
        let others = quotas.iter().map(|(_, quota)| others(quota)).collect();
        Self { quotas, others, penal: PENAL.map(PenalRule::of).into(), scope }
    }

    /// All counters there can be.
    pub(super) fn counters(&self) -> impl Iterator<Item = (Name, Algorithm)> {
        let own = self.quotas.iter().zip(&self.others).flat_map(|((name, quota), others)| {
            others.iter().chain([quota]).map(|quota| (*name, quota.algorithm()))
        });
        let penal = self.penal.iter().flat_map(|rule| &rule.counters);
        own.chain(penal.map(|(name, quota)| (*name, quota.algorithm())))
    }

    /// One penalty for each rule, whatever the plans say.
    pub(super) fn penalties(&self, plan: &CheckPlan, charges: &Charges<'_>) -> Vec<Penalty<'_>> {
        let check = charges.check().expect("at least one charge");
        let mut penalties: Vec<Penalty<'_>> = Vec::new();
        for plan in &plan.penalties {
            let rule = &self.penal[plan.rule];
            if penalties.iter().all(|known| known.gate.0.rule() != rule.name) {
                penalties.push(penalty(rule, plan, check.charges()));
            }
        }
        penalties
    }

    pub(super) fn charges(&self, plans: &[ChargePlan]) -> Charges<'_> {
        let mut charges = Charges::new();
        for plan in plans {
            let (name, quota) = &self.quotas[plan.quota];
            let quota = plan.other.map_or(quota, |other| &self.others[plan.quota][other]);
            let key = Key::new(*name, SUBJECTS[plan.subject]).expect("a short subject");
            let mut charge = Charge::new(key, quota).cost(plan.cost).expect("a small cost");
            if plan.shadow {
                charge = charge.enforcement(Enforcement::Shadow);
            }
            if plan.flat {
                charge = charge.flat();
            }
            charge = charge.emergency(match plan.emergency {
                0 => Emergency::Off,
                1 => Emergency::Lift,
                _ => Emergency::Block,
            });
            if plan.overridable {
                charge = charge.overridable(self.scope);
            }
            // The same key under other terms is refused; then the check does
            // without it.
            let _ = charges.push(charge);
        }
        charges
    }
}
