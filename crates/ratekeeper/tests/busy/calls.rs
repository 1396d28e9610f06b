//! A busy machine is no outage: a server that answers in time is not taken for a silent one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use ratekeeper::{Charge, Check, Key, Name, Quota, RedisStore, Store};
use ratekeeper_testkit::servers::Flavour;

use super::rig::{PASSWORD, RULE, Rig, quota, server};
use super::until;

/// Processes that only compute, on two processors.
const BUSY: usize = 4;
const CALLERS: u64 = 200;
/// Calls of each way to make them.
const CALLS: u64 = 100_000;
/// So many calls may fail open unexplained with a deadline of 25 ms, and none with one of 250 ms. Own lateness that is taken
/// for the server's silence is another matter: that were 800 to 6,000.
const UNEXPLAINED_MAX: u64 = 10;
/// How long a caller does something else after a call without an answer.
const PAUSE: Duration = Duration::from_millis(1);
/// Of the counters.
const WINDOW: Duration = Duration::from_secs(3_600);

struct Busy(Vec<Child>);

impl Busy {
    fn start() -> Self {
        let spin = || {
            let mut shell = Command::new("sh");
            // Ends with this process, whatever becomes of it: the pipe says so.
            shell.args(["-c", "exec 3<&0; (read -r _ <&3; kill $$ 2>&-) & while :; do :; done"]);
            shell.stdin(Stdio::piped()).spawn().unwrap()
        };
        Self((0..BUSY).map(|_| spin()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Asks the server again and again on a connection of its own, without our store: as late as it is then, it is late for
/// everybody. A server that is kept from its processor between its charge and its answer is seen by nothing else.
struct Witness {
    late: Arc<Mutex<Vec<(Instant, Instant)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Witness {
    fn start(port: u16, deadline: Duration) -> Self {
        let (late, stop) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (notes, stopped) = (Arc::clone(&late), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
            let mut ask = |command: &str| {
                write!(stream.get_mut(), "{command}\r\n").unwrap();
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                assert!(line.starts_with('+'), "{line}");
            };
            ask(&format!("AUTH {PASSWORD}"));
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                ask("PING");
                if began.elapsed() >= deadline / 2 {
                    notes.lock().unwrap().push((began, Instant::now()));
                }
                std::thread::sleep(PAUSE);
            }
        });
        Self { late, stop, thread: Some(thread) }
    }

    /// Whether the server was late for it, too, while a call was made.
    fn excuses(&self, call: &Unanswered) -> bool {
        self.late.lock().unwrap().iter().any(|(from, to)| *from < call.to && *to > call.from)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A call that was not answered, and when it was made.
struct Unanswered {
    subject: String,
    made: SystemTime,
    from: Instant,
    to: Instant,
    why: String,
}

/// Each call has a counter of its own, which keeps the server's time of its charge.
async fn ask(store: &RedisStore, quota: &Quota, subject: String) -> Option<Unanswered> {
    let (made, from) = (SystemTime::now(), Instant::now());
    let charge = Charge::new(Key::new(Name::new(RULE).unwrap(), &subject).unwrap(), quota);
    let why = store.check(&Check::one(&charge)).await.err()?.to_string();
    Some(Unanswered { subject, made, from, to: Instant::now(), why })
}

/// All calls of one caller.
async fn caller(store: RedisStore, caller: u64, left: Arc<AtomicU64>) -> Vec<Unanswered> {
    let quota = quota(1);
    let mut unanswered = Vec::new();
    let takes_one = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    while let Ok(number) = takes_one() {
        if let Some(call) = ask(&store, &quota, format!("{caller}-{number}")).await {
            unanswered.push(call);
            // Refusals cost next to nothing: without a pause, an open breaker would take all that are left.
            tokio::time::sleep(PAUSE).await;
        }
    }
    unanswered
}

fn by_tasks(rig: &Rig, calls: u64) -> Vec<Unanswered> {
    let left = Arc::new(AtomicU64::new(calls));
    let tasks =
        (0..CALLERS).map(|number| rig.runtime.spawn(caller(rig.store.clone(), number, Arc::clone(&left))));
    let tasks: Vec<_> = tasks.collect();
    tasks.into_iter().flat_map(|task| rig.runtime.block_on(task).unwrap()).collect()
}

fn by_threads(rig: &Rig, calls: u64) -> Vec<Unanswered> {
    let left = Arc::new(AtomicU64::new(calls));
    let threads = (0..CALLERS).map(|number| {
        let (runtime, store, left) = (rig.runtime.handle().clone(), rig.store.clone(), Arc::clone(&left));
        std::thread::spawn(move || runtime.block_on(caller(store, number, left)))
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
}

/// How long after it was made the server charged a call; none if it did not.
fn charged_after(rig: &Rig, call: &Unanswered) -> Option<Duration> {
    let charge = Charge::new(Key::new(Name::new(RULE).unwrap(), &call.subject).unwrap(), &rig.quota);
    let check = Check::one(&charge).peek();
    let (mut before, mut found) = (SystemTime::now(), None);
    // The breaker may have to close first.
    until("a peek", || {
        before = SystemTime::now();
        found = rig.runtime.block_on(rig.store.check(&check)).ok();
        found.is_some()
    });
    let found = found.unwrap();
    let verdict = &found.verdicts()[0];
    if verdict.remaining() > 0 {
        return None;
    }
    let began = before + verdict.reset_after().min(WINDOW) - WINDOW;
    Some(began.duration_since(call.made).unwrap_or_default())
}

fn none_fails_open(
    title: &str,
    deadline: Duration,
    unexplained_max: u64,
    make: fn(&Rig, u64) -> Vec<Unanswered>,
) -> u64 {
    let server = server(Flavour::Redis7, &[]);
    let rig = Rig::with(title, server.port(), 1, |builder| builder.deadline(deadline)).connected();
    let witness = Witness::start(server.port(), deadline);
    let unanswered = {
        let _busy = Busy::start();
        make(&rig, CALLS)
    };
    let unexcused = unanswered.iter().filter(|call| !witness.excuses(call));
    let in_time = unexcused.clone().filter_map(|call| {
        let after = charged_after(&rig, call).filter(|after| *after <= deadline)?;
        Some(format!("{}: charged {after:?} after it was made, and {}", call.subject, call.why))
    });
    let in_time: Vec<String> = in_time.collect();
    rig.say(&format!("{} of {CALLS} calls not answered: {:?}", unanswered.len(), rig.health().by_kind));
    assert!(in_time.len() as u64 <= unexplained_max, "{in_time:#?}");
    // Own lateness excuses a second deadline and no more: a machine that is later than that is busier than this test makes it.
    let is_ours = |call: &&Unanswered| rig.control.lateness(call.from, call.to) < deadline;
    unexcused.filter(is_ours).count() as u64
}

#[test]
fn tasks_are_answered_that_the_server_answers_in_time() {
    none_fails_open("busy, tasks", Duration::from_millis(25), UNEXPLAINED_MAX, by_tasks);
}

#[test]
fn threads_are_answered_that_the_server_answers_in_time() {
    none_fails_open("busy, threads", Duration::from_millis(25), UNEXPLAINED_MAX, by_threads);
}

#[test]
fn none_is_unanswered_with_a_longer_deadline() {
    for make in [by_tasks, by_threads] {
        let unanswered = none_fails_open("busy, 250 ms", Duration::from_millis(250), 0, make);
        assert_eq!(unanswered, 0, "of {CALLS}");
    }
}
