//! A store, a limiter on it and a runtime, around one server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ratekeeper::store::redis::{DEADLINE_DEFAULT, TOTAL_DEADLINES_DEFAULT};
use ratekeeper::{
    Algorithm, BreakerState, Charge, Check, Decision, Health, Key, Limiter, Name, OnOutage, Origin, Quota,
    RedisStore, RedisStoreBuilder, Rule, Store, StoreError, StoreErrorKind,
};
use ratekeeper_testkit::cpu;
use ratekeeper_testkit::servers::{Flavour, Server};
use tokio::runtime::Runtime;

use super::control::Control;
use super::load::{Load, Log};
use super::{logs, until};

/// Must be in no line of the log and in no error.
pub(super) const PASSWORD: &str = "correct-horse";
/// The name of the rule.
pub(super) const RULE: &str = "outage";
/// The subject that all callers share, unless a test says otherwise.
pub(super) const SHARED: &str = "all";
/// What a request may take longer than its total and the lateness of a timer: one in 10,000 may be later, ...
const GRACE: Duration = Duration::from_millis(5);
/// ... but none by so much.
const LATE_MAX: Duration = Duration::from_millis(100);
/// The deadline where a test is about something else: longer than a busy machine keeps a server from its processor.
pub(super) const PATIENT: Duration = Duration::from_secs(3);
/// Refusals to take the average of.
const REFUSALS: u32 = 100_000;

pub(super) struct Rig {
    pub(super) store: RedisStore,
    pub(super) limiter: Arc<Limiter<str>>,
    pub(super) quota: Quota,
    pub(super) control: Control,
    pub(super) runtime: Runtime,
    title: String,
    port: u16,
    total: Duration,
    skipped_lines: usize,
    _turn: MutexGuard<'static, ()>,
}

/// A server that wants [`PASSWORD`].
pub(super) fn server(flavour: Flavour, directives: &[(&str, &str)]) -> Server {
    Server::start_with(flavour, &[&[("requirepass", PASSWORD)], directives].concat())
}

/// Runs a command on a server that wants [`PASSWORD`].
pub(super) fn cli(server: &Server, arguments: &[&str]) -> String {
    server.cli(&[&["--no-auth-warning", "-a", PASSWORD], arguments].concat())
}

/// A field of an answer to INFO.
pub(super) fn info(server: &Server, section: &str, field: &str) -> Option<String> {
    let answer = cli(server, &["INFO", section]);
    let value = answer.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.map(|value| value.trim().to_owned())
}

/// How often a server was sent a command.
pub(super) fn calls_of(server: &Server, command: &str) -> u64 {
    let stats = info(server, "commandstats", &format!("cmdstat_{command}"));
    let calls = stats.as_deref().map(|stats| stats.strip_prefix("calls=").unwrap().split(',').next());
    calls.flatten().map_or(0, |calls| calls.parse().unwrap())
}

/// A limit that lasts longer than any test.
pub(super) fn quota(limit: u64) -> Quota {
    Quota::new(Algorithm::FixedWindow, limit, Duration::from_secs(3_600)).unwrap()
}

impl Rig {
    pub(super) fn new(title: &str, server: &Server, limit: u64) -> Self {
        Self::with(title, server.port(), limit, |builder| builder)
    }

    /// The same with a deadline that only a server without an answer misses.
    pub(super) fn patient(title: &str, server: &Server, limit: u64) -> Self {
        let rig = Self::with(title, server.port(), limit, |builder| builder.deadline(PATIENT));
        Self { total: PATIENT * TOTAL_DEADLINES_DEFAULT, ..rig }
    }

