//! Logs and holders of ten thousand entries: what a charge costs the server, counted in elements it touches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::bounds::LIST_CHARGES_MAX;
use ratekeeper::{Charge, Check, Decision, ManualClock, RedisStore, Store, Timestamp};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::builder;
use crate::setup::{ask, charge, quota, together};

const ENTRIES: usize = 10_000;
/// Entries in a block, and what the index has of one, in bytes.
const BLOCK_MAX: usize = 100;
const INDEXED_BYTES: usize = 24;
/// Entries come so far apart, and the window is as long as all of them together.
const APART: Duration = Duration::from_millis(1);
const WINDOW: Duration = Duration::from_secs(10);
/// Each scenario is repeated, because another process may have had the processor.
const ROUNDS: usize = 5;
const START: u64 = 1_700_000_000_000_000;

/// A full list, and the decisions that filled it.
pub(crate) struct Full {
    pub(crate) server: Server,
    pub(crate) store: RedisStore,
    clock: ManualClock,
    charge: Charge<'static>,
    pub(crate) key: &'static str,
    decisions: Vec<Decision>,
}

impl Full {
    pub(crate) async fn new(flavour: Flavour, text: &str, key: &'static str, entries: usize) -> Self {
        let (server, clock) = (Server::start(flavour), ManualClock::default());
        clock.set(Timestamp::from_micros(START));
        let store = builder(&server.url()).clock(Arc::new(clock.clone())).build().unwrap();
        store.ping().await.unwrap();
        let charge = charge("q", "s", quota(text));
        let mut decisions = Vec::new();
        for entry in 0..entries {
            clock.set(Timestamp::from_micros(START + entry as u64 * APART.as_micros() as u64));
            let decision = ask(&store, &charge).await.unwrap();
            assert!(decision.is_allowed(), "{entry} of {text}");
            decisions.push(decision);
        }
        assert_eq!(server.cli(&["COPY", key, "backup"]), "1");
        let full = Self { server, store, clock, charge, key, decisions };
        full.prints_average("admitted, on average while it fills");
        full
    }

    fn prints_average(&self, what: &str) {
        let (calls, micros) = self.calls();
        println!("{:>6.0} us: {}, {what}", micros / calls["evalsha"] as f64, self.charge.quota());
    }

    /// As it was filled, at an instant after the first entry.
    pub(crate) fn again(&self, after: Duration) {
        assert_eq!(self.server.cli(&["COPY", "backup", self.key, "REPLACE"]), "1");
        self.clock.set(Timestamp::from_micros(START).after(after));
        assert_eq!(self.server.cli(&["CONFIG", "RESETSTAT"]), "OK");
    }

    /// How often the script called each command since, and how long it took.
    fn calls(&self) -> (HashMap<String, usize>, f64) {
        let stats = self.server.cli(&["INFO", "commandstats"]);
        let mut micros = 0.0;
        let mut calls = HashMap::new();
        for line in stats.lines() {
            let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':'))
            else {
                continue;
            };
            let field = |wanted: &str| {
                let pair = rest.split(',').find_map(|pair| pair.strip_prefix(wanted));
                pair.unwrap().trim().parse::<f64>().unwrap()
            };
            if name == "evalsha" {
                micros = field("usec=");
            }
            calls.insert(name.to_owned(), field("calls=") as usize);
        }
        (calls, micros)
    }

    /// Three elements of each list are read at most: the index and two blocks. Two are written: the index and a block.
    #[track_caller]
    fn is_bounded(&self, what: &str, lists: usize) -> f64 {
        let (calls, micros) = self.calls();
        let of = |name: &str| calls.get(name).copied().unwrap_or(0);
        assert!(of("lindex") <= 3 * lists, "{what}: {calls:?}");
        assert!(of("lset") + of("rpush") <= 2 * lists, "{what}: {calls:?}");
        assert!(["llen", "del", "pexpire"].iter().all(|name| of(name) <= lists), "{what}: {calls:?}");
        // The store looks for switches on its own account.
        let others = ["lindex", "lset", "rpush", "llen", "del", "pexpire", "evalsha", "hgetall", "info"];
        let is_known = |name: &String| others.contains(&name.as_str()) || name.starts_with("config");
        assert!(calls.keys().all(is_known), "{what}: {calls:?}");
        let longest = "local most = 0 for i = 0, redis.call('LLEN', KEYS[1]) - 1 do \
                       local n = #redis.call('LINDEX', KEYS[1], i) if n > most then most = n end end return most";
        let longest: usize = self.server.cli(&["EVAL", longest, "1", self.key]).parse().unwrap();
        let index = 16 + 70 + INDEXED_BYTES * (2 * ENTRIES / BLOCK_MAX + 2);
        assert!(longest <= index, "{what}: an element of {longest} bytes");
        micros
    }

    /// Does something to the full list, some times over, and prints the least it took.
    async fn bounded(&self, what: &str, after: Duration, act: impl AsyncFn()) {
        let mut least = f64::MAX;
        for _ in 0..ROUNDS {
            self.again(after);
            act().await;
            least = least.min(self.is_bounded(what, 1));
        }
        println!("{least:>6.0} us: {}, {what}", self.charge.quota());
    }

    async fn asks(&self, cost: u64, is_allowed: bool) {
        let decision = ask(&self.store, &self.charge.cost(cost).unwrap()).await.unwrap();
        assert_eq!(decision.is_allowed(), is_allowed, "{cost}");
    }
}

