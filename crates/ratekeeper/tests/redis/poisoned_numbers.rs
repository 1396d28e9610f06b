//! Values of the right form with wrong numbers: the check that meets one fails alone or is judged sanely,
//! and no batch fails with it.

use std::cell::RefCell;
use std::time::Duration;

use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use ratekeeper::{Charge, Check, Decision, RedisStore, Reservation, Store, StoreError, StoreErrorKind};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::builder;
use crate::fuzzed_values::FuzzedValues;
use crate::setup::{FIVES, charge, quota, store, tiers, together};

/// Numbers that no history makes, in the words of Lua.
const DOUBLES: [&str; 12] =
    ["0/0", "1/0", "-1/0", "1.5e300", "-1.5e300", "-1", "0", "0.5", "2^53", "2^63", "1e15", "31622400000001"];
const WORDS: [&str; 4] = ["0", "1", "2147483648", "4294967295"];

/// A field of a value: which element of a list it is in (`None`: of a string), where, and what it is.
#[derive(Clone, Copy, Debug)]
struct Field {
    element: Option<i8>,
    at: usize,
    is_double: bool,
}

impl Field {
    const fn double(element: Option<i8>, at: usize) -> Self {
        Self { element, at, is_double: true }
    }

    const fn word(element: Option<i8>, at: usize) -> Self {
        Self { element, at, is_double: false }
    }

    /// A command of Lua that puts a number there.
    fn poison(self, number: &str) -> String {
        let Field { element, at, is_double } = self;
        let (format, bytes) = if is_double { ("<d", 8) } else { ("<I4", 4) };
        let changed = format!(
            "string.sub(v, 1, {at} - 1) .. struct.pack('{format}', {number}) .. string.sub(v, {at} + {bytes})"
        );
        match element {
            None => format!(
                "local v = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], {changed}, 'KEEPTTL')"
            ),
            Some(element) => format!(
                "local v = redis.call('LINDEX', KEYS[1], {element}) redis.call('LSET', KEYS[1], {element}, {changed})"
            ),
        }
    }
}

/// The numbers in the value of one counter: the length, the time to live, the instant; the parts of it.
const PACKED: [Field; 5] = [
    Field::double(None, 13),
    Field::double(None, 21),
    Field::double(None, 29),
    Field::word(None, 9),
    Field::word(None, 37),
];
/// The numbers in a list: in its index the end of the time to live, places and free ones, the list's eight, its next
/// number, its blocks and the first one's place, number, entries, units and last instant; in a block the instant and
/// units of the first entry, and what is behind them.
const LISTED: [Field; 19] = [
    Field::double(Some(0), 5),
    Field::word(Some(0), 13),
    Field::double(Some(0), 17),
    Field::double(Some(0), 25),
    Field::double(Some(0), 33),
    Field::double(Some(0), 41),
    Field::double(Some(0), 49),
    Field::double(Some(0), 57),
    Field::double(Some(0), 65),
    Field::double(Some(0), 73),
    Field::word(Some(0), 81),
    Field::word(Some(0), 85),
    Field::word(Some(0), 89),
    Field::word(Some(0), 93),
    Field::double(Some(0), 95),
    Field::double(Some(0), 103),
    Field::double(Some(1), 1),
    Field::word(Some(1), 9),
    Field::double(Some(1), 13),
];

fn is_list(text: &str) -> bool {
    text.contains("log") || text.contains("concurrency")
}

/// How the keys of a quota begin.
fn key_of(text: &str) -> &'static str {
    match text {
        _ if text.contains("log") => "rk:l:q::",
        _ if text.contains("concurrency") => "rk:h:q::",
        _ => "rk:c:q:",
    }
}

