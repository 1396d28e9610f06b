//! Exact, explained, all-or-nothing rate limits.

mod clock;
pub mod store;

pub use clock::SystemClock;
pub use ratekeeper_core::*;
pub use store::memory::MemoryStore;
pub use store::{Overrides, Store, StoreError, StoreErrorKind, StoreFuture};
