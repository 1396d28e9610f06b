//! Everything there is to show, as data: what `/metrics` and OTLP are made of. What a library has to show as well is
//! defined there (`ratekeeper::metrics`); here is what only a server has.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper::metrics::{Family, Kind, Sample, Value, of_decisions, of_policies, of_store};

use super::{BATCH_BUCKETS, LATENCY_BUCKETS, STATUSES};
use crate::serve::api::Api;
use crate::serve::calls::Endpoint;
use crate::serve::health::{Nodes, Wellness};
use crate::serve::notices::Notices;

/// Everything there is to show at this moment.
pub(in crate::serve) fn families(api: &Api, wellness: Wellness) -> Vec<Family> {
    let mut families = calls(api);
    families.extend(decisions(api));
    let limiter = api.limiter();
    families.extend(of_store(&limiter.store().health(), limiter.outages()));
    families.extend(of_policies(limiter.policies()));
    families.push(headroom(api));
    families.extend(Notices::families(api.notices.as_ref()));
    families.push(certificate(api));
    let mut build = Family::new("ratekeeper_build_info", Kind::Gauge, "The version that runs");
    build.add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    families.push(build);
    let ready = "Whether /readyz says that requests should come here";
    families.push(Family::of("ratekeeper_ready", Kind::Gauge, ready, wellness.is_ready.into()));
    let store = "Whether /readyz/store says that the store takes charges";
    families.push(Family::of("ratekeeper_store_ready", Kind::Gauge, store, wellness.takes_charges.into()));
    families.push(nodes(wellness.nodes));
    families
}

/// Of a store in memory, no values.
fn nodes(nodes: Nodes) -> Family {
    let help = "The servers that the store is on, by whether they take charges";
    let mut family = Family::new("ratekeeper_store_nodes", Kind::Gauge, help);
    if nodes.all > 0 {
        family.add(&[("state", "taking")], nodes.taking as u64);
        family.add(&[("state", "away")], nodes.all.saturating_sub(nodes.taking) as u64);
    }
    family
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
        let of_endpoint = &metrics.endpoints.0[endpoint.index()];
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
    let mut commands =
        Family::new("ratekeeper_resp_commands", Kind::Counter, "Commands of the Redis protocol, by outcome");
    for (command, outcome, count) in metrics.commands.read() {
        commands.add(&[("command", command), ("outcome", outcome)], count);
    }
    let mut of_envoy = Family::new(
        "ratekeeper_grpc_calls",
        Kind::Counter,
        "Calls of Envoy's rate limit service, by outcome",
    );
    for (outcome, count) in metrics.calls.read() {
        of_envoy.add(&[("outcome", outcome)], count);
    }
    vec![
        requests,
        latency,
        batches,
        commands,
        of_envoy,
        Family::of("ratekeeper_connections", Kind::Gauge, "Connections that are open", metrics.connections()),
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

/// Of rules of policies alone: the names of other charges are the callers'.
fn headroom(api: &Api) -> Family {
    let mut family = Family::new(
        "ratekeeper_rule_headroom_percent",
        Kind::Gauge,
        "What is left to the key that is nearest to its limit; only of rules in which a key had at most half left \
         within the last minute",
    );
    for (rule, percent) in api.near.by_rule() {
        if let Some((service, rule)) = rule.split_once('/').filter(|(service, _)| !service.is_empty()) {
            family.add(&[("service", service), ("rule", rule)], percent);
        }
    }
    family
}

/// What became of requests by rule and plan, and of charges without a policy by name.
pub(in crate::serve) fn decisions(api: &Api) -> [Family; 2] {
    let by_rule = of_decisions(&api.metrics.rules, Some(api.limiter().policies()));
    let mut by_name =
        Family::new("ratekeeper_limit_decisions", Kind::Counter, "What became of charges without a policy");
    api.names().each(|name, outcomes| {
        for (outcome, count) in outcomes.read() {
            by_name.add(&[("name", name), ("outcome", outcome)], count);
        }
    });
    [by_rule, by_name]
}
