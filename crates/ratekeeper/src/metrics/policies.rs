//! Metrics of policies, their rules and their sources.

use super::families::{Family, Kind, SERIES_MAX};
use crate::policy::{Policies, RuleStatus, ServiceStatus};

/// A metric of every rule, and where its value is.
type OfRule = (&'static str, &'static str, fn(&RuleStatus) -> u64);

/// What policies have to show.
#[must_use]
pub fn of_policies(policies: &Policies) -> Vec<Family> {
    const OF_RULE: [OfRule; 5] = [
        ("ratekeeper_rule_unresolved", "Requests in which a rule found no key", |rule| rule.unresolved),
        ("ratekeeper_rule_failed", "Requests whose condition or cost could not be told", |rule| rule.failed),
        (
            "ratekeeper_rule_beyond_budget",
            "Requests whose budget of steps was spent before a rule was judged",
            |rule| rule.beyond_budget,
        ),
        ("ratekeeper_rule_over_limit", "Requests that a rule which only watches would have denied", |rule| {
            rule.over_limit
        }),
        ("ratekeeper_rule_penalties", "Penalties that a rule gave", |rule| rule.penalties),
    ];
    let services: Vec<ServiceStatus> = policies.status();
    let mut families: Vec<Family> =
        OF_RULE.iter().map(|(name, help, _)| Family::new(name, Kind::Counter, help)).collect();
    let rules = services.iter().flat_map(|service| service.rules.iter().map(|rule| (&service.service, rule)));
    for (service, rule) in rules.take(SERIES_MAX) {
        for (family, (_, _, value)) in families.iter_mut().zip(OF_RULE) {
            family.add(&[("service", service), ("rule", &rule.name)], value(rule));
        }
    }
    let mut in_force =
        Family::new("ratekeeper_policy_in_force", Kind::Gauge, "Whether a service has a policy");
    let mut refused = Family::new(
        "ratekeeper_policy_refused",
        Kind::Gauge,
        "Whether the last document of a service was refused, so that an older policy is in force",
    );
    let mut reloads =
        Family::new("ratekeeper_policy_reloads", Kind::Counter, "Documents, by what became of them");
    for status in services.iter().take(SERIES_MAX) {
        let service = ("service", status.service.as_str());
        in_force.add(&[service], status.in_force.into());
        refused.add(&[service], status.last_refusal.is_some().into());
        reloads.add(&[service, ("result", "accepted")], status.installed);
        reloads.add(&[service, ("result", "refused")], status.refused);
    }
    let sources = policies.sources_status();
    let failing = sources.iter().filter(|source| source.failure.is_some()).count() as u64;
    let unreadable: u64 = sources.iter().map(|source| source.refused).sum();
    let failures: u64 = sources.iter().map(|source| source.failures).sum();
    families.extend([
        in_force,
        refused,
        reloads,
        Family::of("ratekeeper_policy_sources_failing", Kind::Gauge, "Sources that cannot be read", failing),
        Family::of("ratekeeper_policy_source_failures", Kind::Counter, "How often one could not", failures),
        Family::of(
            "ratekeeper_policy_unowned_refused",
            Kind::Counter,
            "Documents that were refused and did not say whose they are",
            unreadable,
        ),
    ]);
    families
}
