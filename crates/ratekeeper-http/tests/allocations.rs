//! Telling allocates the values that are told, and nothing else. A binary of its
//! own, because it has an allocator of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ratekeeper_core::{Charge, Charges, Decision, Key, Model, Name, Quota, Timestamp};
use ratekeeper_http::{Body, Denial, HttpOptions, Tally};
use ratekeeper_testkit::allocations::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn denied() -> Decision {
    let quotas: Vec<Quota> = ["2/s", "1/min", "1000/h", "9/d"].map(|text| text.parse().unwrap()).to_vec();
    let names: Vec<Name> =
        (0..4).map(|index| Name::new(&format!("per-user.tier-{index}")).unwrap()).collect();
    let mut charges = Charges::new();
    for (name, quota) in names.iter().zip(&quotas) {
        charges.push(Charge::new(Key::new(*name, "user:42").unwrap(), quota)).unwrap();
    }
    let (mut model, now) = (Model::default(), Timestamp::from_secs(1_700_000_000));
    model.check(&charges.check().unwrap(), now).unwrap();
    model.check(&charges.check().unwrap(), now).unwrap()
}

#[test]
fn only_values_are_allocated() {
    let (decision, options) = (denied(), HttpOptions::default());
    let denial = Denial::of(&decision, &options).expect("four tiers, one of them full");
    // The first value makes the buffer that its thread keeps.
    let _ = Tally::of(&decision).fields(&options);
    assert_eq!(allocations::of(|| drop(Tally::of(&decision))), 0, "a tally");
    let fields = allocations::of(|| assert_eq!(Tally::of(&decision).fields(&options).count(), 2));
    assert_eq!(fields, 2, "two values");
    assert_eq!(allocations::of(|| assert_eq!(denial.fields().count(), 3)), 1, "one value that is not fixed");
    assert_eq!(allocations::of(|| assert!(denial.body().len() > 200)), 1, "the body");
    let value = denial.body().into_owned();
    assert_eq!(value.capacity(), value.len(), "nothing to spare");
    let short = options.body(Body::Detail);
    let denial = Denial::of(&decision, &short).expect("as before");
    assert_eq!(allocations::of(|| assert!(!denial.body().is_empty())), 0, "a body that is fixed");
}
