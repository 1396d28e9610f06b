//! A program with the library in it shows the same metrics as a server: the same names, kinds, texts and labels.

use std::collections::BTreeSet;
use std::sync::Arc;

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use prometheus_client::registry::Registry;
use ratekeeper::metrics::{Kind, Metrics};

use crate::rig::{Rig, Setup};

/// A service of no other test: decisions are counted for the whole process.
const POLICY: &str = "service = \"embedded\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"5/h\"\n";
const DECISIONS: &str = "ratekeeper_decisions_total{";
const CALL: &str = r#"{"charges":[{"key":"k","quota":"1/s"}]}"#;

fn embedded(rig: &Rig) -> Metrics {
    let policies = rig.api.limiter().policies().clone();
    Metrics::new(Arc::clone(&rig.store)).with_policies(policies)
}

/// What a text has to say of the metrics of these names, values aside.
fn series_of(text: &str, names: &BTreeSet<&str>) -> BTreeSet<String> {
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(described) => described.to_owned(),
        None => line.rsplit_once(' ').map_or_else(String::new, |(series, _)| series.to_owned()),
    });
    let is_of = |line: &str| {
        let mut words = line.split([' ', '{']).filter(|word| !["TYPE", "HELP", "UNIT"].contains(word));
        let name = words.next().unwrap_or_default();
        names.contains(name) || name.strip_suffix("_total").is_some_and(|name| names.contains(name))
    };
    // Other tests of this process decide as well.
    let is_own = |line: &String| !line.starts_with(DECISIONS) || line.contains("service=\"embedded\"");
    lines.filter(|line| is_of(line)).filter(is_own).collect()
}

#[test]
fn a_registry_of_a_program_shows_what_a_server_does() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    assert_eq!(rig.client().post("/v1/limit", CALL).status, 200);
    let metrics = embedded(&rig);
    let families = metrics.families();
    let names: BTreeSet<&str> = families.iter().map(|family| family.name).collect();
    for expected in
        ["ratekeeper_outage_decisions", "ratekeeper_store_failed_checks", "ratekeeper_policy_in_force"]
    {
        assert!(names.contains(expected), "{expected}");
    }
    assert!(families.iter().all(|family| family.kind != Kind::Histogram), "instruments know none");
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics));
    let mut shown = String::new();
    prometheus_client::encoding::text::encode(&mut shown, &registry).unwrap();
    let served = rig.client().get("/metrics");
    let (here, there) = (series_of(&shown, &names), series_of(served.text(), &names));
    assert_eq!(here, there);
    assert!(here.contains("ratekeeper_outage_decisions_total{outcome=\"allowed\"}"), "{here:?}");
    assert!(here.contains("ratekeeper_rule_over_limit_total{service=\"embedded\",rule=\"r\"}"), "{here:?}");
}

/// A point as Prometheus would show it.
fn shown(name: &str, labels: impl Iterator<Item = opentelemetry::KeyValue>) -> String {
    let mut labels: Vec<String> =
        labels.map(|label| format!("{}={:?}", label.key, label.value.as_str())).collect();
    labels.sort();
    format!("{name} {}", labels.join(","))
}

#[test]
fn a_meter_of_a_program_shows_what_a_server_does() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let metrics = embedded(&rig);
    let expected = metrics.families().into_iter().flat_map(|family| {
        let labels = |sample: &ratekeeper::metrics::Sample| {
            let labels = sample.labels.clone().into_iter();
            shown(family.name, labels.map(|(name, value)| opentelemetry::KeyValue::new(name, value)))
        };
        family.samples.iter().map(labels).collect::<Vec<_>>()
    });
    let is_own = |point: &String| {
        !point.starts_with("ratekeeper_decisions ") || point.contains("service=\"embedded\"")
    };
    let expected: BTreeSet<String> = expected.filter(is_own).collect();
    let exporter = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(exporter.clone()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    metrics.observe(&provider.meter("ratekeeper"));
    provider.force_flush().unwrap();
    let mut points = BTreeSet::new();
    for collected in exporter.get_finished_metrics().unwrap() {
        for metric in collected.scope_metrics().flat_map(ScopeMetrics::metrics) {
            let AggregatedMetrics::U64(data) = metric.data() else { panic!("{} is no u64", metric.name()) };
            match data {
                MetricData::Sum(sum) => {
                    assert!(sum.is_monotonic(), "{}", metric.name());
                    let each = sum.data_points().map(|point| point.attributes().cloned());
                    points.extend(each.map(|labels| shown(metric.name(), labels)));
                }
                MetricData::Gauge(gauge) => {
                    let each = gauge.data_points().map(|point| point.attributes().cloned());
                    points.extend(each.map(|labels| shown(metric.name(), labels)));
                }
                _ => panic!("{} is neither counter nor gauge", metric.name()),
            }
        }
    }
    points.retain(is_own);
    assert_eq!(points, expected);
    provider.shutdown().unwrap();
}

/// What a program decides itself is counted under the same names, and comes to the same numbers.
#[test]
fn decisions_of_a_program_are_those_a_server_would_show() {
    const OWN: &str = "service = \"counted\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"5/h\"\n";
    let (rig, _) = Setup::policy(OWN).in_memory();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(embedded(&rig)));
    let mut client = rig.client();
    let statuses: Vec<u16> = (0..7).map(|_| client.post("/v1/check", "{}").status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    assert_eq!(client.post("/v1/peek", "{}").status, 200);
    let mut shown = String::new();
    prometheus_client::encoding::text::encode(&mut shown, &registry).unwrap();
    let of_rule = |text: &str| {
        let lines =
            text.lines().filter(|line| line.starts_with("ratekeeper_decisions_total{service=\"counted\""));
        lines.map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let served = rig.client().get("/metrics");
    assert_eq!(of_rule(&shown), of_rule(served.text()));
    let denied = "rule=\"r\",plan=\"default\",outcome=\"denied\"} 2";
    assert!(of_rule(&shown).iter().any(|line| line.ends_with(denied)), "{shown}");
}
