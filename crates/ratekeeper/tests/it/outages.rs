//! Requests that were decided without the store are counted, and logged now and then.

use std::time::Duration;

use ratekeeper::{Limiter, LimiterBuilder, ManualClock, Mode, OnOutage, Outages, Rule, Switch, Timestamp};

use crate::away::Away;
use crate::traces::Traces;

const PASSED: &str = "a request passed uncounted";

fn limiter(clock: &ManualClock, on_outage: OnOutage) -> Limiter<str> {
    let rule = Rule::new("per-user", |user: &str| Some(user.into())).quotas("1/h").on_outage(on_outage);
    Limiter::builder_on(Away::at(clock)).rule(rule).build().unwrap()
}

#[test]
fn requests_that_fail_open_are_logged_once_a_minute() {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let limiter = limiter(&clock, OnOutage::Allow);
    let ask = |times: usize| Traces::of(|| (0..times).for_each(|_| drop(limiter.check_now("ann").unwrap())));
    let first = ask(100);
    assert_eq!(first.count(PASSED), 1);
    assert_eq!(first.count("rules=\"per-user\" kind=\"unavailable\" requests=1"), 1);
    clock.advance(Duration::from_secs(59));
    assert_eq!(ask(100).count(PASSED), 0);
    clock.advance(Duration::from_secs(1));
    let next = ask(100);
    assert_eq!(
        (next.count(PASSED), next.count("requests=200")),
        (1, 1),
        "those in between are in the next line"
    );
    // A clock that is set back is no reason to keep silent.
    clock.set(Timestamp::from_secs(1_600_000_000));
    assert_eq!(ask(1).count(PASSED), 1);
    assert_eq!(limiter.outages(), Outages { allowed: 301, denied: 0, local: 0 });
    assert!(Outages::of_process().allowed >= 301);
}

#[test]
fn a_line_says_what_was_decided_instead() {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    for (on_outage, words) in
        [(OnOutage::Deny, "a request was denied"), (OnOutage::Local, "this process's share of the limit did")]
    {
        let limiter = limiter(&clock, on_outage);
        let logged = Traces::of(|| drop(limiter.check_now("ann").unwrap()));
        assert_eq!(logged.count(words), 1, "{on_outage:?}");
    }
}

/// What operators have set is known to the process, and holds without the store.
#[test]
fn an_emergency_holds_in_an_outage() {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let every = [OnOutage::Allow, OnOutage::Local, OnOutage::Deny];
    for (emergency, mode, expected) in [
        ("emergency=block", Mode::On, [false, false, false]),
        ("emergency=lift", Mode::On, [true, true, true]),
        // A rule that only watches denies nobody.
        ("emergency=block", Mode::Monitor, [true, true, true]),
        ("emergency=off", Mode::On, [true, true, false]),
    ] {
        for (on_outage, expected) in every.into_iter().zip(expected) {
            let store = Away::at(&clock);
            let switch: Switch = format!("mode={mode} {emergency}").parse().unwrap();
            store.control().set_switch("per-user", switch).now().unwrap().unwrap();
            let rule =
                Rule::new("per-user", |user: &str| Some(user.into())).quotas("1/h").on_outage(on_outage);
            // This one stands beside it, and would let it pass.
            let other = Rule::new("other", |user: &str| Some(user.into())).quotas("9/h");
            let limiter = Limiter::builder_on(store).rule(rule).rule(other).build().unwrap();
            let decision = limiter.check_now("ann").unwrap();
            assert_eq!(decision.is_allowed(), expected, "{emergency} {mode} {on_outage:?}: {decision:?}");
        }
    }
}

/// What was lifted is not asked for the rest of the demand.
#[test]
fn a_lifted_rule_leaves_the_say_to_the_others() {
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let store = Away::at(&clock);
    store.control().set_switch("lifted", "emergency=lift".parse().unwrap()).now().unwrap().unwrap();
    let rule =
        |name, on_outage| Rule::new(name, |user: &str| Some(user.into())).quotas("1/h").on_outage(on_outage);
    let rules = [rule("lifted", OnOutage::Deny), rule("counted", OnOutage::Local)];
    let limiter = rules.into_iter().fold(Limiter::builder_on(store), LimiterBuilder::rule).build().unwrap();
    let allowed = [(); 2].map(|()| limiter.check_now("ann").unwrap().is_allowed());
    assert_eq!(allowed, [true, false]);
}
