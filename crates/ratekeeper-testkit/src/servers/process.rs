//! A process that does not outlive the test, nor the process that runs the tests.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::POLL;
use crate::cpu;

/// What the watchdog does: it reads from a pipe that only we can write to. Nobody ever
/// does, so it reads on when the pipe is closed: however we ended, a killed test run or a
/// server in a `static` included.
const WATCHDOG: &str = r#"read -r _; kill -KILL "$1"; rm -rf -- "$2""#;
const PAUSE_DEADLINE: Duration = Duration::from_secs(10);

/// A running process; dropping it kills and reaps it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    watchdog: Option<Child>,
}

impl Process {
    /// Starts a process that works in `dir`, a folder that ends with us as well.
    pub(super) fn spawn(command: &mut Command, dir: &Path) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        // In this order, so that a failure of the second drops the first.
        let mut process = Self { child, watchdog: None };
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, "sh"]).arg(process.pid().to_string()).arg(dir);
        watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A signal to all of the test run is not for it: then it is needed.
        process.watchdog = Some(watchdog.process_group(0).spawn().expect("start the watchdog"));
        process
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("ask for our own child").is_some()
    }

    /// Stops it, and returns when it has stopped.
    pub(super) fn pause(&self) {
        self.signal("STOP");
        let end = Instant::now() + PAUSE_DEADLINE;
        while !self.is_paused() {
            assert!(Instant::now() < end, "process {} does not stop: {:?}", self.pid(), self.stat());
            sleep(POLL);
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.stat()[0] == "T"
    }

    pub(super) fn resume(&self) {
        self.signal("CONT");
    }

    /// The time it and all its threads have spent on a processor.
    pub(super) fn cpu_time(&self) -> Duration {
        cpu::spent(&self.stat())
    }

    fn stat(&self) -> Vec<String> {
        cpu::stat(&format!("/proc/{}/stat", self.pid()))
    }

    /// Sends a signal by way of the shell, which every machine has: `std` can only kill.
    fn signal(&self, name: &str) {
        let mut command = Command::new("sh");
        command.args(["-c", r#"kill -"$1" "$2""#, "sh", name]).arg(self.pid().to_string());
        let status = command.status().expect("run a shell");
        assert!(status.success(), "signal {name} to process {}: {status}", self.pid());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failure must not panic here, perhaps on the way out of a test that already
        // does. The number is ours until we wait, so the watchdog can hit nobody else.
        let _ = self.child.kill();
        if let Some(watchdog) = &mut self.watchdog {
            let _ = watchdog.kill();
            let _ = watchdog.wait();
        }
        let _ = self.child.wait();
    }
}
