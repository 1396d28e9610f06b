//! A decision in memory allocates nothing. A binary of its own, because it
//! counts what the whole process allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper::{Limiter, MemoryStore, Rule};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system's allocator.
#[allow(unsafe_code, reason = "a global allocator cannot be written without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of(limiter: &Limiter<str>, user: &str, checks: u32) -> u64 {
    limiter.check_now(user).expect("a good request");
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..checks {
        limiter.check_now(user).expect("a good request");
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

// One test, so that no other thread of the harness allocates meanwhile.
#[test]
fn checks_allocate_nothing() {
    let rule = |name: &str, quota: &str| Rule::new(name, |user: &str| Some(user.into())).quotas(quota);
    let algorithms = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window"];
    for algorithm in algorithms {
        let quota = format!("5000/h {algorithm}");
        let limiter =
            Limiter::builder(MemoryStore::new()).rule(rule("one", &quota)).build().expect("a good rule");
        assert_eq!(allocations_of(&limiter, "allowed, then denied", 10_000), 0, "{algorithm}");
    }
    let layered = Limiter::builder(MemoryStore::new())
        .rule(rule("user", "5000/h"))
        .rule(Rule::global("global").quotas("{rps=1000000, rpm=20000000} fixed_window"))
        .build()
        .expect("good rules");
    assert_eq!(allocations_of(&layered, "allowed, then denied", 10_000), 0, "three quotas");
}
