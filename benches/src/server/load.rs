//! Those who ask: in a closed loop as soon as they are answered, in an open loop at a fixed
//! rate, whether the answers keep up or not.
//!
//! They poll rather than sleep: on one machine a server that answers steadily would wake them
//! for every answer, one that answers in bursts once per burst, and waking is no small part of
//! an answer's cost. Callers elsewhere are woken by somebody else. A closed loop that sleeps is
//! there to compare with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use crate::Result;
use crate::scenario::Random;
use crate::series::percentile;
use crate::server::wire::{Answer, Connection, Request};

/// Connections that ask at once.
pub const CONNECTIONS: usize = 64;
/// How long after its end an open loop goes on with what is overdue.
const OVERDUE_MAX: Duration = Duration::from_secs(5);

/// When the next request is sent.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Whenever a connection has been answered.
    Closed,
    /// The same, asleep until there is an answer.
    Asleep,
    /// So many times per second. Waits count from the instant a request is due, also if
    /// no connection is free to send it then.
    Open(f64),
}

/// Which key is asked about next.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// Always this.
    One(u32),
    /// Any below this number.
    Below(u32),
    /// All from the first number up to but without the second, once each.
    Each(u32, u32),
}

/// What to do, and for how long.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is sent.
    pub request: Request,
    /// About what.
    pub keys: Keys,
    /// How often.
    pub pace: Pace,
    /// How long at most.
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Requests that were answered.
    pub answered: u64,
    /// Those of them that were let pass.
    pub allowed: u64,
    /// Those that were denied.
    pub denied: u64,
    /// Requests that got another answer or none, or could not be sent in time.
    pub failed: u64,
    /// Why the first of them did.
    pub why: Option<String>,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// The median wait.
    pub p50: Duration,
    /// The wait that one in a hundred exceeds.
    pub p99: Duration,
    /// How much of the time there was something to send or to read: near 1, the server
    /// waited for the load, not the load for the server. Not a number if the load slept.
    pub busy: f64,
}

/// The connections to a server.
#[derive(Debug)]
pub struct Callers {
    runtime: Runtime,
    connections: Vec<Connection>,
    runs: u64,
}

impl Callers {
    /// Opens them.
    ///
    /// # Errors
    /// If the server does not listen.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        // One thread: the load has one core.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            connections.push(runtime.block_on(Connection::open(address))?);
        }
        Ok(Self { runtime, connections, runs: 0 })
    }

    /// Sends one request on one connection and gives its answer to `judge`.
    ///
    /// # Errors
    /// If it is not answered, or `judge` says so.
    pub fn ask<T>(&mut self, request: &[u8], judge: impl FnOnce(Answer<'_>) -> Result<T>) -> Result<T> {
        let connection = self.connections.first_mut().ok_or("no connection")?;
        judge(self.runtime.block_on(connection.ask(request))?)
    }

    /// Does a job with all connections.
    ///
    /// # Errors
    /// If the server does not listen any more.
    pub fn run(&mut self, job: &Job) -> Result<Outcome> {
        self.runs += 1;
        let start = Instant::now();
        let plan = Arc::new(Plan::new(job.clone(), start));
        let seed = self.runs << 32;
        let connections = std::mem::take(&mut self.connections);
        let (tallies, idle) = self.runtime.block_on(async {
            let awake =
                (!matches!(plan.job.pace, Pace::Asleep)).then(|| tokio::spawn(stay_awake(Arc::clone(&plan))));
            let callers = connections.into_iter().zip(seed..).map(|(connection, seed)| {
                tokio::spawn(caller(connection, Arc::clone(&plan), Random::new(seed)))
            });
            // All begin before the first is waited for.
            let callers: Vec<_> = callers.collect();
            let mut tallies = Vec::with_capacity(callers.len());
            for caller in callers {
                let (connection, tally) = caller.await??;
                self.connections.push(connection);
                tallies.push(tally);
            }
            plan.done.store(true, Ordering::Relaxed);
            let idle = match awake {
                Some(awake) => Some(awake.await?),
                None => None,
            };
            Ok::<_, Box<dyn std::error::Error>>((tallies, idle))
        })?;
        let elapsed = start.elapsed();
        Ok(plan.outcome(tallies, elapsed, idle))
    }
}

