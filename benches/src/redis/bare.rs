//! The bare load generator: batches that our store once sent, sent again as fast as the
//! server answers them. What the server gives that script and that batch size.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use crate::Result;
use crate::machine::own_cpu;
use crate::redis::contestant::{Contestant, Job, Outcome, Work};
use crate::redis::load::{self, InProcess};
use crate::redis::ours::Ours;
use crate::redis::record::{Batches, Proxy, batches};
use crate::redis::scenario::Setting;
use crate::series::percentile;

/// Batches under way at a time, at least: the server has the next when it is done with one.
const WINDOW_MIN: usize = 2;
/// How long our store is recorded: some thousand batches.
const RECORDING: Duration = Duration::from_millis(300);

/// A connection and what to send over it.
#[derive(Debug)]
pub struct Bare {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
    /// What is sent.
    pub batches: Batches,
    next: usize,
    /// Batches under way at a time: with small ones as many as the callers would fill.
    pub window: usize,
}

impl Bare {
    /// Records what our store sends for so many callers. Its counters should be there already.
    ///
    /// # Errors
    /// If our store sends no batch, or the server does not answer.
    pub fn new(port: u16, setting: Setting, callers: usize) -> Result<Self> {
        let proxy = Proxy::start(port)?;
        let runtime = load::runtime()?;
        let ours = runtime.block_on(Ours::new(&proxy.url(), setting))?;
        let mut recorded = InProcess::new(&runtime, ours, setting);
        let outcome = recorded.run(Job { work: Work::Time(RECORDING), callers })?;
        if let Some(why) = outcome.why {
            return Err(format!("while it was recorded: {why}").into());
        }
        // With the runtime its connections go, and with them the proxy's.
        drop((recorded, runtime));
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        let answers = BufReader::new(stream.try_clone()?);
        let batches = batches(&proxy.finish())?;
        let window = (callers / batches.checks.max(1)).max(WINDOW_MIN);
        Ok(Self { stream, answers, batches, next: 0, window })
    }

    fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.batches.requests[self.next])?;
        self.next = (self.next + 1) % self.batches.requests.len();
        Ok(())
    }

    /// Reads an answer, which is one string.
    fn receive(&mut self, line: &mut String, buffer: &mut Vec<u8>) -> Result<()> {
        line.clear();
        self.answers.read_line(line)?;
        let length = line.strip_prefix('$').and_then(|length| length.trim().parse::<usize>().ok());
        let length = length.ok_or_else(|| format!("an answer of another kind: {line}"))?;
        buffer.resize(length + 2, 0);
        Ok(self.answers.read_exact(buffer)?)
    }
}

impl Contestant for Bare {
    fn run(&mut self, job: Job) -> Result<Outcome> {
        let Work::Time(time) = job.work else { return Err("it only replays".into()) };
        let (mut line, mut buffer, mut waits) = (String::new(), Vec::new(), Vec::new());
        let mut sent = VecDeque::with_capacity(self.window);
        let (cpu, start) = (own_cpu()?, Instant::now());
        let mut now = start;
        loop {
            while sent.len() < self.window && now < start + time {
                self.send()?;
                sent.push_back(now);
            }
            let Some(sent_at) = sent.pop_front() else { break };
            self.receive(&mut line, &mut buffer)?;
            now = Instant::now();
            waits.push(now - sent_at);
        }
        let checks = (waits.len() * self.batches.checks) as u64;
        Ok(Outcome {
            checks,
            admitted: checks,
            failed: 0,
            why: None,
            elapsed: now - start,
            p50: percentile(&mut waits, 50),
            p99: percentile(&mut waits, 99),
            cpu: own_cpu()?.saturating_sub(cpu),
        })
    }
}
