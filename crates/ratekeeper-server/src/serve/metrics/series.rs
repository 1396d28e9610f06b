//! Decisions by rule, plan and outcome.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use ratekeeper::DemandRule;
use ratekeeper::metrics::SERIES_MAX;
use ratekeeper::policy::Policies;
use ratekeeper::{Decision, Enforcement, Level, Name, Origin, Verdict};

/// What plan a rule's own limits are counted under, ...
pub(super) const PLAN_NONE: &str = "default";
/// ... those for exactly one key, ...
pub(super) const PLAN_CUSTOM: &str = "custom";
/// ... and everything beyond the bound.
pub(crate) const OTHER: &str = "other";
/// What stands before a plan that is called like one of these.
const PLAN_PREFIX: &str = "plan:";

/// What became of requests.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    allowed: AtomicU64,
    denied: AtomicU64,
    over_limit: AtomicU64,
    denied_elsewhere: AtomicU64,
    outage_allowed: AtomicU64,
    outage_denied: AtomicU64,
}

impl Outcomes {
    /// Notes what `verdict` had to do with a decision; without one, it was not asked.
    #[inline]
    pub(crate) fn note(&self, decision: &Decision, verdict: Option<&Verdict>) {
        let Some(verdict) = verdict else { return self.note_unasked(decision) };
        let over = !verdict.is_admitted() && verdict.cost() > 0;
        let counter = match verdict.enforcement() {
            Enforcement::Enforce if over => &self.denied,
            Enforcement::Shadow if over => &self.over_limit,
            _ if decision.is_allowed() => &self.allowed,
            _ => &self.denied_elsewhere,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    fn note_unasked(&self, decision: &Decision) {
        let counter = match (decision.origin(), decision.is_allowed()) {
            (Origin::Outage, true) => &self.outage_allowed,
            (Origin::Outage, false) => &self.outage_denied,
            (_, true) => return,
            (_, false) => &self.denied_elsewhere,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// All counts, by the word for them.
    pub(crate) fn read(&self) -> [(&'static str, u64); 6] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("allowed", read(&self.allowed)),
            ("denied", read(&self.denied)),
            ("over_limit", read(&self.over_limit)),
            ("denied_elsewhere", read(&self.denied_elsewhere)),
            ("outage_allowed", read(&self.outage_allowed)),
            ("outage_denied", read(&self.outage_denied)),
        ]
    }

    fn are_none(&self) -> bool {
        self.read().iter().all(|(_, count)| *count == 0)
    }
}

/// The counts of all rules.
#[derive(Debug, Default)]
pub(super) struct RuleSeries {
    rules: RwLock<HashMap<Name, Arc<OfRule>>>,
    /// Combinations so far.
    count: AtomicUsize,
    others: Outcomes,
}

#[derive(Debug, Default)]
struct OfRule {
    default: Outcomes,
    custom: Outcomes,
    plans: RwLock<HashMap<Box<str>, Arc<Outcomes>>>,
}

impl RuleSeries {
    #[inline]
    pub(super) fn note(&self, rule: &DemandRule<'_>, decision: &Decision, verdict: Option<&Verdict>) {
        let Some(of_rule) = self.of_rule(rule.rule) else { return self.others.note(decision, verdict) };
        match (rule.plan, rule.level) {
            (Some(plan), _) => match self.of_plan(&of_rule, plan) {
                Some(of_plan) => of_plan.note(decision, verdict),
                None => self.others.note(decision, verdict),
            },
            (None, Level::Custom) => of_rule.custom.note(decision, verdict),
            (None, _) => of_rule.default.note(decision, verdict),
        }
    }

    fn of_rule(&self, rule: Name) -> Option<Arc<OfRule>> {
        let known = self.rules.read().unwrap_or_else(PoisonError::into_inner).get(&rule).cloned();
        known.or_else(|| {
            // A rule stands for two: its own limits, and those of single keys.
            self.room_for(2).then(|| {
                let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
                Arc::clone(rules.entry(rule).or_default())
            })
        })
    }

    fn of_plan(&self, of_rule: &OfRule, plan: &str) -> Option<Arc<Outcomes>> {
        let known = of_rule.plans.read().unwrap_or_else(PoisonError::into_inner).get(plan).cloned();
        known.or_else(|| {
            self.room_for(1).then(|| {
                let mut plans = of_rule.plans.write().unwrap_or_else(PoisonError::into_inner);
                Arc::clone(plans.entry(plan.into()).or_default())
            })
        })
    }

    fn room_for(&self, more: usize) -> bool {
        let grown = |count: usize| (count + more <= SERIES_MAX).then_some(count + more);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    /// Shows every rule and plan with its counts to `show`: also those of `policies` that
    /// have decided nothing yet, because what begins with 1 has no rate.
    pub(super) fn each(&self, policies: &Policies, mut show: impl FnMut(&str, &str, &str, &Outcomes)) {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        for (name, of_rule) in rules.iter() {
            let (service, rule) = parts(*name);
            show(service, rule, PLAN_NONE, &of_rule.default);
            if !of_rule.custom.are_none() {
                show(service, rule, PLAN_CUSTOM, &of_rule.custom);
            }
            for (plan, outcomes) in of_rule.plans.read().unwrap_or_else(PoisonError::into_inner).iter() {
                show(service, rule, &label(plan), outcomes);
            }
        }
        let mut room = SERIES_MAX.saturating_sub(self.count.load(Ordering::Relaxed));
        policies.each_limit(|name, level, plan| {
            if room > 0 && !rules.get(&name).is_some_and(|of_rule| of_rule.shows(level, plan)) {
                room -= 1;
                let (service, rule) = parts(name);
                let plan = plan.map_or(Cow::Borrowed(own_label(level)), label);
                show(service, rule, &plan, &Outcomes::default());
            }
        });
        show(OTHER, OTHER, OTHER, &self.others);
    }
}

impl OfRule {
    /// Whether these counts are shown as they are.
    fn shows(&self, level: Level, plan: Option<&str>) -> bool {
        match (plan, level) {
            (Some(plan), _) => self.plans.read().unwrap_or_else(PoisonError::into_inner).contains_key(plan),
            (None, Level::Custom) => !self.custom.are_none(),
            (None, _) => true,
        }
    }
}

fn own_label(level: Level) -> &'static str {
    if level == Level::Custom { PLAN_CUSTOM } else { PLAN_NONE }
}

/// What a plan is called in metrics: its name, unless that stands for something else there.
fn label(plan: &str) -> Cow<'_, str> {
    let is_taken = [PLAN_NONE, PLAN_CUSTOM, OTHER].contains(&plan) || plan.starts_with(PLAN_PREFIX);
    if is_taken { Cow::Owned([PLAN_PREFIX, plan].concat()) } else { Cow::Borrowed(plan) }
}

/// The service and the rule of a name.
pub(super) fn parts(name: Name) -> (&'static str, &'static str) {
    let (all, rule) = (name.as_str(), name.label());
    let service = all[..all.len() - rule.len()].trim_end_matches('/');
    (service, rule)
}
