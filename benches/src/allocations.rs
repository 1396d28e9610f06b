//! Counts allocations: a check should make none.
//!
//! The binary makes [`Counting`] its allocator. It costs one look at a flag
//! per allocation while nothing is counted, so throughput may be measured in
//! the same process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Result;
use crate::candidate::Candidate;
use crate::measure::{Budget, Work};
use crate::scenario::{Load, SCENARIOS};

/// Checks over which allocations are counted.
pub const CHECKS: u64 = 100_000;
/// Index of the scenario they are counted in: 10^4 keys, Zipf.
const SCENARIO: usize = 1;

static ON: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with a count of what is asked of it.
#[derive(Debug)]
pub struct Counting;

fn count() {
    if ON.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How many allocations the checks of one candidate made.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// Who.
    pub candidate: Candidate,
    /// Admitted or denied.
    pub load: Load,
    /// In [`CHECKS`] checks.
    pub allocations: u64,
}

/// Counts for every candidate. Nothing else may run meanwhile.
///
/// # Errors
/// If a candidate cannot be set up, or [`Counting`] is not the allocator.
pub fn run() -> Result<Vec<Finding>> {
    if counted(|| drop(std::hint::black_box(Box::new(0u8)))) != 1 {
        return Err("allocations are not counted: `Counting` is not the global allocator".into());
    }
    let scenario = SCENARIOS[SCENARIO];
    let draws = scenario.draws();
    let mut findings = Vec::new();
    for load in Load::ALL {
        for candidate in Candidate::ALL {
            let Some(contestant) = candidate.build(load, scenario.keys)? else { continue };
            let allocations_in = |checks| {
                let work = Work { draws: &draws, first: 0, budget: Budget::Checks(checks), alone: true };
                counted(|| {
                    contestant.run(&work);
                })
            };
            // The first run makes what a thread makes once; the difference of
            // the other two leaves out the keys that every run makes.
            allocations_in(CHECKS);
            let (once, twice) = (allocations_in(CHECKS), allocations_in(2 * CHECKS));
            let allocations = twice.saturating_sub(once);
            findings.push(Finding { candidate, load, allocations });
        }
    }
    Ok(findings)
}

fn counted(of: impl FnOnce()) -> u64 {
    ALLOCATIONS.store(0, Ordering::Relaxed);
    ON.store(true, Ordering::Relaxed);
    of();
    ON.store(false, Ordering::Relaxed);
    ALLOCATIONS.load(Ordering::Relaxed)
}
