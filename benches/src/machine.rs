//! Who runs on which core, and how much of it they used.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::Result;

/// The server's core.
const SERVER_CORE: usize = 0;
/// The core of everybody who asks: this process, and the peers it starts.
const CLIENT_CORE: usize = 1;

/// Whether server and clients have a core each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// They have.
    Apart,
    /// They share what there is.
    None,
}

impl Pinning {
    /// Puts this process, and with it all it starts later, on the clients' core, if it can.
    #[must_use]
    pub fn of_this_process() -> Self {
        if pin(std::process::id(), CLIENT_CORE) { Pinning::Apart } else { Pinning::None }
    }

    /// Puts the process of a server on its own core, which it would otherwise not leave to us.
    ///
    /// # Errors
    /// If we have a core of our own and it cannot have one.
    pub fn apply(self, server: u32) -> Result<()> {
        if self == Pinning::Apart && !pin(server, SERVER_CORE) {
            return Err(format!("process {server} cannot be put on core {SERVER_CORE}").into());
        }
        Ok(())
    }

    /// A command that starts a server on that core.
    #[must_use]
    pub fn server_command(self, program: &Path) -> Command {
        match self {
            Pinning::None => Command::new(program),
            Pinning::Apart => {
                let mut command = Command::new("taskset");
                command.args(["-c", &SERVER_CORE.to_string()]).arg(program);
                command
            }
        }
    }

    /// For the conditions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Pinning::Apart => "server on core 0, all clients on core 1",
            Pinning::None => "NONE: server and clients share the cores, for want of two or of `taskset`",
        }
    }
}

/// Puts a process with all its threads on a core; says whether it is there.
fn pin(pid: u32, core: usize) -> bool {
    let mut command = Command::new("taskset");
    command.args(["-apc", &core.to_string(), &pid.to_string()]);
    command.output().is_ok_and(|output| output.status.success())
}

/// The time this process has spent on a processor, in steps of about 10 ms.
///
/// # Errors
/// If the system does not say.
pub fn own_cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // After the name, which may have blanks: the state, and eleven further on utime and stime.
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat has no name in brackets")?;
    let times: Vec<u64> =
        fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(Duration::from_micros(times.iter().sum::<u64>() * 1_000_000 / ticks_per_second()))
}

/// The time that the threads a process has now have spent on a processor, to the nanosecond.
///
/// # Errors
/// If the system does not say.
pub fn cpu_of(process: u32) -> Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let times = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += times.split_whitespace().next().ok_or("a thread without times")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

fn ticks_per_second() -> u64 {
    static TICKS: OnceLock<u64> = OnceLock::new();
    *TICKS.get_or_init(|| {
        let output = Command::new("getconf").arg("CLK_TCK").output().ok();
        output.and_then(|output| String::from_utf8(output.stdout).ok()?.trim().parse().ok()).unwrap_or(100)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        let before = own_cpu().unwrap();
        while own_cpu().unwrap() < before + Duration::from_millis(20) {}
        assert!(cpu_of(std::process::id()).unwrap() >= Duration::from_millis(20));
    }
}
