//! Peers in other languages: processes that read commands and answer each with a line.
//!
//! `benches/peers/limits_bench.py` says what commands and answers look like.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use crate::Result;
use crate::redis::contestant::{Contestant, Job, Outcome, Work};
use crate::redis::scenario::{FIRST_COST, HOT_ATTEMPTS, Setting};

/// A peer's process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Dropped to end the process; always there before.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// What it says it is.
    pub about: String,
}

impl Process {
    /// Python's `limits`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn limits(url: &str) -> Result<Self> {
        let mut command = Command::new(installed("venv/bin/python")?);
        command.arg(source("limits_bench.py")).arg(url);
        Self::start(command)
    }

    /// Node's `rate-limiter-flexible`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn flexible(url: &str) -> Result<Self> {
        let mut command = Command::new("node");
        command.arg(source("flexible_bench.cjs")).arg(url).env("NODE_PATH", installed("node_modules")?);
        Self::start(command)
    }

    fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("a child without output")?);
        let mut process = Self { child, commands, answers, about: String::new() };
        process.about = process.line()?;
        Ok(process)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("the peer ended: {}", self.child.wait()?).into());
        }
        Ok(line.trim().to_owned())
    }

    fn ask(&mut self, command: &str) -> Result<Outcome> {
        let commands = self.commands.as_mut().ok_or("a peer that was ended")?;
        writeln!(commands, "{command}")?;
        commands.flush()?;
        outcome(&self.line()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends when there are no more commands; nobody is left to hear if it does not.
        self.commands = None;
        let _ = self.child.wait();
    }
}

/// A file of `benches/peers`.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

/// What `scripts/bench_peers.py` installed.
fn installed(name: &str) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers").join(name);
    if !path.exists() {
        return Err(format!("there is no {}: run make bench-peers", path.display()).into());
    }
    Ok(path)
}

/// An answer as it stands in a line.
fn outcome(line: &str) -> Result<Outcome> {
    let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [checks, admitted, failed, elapsed, p50, p99, cpu] = numbers[..] else {
        return Err(format!("not an answer: {line}").into());
    };
    let why = (failed > 0).then(|| "see what the peer printed".to_owned());
    let [elapsed, p50, p99, cpu] = [elapsed, p50, p99, cpu].map(Duration::from_micros);
    Ok(Outcome { checks, admitted, failed, why, elapsed, p50, p99, cpu })
}

/// A peer's process, asked about one setting of several.
#[derive(Debug)]
pub struct Remote {
    process: Rc<RefCell<Process>>,
    setting: Setting,
}

impl Remote {
    /// A contestant of a running process.
    #[must_use]
    pub fn new(process: &Rc<RefCell<Process>>, setting: Setting) -> Self {
        Self { process: Rc::clone(process), setting }
    }
}

impl Contestant for Remote {
    fn run(&mut self, job: Job) -> Result<Outcome> {
        let (word, amount) = match job.work {
            Work::Fill => ("fill", u128::from(FIRST_COST)),
            Work::Time(time) => ("time", time.as_millis()),
            Work::Hammer => ("hammer", u128::from(HOT_ATTEMPTS)),
        };
        let tiers = self.setting.tiers().into_iter().map(|tier| format!("{}/{}", tier.limit, tier.seconds));
        let tiers = tiers.collect::<Vec<_>>().join(",");
        let (callers, keys, prefix) = (job.callers, self.setting.keys(), self.setting.prefix());
        self.process.borrow_mut().ask(&format!("{word} {amount} {callers} {keys} {prefix} {tiers}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_seven_numbers() {
        let outcome = outcome("10 9 1 2000000 3 4 5").unwrap();
        assert_eq!((outcome.checks, outcome.admitted, outcome.failed), (10, 9, 1));
        assert_eq!((outcome.elapsed, outcome.cpu), (Duration::from_secs(2), Duration::from_micros(5)));
        assert!(super::outcome("10 9 1").is_err() && super::outcome("Traceback").is_err());
    }
}
