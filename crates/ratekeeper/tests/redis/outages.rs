//! Real servers that fail while many callers ask, and what those callers saw.
//!
//! Every caller keeps its own log; what a test asserts it finds there, in the
//! counters of the server, or in the lines the store has written. Time is real,
//! because the servers are; nothing here sleeps in the hope that something has
//! happened by then.

mod calls;
mod control;
mod crowd;
mod flush;
mod full;
mod load;
pub(crate) mod logs;
mod lost;
mod policies;
mod refusals;
mod rig;

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long anything may take that must happen. Only a failure takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks again and again whether something has happened.
#[track_caller]
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(1));
    }
}
