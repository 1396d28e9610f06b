//! Policies in files and folders that change while they are watched.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod folder;
mod refused;
mod replaced;
mod resumed;
mod rig;
