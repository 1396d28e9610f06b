//! Waiting for what must happen. Nothing is assumed to have happened after some time: it is
//! looked for, until a deadline that only a failure reaches.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long anything may take that must happen, on the slowest machine. A sentinel looks at the role of a server every
/// ten seconds and believes a change after eight more, on a machine that does nothing else.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How often to look.
const STEP: Duration = Duration::from_millis(2);

/// Looks again and again whether something has happened.
///
/// # Panics
/// If it has not within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(STEP);
    }
}
