//! Values on a server that a fuzzer made of real ones. The fuzz target `stored_values` compiles this file, too.
//!
//! Each input is one value at a key that checks read. Whatever is done with it then is done between healthy
//! checks, whose answers must not change.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use ratekeeper::{
    Algorithm, Charge, Charges, Check, Decision, Key, ManualClock, Name, Override, OverrideScope, Quota,
    RedisStore, RedisStoreBuilder, Reservation, Store, StoreError, StoreErrorKind, Timestamp,
};
use ratekeeper_testkit::penal::PenalRule;
use ratekeeper_testkit::poison::Draw;
use ratekeeper_testkit::poison::stored::{Entry, changed, plant, read};
use ratekeeper_testkit::servers::{Client, Flavour, Server};
use tokio::runtime::{Builder, Runtime};

/// When values are made.
const MADE: u64 = 1_700_000_000_000_000;
const HOUR: u64 = 3_600_000_000;
/// What is done with each value.
const CALLS: usize = 5;
/// Time on a processor that the server may take for all that is done with one value.
const CPU_MAX: Duration = Duration::from_millis(250);
const ID: &str = "fuzzed-id";
const SCOPE: (&str, &str, &str) = ("/x", "7", "42");
/// One of each algorithm, tiers of a rule, lists of several blocks, windows and limits of other levels.
const SCENES: [&[&str]; 13] = [
    &["5/h"],
    &["5/h leaky_bucket queue 4"],
    &["5/h fixed_window"],
    &["5 per calendar day"],
    &["5/h sliding_window"],
    &["5/h sliding_log"],
    &["5/h concurrency"],
    &["5/h", "50/d", "700000/d fixed_window", "9/h sliding_window", "5/h fixed_window aligned"],
    &["5/h", "50/30m", "7/10m", "50/d"],
    &["5/h", "500/h sliding_log", "500/h concurrency"],
    &["999999937/31d", "3/s burst 1000"],
    &["400/h sliding_log"],
    &["400/h concurrency"],
];
/// Healthy checks: the first takes the short way.
const HEALTHY: [&str; 6] = [
    "1000/h",
    "1000/h fixed_window",
    "1000/h sliding_window",
    "1000/h sliding_log",
    "1000/h leaky_bucket queue 999",
    "1000/h concurrency",
];

/// A check, and what is on the server after it was made a few times.
struct Scene {
    check: Check<'static>,
    decision: Decision,
    entries: Vec<Entry>,
}

impl Scene {
    fn has_lists(&self) -> bool {
        self.check.charges().iter().any(|charge| charge.quota().algorithm().keeps_all())
    }

    /// Everything that counts in it.
    fn counters(&self) -> Vec<(Key<'static>, Algorithm)> {
        let charged = self.check.charges().iter().map(|charge| (charge.key(), charge.quota().algorithm()));
        let penal = self.check.penalties().iter().flat_map(|penalty| {
            let counters = [Some(penalty.gate), Some(penalty.strikes), penalty.offences];
            let key = |name| Key::new(name, penalty.subject).expect("a short key");
            counters.into_iter().flatten().map(move |(name, quota)| (key(name), quota.algorithm()))
        });
        charged.chain(penal).collect()
    }
}

/// One server and everything that values are made of.
pub(crate) struct FuzzedValues {
    runtime: Runtime,
    store: RedisStore,
    clock: ManualClock,
    client: Client,
    server: Server,
    scenes: Vec<Scene>,
    healthy: Vec<Charge<'static>>,
}

/// For the rest of the process.
fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn quota(text: &str) -> &'static Quota {
    leaked(text.parse().expect("a quota"))
}

fn scope() -> OverrideScope<'static> {
    OverrideScope::project(SCOPE.0, SCOPE.1, SCOPE.2).expect("a short scope")
}

fn charges(scene: usize, quotas: &[&str]) -> Check<'static> {
    let rule = Name::new(&format!("fuzzed{scene}")).expect("a short name");
    let mut charges = Charges::new();
    for (index, text) in quotas.iter().enumerate() {
        let tier = Name::joined(rule, &format!("t{index}")).expect("a short name");
        let name = if quotas.len() == 1 { rule } else { tier };
        charges.push(Charge::new(Key::new(name, "s").expect("a short key"), quota(text))).expect("few");
    }
    leaked(charges).check().expect("some charges")
}

/// A counter of Application Kit, or one beside it, that follows overrides.
fn overridable(name: &str, text: &str) -> Check<'static> {
    let key = Key::new(Name::new(name).expect("a short name"), "/x:7:42").expect("a short key");
    Check::one(leaked(Charge::new(key, quota(text)).overridable(scope())))
}

