//! What a denied request is answered with.

use std::collections::BTreeSet;
use std::time::Duration;

use ratekeeper_core::{Decision, Emergency, Model, Origin, Outcome};
use ratekeeper_http::{Body, Denial, HttpOptions, Legacy, Tally};
use serde_json::json;

use crate::support::{NOW, by_name, decide, denied_body, plan, with_check};

fn outage() -> Decision {
    Decision::without_store(Outcome::Deny, Origin::Outage, NOW)
}

#[test]
fn what_is_allowed_is_no_denial() {
    let options = HttpOptions::default();
    assert!(Denial::of(&decide(&[plan("api", "1/min")], 0), &options).is_none());
    assert!(Denial::of(&Decision::default(), &options).is_none());
    let lucky = Decision::without_store(Outcome::Allow, Origin::Outage, NOW);
    assert!(Denial::of(&lucky, &options).is_none());
}

#[test]
fn a_problem_document_tells_what_happened() {
    let decision = decide(&[plan("minute", "2/min"), plan("day", "2/d"), plan("wide", "9/s")], 2);
    let options = HttpOptions::default();
    let denial = Denial::of(&decision, &options).unwrap();
    assert_eq!((denial.status(), denial.content_type()), (429, "application/problem+json"));
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "The policy 'day' has no room for this request; the same request passes in 43200 seconds.",
        "violated-policies": ["minute", "day"],
    });
    assert_eq!(denied_body(&decision, &options), expected);
    let fields = by_name(denial.fields());
    assert_eq!(fields["retry-after"], "43200");
    assert_eq!(fields["cache-control"], "no-store");
    assert_eq!(fields["content-type"], "application/problem+json");
}

#[test]
fn the_detail_fits_the_reason() {
    let cases = [
        (
            plan("api", "1/s"),
            "The policy 'api' has no room for this request; the same request passes in 1 second.",
        ),
        (
            plan("slots", "1/90s concurrency"),
            "The policy 'slots' has no room for this request; the same request passes in at most 90 seconds.",
        ),
        (plan("api", "1/s").cost(2), "This request asks for more than the policy 'api' can ever allow."),
        (plan("api", "1/s").emergency(Emergency::Block), "The policy 'api' lets nothing pass at present."),
    ];
    for (plan, detail) in cases {
        assert_eq!(denied_body(&decide(&[plan], 1), &HttpOptions::default())["detail"], detail);
    }
}

#[test]
fn what_never_passes_is_not_told_to_come_back() {
    let options = HttpOptions::default();
    for plan in [plan("api", "1/s").cost(2), plan("api", "1/s").emergency(Emergency::Block)] {
        let decision = decide(&[plan, plan_of_a_day()], 0);
        let denial = Denial::of(&decision, &options).unwrap();
        assert_eq!((denial.status(), denial.retry_after()), (429, None));
        assert!(!by_name(denial.fields()).contains_key("retry-after"));
        assert!(!by_name(denial.grpc_fields()).contains_key("retry-after"));
    }
}

fn plan_of_a_day() -> crate::support::Plan {
    plan("day", "5/d")
}

#[test]
fn whoever_would_not_wait_is_told_for_how_long() {
    // Leaky buckets let in what must then wait; whoever would not, gives up.
    let waits = decide(&[plan("drip", "1/4s leaky_bucket queue 3")], 2).given_up();
    let options = HttpOptions::default();
    let denial = Denial::of(&waits, &options).unwrap();
    assert_eq!((denial.status(), denial.retry_after()), (429, Some(8)));
    let body = denied_body(&waits, &options);
    assert_eq!(
        body["detail"],
        "There is no room for this request at present; the same request passes in 8 seconds."
    );
    assert_eq!(body["violated-policies"], json!([]));
}

#[test]
fn a_denial_by_the_failure_policy_is_503() {
    let decision = outage();
    let options = HttpOptions::default();
    let denial = Denial::of(&decision, &options).unwrap();
    assert_eq!((denial.status(), denial.retry_after()), (503, Some(1)));
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        "title": "Temporary Reduced Capacity",
        "status": 503,
        "detail": "The limits of this service could not be checked; try again in 1 second.",
        "violated-policies": [],
    });
    assert_eq!(denied_body(&decision, &options), expected);
    let patient = options.outage_retry_after(Duration::from_millis(29_001));
    assert_eq!(by_name(Denial::of(&decision, &patient).unwrap().fields())["retry-after"], "30");
}

