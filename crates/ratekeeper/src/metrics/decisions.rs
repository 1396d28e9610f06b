//! Decisions by rule, plan and outcome.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use ratekeeper_core::{Decision, Enforcement, Level, Name, Origin, Verdict};

use super::families::{Family, Kind, SERIES_MAX};
use crate::engine::DemandRule;
use crate::policy::Policies;

/// What plan a rule's own limits are counted under, ...
const PLAN_NONE: &str = "default";
/// ... those for exactly one key, ...
const PLAN_CUSTOM: &str = "custom";
/// ... and everything beyond the bound.
pub const OTHER: &str = "other";
/// What stands before a plan that is called like one of these.
const PLAN_PREFIX: &str = "plan:";

/// The decisions of this process, counted from when somebody wants to see them.
static OF_PROCESS: OnceLock<RuleSeries> = OnceLock::new();

/// The decisions of this process, if anybody wants to see them.
#[inline]
pub(crate) fn counted() -> Option<&'static RuleSeries> {
    OF_PROCESS.get()
}

/// Begins to count them.
pub(super) fn count() -> &'static RuleSeries {
    OF_PROCESS.get_or_init(RuleSeries::default)
}

/// What became of requests.
#[derive(Debug, Default)]
pub struct Outcomes {
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
    pub fn note(&self, decision: &Decision, verdict: Option<&Verdict>) {
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
    #[must_use]
    pub fn read(&self) -> [(&'static str, u64); 6] {
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

/// The counts of all rules. Nothing here is locked: a child that was forked meanwhile would find it locked for ever.
#[derive(Debug, Default)]
pub struct RuleSeries {
    rules: ArcSwap<HashMap<Name, Arc<OfRule>>>,
    /// Combinations so far.
    count: AtomicUsize,
    others: Outcomes,
}

#[derive(Debug, Default)]
struct OfRule {
    default: Outcomes,
    custom: Outcomes,
    plans: ArcSwap<HashMap<Box<str>, Arc<Outcomes>>>,
}

impl RuleSeries {
    /// Notes what a rule had to do with a decision, and returns its verdict: of several quotas, the one that had no
    /// room speaks for the rule. Without one, it was not asked.
    #[inline]
    pub fn note<'d>(&self, rule: &DemandRule<'_>, decision: &'d Decision) -> Option<&'d Verdict> {
        let of_rule = decision.verdicts().iter().filter(|verdict| verdict.name().rule() == rule.rule);
        let verdict = of_rule.max_by_key(|verdict| verdict.retry_after());
        let Some(of_rule) = self.of_rule(rule.rule) else {
            self.others.note(decision, verdict);
            return verdict;
        };
        match (rule.plan, rule.level) {
            (Some(plan), _) => match self.of_plan(&of_rule, plan) {
                Some(of_plan) => of_plan.note(decision, verdict),
                None => self.others.note(decision, verdict),
            },
            (None, Level::Custom) => of_rule.custom.note(decision, verdict),
            (None, _) => of_rule.default.note(decision, verdict),
        }
        verdict
    }

    fn of_rule(&self, rule: Name) -> Option<Arc<OfRule>> {
        let known = self.rules.load().get(&rule).cloned();
        // A rule stands for two: its own limits, and those of single keys.
        known.or_else(|| self.room_for(2).then(|| entry(&self.rules, &rule)))
    }

    fn of_plan(&self, of_rule: &OfRule, plan: &str) -> Option<Arc<Outcomes>> {
        let known = of_rule.plans.load().get(plan).cloned();
        known.or_else(|| self.room_for(1).then(|| entry(&of_rule.plans, &plan.into())))
    }

    fn room_for(&self, more: usize) -> bool {
        let grown = |count: usize| (count + more <= SERIES_MAX).then_some(count + more);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    /// Shows every rule and plan with its counts to `show`: also those of `policies` that
    /// have decided nothing yet, because what begins with 1 has no rate.
    fn each(&self, policies: Option<&Policies>, mut show: impl FnMut(&str, &str, &str, &Outcomes)) {
        let rules = self.rules.load();
        for (name, of_rule) in rules.iter() {
            let (service, rule) = parts(*name);
            show(service, rule, PLAN_NONE, &of_rule.default);
            if !of_rule.custom.are_none() {
                show(service, rule, PLAN_CUSTOM, &of_rule.custom);
            }
            for (plan, outcomes) in of_rule.plans.load().iter() {
                show(service, rule, &label(plan), outcomes);
            }
        }
        let mut room = SERIES_MAX.saturating_sub(self.count.load(Ordering::Relaxed));
        let idle = |name: Name, level: Level, plan: Option<&str>| {
            if room > 0 && !rules.get(&name).is_some_and(|of_rule| of_rule.shows(level, plan)) {
                room -= 1;
                let (service, rule) = parts(name);
                let plan = plan.map_or(Cow::Borrowed(own_label(level)), label);
                show(service, rule, &plan, &Outcomes::default());
            }
        };
        if let Some(policies) = policies {
            policies.each_limit(idle);
        }
        show(OTHER, OTHER, OTHER, &self.others);
    }
}

/// The value of a key, made if there is none.
fn entry<K: Clone + Eq + std::hash::Hash, V: Default>(map: &ArcSwap<HashMap<K, Arc<V>>>, key: &K) -> Arc<V> {
    let fresh = Arc::<V>::default();
    let grown = |known: &Arc<HashMap<K, Arc<V>>>| {
        let mut grown = HashMap::clone(known);
        grown.entry(key.clone()).or_insert_with(|| Arc::clone(&fresh));
        grown
    };
    map.rcu(grown);
    // Another thread may have been first.
    map.load().get(key).cloned().unwrap_or(fresh)
}

/// Decisions by rule and plan: all that were counted, and those of `policies` that have decided nothing yet.
#[must_use]
pub fn of_decisions(series: &RuleSeries, policies: Option<&Policies>) -> Family {
    let mut family =
        Family::new("ratekeeper_decisions", Kind::Counter, "What became of requests, by rule and plan");
    series.each(policies, |service, rule, plan, outcomes| {
        for (outcome, count) in outcomes.read() {
            family.add(&[("service", service), ("rule", rule), ("plan", plan), ("outcome", outcome)], count);
        }
    });
    family
}

impl OfRule {
    /// Whether these counts are shown as they are.
    fn shows(&self, level: Level, plan: Option<&str>) -> bool {
        match (plan, level) {
            (Some(plan), _) => self.plans.load().contains_key(plan),
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
fn parts(name: Name) -> (&'static str, &'static str) {
    let (all, rule) = (name.as_str(), name.label());
    let service = all[..all.len() - rule.len()].trim_end_matches('/');
    (service, rule)
}