impl FuzzedValues {
    /// Starts a server; `builder` makes a builder of stores on its URL.
    pub(crate) fn new(builder: impl FnOnce(&str) -> RedisStoreBuilder) -> Self {
        let server = Server::start(Flavour::Redis7);
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let clock = ManualClock::default();
        let store = {
            let _inside = runtime.enter();
            builder(&server.url()).clock(Arc::new(clock.clone())).build().expect("a store")
        };
        let healthy = HEALTHY.iter().enumerate().map(|(index, text)| {
            let name = Name::new(&format!("well{index}")).expect("a short name");
            Charge::new(Key::new(name, "s").expect("a short key"), quota(text))
        });
        let (client, healthy) = (server.client(), healthy.collect());
        let mut all = Self { runtime, store, clock, client, server, scenes: Vec::new(), healthy };
        all.make_scenes();
        all
    }

    fn make_scenes(&mut self) {
        for (index, quotas) in SCENES.iter().enumerate() {
            self.add_scene(charges(index, quotas));
        }
        let rule = leaked(PenalRule::new(
            "penal",
            "3/1h fixed_window",
            &["1/1h fixed_window", "1/1d fixed_window"],
            Some("4/30d"),
        ));
        let penal = Charge::new(Key::new(rule.name, "s").expect("a short key"), quota("5/h"));
        let penalties = leaked([rule.penalty("s", 0..1)]);
        self.add_scene(Check::one(leaked(penal)).with_penalties(penalties).expect("of its charge"));
        for (name, text) in [("kit", "5/h fixed_window"), ("beside", "5/h"), ("log", "5/h sliding_log")] {
            self.add_scene(overridable(name, text));
        }
    }

    /// Makes a check until there is something of every kind: counters, a record of an id, the note of a receipt, a
    /// secret, overrides.
    fn add_scene(&mut self, check: Check<'static>) {
        self.client.call(&[b"FLUSHALL"]);
        let overridable = check.charges().iter().any(|charge| charge.override_scope().is_some());
        // Above 200, lists have three blocks.
        let limit = check.charges().iter().map(|charge| charge.quota().limit()).min().unwrap_or_default();
        let often = if (400..1_000).contains(&limit) { 250 } else { 2 };
        let (store, clock) = (&self.store, &self.clock);
        let decision = self.runtime.block_on(async {
            if overridable {
                let organisation = OverrideScope::organisation(SCOPE.0, SCOPE.1).expect("a short scope");
                for scope in [scope(), organisation] {
                    store.overrides().set(scope, Override::limit(5)).await.expect("set");
                }
            }
            let mut decision = Decision::default();
            for index in 0..often {
                clock.set(Timestamp::from_micros(MADE + index));
                decision = store.check(&check).await.expect("a healthy value");
                assert!(decision.is_allowed());
            }
            decision.set_nonce(7);
            let hold = Reservation::hold(ID, Duration::from_secs(600)).expect("a short id");
            assert!(store.reserve(&check, &hold).await.expect("a healthy value").is_allowed());
            store.refund(&check, &decision.apart(), 1).await.expect("a healthy value");
            store.shared_secret().await.expect("a secret");
            decision
        });
        let entries = read(&mut self.client);
        self.scenes.push(Scene { check, decision, entries });
    }

    /// Puts the value that `bytes` say at its key, and does to it what they say.
    ///
    /// # Panics
    /// If anything but what meets the value fails or changes, or the server takes too long.
    pub(crate) fn run(&mut self, bytes: &[u8]) {
        let draw = &mut Draw::new(bytes);
        let Self { runtime, store, clock, client, server, scenes, healthy } = self;
        let scene = &scenes[draw.below(scenes.len())];
        let poisoned = draw.below(scene.entries.len());
        let value = changed(draw, &scene.entries[poisoned].1, &scene.entries);
        let entry = (scene.entries[poisoned].0.clone(), value);
        let mut commands = vec![vec![b"FLUSHALL".to_vec()]];
        let others = scene.entries.iter().enumerate().filter(|(index, _)| *index != poisoned);
        commands.extend(others.flat_map(|(_, entry)| plant(entry, true)));
        commands.extend(plant(&entry, draw.byte().is_multiple_of(2)));
        client.all(&commands);
        let later = draw.one(&[0, 0, 1_000_000, HOUR / 2, 3 * HOUR]);
        let now = if draw.byte().is_multiple_of(8) { MADE - HOUR } else { MADE + later };
        clock.set(Timestamp::from_micros(now));
        let before = server.cpu_time();
        let among = &mut Among { store, healthy, left: vec![None; healthy.len()], entry: &entry };
        runtime.block_on(async {
            for _ in 0..CALLS {
                among.call(scene, draw).await;
            }
            among.reset(scene).await;
        });
        let spent = server.cpu_time().saturating_sub(before);
        assert!(spent < CPU_MAX, "{spent:?} of the server for {entry:?}");
    }
}

