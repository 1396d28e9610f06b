//! The Redis store on a busy machine: a binary of its own, because the processes that keep the machine busy would
//! disturb other tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, reason = "the rig is that of the outages, and this needs a part of it")]

mod calls;
#[path = "../redis/outages/control.rs"]
mod control;
#[path = "../redis/outages/load.rs"]
mod load;
#[path = "../redis/outages/logs.rs"]
mod logs;
#[path = "../redis/outages/rig.rs"]
mod rig;

use ratekeeper_testkit::wait::until;
