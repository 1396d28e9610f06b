//! Time spent on a processor: what work costs, however busy the machine is with other things.

use std::fs;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// What this thread has spent so far, in steps of about 10 ms.
#[must_use]
pub fn of_this_thread() -> Duration {
    spent(&stat("/proc/thread-self/stat"))
}

/// What somebody has spent whose [`stat`] this is, in user and in system mode.
pub(crate) fn spent(stat: &[String]) -> Duration {
    // Counted from the state, which is the third in proc(5): utime and stime.
    let number = |field: &String| field.parse::<u64>().expect("a number of ticks");
    let ticks: u64 = stat[11..13].iter().map(number).sum();
    Duration::from_micros(ticks * 1_000_000 / ticks_per_second())
}

/// The fields of a file `stat` in `/proc` from the state on; the name before it may have blanks.
pub(crate) fn stat(path: &str) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (_, fields) = text.rsplit_once(')').expect("a name in brackets");
    fields.split_whitespace().map(str::to_owned).collect()
}

fn ticks_per_second() -> u64 {
    static TICKS: OnceLock<u64> = OnceLock::new();
    *TICKS.get_or_init(|| {
        let output = Command::new("getconf").arg("CLK_TCK").output().ok();
        let said = output.and_then(|output| String::from_utf8(output.stdout).ok()?.trim().parse().ok());
        said.unwrap_or(100)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::until;

    #[test]
    fn work_is_counted_and_waiting_is_not() {
        let before = of_this_thread();
        until("a tenth of a second of work", || {
            (0..100_000).for_each(|n: u64| {
                std::hint::black_box(n);
            });
            of_this_thread() - before >= Duration::from_millis(100)
        });
        let before = of_this_thread();
        std::thread::sleep(Duration::from_millis(200));
        assert!(of_this_thread() - before < Duration::from_millis(100));
    }
}
