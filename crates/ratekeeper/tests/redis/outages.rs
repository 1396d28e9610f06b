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
mod kinds;
mod load;
pub(crate) mod logs;
mod lost;
mod policies;
mod refusals;
mod rig;
mod slow;
mod totals;

use ratekeeper_testkit::wait::{PATIENCE, until};