    /// A store on a port, waiting for its turn: tests that measure time go one by one.
    pub(super) fn with(
        title: &str,
        port: u16,
        limit: u64,
        settings: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
    ) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped_lines = logs::begin();
        let (runtime, control) = Control::of_new_runtime();
        let builder = RedisStore::builder(&format!("redis://:{PASSWORD}@127.0.0.1:{port}"));
        let store = {
            let _inside = runtime.enter();
            settings(builder).build().unwrap()
        };
        let quota = quota(limit);
        let limiter = limiter_on(&store, quota, OnOutage::Allow);
        let (title, total) = (title.to_owned(), DEADLINE_DEFAULT * TOTAL_DEADLINES_DEFAULT);
        Self { store, limiter, quota, control, runtime, title, port, total, skipped_lines, _turn: turn }
    }

    /// Waits until the store is connected.
    pub(super) fn connected(self) -> Self {
        until("a connection", || self.runtime.block_on(self.store.ping()).is_ok());
        self
    }

    /// Callers at work during something; what they saw.
    pub(super) fn load(&self, during: impl FnOnce(&Load)) -> Log {
        self.load_of(|_| SHARED.to_owned(), during)
    }

    pub(super) fn load_of(&self, subject: impl Fn(usize) -> String, during: impl FnOnce(&Load)) -> Log {
        let load = Load::start(&self.runtime, &self.limiter, subject);
        during(&load);
        let log = load.stop(&self.runtime);
        self.assert_nobody_waited(&log);
        log
    }

    /// No request waited longer than its total, but for what a timer in this process was late meanwhile.
    #[track_caller]
    fn assert_nobody_waited(&self, log: &Log) {
        let spans = log.0.iter().map(|seen| (seen.start, seen.end));
        let longest = self.assert_ended_within(self.total, spans);
        self.say(&format!(
            "{} requests, {} admitted, {} unanswered of which {} let through, longest {longest:?}",
            log.0.len(),
            log.admitted(),
            log.unanswered(),
            log.let_through(),
        ));
    }

    /// Calls that ended within a bound: at most one in 10,000 later by [`GRACE`] than the control, none by [`LATE_MAX`].
    #[track_caller]
    pub(super) fn assert_ended_within(
        &self,
        bound: Duration,
        spans: impl Iterator<Item = (Instant, Instant)>,
    ) -> Duration {
        let (mut longest, mut count, mut late) = (Duration::ZERO, 0_usize, 0);
        for (start, end) in spans {
            let took = end - start;
            longest = longest.max(took);
            count += 1;
            if took <= bound + GRACE {
                continue;
            }
            let beyond = took - bound;
            let control = self.control.lateness(start, end);
            assert!(
                beyond < control + LATE_MAX,
                "{took:?} of {bound:?}, and a timer was late by {control:?}"
            );
            late += usize::from(beyond > control + GRACE);
        }
        assert!(
            late <= count.div_ceil(10_000),
            "{late} of {count} later than {bound:?}, at most {longest:?}"
        );
        longest
    }

    pub(super) fn say(&self, what: &str) {
        println!("{}: {what}", self.title);
    }

    pub(super) fn health(&self) -> Health {
        self.store.health()
    }

    /// Asks the store itself; with `peek` nothing is charged.
    pub(super) fn ask(&self, subject: &str, peek: bool) -> Result<Decision, StoreError> {
        self.ask_for(subject, &self.quota, 1, peek)
    }

    fn ask_for(&self, subject: &str, quota: &Quota, units: u64, peek: bool) -> Result<Decision, StoreError> {
        let charge = Charge::new(Key::new(Name::new(RULE).unwrap(), subject).unwrap(), quota);
        let charge = charge.cost(units).unwrap();
        let check = Check::one(&charge);
        let check = if peek { check.peek() } else { check };
        let answer = self.runtime.block_on(self.store.check(&check));
        if let Err(error) = &answer {
            assert_no_secret(&format!("{error} {error:?}"));
        }
        answer
    }

    /// How many units a counter has counted, as soon as the store can say.
    #[track_caller]
    pub(super) fn used(&self, subject: &str) -> u64 {
        self.used_of(subject, &self.quota)
    }

    /// The same for a counter with another quota.
    #[track_caller]
    pub(super) fn used_of(&self, subject: &str, quota: &Quota) -> u64 {
        let mut used = None;
        until("a peek", || {
            used = self.ask_for(subject, quota, 1, true).ok().map(|decision| {
                assert_eq!(decision.origin(), Origin::Store);
                u64::from(quota.limit() - decision.verdicts()[0].remaining())
            });
            used.is_some()
        });
        used.unwrap()
    }

    /// Uses up so many units of a counter.
    pub(super) fn spend(&self, subject: &str, units: u64) {
        until("units spent", || {
            // Whatever becomes of it: the counter tells.
            let _ = self.ask_for(subject, &self.quota, units - self.used(subject), false);
            self.used(subject) == units
        });
    }

    #[track_caller]
    pub(super) fn breaker_is(&self, state: BreakerState) {
        until(&format!("breaker {state:?}"), || self.health().breaker == state);
    }

    /// What a check costs that the breaker refuses, on average. Whatever it would wait for is
    /// no answer at once; the rest is work.
    #[track_caller]
    pub(super) fn assert_refusals_are_cheap(&self) {
        let charge = Charge::new(Key::new(Name::new(RULE).unwrap(), SHARED).unwrap(), &self.quota);
        let check = Check::one(&charge);
        let before = cpu::of_this_thread();
        for _ in 0..REFUSALS {
            let refusal = self.store.check(&check).now().expect("an answer at once");
            assert!(refusal.is_err());
        }
        let each = (cpu::of_this_thread() - before) / REFUSALS;
        self.say(&format!("a refused check costs {each:?}"));
        assert!(each < Duration::from_micros(5), "{each:?}");
    }

    /// What the store has written to the log.
    pub(super) fn lines(&self) -> Vec<String> {
        logs::about(self.port, self.skipped_lines)
    }

    /// The lines about a kind of failure: each time it begins and ends.
    pub(super) fn lines_of(&self, kind: StoreErrorKind) -> Vec<String> {
        let kind = format!("kind=\"{}\"", kind.name());
        self.lines().into_iter().filter(|line| line.contains(&kind)).collect()
    }

    /// A kind of failure has begun and ended in the log, by turns, with the reason.
    #[track_caller]
    pub(super) fn assert_logged(&self, kind: StoreErrorKind, reason: &str) {
        let begun = self.lines_of(kind);
        assert!(begun.first().is_some_and(|line| line.contains(reason)), "{kind:?}, {reason}: {begun:#?}");
        assert!(self.health().by_kind.count(kind) > 0, "{:?}", self.health());
        until("the kind over", || !self.health().by_kind.is_lasting(kind));
        let lines = self.lines_of(kind);
        for (number, line) in lines.iter().enumerate() {
            let expected = ["the store fails checks", "fails no checks of this kind any more"][number % 2];
            assert!(line.contains(expected), "line {number} of {lines:#?}");
        }
        assert_eq!(lines.len() % 2, 0, "{lines:#?}");
    }

    /// One line for each change of the breaker's state, by turns, and closed in the end.
    #[track_caller]
    pub(super) fn assert_lines(&self) {
        let is_breaker = |line: &String| line.contains("circuit breaker");
        let lines: Vec<String> = self.lines().into_iter().filter(is_breaker).collect();
        for (number, line) in lines.iter().enumerate() {
            let expected = if number % 2 == 0 { "circuit breaker open" } else { "circuit breaker closed" };
            assert!(line.contains(expected), "line {number} of {lines:#?}");
        }
        let opened = lines.len().div_ceil(2) as u64;
        assert_eq!(self.health().breaker_opened, opened, "{lines:#?}");
        self.say(&format!("{lines:?}"));
        logs::all().iter().for_each(|line| assert_no_secret(line));
        assert_no_secret(&format!("{:?} {:?}", self.store, self.limiter));
    }
}

pub(super) fn limiter_on(store: &RedisStore, quota: Quota, on_outage: OnOutage) -> Arc<Limiter<str>> {
    let rule = Rule::new(RULE, |subject: &str| Some(subject.into())).quota(quota).on_outage(on_outage);
    Arc::new(Limiter::builder(store.clone()).rule(rule).build().unwrap())
}

#[track_caller]
pub(super) fn assert_no_secret(text: &str) {
    assert!(!text.contains(PASSWORD), "{text}");
}
