//! Everything there is to show, as data: what `/metrics` and OTLP are made of.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper::policy::{RuleStatus, ServiceStatus};

use super::series::SERIES_MAX;
use super::{BATCH_BUCKETS, LATENCY_BUCKETS, STATUSES};
use crate::serve::api::Api;
use crate::serve::calls::Endpoint;

/// A metric: its name, what it means, and its values.
#[derive(Clone, Debug)]
pub struct Family {
    /// Without the ending that the kind gives it.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its values.
    pub samples: Vec<Sample>,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

/// A value of a metric.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What tells it from the others.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number.
    Whole(u64),
    /// A sum, and counts by the upper ends of buckets.
    Buckets(f64, Vec<(f64, u64)>),
}

impl Family {
    fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    fn add(&mut self, labels: &[(&'static str, &str)], value: u64) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.samples.push(Sample { labels, value: Value::Whole(value) });
    }

    fn of(name: &'static str, kind: Kind, help: &'static str, value: u64) -> Self {
        let mut family = Self::new(name, kind, help);
        family.add(&[], value);
        family
    }
}

/// Everything there is to show at this moment.
pub(crate) fn families(api: &Api, is_ready: bool) -> Vec<Family> {
    let mut families = calls(api);
    families.extend(decisions(api));
    families.extend(store(api));
    families.extend(policies(api));
    families.push(certificate(api));
    let mut build = Family::new("ratekeeper_build_info", Kind::Gauge, "The version that runs");
    build.add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    families.push(build);
    let ready = "Whether /readyz says that requests should come here";
    families.push(Family::of("ratekeeper_ready", Kind::Gauge, ready, is_ready.into()));
    families
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn calls(api: &Api) -> Vec<Family> {
    let metrics = &api.metrics;
    let mut requests = Family::new("ratekeeper_requests", Kind::Counter, "Calls by endpoint and status");
    let mut latency =
        Family::new("ratekeeper_request_seconds", Kind::Histogram, "How long calls took, by endpoint");
    for endpoint in Endpoint::all() {
        let of_endpoint = &metrics.endpoints[endpoint.index()];
        let label = endpoint.label();
        for (status, count) in STATUSES.iter().zip(&of_endpoint.statuses).filter(|(_, count)| read(count) > 0)
        {
            let status = if *status == 0 { "other".to_owned() } else { status.to_string() };
            requests.add(&[("endpoint", label), ("status", &status)], read(count));
        }
        let (sum, buckets) = of_endpoint.latency.read(&LATENCY_BUCKETS);
        if buckets.iter().any(|(_, count)| *count > 0) {
            let labels = vec![("endpoint", label.to_owned())];
            latency.samples.push(Sample { labels, value: Value::Buckets(sum, buckets) });
        }
    }
    let (sum, buckets) = metrics.batches.read(&BATCH_BUCKETS);
    let mut batches = Family::new("ratekeeper_batch_checks", Kind::Histogram, "Checks in a batch call");
    batches.samples.push(Sample { labels: Vec::new(), value: Value::Buckets(sum, buckets) });
    vec![
        requests,
        latency,
        batches,
        Family::of(
            "ratekeeper_connections",
            Kind::Gauge,
            "Connections that are open",
            read(&metrics.connections),
        ),
        Family::of(
            "ratekeeper_connections_refused",
            Kind::Counter,
            "Connections beyond the bound, which were turned away",
            read(&metrics.connections_refused),
        ),
    ]
}

/// Without TLS, no value: 0 would be a certificate that ended in 1970.
fn certificate(api: &Api) -> Family {
    let mut family = Family::new(
        "ratekeeper_tls_certificate_expires_timestamp_seconds",
        Kind::Gauge,
        "When the certificate of the listeners ends, in seconds since 1970",
    );
    if let expires @ 1.. = read(&api.metrics.certificate_expires) {
        family.add(&[], expires);
    }
    family
}

fn decisions(api: &Api) -> Vec<Family> {
    let metrics = &api.metrics;
    let mut by_rule =
        Family::new("ratekeeper_decisions", Kind::Counter, "What became of requests, by rule and plan");
    metrics.rules.each(api.limiter().policies(), |service, rule, plan, outcomes| {
        for (outcome, count) in outcomes.read() {
            by_rule.add(&[("service", service), ("rule", rule), ("plan", plan), ("outcome", outcome)], count);
        }
    });
    let mut by_name =
        Family::new("ratekeeper_limit_decisions", Kind::Counter, "What became of charges without a policy");
    api.names().each(|name, outcomes| {
        for (outcome, count) in outcomes.read() {
            by_name.add(&[("name", name), ("outcome", outcome)], count);
        }
    });
    let outages = api.limiter().outages();
    let mut without_store = Family::new(
        "ratekeeper_outage_decisions",
        Kind::Counter,
        "Requests that were decided without the store, by what was decided: allowed is failing open",
    );
    without_store.add(&[("outcome", "allowed")], outages.allowed);
    without_store.add(&[("outcome", "denied")], outages.denied);
    without_store.add(&[("outcome", "local")], outages.local);
    vec![by_rule, by_name, without_store]
}

fn store(api: &Api) -> Vec<Family> {
    use Kind::{Counter, Gauge};
    let health = api.limiter().store().health();
    vec![
        Family::of(
            "ratekeeper_store_failures",
            Counter,
            "Checks that the store could not answer",
            health.failures,
        ),
        Family::of(
            "ratekeeper_store_timeouts",
            Counter,
            "Calls to the store that took too long",
            health.timeouts,
        ),
        Family::of(
            "ratekeeper_store_overloads",
            Counter,
            "Checks that waited too long for a store that answers, or found too many waiting",
            health.overloads,
        ),
        Family::of("ratekeeper_store_full", Counter, "Checks that the store had no room for", health.full),
        Family::of(
            "ratekeeper_store_evicted",
            Counter,
            "Live counters that a store in memory forgot at its bound",
            health.evicted,
        ),
        Family::of(
            "ratekeeper_store_evicted_exhausted",
            Counter,
            "Exhausted counters among them: limits that were lifted early",
            health.evicted_exhausted,
        ),
        Family::of(
            "ratekeeper_store_breaker_state",
            Gauge,
            "The circuit breaker: 0 closed, 1 probing, 2 open",
            health.breaker as u64,
        ),
        Family::of(
            "ratekeeper_store_breaker_opened",
            Counter,
            "How often the circuit breaker opened",
            health.breaker_opened,
        ),
        Family::of("ratekeeper_store_calls", Counter, "Calls to the store", health.batches),
        Family::of("ratekeeper_store_call_items", Counter, "Checks that travelled in them", health.batched),
        Family::of(
            "ratekeeper_store_waiting",
            Gauge,
            "Checks that wait for a connection",
            health.waiting as u64,
        ),
    ]
}

/// A metric of every rule, and where its value is.
type OfRule = (&'static str, &'static str, fn(&RuleStatus) -> u64);

fn policies(api: &Api) -> Vec<Family> {
    const OF_RULE: [OfRule; 4] = [
        ("ratekeeper_rule_unresolved", "Requests in which a rule found no key", |rule| rule.unresolved),
        ("ratekeeper_rule_failed", "Requests whose condition or cost could not be told", |rule| rule.failed),
        ("ratekeeper_rule_over_limit", "Requests that a rule which only watches would have denied", |rule| {
            rule.over_limit
        }),
        ("ratekeeper_rule_penalties", "Penalties that a rule gave", |rule| rule.penalties),
    ];
    let services: Vec<ServiceStatus> = api.limiter().policies().status();
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
    let sources = api.limiter().policies().sources_status();
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
