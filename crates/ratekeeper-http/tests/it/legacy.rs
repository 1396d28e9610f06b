//! The fields of old: the strictest policy, delta or epoch.

use ratekeeper_core::{Decision, Emergency, Enforcement};
use ratekeeper_http::{HttpOptions, Legacy, Reset, Tally, field};

use crate::support::{Plan, by_name, decide, plan};

fn told(options: HttpOptions, before: usize) -> Vec<(&'static str, String)> {
    let decision = decide(&[plan("requests", "100/min"), plan("elements", "4/7s fixed_window")], before);
    let fields = by_name(Tally::of(&decision).fields(&options.without_standard()));
    let mut fields: Vec<_> = fields.into_iter().collect();
    fields.sort_unstable();
    fields
}

fn owned<'a>(fields: &[(&'a str, &str)]) -> Vec<(&'a str, String)> {
    fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

#[test]
fn they_are_of_the_policy_with_the_least_share_left() {
    let options = HttpOptions::default().legacy(Legacy::RateLimit);
    let expected = [("ratelimit-limit", "4"), ("ratelimit-remaining", "3"), ("ratelimit-reset", "7")];
    assert_eq!(told(options, 0), owned(&expected));
    let expected = [("ratelimit-limit", "4"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "7")];
    assert_eq!(told(options, 4), owned(&expected), "denied");
}

#[test]
fn they_may_have_a_prefix_and_an_instant() {
    let options = HttpOptions::default().legacy(Legacy::XRateLimit).legacy_reset(Reset::Epoch);
    let expected =
        [("x-ratelimit-limit", "4"), ("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1700000007")];
    assert_eq!(told(options, 0), owned(&expected));
}

#[test]
fn an_instant_is_rounded_up() {
    let options = HttpOptions::default().legacy(Legacy::RateLimit).legacy_reset(Reset::Epoch);
    let decision = decide(&[plan("api", "3/s")], 0);
    let fields = by_name(Tally::of(&decision).fields(&options));
    assert_eq!(fields["ratelimit-reset"], "1700000001", "a third of a second is a second");
}

#[test]
fn they_stand_beside_the_standard_ones_or_nowhere() {
    let decision = decide(&[plan("api", "3/s")], 0);
    let count = |options: HttpOptions| Tally::of(&decision).fields(&options).count();
    assert_eq!(count(HttpOptions::default()), 2);
    assert_eq!(count(HttpOptions::default().legacy(Legacy::RateLimit)), 5);
    assert_eq!(count(HttpOptions::default().legacy_reset(Reset::Epoch)), 2);
    assert_eq!(count(HttpOptions::default().without_standard()), 0);
    assert_eq!(count(HttpOptions::without_fields()), 0);
}

#[test]
fn a_block_has_no_reset() {
    let blocked = decide(&[plan("api", "3/s").emergency(Emergency::Block)], 0);
    let options = HttpOptions::without_fields().legacy(Legacy::RateLimit);
    let fields = by_name(Tally::of(&blocked).fields(&options));
    assert_eq!((fields.len(), fields["ratelimit-remaining"].as_str()), (2, "0"));
}

/// They told of the last policy: 999 left, beside a `Retry-After` of the first.
#[test]
fn they_are_of_the_policy_that_denies() {
    let options = HttpOptions::without_fields().legacy(Legacy::XRateLimit);
    let of = |decision: &Decision| {
        let fields = by_name(Tally::of(decision).fields(&options));
        [0, 1, 2].map(|index| fields.get(field::LEGACY_X[index]).cloned().unwrap_or_default())
    };
    let few = plan("few", "2/min fixed_window");
    let many = plan("many", "1000/h fixed_window");
    for plans in [[few.clone(), many.clone()], [many, few.clone()]] {
        assert_eq!(of(&decide(&plans, 1)), ["2", "0", "60"], "the least left");
        let denied = decide(&plans, 2);
        assert!(!denied.is_allowed());
        assert_eq!(of(&denied), ["2", "0", "60"], "the one that denies");
    }
    // Of two that deny, the one that does so longer.
    let long = plan("long", "2/h fixed_window");
    assert_eq!(of(&decide(&[long.clone(), few.clone()], 2)), ["2", "0", "3600"]);
    // What only watches does not hide what is enforced.
    let watching = Plan { enforcement: Enforcement::Shadow, ..long };
    assert_eq!(of(&decide(&[watching.clone(), plan("wide", "9/min fixed_window")], 2)), ["9", "6", "60"]);
    assert_eq!(of(&decide(&[watching], 2)), ["2", "0", "3600"]);
}

/// Shares, not numbers: 5 of 1000 is less than 4 of 5.
#[test]
fn the_strictest_has_the_least_share_left() {
    let options = HttpOptions::without_fields().legacy(Legacy::RateLimit);
    let plans = [plan("small", "5/min").cost(1), plan("large", "1000/min").cost(995)];
    let fields = by_name(Tally::of(&decide(&plans, 0)).fields(&options));
    assert_eq!((&*fields["ratelimit-limit"], &*fields["ratelimit-remaining"]), ("1000", "5"));
}