/// What all callers of a job know.
struct Plan {
    job: Job,
    start: Instant,
    /// Open loop: how many requests were due. Whoever holds it waits for the next, so that
    /// only one connection watches the clock.
    due: Mutex<u64>,
    /// Keys that have had their turn, where each is asked about once.
    next: AtomicU32,
    /// Answers so far.
    answers: AtomicU64,
    /// Whether all callers are done.
    done: AtomicBool,
}

impl Plan {
    fn new(job: Job, start: Instant) -> Self {
        let (next, answers, done) = (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { job, start, due: Mutex::default(), next, answers, done }
    }

    /// Returns when a request is to be sent, with the instant its wait counts from; `None`
    /// when there is no more to do.
    async fn turn(&self) -> Option<Instant> {
        let end = self.start + self.job.time;
        let Pace::Open(rate) = self.job.pace else {
            let now = Instant::now();
            return (now < end).then_some(now);
        };
        let mut number = self.due.lock().await;
        let due = self.start + Duration::from_secs_f64(*number as f64 / rate);
        if due >= end || Instant::now() > end + OVERDUE_MAX {
            return None;
        }
        // The runtime's timers are in milliseconds. Yielding looks at the sockets each time.
        while Instant::now() < due {
            tokio::task::yield_now().await;
        }
        *number += 1;
        Some(due)
    }

    fn key(&self, random: &mut Random) -> Option<u32> {
        match self.job.keys {
            Keys::One(key) => Some(key),
            Keys::Below(end) => Some(random.below(end)),
            Keys::Each(first, end) => {
                let key = first + self.next.fetch_add(1, Ordering::Relaxed);
                (key < end).then_some(key)
            }
        }
    }

    /// How many requests an open loop should have sent by now.
    fn planned(&self) -> u64 {
        match self.job.pace {
            Pace::Closed | Pace::Asleep => 0,
            Pace::Open(rate) => (self.job.time.as_secs_f64() * rate) as u64,
        }
    }

    fn outcome(&self, tallies: Vec<Tally>, elapsed: Duration, idle: Option<Duration>) -> Outcome {
        let busy = idle.map_or(f64::NAN, |idle| 1.0 - idle.as_secs_f64() / elapsed.as_secs_f64());
        let mut outcome = Outcome { elapsed, busy, ..Outcome::default() };
        let mut waits = Vec::new();
        for tally in tallies {
            waits.extend(tally.waits);
            outcome.allowed += tally.allowed;
            outcome.denied += tally.denied;
            outcome.failed += tally.failed;
            outcome.why = outcome.why.or(tally.why);
        }
        outcome.answered = waits.len() as u64;
        let unsent = self.planned().saturating_sub(outcome.answered + outcome.failed);
        if unsent > 0 {
            outcome.failed += unsent;
            outcome.why.get_or_insert_with(|| format!("{unsent} requests were never sent"));
        }
        outcome.p50 = percentile(&mut waits, 50);
        outcome.p99 = percentile(&mut waits, 99);
        outcome
    }
}

/// What one caller has to tell.
#[derive(Default)]
struct Tally {
    waits: Vec<Duration>,
    allowed: u64,
    denied: u64,
    failed: u64,
    why: Option<String>,
}

impl Tally {
    /// Both servers tell first whether it is allowed; one of them denies with 200.
    fn count(&mut self, answer: Answer<'_>) {
        let allowed = answer.body.starts_with(br#"{"allowed":true"#);
        match answer.status {
            200 if allowed => self.allowed += 1,
            429 => self.denied += 1,
            200 if answer.body.starts_with(br#"{"allowed":false"#) => self.denied += 1,
            status => self.fail(format!("{status}: {}", String::from_utf8_lossy(answer.body))),
        }
    }

    fn fail(&mut self, why: String) {
        self.failed += 1;
        self.why.get_or_insert(why);
    }
}

/// Has the runtime look at the sockets again instead of sleeping, until all callers are done;
/// tells for how long there was nothing.
async fn stay_awake(plan: Arc<Plan>) -> Duration {
    let (mut idle, mut answers, mut last) = (Duration::ZERO, 0, Instant::now());
    while !plan.done.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
        let (now, so_far) = (Instant::now(), plan.answers.load(Ordering::Relaxed));
        if so_far == answers {
            idle += now - last;
        }
        (answers, last) = (so_far, now);
    }
    idle
}

async fn caller(
    mut connection: Connection,
    plan: Arc<Plan>,
    mut random: Random,
) -> std::io::Result<(Connection, Tally)> {
    let mut tally = Tally::default();
    let mut request = plan.job.request.clone();
    while let Some(begin) = plan.turn().await {
        let Some(key) = plan.key(&mut random) else { break };
        match connection.ask(request.about([key])).await {
            Ok(answer) => {
                tally.waits.push(begin.elapsed());
                plan.answers.fetch_add(1, Ordering::Relaxed);
                tally.count(answer);
            }
            Err(error) => {
                tally.fail(error.to_string());
                connection.reopen().await?;
            }
        }
    }
    Ok((connection, tally))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    const ALLOWED: &str = r#"{"allowed":true}"#;

    /// Answers every request; each connection's first only after `delay`.
    fn server(delay: Duration, status: &'static str, body: &'static str) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let mut buffer = [0; 1024];
                    let mut delay = delay;
                    while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
                        thread::sleep(std::mem::take(&mut delay));
                        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
                        stream.write_all((head + body).as_bytes()).unwrap();
                    }
                });
            }
        });
        address
    }

    fn job(keys: Keys, pace: Pace, time: Duration) -> Job {
        Job { request: Request::post("/", "########"), keys, pace, time }
    }

    #[test]
    fn an_open_loop_waits_from_the_instant_a_request_was_due() {
        let delay = Duration::from_millis(300);
        let mut callers = Callers::connect(server(delay, "200 OK", ALLOWED)).unwrap();
        // All connections are busy after 64 of the 200 requests; the others wait for them.
        let outcome =
            callers.run(&job(Keys::One(1), Pace::Open(1_000.0), Duration::from_millis(200))).unwrap();
        assert_eq!((outcome.answered, outcome.allowed, outcome.failed), (200, 200, 0), "{:?}", outcome.why);
        assert!(outcome.p50 > Duration::from_millis(150), "{:?}", outcome.p50);
    }

    #[test]
    fn a_closed_loop_asks_about_each_key_once_and_tells_answers_apart() {
        let each = job(Keys::Each(5, 1_005), Pace::Closed, Duration::from_secs(60));
        let run = |status, body| {
            Callers::connect(server(Duration::ZERO, status, body)).unwrap().run(&each).unwrap()
        };
        let outcome = run("200 OK", ALLOWED);
        assert_eq!((outcome.answered, outcome.allowed, outcome.denied), (1_000, 1_000, 0));
        let outcome = run("200 OK", r#"{"allowed":false}"#);
        assert_eq!((outcome.allowed, outcome.denied), (0, 1_000));
        let outcome = run("429 Too Many Requests", "{}");
        assert_eq!((outcome.denied, outcome.failed), (1_000, 0));
        let outcome = run("500 Internal Server Error", "{}");
        assert_eq!((outcome.denied, outcome.failed), (0, 1_000));
        assert_eq!(outcome.why.unwrap(), "500: {}");
    }
}
