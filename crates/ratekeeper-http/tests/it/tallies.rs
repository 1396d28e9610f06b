//! Several decisions in one request: every policy once, and of several keys the worst off.

use ratekeeper_core::{CHARGES_MAX, Decision, Emergency, Origin, Outcome};
use ratekeeper_http::{Draft, HttpOptions, MEMBERS_MAX, PARTITION_BYTES_MAX, Tally};

use crate::support::{NOW, by_name, decide, members, plan};

fn statuses(tally: &Tally) -> String {
    by_name(tally.fields(&HttpOptions::default())).remove("ratelimit").expect("something to tell")
}

#[test]
fn later_decisions_replace_in_place_and_add_behind() {
    let (requests, elements) = (plan("requests", "10/min"), plan("elements", "100/min"));
    let mut tally = Tally::new();
    tally.add(&decide(&[requests.clone(), elements.clone().cost(0)], 0));
    tally.add(&decide(&[plan("user", "5/min")], 0));
    tally.add(&decide(&[elements.cost(30)], 0));
    assert_eq!(statuses(&tally), r#""requests";r=9;t=6, "elements";r=70;t=18, "user";r=4;t=12"#);
    tally.add(&decide(std::slice::from_ref(&requests), 4));
    assert!(statuses(&tally).starts_with(r#""requests";r=5;t=30, "elements""#));
}

#[test]
fn of_two_decisions_on_one_policy_the_worse_news_is_told() {
    // Two limiters with the same name and numbers, each with a key of its own.
    let (project, path) =
        (plan("requests", "10/min").subject("p"), plan("requests", "10/min").subject("/e/1"));
    let (used, fresh) = (decide(std::slice::from_ref(&project), 6), decide(&[path], 0));
    let denied = decide(&[project.cost(9)], 6);
    for (first, second, told) in [
        (&used, &fresh, r#""requests";r=3;t=42"#),
        (&fresh, &used, r#""requests";r=3;t=42"#),
        (&denied, &fresh, r#""requests";r=1;t=48"#),
        (&fresh, &denied, r#""requests";r=1;t=48"#),
    ] {
        let mut tally = Tally::of(first);
        tally.add(second);
        assert_eq!(statuses(&tally), told);
    }
}

#[test]
fn the_same_name_under_another_quota_is_another_policy() {
    let mut tally = Tally::of(&decide(&[plan("api", "10/min")], 0));
    tally.add(&decide(&[plan("api", "20/min")], 0));
    assert_eq!(statuses(&tally), r#""api";r=9;t=6, "api";r=19;t=3"#);
}

#[test]
fn of_two_keys_in_one_decision_the_worst_off_is_told() {
    let (full, fresh) = (plan("ip", "4/min").cost(9).subject("a"), plan("ip", "4/min").subject("b"));
    for plans in [[full.clone(), fresh.clone()], [fresh, full]] {
        let decision = decide(&plans, 0);
        assert!(!decision.is_allowed());
        assert_eq!(statuses(&Tally::of(&decision)), r#""ip";r=4"#, "no wait helps");
    }
    let (used, fresh) = (plan("ip", "4/min").cost(3).subject("a"), plan("ip", "4/min").subject("b"));
    assert_eq!(statuses(&Tally::of(&decide(&[used, fresh], 0))), r#""ip";r=1;t=45"#);
}

#[test]
fn nothing_is_told_where_nothing_is_known() {
    for (outcome, origin) in [
        (Outcome::Allow, Origin::Unlimited),
        (Outcome::Allow, Origin::Outage),
        (Outcome::Deny, Origin::Outage),
    ] {
        let tally = Tally::of(&Decision::without_store(outcome, origin, NOW));
        assert!(tally.is_empty());
        assert_eq!(tally.fields(&HttpOptions::default()).count(), 0);
    }
    let decision = decide(&[plan("api", "10/min")], 0);
    assert_eq!(Tally::of(&decision).fields(&HttpOptions::without_fields()).count(), 0);
    let local = decision.from_origin(Origin::Outage);
    assert!(!Tally::of(&local).is_empty(), "a process that counts for itself knows something");
}

#[test]
fn a_block_tells_of_nothing_left_and_of_no_time() {
    let blocked = decide(&[plan("api", "10/min").emergency(Emergency::Block)], 0);
    assert_eq!(statuses(&Tally::of(&blocked)), r#""api";r=0"#);
    let lifted = decide(&[plan("api", "10/min").emergency(Emergency::Lift)], 0);
    assert_eq!(statuses(&Tally::of(&lifted)), r#""api";r=10;t=0"#);
}

#[test]
fn policies_are_bounded() {
    assert_eq!(MEMBERS_MAX, CHARGES_MAX);
    let mut tally = Tally::new();
    for index in 0..MEMBERS_MAX + 6 {
        tally.add(&decide(&[plan(&format!("p{index}"), "10/min")], 0));
    }
    // One that is known is still brought up to date.
    tally.add(&decide(&[plan("p3", "10/min")], 1));
    let told = members(&statuses(&tally));
    assert_eq!((told.len(), told[63].name.as_str(), told[3].get("r")), (MEMBERS_MAX, "p63", Some(8)));
}

#[test]
fn partition_keys_are_told_where_they_are_given() {
    let decision = decide(&[plan("user", "10/min"), plan("ip", "10/min"), plan("long", "10/min")], 0);
    let mut tally = Tally::new();
    tally.add_partitioned(&decision, |verdict| match verdict.name().label() {
        "user" => Some(Box::from(*b"GET\x1falice")),
        "long" => Some(vec![0; PARTITION_BYTES_MAX + 1].into()),
        _ => None,
    });
    let fields = by_name(tally.fields(&HttpOptions::default().draft(Draft::Next)));
    assert!(fields["ratelimit"].starts_with(r#""user";a=9;w=6;c=1;pk=:R0VUH2FsaWNl:, "ip""#));
    for value in fields.values() {
        let told = members(value);
        assert_eq!(told[0].partition.as_deref(), Some(&b"GET\x1falice"[..]));
        assert!(told[1].partition.is_none() && told[2].partition.is_none());
    }
}
