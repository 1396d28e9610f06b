//! Counts allocations. A test binary that wants to know makes [`Counting`] its allocator:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: ratekeeper_testkit::allocations::Counting = ratekeeper_testkit::allocations::Counting;
//!
//! assert_eq!(ratekeeper_testkit::allocations::of(|| drop(Box::new(1))), 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // By thread, because other tests run beside the one that counts.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of what each thread asks of it.
#[derive(Debug)]
pub struct Counting;

// SAFETY: passes everything on to the system's allocator.
#[allow(unsafe_code, reason = "a global allocator cannot be written without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How often `work` allocates on this thread.
pub fn of(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}
