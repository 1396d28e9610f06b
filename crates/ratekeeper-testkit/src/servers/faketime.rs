//! Clocks of servers that a test sets, by libfaketime.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::executable;

/// What the library reads with every look at the clock, in the server's folder: seconds to add.
const CLOCK: &str = "clock";

/// Lets a process see the clock in `dir`, which is right at first.
pub(super) fn preload(command: &mut Command, dir: &Path) {
    set(dir, 0);
    command.env("LD_PRELOAD", library()).env("FAKETIME_TIMESTAMP_FILE", dir.join(CLOCK));
    // Time that is measured goes on as it does; only the time of day is stepped.
    command.env("FAKETIME_NO_CACHE", "1").env("DONT_FAKE_MONOTONIC", "1");
}

pub(super) fn set(dir: &Path, seconds: i64) {
    let aside = dir.join("clock.new");
    fs::write(&aside, format!("{seconds:+}\n")).expect("write the clock");
    // So that nobody reads half of it.
    fs::rename(aside, dir.join(CLOCK)).expect("put the clock in place");
}

/// Where the library is: the program that is made for people knows.
fn library() -> String {
    let mut command = Command::new(executable("faketime"));
    let output = command.args(["-f", "+0", "printenv", "LD_PRELOAD"]).stdin(Stdio::null()).output();
    let output = output.expect("run faketime");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
