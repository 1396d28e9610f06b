//! A policy in monitor mode while the store is away: it denies nobody.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::policy::{Ask, Format, Policies, PolicyLimiter, PolicySpec, RequestFacts};
use ratekeeper::{MemoryStore, Origin, Store};

use crate::world::Watched;

fn policies(mode: &str, more: &str) -> Policies {
    let policies = Policies::builder().build().unwrap();
    install(&policies, mode, "5/min", more);
    policies
}

fn install(policies: &Policies, mode: &str, quota: &str, more: &str) {
    let text = format!(
        "service = \"api\"\n[[rules]]\nname = \"all\"\nkeys = \"all\"\nquota = \"{quota}\"\nmode = \"{mode}\"\non_outage = \"deny\"\n{more}"
    );
    let spec = PolicySpec::read("policy.toml", Format::Toml, text.as_bytes());
    policies.install("policy.toml", spec, None).unwrap();
}

#[tokio::test]
async fn a_policy_that_only_watches_denies_nobody_in_an_outage() {
    let store = Watched::away();
    let facts = RequestFacts::new("GET", "/");
    for (mode, more, allowed) in
        [("on", "", false), ("monitor", "", true), ("on", "enforce_percent = 0\n", true)]
    {
        let limiter = PolicyLimiter::on(Arc::clone(&store) as Arc<dyn Store>, policies(mode, more));
        let decision = limiter.service("api").unwrap().check(&Ask::request(&facts)).await.unwrap();
        assert_eq!((decision.origin(), decision.is_allowed()), (Origin::Outage, allowed), "{mode} {more}");
    }
}

/// What is sent again after a reload was asked before it.
#[tokio::test]
async fn an_id_stands_for_its_request_also_after_a_reload() {
    let policies = policies("on", "");
    let service = PolicyLimiter::new(MemoryStore::new(), policies.clone()).service("api").unwrap();
    let facts = RequestFacts::new("GET", "/");
    let ask = Ask::request(&facts);
    let (id, keep) = ("order-1", Duration::from_secs(60));
    let first = service.check(&ask.once(id, keep).unwrap()).await.unwrap();
    install(&policies, "on", "6/min", "");
    let again = service.check(&ask.once(id, keep).unwrap()).await.unwrap();
    assert_eq!((again.origin(), again.verdicts()), (Origin::Repeat, first.verdicts()));
    assert!(service.check(&ask.cost(2).once(id, keep).unwrap()).await.is_err(), "another cost");
}