async fn takes_bounded_work(flavour: Flavour, text: &str, key: &'static str) {
    println!("{flavour}");
    let full = &Full::new(flavour, text, key, ENTRIES).await;
    let (all, last) = (ENTRIES as u64, APART * (ENTRIES as u32 - 1));
    full.bounded("denied", last, async || full.asks(1, false).await).await;
    for _ in 0..200 {
        full.asks(all / 2, false).await;
    }
    full.prints_average("denied half of it, on average of many");
    full.bounded("denied half of it", last, async || full.asks(all / 2, false).await).await;
    full.bounded("denied all of it", last, async || full.asks(all, false).await).await;
    full.bounded("admitted when the first has left", WINDOW, async || full.asks(1, true).await).await;
    let half = WINDOW + WINDOW / 2;
    full.bounded("looked at when half has left", half, async || {
        let peek = full.store.check(&Check::one(&full.charge).peek()).await.unwrap();
        assert_eq!(peek.verdicts()[0].remaining(), 5_001);
    })
    .await;
    full.bounded("admitted when half has left", half, async || full.asks(5_001, true).await).await;
    full.bounded("admitted when all have left", 3 * WINDOW, async || full.asks(all, true).await).await;
    for entry in [0, ENTRIES / 2 - 1, ENTRIES - 1] {
        let (check, decision) = (Check::one(&full.charge), &full.decisions[entry]);
        full.bounded(&format!("entry {entry} given back"), last, async || {
            assert_eq!(full.store.refund(&check, &decision.apart(), 1).await.unwrap(), 1);
        })
        .await;
        full.asks(1, true).await;
        full.asks(1, false).await;
    }
    let back = |windows: u32| Timestamp::from_micros(START - u64::from(windows) * WINDOW.as_micros() as u64);
    full.bounded("denied after a step of the clock", last, async || {
        full.clock.set(back(10));
        full.asks(1, false).await;
    })
    .await;
    full.clock.set(back(9));
    full.asks(9_999, true).await;
    takes_less_than_a_batch(full).await;
}

/// As many lists as a check may have: none of them costs more than its share of 5 ms.
async fn takes_less_than_a_batch(full: &Full) {
    let prefix = full.key.strip_suffix('s').unwrap();
    let subjects: Vec<String> = (0..LIST_CHARGES_MAX).map(|index| format!("s{index}")).collect();
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        for subject in &subjects {
            let key = format!("{prefix}{subject}");
            assert_eq!(full.server.cli(&["COPY", "backup", &key, "REPLACE"]), "1");
        }
        full.again(WINDOW + WINDOW / 2);
        let charges: Vec<Charge<'_>> =
            subjects.iter().map(|subject| charge("q", subject, full.charge.quota())).collect();
        assert!(full.store.check(&together(&charges).check().unwrap()).await.unwrap().is_allowed());
        least = least.min(full.is_bounded("many", LIST_CHARGES_MAX));
    }
    println!("{least:>6.0} us: {} lists at once", subjects.len());
}

#[tokio::test]
async fn a_charge_on_a_log_takes_bounded_work() {
    takes_bounded_work(Flavour::Redis7, "10000/10s sliding_log", "rk:l:q::s").await;
}

#[tokio::test]
async fn a_charge_on_leases_takes_bounded_work() {
    takes_bounded_work(Flavour::Valkey9, "10000/10s concurrency", "rk:h:q::s").await;
}

const BOTH: [(&str, &str); 2] =
    [("10000/10s sliding_log", "rk:l:q::s"), ("10000/10s concurrency", "rk:h:q::s")];

/// Blocks of which little is left are joined: the index does not grow with what was given back.
#[tokio::test]
async fn what_is_given_back_leaves_no_empty_blocks() {
    for (text, key) in BOTH {
        let full = Full::new(Flavour::Redis7, text, key, 1_000).await;
        let check = Check::one(&full.charge);
        for (entry, decision) in full.decisions.iter().enumerate() {
            if entry % BLOCK_MAX != 7 {
                assert_eq!(full.store.refund(&check, decision, 1).await.unwrap(), 1, "{text}: {entry}");
            }
        }
        let peek = full.store.check(&check.peek()).await.unwrap();
        assert_eq!(peek.verdicts()[0].remaining(), 10_000 - 10, "{text}");
        let elements: usize = full.server.cli(&["LLEN", key]).parse().unwrap();
        assert!(elements <= 9, "{text}: {elements} elements");
        for entry in (7..1_000).step_by(BLOCK_MAX) {
            let given = full.store.refund(&check, &full.decisions[entry], 1).await.unwrap();
            assert_eq!(given, 1, "{text}: {entry}");
        }
    }
}

/// Blocks that have left make room for new ones, and none is written over another.
#[tokio::test]
async fn places_of_blocks_that_left_are_used_again() {
    for (text, key) in BOTH {
        let mut full = Full::new(Flavour::Redis7, text, key, 1_000).await;
        for entry in 0..700 {
            full.clock.set(Timestamp::from_micros(START).after(WINDOW + APART * (500 + entry)));
            full.decisions.push(ask(&full.store, &full.charge).await.unwrap());
        }
        let elements: usize = full.server.cli(&["LLEN", key]).parse().unwrap();
        assert!(elements <= 1 + 1_000 / BLOCK_MAX, "{text}: {elements} elements");
        full.clock.set(Timestamp::from_micros(START).after(WINDOW + APART * 500));
        let check = Check::one(&full.charge);
        let left = full.decisions.iter().enumerate().filter(|(entry, _)| *entry > 999);
        for (entry, decision) in left {
            assert_eq!(full.store.refund(&check, decision, 1).await.unwrap(), 1, "{text}: {entry}");
        }
    }
}