/// The answer to a healthy check and its number; none of what is between them.
type Answered = Option<(usize, Result<Decision, StoreError>)>;

/// Calls between healthy checks.
struct Among<'a> {
    store: &'a RedisStore,
    healthy: &'a [Charge<'static>],
    /// What is left of the healthy ones.
    left: Vec<Option<u32>>,
    entry: &'a Entry,
}

impl Among<'_> {
    /// One of the calls, as drawn.
    async fn call(&mut self, scene: &Scene, draw: &mut Draw<'_>) {
        let (store, check) = (self.store, scene.check);
        let hold = Reservation::hold(ID, Duration::from_secs(600)).expect("a short id");
        let decision = scene.decision.apart();
        let (key, algorithm) = draw.one(&scene.counters());
        let actual = draw.one(&[None, Some(0), Some(1), Some(5), Some(u32::MAX)]);
        let (choice, units) = (draw.byte() % 9, draw.one(&[1, 2, u32::MAX]));
        let (entry, has_lists) = (self.entry, scene.has_lists());
        self.between(async move {
            match choice {
                0 | 1 => judged(&store.check(&check).await, has_lists, entry),
                2 => judged(&store.check(&check.peek()).await, has_lists, entry),
                3 => alone(&store.reserve(&check, &hold).await, entry),
                4 => alone(&store.refund(&check, &decision, units).await, entry),
                5 => alone(&store.settle(ID.as_bytes(), actual).await, entry),
                6 => alone(&store.reset(key, algorithm).await, entry),
                7 => {
                    let rule = key.scope().rule().as_str();
                    alone(&store.stored_counters(rule, key.subject()).await, entry);
                }
                _ => {
                    alone(&store.shared_secret().await, entry);
                    alone(&store.overrides().get(scope()).await, entry);
                    alone(&store.overrides().list(SCOPE.1, Some(SCOPE.2)).await, entry);
                }
            }
        })
        .await;
    }

    /// Whatever is at a counter's key, a reset forgets it.
    async fn reset(&mut self, scene: &Scene) {
        let (store, entry) = (self.store, self.entry);
        for (key, algorithm) in scene.counters() {
            store.reset(key, algorithm).await.unwrap_or_else(|error| panic!("{error}: {entry:?}"));
        }
        let answer = store.check(&scene.check).await;
        let is_override = entry.0.starts_with(b"ratelimit_");
        if is_override {
            judged(&answer, scene.has_lists(), entry);
        } else {
            let decision = answer.unwrap_or_else(|error| panic!("{error} after a reset: {entry:?}"));
            assert!(decision.is_allowed(), "{decision:?} after a reset: {entry:?}");
        }
    }

    async fn between(&mut self, call: impl Future<Output = ()> + Send) {
        let (store, entry) = (self.store, self.entry);
        let checks: Vec<Check<'_>> = self.healthy.iter().map(Check::one).collect();
        let one = |index: usize| {
            let check = &checks[index];
            async move { Some((index, store.check(check).await)) }.boxed()
        };
        let mut calls: Vec<BoxFuture<'_, Answered>> = Vec::new();
        calls.extend((0..checks.len()).map(one));
        calls.push(call.map(|()| None).boxed());
        calls.extend((0..checks.len()).map(one));
        for (index, answer) in join_all(calls).await.into_iter().flatten() {
            let decision = answer.unwrap_or_else(|error| panic!("{error} beside {entry:?}"));
            let left = decision.verdicts()[0].remaining();
            let expected = self.left[index].map_or(left, |before| before - 1);
            assert!(decision.is_allowed() && left == expected, "{decision:?} beside {entry:?}");
            self.left[index] = Some(left);
        }
    }
}

/// What is the value's fault alone.
fn alone<T>(answer: &Result<T, StoreError>, entry: &Entry) {
    if let Err(error) = answer {
        let expected = [StoreErrorKind::Unreadable, StoreErrorKind::Protocol, StoreErrorKind::Input];
        assert!(expected.contains(&error.kind()), "{error}: {entry:?}");
    }
}

/// The same of a check: what was judged is understood, but for lists, whose index and blocks may contradict one another. A
/// decision promises no more than its quotas have.
fn judged(answer: &Result<Decision, StoreError>, has_lists: bool, entry: &Entry) {
    alone(answer, entry);
    if let Err(error) = answer {
        assert!(has_lists || error.kind() != StoreErrorKind::Protocol, "{error}: {entry:?}");
    }
    for verdict in answer.iter().flat_map(Decision::verdicts) {
        let quota = verdict.quota();
        assert!(verdict.remaining() <= quota.capacity().max(quota.limit()) + 1, "{verdict:?}: {entry:?}");
    }
}
