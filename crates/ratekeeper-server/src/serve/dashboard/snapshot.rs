//! `GET /v1/dashboard`: all that the dashboard shows, of one moment.
//!
//! Numbers are taken from the families of `/metrics` and not counted a second time, so the two agree. What can be long is
//! cut, and says how much was left out.

use ratekeeper::Timestamp;
use ratekeeper::metrics::{Family, Kind, Sample, Value};
use serde_json::{Map, Value as Json, json};

use crate::serve::api::{Answer, Api, rule_limits};
use crate::serve::{health, metrics};

/// The most combinations of rule and plan, or names, that are shown: the busiest.
pub(in crate::serve) const DASHBOARD_SERIES_MAX: usize = 200;
/// The most keys in each list of them.
pub(in crate::serve) const DASHBOARD_KEYS_MAX: usize = 20;
/// The most services whose policies are shown, ...
const SERVICES_MAX: usize = 20;
/// ... and rules of each, ...
const RULES_MAX: usize = 200;
/// ... and switches.
const SWITCHES_MAX: usize = 100;

/// Families whose series are those of [`DASHBOARD_SERIES_MAX`], and are told by outcome.
const BY_OUTCOME: [&str; 2] = ["ratekeeper_decisions", "ratekeeper_limit_decisions"];
/// Families of rules and services, which are shown with their policies.
const OF_POLICIES: [&str; 2] = ["ratekeeper_rule_", "ratekeeper_policy_"];

/// The answer to `GET /v1/dashboard`.
pub(in crate::serve) async fn snapshot(api: &Api, is_stopping: bool) -> Answer {
    let (report, wellness) = health::of_now(api, is_stopping).await;
    let families = metrics::families(api, wellness);
    let of = |name: &str| families.iter().find(|family| family.name == name);
    let mut hot = api.hot.list();
    let mut near = api.near.list();
    let keys = [hot.len(), near.len()];
    hot.truncate(DASHBOARD_KEYS_MAX);
    near.truncate(DASHBOARD_KEYS_MAX);
    let switches = match api.all_switches().await {
        Ok(mut switches) => {
            for kind in ["modes", "emergencies"] {
                if let Some(list) = switches[kind].as_array_mut() {
                    list.truncate(SWITCHES_MAX);
                }
            }
            switches
        }
        Err(problem) => json!({ "failure": problem.detail() }),
    };
    Answer::json(&json!({
        "at_us": Timestamp::as_micros(api.limiter().store().now()),
        "version": env!("CARGO_PKG_VERSION"),
        "policy_source": api.shown.policy,
        "store": api.shown.store,
        "health": report,
        "metrics": plain(&families),
        "decisions": of(BY_OUTCOME[0]).map(|family| by_outcome(family, DASHBOARD_SERIES_MAX)),
        "limit_decisions": of(BY_OUTCOME[1]).map(|family| by_outcome(family, DASHBOARD_SERIES_MAX)),
        "headroom": of("ratekeeper_rule_headroom_percent").map(samples),
        "hot_keys": { "list": hot, "count": keys[0] },
        "near_keys": { "list": near, "count": keys[1] },
        "overrides": api.shown_overrides().await,
        "switches": switches,
        "policies": policies(api),
        "demo": api.shown.demo.get().map(crate::serve::demo::Demo::told),
    }))
}

/// The name under which `/metrics` shows a family.
fn name(family: &Family) -> String {
    let ending = if family.kind == Kind::Counter { "_total" } else { "" };
    [family.name, ending].concat()
}

/// What has few series, whatever the policies are.
fn plain(families: &[Family]) -> Json {
    let few = families.iter().filter(|family| {
        !BY_OUTCOME.contains(&family.name) && !OF_POLICIES.iter().any(|start| family.name.starts_with(start))
    });
    few.map(|family| (name(family), samples(family))).collect::<Map<_, _>>().into()
}

fn samples(family: &Family) -> Json {
    family.samples.iter().take(DASHBOARD_SERIES_MAX).map(sample).collect()
}

fn sample(sample: &Sample) -> Json {
    let value = match &sample.value {
        Value::Whole(value) => json!(value),
        Value::Buckets(sum, buckets) => {
            // JSON has no infinity.
            let ends = buckets.iter().map(|(end, _)| end.is_finite().then_some(*end));
            let counts = buckets.iter().map(|(_, count)| *count);
            json!({ "sum": sum, "ends": ends.collect::<Vec<_>>(), "counts": counts.collect::<Vec<_>>() })
        }
    };
    json!({ "labels": labels(sample, ""), "value": value })
}

fn labels(sample: &Sample, but_for: &str) -> Json {
    let labels = sample.labels.iter().filter(|(name, _)| *name != but_for);
    labels.map(|(name, value)| ((*name).to_owned(), json!(value))).collect::<Map<_, _>>().into()
}

/// Counts of each outcome: of all series together, and of the busiest, at most `most`.
pub(super) fn by_outcome(family: &Family, most: usize) -> Json {
    const OUTCOME: &str = "outcome";
    let mut totals = Map::new();
    // Labels, counts by outcome, and the sum of these.
    let mut series: Vec<(Json, Map<String, Json>, u64)> = Vec::new();
    for sample in &family.samples {
        let Value::Whole(count) = sample.value else { continue };
        let outcome = sample.labels.iter().find(|(name, _)| *name == OUTCOME).map_or("", |(_, value)| value);
        let total = totals.get(outcome).and_then(Json::as_u64).unwrap_or_default();
        totals.insert(outcome.to_owned(), json!(total.saturating_add(count)));
        let labels = labels(sample, OUTCOME);
        match series.last_mut().filter(|(known, ..)| *known == labels) {
            Some((_, counts, sum)) => {
                counts.insert(outcome.to_owned(), json!(count));
                *sum = sum.saturating_add(count);
            }
            // The outcomes of a series stand together.
            None => series.push((labels, Map::from_iter([(outcome.to_owned(), json!(count))]), count)),
        }
    }
    let left_out = series.len().saturating_sub(most);
    series.sort_by(|(_, _, one), (_, _, other)| other.cmp(one));
    series.truncate(most);
    let series = series.into_iter().map(|(labels, counts, _)| json!({ "labels": labels, "counts": counts }));
    json!({ "name": name(family), "totals": totals, "series": series.collect::<Vec<_>>(), "left_out": left_out })
}

/// The policies in force, with their quotas.
fn policies(api: &Api) -> Json {
    let mut told = health::policies(api);
    for kind in ["services", "sources"] {
        if let Some(list) = told[kind].as_array_mut() {
            list.truncate(SERVICES_MAX);
        }
    }
    for service in told["services"].as_array_mut().into_iter().flatten() {
        let policy = service["service"].as_str().and_then(|name| api.limiter().policies().policy(name));
        let limits: Vec<Json> = policy
            .iter()
            .flat_map(|policy| policy.limits(0))
            .take(RULES_MAX)
            .map(|rule| rule_limits(&rule))
            .collect();
        service["limits"] = limits.into();
        service["digest"] = service["history"][0]["digest"].clone();
        if let Some(members) = service.as_object_mut() {
            members.remove("history");
        }
        if let Some(rules) = service["rules"].as_array_mut() {
            rules.truncate(RULES_MAX);
        }
    }
    told
}
