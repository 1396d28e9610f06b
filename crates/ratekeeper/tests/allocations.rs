//! A decision in memory allocates nothing, but for the first denial of a shard, which makes room for copies of counters that
//! deny. A binary of its own, because it has an allocator of its own.

use ratekeeper::{Limiter, MemoryStore, Rule};
use ratekeeper_testkit::allocations::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The first denial of the only key.
const ROOM_FOR_DENIALS: u64 = 1;

fn allocations_of(limiter: &Limiter<str>, user: &str, checks: u32) -> u64 {
    limiter.check_now(user).expect("a good request");
    allocations::of(|| {
        for _ in 0..checks {
            limiter.check_now(user).expect("a good request");
        }
    })
}

#[test]
fn checks_allocate_nothing() {
    let rule = |name: &str, quota: &str| Rule::new(name, |user: &str| Some(user.into())).quotas(quota);
    let algorithms = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window"];
    for algorithm in algorithms {
        let quota = format!("5000/h {algorithm}");
        let limiter =
            Limiter::builder(MemoryStore::new()).rule(rule("one", &quota)).build().expect("a good rule");
        assert_eq!(allocations_of(&limiter, "allowed, then denied", 10_000), ROOM_FOR_DENIALS, "{algorithm}");
        assert_eq!(allocations_of(&limiter, "allowed, then denied", 10_000), 0, "{algorithm}, denied");
    }
    let layered = Limiter::builder(MemoryStore::new())
        .rule(rule("user", "5000/h"))
        .rule(Rule::global("global").quotas("{rps=1000000, rpm=20000000} fixed_window"))
        .build()
        .expect("good rules");
    assert_eq!(allocations_of(&layered, "allowed, then denied", 10_000), 0, "three quotas");
}
