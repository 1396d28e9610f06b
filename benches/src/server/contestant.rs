//! The servers: ours and its peer, each a process on a core of its own.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::machine::Pinning;
use crate::rss::resident_bytes;
use crate::server::load::{Callers, Job, Keys, Outcome, Pace};
use crate::server::wire::{NUMBER, Request};

/// What every key may have in an hour: more than anybody asks for. Times the microseconds of
/// an hour it is below 2^53: no limit that people set makes our script take its wide path.
const LIMIT: u32 = 2_000_000;
const WINDOW_SECONDS: u32 = 3_600;
/// What making a counter costs: so much that it is in use until the run is over. A bucket that
/// is full again is as good as none.
const FIRST_COST: u32 = 500_000;
/// Keys that are made in one call, where there is such a call.
const BATCH: usize = 1_000;
/// How long a server may take to start, and the peer to make its keys one by one.
const START_MAX: Duration = Duration::from_secs(10);
const FILL_MAX: Duration = Duration::from_secs(180);

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// `ratekeeper serve`.
    Ours,
    /// throttlecrab-server.
    Peer,
}

impl Candidate {
    /// What the tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Candidate::Ours => "ratekeeper",
            Candidate::Peer => "throttlecrab-server",
        }
    }

    /// What it says it is.
    ///
    /// # Errors
    /// If it is not there.
    pub fn version(self) -> Result<String> {
        let flag = if self == Candidate::Ours { "version" } else { "--version" };
        let output = Command::new(self.program()?).arg(flag).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }

    fn program(self) -> Result<PathBuf> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
        let (program, made_by) = match self {
            Candidate::Ours => ("release/ratekeeper", "cargo build --release -p ratekeeper-server"),
            Candidate::Peer => ("peers/bin/throttlecrab-server", "scripts/bench_server_peer.py"),
        };
        let program = target.join(program);
        if program.is_file() { Ok(program) } else { Err(format!("no {program:?}; run {made_by}").into()) }
    }

    /// One request for `cost` units.
    fn request(self, cost: Option<u32>) -> Request {
        match self {
            Candidate::Ours => Request::post("/v1/limit", &ours(cost)),
            Candidate::Peer => {
                let quantity = cost.map_or_else(String::new, |cost| format!(r#","quantity":{cost}"#));
                let body = format!(
                    r#"{{"key":"user:{NUMBER}","max_burst":{LIMIT},"count_per_period":{LIMIT},"period":{WINDOW_SECONDS}{quantity}}}"#
                );
                Request::post("/throttle", &body)
            }
        }
    }
}

fn ours(cost: Option<u32>) -> String {
    let cost = cost.map_or_else(String::new, |cost| format!(r#","cost":{cost}"#));
    format!(r#"{{"charges":[{{"key":"user:{NUMBER}","quota":"{LIMIT}/{WINDOW_SECONDS}s"{cost}}}]}}"#)
}

/// A server at work, and those who ask it.
#[derive(Debug)]
pub struct Contestant {
    /// Who it is.
    pub candidate: Candidate,
    process: Process,
    // Kept, so that nothing that is said later meets a closed pipe.
    _said: Said,
    callers: Callers,
}

impl Contestant {
    /// Starts it on the servers' core, with its counters in the Redis at `store` or in memory.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(candidate: Candidate, store: Option<&str>, pinning: Pinning) -> Result<Self> {
        let mut command = pinning.server_command(&candidate.program()?);
        let (process, said, address) = match candidate {
            Candidate::Ours => start_ours(command, store)?,
            Candidate::Peer => {
                // It cannot say which port it picked, so it gets one that was free just now.
                let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
                command.args(["--http", "--http-host", "127.0.0.1", "--http-port"]);
                let process = command.arg(address.port().to_string()).stdout(Stdio::null()).spawn()?;
                (Process(process), None, address)
            }
        };
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline {
                return Err(format!("{} does not listen at {address}", candidate.name()).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let callers = Callers::connect(address)?;
        Ok(Self { candidate, process, _said: said, callers })
    }

    /// Its process, by its number.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process.0.id()
    }

    /// The bytes of memory it has.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn memory(&self) -> Result<u64> {
        resident_bytes(&self.process().to_string())
    }

    /// Makes the counters of these keys.
    ///
    /// # Errors
    /// If one is not made.
    pub fn fill(&mut self, keys: Range<u32>) -> Result<()> {
        match self.candidate {
            Candidate::Ours => self.fill_in_batches(keys),
            Candidate::Peer => self.fill_one_by_one(keys),
        }
    }

    fn fill_one_by_one(&mut self, keys: Range<u32>) -> Result<()> {
        let request = self.candidate.request(Some(FIRST_COST));
        let all = Keys::Each(keys.start, keys.end);
        let outcome = self.callers.run(&Job { request, keys: all, pace: Pace::Closed, time: FILL_MAX })?;
        if outcome.allowed == keys.len() as u64 {
            return Ok(());
        }
        Err(format!("{} cannot make its counters: {outcome:?}", self.candidate.name()).into())
    }

    fn fill_in_batches(&mut self, keys: Range<u32>) -> Result<()> {
        for first in keys.clone().step_by(BATCH) {
            let batch = first..keys.end.min(first + BATCH as u32);
            let checks = vec![ours(Some(FIRST_COST)); batch.len()].join(",");
            let mut request = Request::post("/v1/limit/batch", &format!(r#"{{"checks":[{checks}]}}"#));
            self.callers.ask(request.about(batch.clone()), |answer| {
                let text = String::from_utf8_lossy(answer.body);
                let made = text.matches(r#""allowed":true"#).count();
                if made == batch.len() { Ok(()) } else { Err(format!("no counters: {text}").into()) }
            })?;
        }
        Ok(())
    }

    /// One turn.
    ///
    /// # Errors
    /// If the server is gone.
    pub fn run(&mut self, keys: Keys, pace: Pace, time: Duration) -> Result<Outcome> {
        self.callers.run(&Job { request: self.candidate.request(None), keys, pace, time })
    }
}

/// A process that ends when it is no longer held.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Said = Option<BufReader<ChildStdout>>;

/// Ours picks a port and says which.
fn start_ours(mut command: Command, store: Option<&str>) -> Result<(Process, Said, SocketAddr)> {
    command.args(["serve", "--http", "127.0.0.1:0", "--grpc", "off", "--store", store.unwrap_or("memory")]);
    let mut process = Process(command.stdout(Stdio::piped()).spawn()?);
    let mut said = BufReader::new(process.0.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    while said.read_line(&mut line)? > 0 {
        let address = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        if let Some(address) = address.and_then(|address| address.parse().ok()) {
            return Ok((process, Some(said), address));
        }
        line.clear();
    }
    Err("ratekeeper does not say where it listens".into())
}