/// Everything that is done to the value of a quota: each number by itself, two at a time, and bytes
/// of chance behind what says which counter it is.
fn poisons(text: &str) -> Vec<String> {
    let fields: &[Field] = if is_list(text) { &LISTED } else { &PACKED };
    let mut poisons = Vec::new();
    for field in fields {
        let numbers: &[&str] = if field.is_double { &DOUBLES } else { &WORDS };
        poisons.extend(numbers.iter().map(|number| field.poison(number)));
    }
    let doubles: Vec<&Field> = fields.iter().filter(|field| field.is_double).collect();
    for (index, one) in doubles.iter().enumerate() {
        let other = doubles[(index + 1) % doubles.len()];
        poisons.push(format!("{} {}", one.poison("1.5e300"), other.poison("1.5e300")));
        poisons.push(format!("{} {}", one.poison("0/0"), other.poison("1/0")));
    }
    for seed in 0..8 {
        let noise = |bytes: usize| {
            format!(
                "local n = {{}} for i = 1, {bytes} do n[i] = string.char(math.random(0, 255)) end n = table.concat(n)"
            )
        };
        poisons.push(match is_list(text) {
            true => format!(
                "math.randomseed({seed}) {} local v = redis.call('LINDEX', KEYS[1], 0) \
                 redis.call('LSET', KEYS[1], 0, string.sub(v, 1, {kept}) .. string.sub(n, 1, #v - {kept})) \
                 redis.call('LSET', KEYS[1], 1, string.sub(n, 111, 146))",
                noise(146),
                kept = if seed % 2 == 0 { 4 } else { 86 }
            ),
            false => format!(
                "math.randomseed({seed}) {} local v = redis.call('GET', KEYS[1]) \
                 redis.call('SET', KEYS[1], string.sub(v, 1, 8) .. n, 'KEEPTTL')",
                noise(32)
            ),
        });
    }
    // Blocks that are none, that lack an entry or have one too many, that are not there, and one more of them.
    if is_list(text) {
        poisons.push("redis.call('LSET', KEYS[1], 1, 'short')".to_owned());
        poisons.push("redis.call('LSET', KEYS[1], 1, '')".to_owned());
        let block = "local v = redis.call('LINDEX', KEYS[1], 1) redis.call('LSET', KEYS[1], 1, ";
        poisons.push(format!("{block} string.rep('\\255', #v))"));
        poisons.push(format!("{block} string.sub(v, 1, #v * 2 / 3))"));
        poisons.push(format!("{block} v .. string.sub(v, 1, #v / 3))"));
        poisons.push("redis.call('LTRIM', KEYS[1], 0, 0)".to_owned());
        poisons.push("redis.call('LTRIM', KEYS[1], 1, 1)".to_owned());
        poisons.push("redis.call('RPUSH', KEYS[1], redis.call('LINDEX', KEYS[1], 1))".to_owned());
    }
    poisons
}

/// What is no fault of the batch: the check fails by itself, or is answered within its quota.
#[track_caller]
fn is_alone<T>(answer: &Result<T, StoreError>, what: &str) {
    if let Err(error) = answer {
        let expected = [StoreErrorKind::Unreadable, StoreErrorKind::Protocol];
        assert!(expected.contains(&error.kind()), "{what}: {error}");
    }
}

#[track_caller]
fn is_sane(answer: &Result<Decision, StoreError>, what: &str) {
    is_alone(answer, what);
    if let Ok(decision) = answer {
        assert!(decision.verdicts().iter().all(|verdict| verdict.remaining() <= 5), "{what}: {decision:?}");
    }
}

/// Sends a check between healthy ones, which all pass.
async fn among(store: &RedisStore, poisoned: &Charge<'_>, others: &[Charge<'_>], what: &str) {
    let all: Vec<&Charge<'_>> = others.iter().chain([poisoned]).chain(others).collect();
    let checks: Vec<Check<'_>> = all.iter().map(|charge| Check::one(charge)).collect();
    let answers = join_all(checks.iter().map(|check| store.check(check))).await;
    for (charge, answer) in all.into_iter().zip(answers) {
        if charge == poisoned {
            is_sane(&answer, what);
        } else {
            assert!(answer.unwrap_or_else(|error| panic!("{what}: {error}")).is_allowed(), "{what}");
        }
    }
}

/// Leaves a value at the key of a charge as three checks make it, and poisons it.
async fn plant(store: &RedisStore, server: &Server, poisoned: &Charge<'_>, poison: &str) -> Decision {
    let check = Check::one(poisoned);
    store.reset(poisoned.key(), poisoned.quota().algorithm()).await.unwrap();
    for _ in 0..2 {
        store.check(&check).await.unwrap();
    }
    let decision = store.check(&check).await.unwrap();
    let subject = String::from_utf8_lossy(poisoned.key().subject());
    let key = format!("{}{subject}", key_of(&poisoned.quota().to_string()));
    assert_eq!(server.cli(&["EVAL", &format!("{poison} return 'planted'"), "1", &key]), "planted");
    decision
}