#[test]
fn a_share_of_the_limit_that_denies_during_an_outage_is_429() {
    let decision = decide(&[plan("api", "1/min")], 1).from_origin(Origin::Outage);
    let options = HttpOptions::default();
    let denial = Denial::of(&decision, &options).unwrap();
    assert_eq!((denial.status(), denial.retry_after()), (429, Some(60)));
}

#[test]
fn an_outage_behind_a_quota_with_room_is_503() {
    let joined = decide(&[plan("own", "9/min")], 0).joined(&outage());
    let options = HttpOptions::default();
    let denial = Denial::of(&joined, &options).unwrap();
    assert_eq!((denial.status(), denial.retry_after()), (503, Some(1)));
    assert_eq!(denied_body(&joined, &options)["violated-policies"], json!([]));
}

#[test]
fn the_body_may_be_application_kits() {
    let options = HttpOptions::default().body(Body::Detail);
    let decision = decide(&[plan("api", "1/min")], 1);
    let denial = Denial::of(&decision, &options).unwrap();
    assert_eq!(denial.body(), r#"{"detail": "Rate limit exceeded. Try again later."}"#);
    assert_eq!(by_name(denial.fields())["content-type"], "application/json");
    let unchecked = json!({"detail": "Rate limits could not be checked. Try again later."});
    assert_eq!(denied_body(&outage(), &options), unchecked);
}

#[test]
fn grpc_has_its_own_words() {
    let options = HttpOptions::default();
    let decision = decide(&[plan("100 %", "1/min")], 1);
    let fields: Vec<_> = Denial::of(&decision, &options).unwrap().grpc_fields().collect();
    let message = "The policy '100 %25' has no room for this request; the same request passes in 60 seconds.";
    let expected = [
        ("content-type", "application/grpc".into()),
        ("cache-control", "no-store".into()),
        ("grpc-status", "8".into()),
        ("grpc-message", message.into()),
        ("retry-after", "60".into()),
    ];
    assert_eq!(fields, expected);
    let decision = outage();
    let denial = Denial::of(&decision, &options).unwrap();
    assert_eq!(denial.grpc_status(), "14");
    assert_eq!(by_name(denial.grpc_fields())["grpc-status"], "14");
}

/// Who follows `t` of a request that can never pass would ask in a loop.
#[test]
fn a_request_that_can_never_pass_is_told_no_time() {
    for before in [0, 3] {
        let mut model = Model::default();
        let mut ask =
            |cost| with_check(&[plan("api", "4/min").cost(cost)], |check| model.check(&check, NOW).unwrap());
        ask(before);
        let decision = ask(5);
        assert!(decision.retry_after().is_never());
        let options = HttpOptions::default().legacy(Legacy::RateLimit);
        let fields = by_name(Tally::of(&decision).fields(&options));
        assert!(!fields["ratelimit"].contains(";t="), "{fields:?}");
        assert!(!fields.contains_key("ratelimit-reset"), "{fields:?}");
        let spread = options.retry_after_spread(100);
        let denial = Denial::of(&decision, &spread).unwrap();
        assert!(denial.fields().all(|(name, _)| name != "retry-after"));
    }
}

#[test]
fn a_wait_is_lengthened_by_a_random_share_and_never_shortened() {
    let cases = [
        ("2/min fixed_window", 10, 60, 66),
        ("1/s", 10, 1, 2),
        ("2/h fixed_window", 100, 3_600, 7_200),
        ("2/31d fixed_window", 100, 2_678_400, 2_682_000),
    ];
    for (quota, percent, least, most) in cases {
        let decision = decide(&[plan("api", quota)], 2);
        let told = |options: &HttpOptions| Denial::of(&decision, options).unwrap().retry_after().unwrap();
        assert_eq!(told(&HttpOptions::default()), least, "{quota}");
        let spread = HttpOptions::default().retry_after_spread(percent);
        let waits: BTreeSet<u64> = (0..1_000).map(|_| told(&spread)).collect();
        assert!(waits.iter().all(|wait| (least..=most).contains(wait)), "{quota}: {waits:?}");
        assert!(waits.len() > 1, "{quota}: they do not return together");
        // One answer says one thing, and its body when the request passes.
        let denial = Denial::of(&decision, &spread).unwrap();
        let fields = by_name(denial.fields());
        assert_eq!(fields["retry-after"], denial.retry_after().unwrap().to_string());
        assert!(denial.body().contains(&format!(" {least} second")), "{}", denial.body());
    }
}
