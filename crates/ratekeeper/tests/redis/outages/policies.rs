//! What an outage means to a rule: each says so itself.

use std::num::NonZeroU32;
use std::sync::Arc;

use ratekeeper::{BreakerState, Limiter, LimiterBuilder, OnOutage, Origin, Rule};
use ratekeeper_testkit::servers::Flavour;

use super::load::{CALLERS, Load, Log};
use super::rig::{Rig, SHARED, server};

const LIMIT: u64 = 1_000;
const SOME: u64 = 2_000;
/// How many processes share the limit, so that each has a quarter.
const INSTANCES: u32 = 4;

/// A limiter whose rules take these views of an outage.
fn limiter(rig: &Rig, policies: &[OnOutage]) -> Arc<Limiter<str>> {
    let builder = Limiter::builder(rig.store.clone()).instances(NonZeroU32::new(INSTANCES).unwrap());
    let rules = policies.iter().map(|policy| {
        let rule = Rule::new(format!("{policy:?}"), |subject: &str| Some(subject.into()));
        rule.quota(rig.quota).on_outage(*policy)
    });
    Arc::new(rules.fold(builder, LimiterBuilder::rule).build().unwrap())
}

#[test]
fn each_rule_decides_what_an_outage_means() {
    let mut server = server(Flavour::Redis7, &[]);
    let rig = Rig::new("policies", &server, LIMIT).connected();
    server.kill();
    let allow = during_outage(&rig, &[OnOutage::Allow]);
    assert_eq!(allow.let_through(), allow.0.len() as u64);
    let deny = during_outage(&rig, &[OnOutage::Deny]);
    assert_eq!(deny.let_through(), 0);
    let local = during_outage(&rig, &[OnOutage::Local]);
    assert_eq!(local.let_through(), LIMIT / u64::from(INSTANCES), "its share, exactly");
    local.assert_each_unit_once();
    // Of several rules the strictest has its way.
    assert_eq!(during_outage(&rig, &[OnOutage::Allow, OnOutage::Deny]).let_through(), 0);
    assert_eq!(during_outage(&rig, &[OnOutage::Local, OnOutage::Deny]).let_through(), 0);
    let mixed = during_outage(&rig, &[OnOutage::Allow, OnOutage::Local]);
    assert_eq!(mixed.let_through(), LIMIT / u64::from(INSTANCES));

    server.restart();
    rig.breaker_is(BreakerState::Closed);
    // What was let through meanwhile is in no counter.
    assert_eq!(rig.used(SHARED), 0);
    rig.assert_lines();
}

fn during_outage(rig: &Rig, policies: &[OnOutage]) -> Log {
    let limiter = limiter(rig, policies);
    let load = Load::start(&rig.runtime, &limiter, |_| SHARED.to_owned());
    load.outage_decides(SOME);
    let log = load.stop(&rig.runtime);
    assert!(log.0.iter().all(|seen| seen.origin == Origin::Outage));
    let (outages, asked) = (limiter.outages(), log.0.len() as u64);
    assert!(asked >= SOME && log.0.iter().any(|seen| seen.caller == CALLERS - 1));
    assert_eq!(outages.allowed + outages.denied + outages.local, asked, "{outages:?}");
    let peeked = rig.runtime.block_on(limiter.peek(SHARED)).unwrap();
    assert_eq!(
        (peeked.origin(), limiter.outages()),
        (Origin::Outage, outages),
        "who only looks is not counted"
    );
    rig.say(&format!("{policies:?}: {} of {asked} let through; {outages:?}", log.let_through()));
    log
}