async fn survives(text: &'static str) {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    // Those that go the short way, and all.
    let companies: [&[&str]; 2] = [&["5/h"], &FIVES];
    for (index, poison) in poisons(text).iter().enumerate() {
        let what = format!("{text}: {poison}");
        let [first, second] = ["a", "b"].map(|round| format!("{round}{index}"));
        let poisoned = charge("q", &first, quota(text));
        let well = companies[index % 2].iter().map(|text| charge("well", &first, quota(text)));
        plant(&store, &server, &poisoned, poison).await;
        among(&store, &poisoned, &well.collect::<Vec<_>>(), &what).await;
        // What was made of it is no worse.
        is_sane(&store.check(&Check::one(&poisoned)).await, &what);

        let poisoned = charge("q", &second, quota(text));
        let decision = plant(&store, &server, &poisoned, poison).await;
        let check = Check::one(&poisoned);
        is_sane(&store.check(&check.peek()).await, &what);
        is_alone(&store.refund(&check, &decision, 1).await, &what);
        let once = Reservation::hold(&second, Duration::from_secs(60)).unwrap();
        is_sane(&store.reserve(&check, &once).await, &what);
        is_alone(&store.settle(second.as_bytes(), Some(3)).await, &what);
        is_alone(&store.reset(poisoned.key(), poisoned.quota().algorithm()).await, &what);
    }
}

#[tokio::test]
async fn of_fixed_windows() {
    survives(FIVES[0]).await;
}

#[tokio::test]
async fn of_sliding_windows() {
    survives(FIVES[1]).await;
}

#[tokio::test]
async fn of_logs() {
    survives(FIVES[2]).await;
}

#[tokio::test]
async fn of_token_buckets() {
    survives(FIVES[3]).await;
}

#[tokio::test]
async fn of_leaky_buckets() {
    survives(FIVES[4]).await;
}

#[tokio::test]
async fn of_leases() {
    survives(FIVES[5]).await;
}

/// All quotas of a rule are in one value. A check that does not ask for the poisoned one is none the worse for it.
#[tokio::test]
async fn of_a_counter_beside_that_of_the_check() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let both = tiers("q", &[quota("5/h"), quota("50/30m")]);
    // The window, how far ahead it may be, and the instant of the second counter.
    for field in [29, 53, 81].map(|at| Field::double(None, at)) {
        for number in DOUBLES {
            assert_eq!(server.cli(&["FLUSHALL"]), "OK");
            assert!(store.check(&together(&both).check().unwrap()).await.unwrap().is_allowed());
            let poison = format!("{} return 'planted'", field.poison(number));
            assert_eq!(server.cli(&["EVAL", &poison, "1", "rk:c:q:s"]), "planted");
            for left in [3, 2] {
                let decision = store.check(&Check::one(&both[0])).await;
                let decision = decision.unwrap_or_else(|error| panic!("{error}: {poison}"));
                assert!(decision.is_allowed() && decision.verdicts()[0].remaining() == left, "{poison}");
            }
        }
    }
}

/// Records of ids with wrong numbers, and bytes of chance.
#[tokio::test]
async fn of_ids() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let charge = charge("q", "s", quota("5/h"));
    let once = Reservation::hold("id", Duration::from_secs(60)).unwrap();
    let fields = [11, 19, 27].map(|at| Field::double(None, at));
    let mut poisons: Vec<String> =
        fields.iter().flat_map(|field| DOUBLES.map(|number| field.poison(number))).collect();
    poisons.extend(WORDS.map(|number| Field::word(None, 35).poison(number)));
    poisons.extend((0..20).map(|seed| {
        format!(
            "math.randomseed({seed}) local v = redis.call('GET', KEYS[1]) local n = {{}} \
             for i = 3, #v do n[i - 2] = string.char(math.random(0, 255)) end \
             redis.call('SET', KEYS[1], string.sub(v, 1, 2) .. table.concat(n), 'KEEPTTL')"
        )
    }));
    for poison in poisons {
        assert_eq!(server.cli(&["FLUSHALL"]), "OK");
        store.reserve(&Check::one(&charge), &once).await.unwrap();
        assert_eq!(server.cli(&["EVAL", &format!("{poison} return 'planted'"), "1", "rk:i:id"]), "planted");
        let answer = store.reserve(&Check::one(&charge), &once).await;
        if let Err(error) = &answer {
            let expected = [StoreErrorKind::Unreadable, StoreErrorKind::Protocol, StoreErrorKind::Input];
            assert!(expected.contains(&error.kind()), "{poison}: {error}");
        }
        is_alone(&store.settle(b"id", Some(3)).await, &poison);
        among(&store, &charge, &[], &poison).await;
    }
}

/// The fuzz target on the same inputs in every run. `make fuzz TARGET=stored_values` runs it for as long as one likes.
#[test]
fn made_by_a_fuzzer() {
    let values = RefCell::new(FuzzedValues::new(builder));
    let mut config = Config { failure_persistence: None, ..Config::default() };
    // `PROPTEST_CASES` and `PROPTEST_RNG_SEED` ask for more, and for others.
    config.cases *= 4;
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(7);
    }
    let run = |bytes: Vec<u8>| {
        values.borrow_mut().run(&bytes);
        Ok(())
    };
    TestRunner::new(config).run(&vec(any::<u8>(), 0..120), run).unwrap();
}
