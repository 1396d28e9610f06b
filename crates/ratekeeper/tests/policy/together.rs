//! Several demands as one, and limits that come with a request.

use std::time::Duration;

use ratekeeper::Demand;
use ratekeeper::policy::{Ask, RequestFacts};

use crate::world::World;

const POLICY: &str = "service = \"shop\"\n[[rules]]\nname = \"per-user\"\nkeys = \"{descriptor.user}\"\n\
                      quota = \"3/min fixed_window\"\n";

fn of(world: &World, user: &'static str) -> Demand<'static> {
    let facts = RequestFacts::default().descriptor([("user", user)].into_iter().collect());
    world.service.demand(&Ask::request(&facts))
}

#[test]
fn demands_are_one_check_and_a_rule_is_asked_once_for_a_subject() {
    let world = World::of(POLICY);
    let of = |user, index| of(&world, user).at_index(index);
    let all = of("ann", 0).and(of("bob", 1)).and(of("ann", 2));
    let decision = all.now().check().unwrap();
    let left: Vec<(usize, u32)> =
        decision.verdicts().iter().map(|verdict| (verdict.index(), verdict.remaining())).collect();
    assert_eq!(left, [(0, 1), (1, 2)]);
    assert!(!all.now().check().unwrap().is_allowed(), "of ann's, one is left");
    assert_eq!(of("bob", 0).now().check().unwrap().verdicts()[0].remaining(), 1, "nothing was charged");
}

#[test]
fn a_limit_of_the_request_replaces_that_of_the_rule() {
    let world = World::of(POLICY);
    let demand = of(&world, "ann").limited_to(10, Duration::from_secs(3_600));
    let decision = demand.now().check().unwrap();
    let verdict = &decision.verdicts()[0];
    assert_eq!((verdict.quota().limit(), verdict.quota().window().as_secs()), (10, 3_600));
    assert_eq!(verdict.remaining(), 9);
    assert_eq!(of(&world, "ann").now().check().unwrap().verdicts()[0].remaining(), 2, "another window");
    assert!(!of(&world, "ann").limited_to(0, Duration::from_secs(1)).now().check().unwrap().is_allowed());
}

#[test]
fn a_quota_beside_the_rules_obeys_the_modes_of_its_service() {
    let world = World::of(POLICY);
    let beside = || world.service.demand_beside("spelt-out", "key", "1/h".parse().unwrap(), 1).unwrap();
    assert!(beside().now().check().unwrap().is_allowed());
    let denied = beside().now().check().unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(denied.verdicts()[0].name().as_str(), "shop/spelt-out");
}
