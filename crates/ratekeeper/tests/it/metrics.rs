//! Decisions of embedded use as metrics: from when somebody wants to see them, for the whole process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::metrics::{Metrics, Value};
use ratekeeper::policy::{Ask, Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper::{Limiter, MemoryStore, OnOutage, Rule};

use crate::away::Away;

/// The decisions of a rule by outcome, as far as there were any.
fn decisions(metrics: &Metrics, service: &str, rule: &str, plan: &str) -> BTreeMap<String, u64> {
    let family = metrics.families().into_iter().find(|family| family.name == "ratekeeper_decisions");
    let samples = family.expect("the family is always there").samples.into_iter();
    let own = samples.filter_map(|sample| {
        let labels: Vec<&str> = sample.labels.iter().map(|(_, value)| &**value).collect();
        let [of_service, of_rule, of_plan, outcome] = labels[..] else { panic!("{labels:?}") };
        let Value::Whole(count) = sample.value else { panic!("a number") };
        let is_own = (of_service, of_rule, of_plan) == (service, rule, plan);
        is_own.then(|| (outcome.to_owned(), count))
    });
    own.filter(|(_, count)| *count > 0).collect()
}

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(outcome, count)| ((*outcome).to_owned(), *count)).collect()
}

#[tokio::test(start_paused = true)]
async fn rules_in_code_are_counted_and_looks_are_not() {
    let store = Arc::new(MemoryStore::new());
    let metrics = Metrics::new(store.clone());
    let rule = Rule::new("counted", |user: &str| Some(user.into())).quotas("2/h fixed_window");
    let limiter: Limiter<str> = Limiter::builder_on(store).rule(rule).build().unwrap();
    for _ in 0..3 {
        limiter.check("ann").await.unwrap();
    }
    limiter.peek("ann").await.unwrap();
    let denied = limiter.demand("ann").until_allowed(Duration::from_secs(1)).await.unwrap();
    assert!(!denied.is_allowed());
    let allowed = limiter.demand("ben").once("an-id", Duration::from_secs(60)).unwrap();
    assert!(allowed.check().await.unwrap().is_allowed());
    assert_eq!(decisions(&metrics, "", "counted", "default"), counts(&[("allowed", 3), ("denied", 1)]));
}

#[tokio::test]
async fn an_outage_is_an_outcome() {
    let store = Away::store();
    let metrics = Metrics::new(store.clone());
    let rule = |name: &str, on_outage| {
        Rule::new(name, |user: &str| Some(user.into())).quotas("2/h").on_outage(on_outage)
    };
    for (name, on_outage) in [("let-through", OnOutage::Allow), ("shut", OnOutage::Deny)] {
        let limiter = Limiter::builder_on(store.clone()).rule(rule(name, on_outage)).build().unwrap();
        limiter.check("ann").await.unwrap();
    }
    assert_eq!(decisions(&metrics, "", "let-through", "default"), counts(&[("outage_allowed", 1)]));
    assert_eq!(decisions(&metrics, "", "shut", "default"), counts(&[("outage_denied", 1)]));
}

#[test]
fn policies_are_counted_by_plan() {
    let store = Arc::new(MemoryStore::new());
    let policies = Policies::builder().build().unwrap();
    let document = r#"
        service = "embedded-it"
        [[rules]]
        name = "own"
        caller_key = true
        quota = "1/h fixed_window"
        [rules.custom]
        "vip" = "9/h"
    "#;
    policies.install("here", PolicySpec::read("here", Format::Toml, document.as_bytes()), None).unwrap();
    let metrics = Metrics::new(store.clone()).with_policies(policies.clone());
    let of = |plan| decisions(&metrics, "embedded-it", "own", plan);
    let service = PolicyLimiter::on(store, policies.clone()).service("embedded-it").unwrap();
    for key in ["ann", "ann", "vip"] {
        service.check_now(&Ask::key(key)).unwrap();
    }
    assert_eq!(of("default"), counts(&[("allowed", 1), ("denied", 1)]));
    assert_eq!(of("custom"), counts(&[("allowed", 1)]));
}
