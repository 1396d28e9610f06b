//! Nothing of ours stays for ever, and none of it is large.

use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ratekeeper::{
    Charge, Charges, Check, Enforcement, Key, Name, Override, OverrideScope, Reservation, Store,
};
use ratekeeper_testkit::history::{histories, run};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::{RedisEngine, runtime};
use crate::setup::{DOCS, FIVES, ask, charge, is_allowed, pttl, quota, store, until};

/// Takes the time to live of the only key, if there is one.
const LOSE: &str = "local keys = redis.call('KEYS', '*')
    return #keys == 1 and redis.call('PERSIST', keys[1]) or 0";
/// All keys and what each has to live, at one instant: none can end in between.
const LIVES: &str = "local lives = {}
    for _, key in ipairs(redis.call('KEYS', '*')) do
        lives[#lives + 1] = key
        lives[#lives + 1] = redis.call('PTTL', key)
    end
    return lives";

/// Every key and the milliseconds it has to live, -1 for one that does not end.
fn lives(server: &Server) -> Vec<(String, i64)> {
    let told = server.cli(&["EVAL", LIVES, "0"]);
    let lines: Vec<&str> = told.lines().filter(|line| !line.is_empty()).collect();
    lines.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap())).collect()
}

#[tokio::test]
async fn a_counter_that_lost_its_time_to_live_gets_one_again() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    for text in [
        "2/100ms fixed_window",
        "2/100ms sliding_window",
        "2/100ms sliding_log",
        "2/100ms",
        "2/100ms concurrency",
    ] {
        let own = charge("q", text, quota(text));
        // It lives for a second or so, which a busy machine may let pass.
        until(&format!("{text} has lost its time to live"), async || {
            ask(&store, &own).await.unwrap();
            server.cli(&["EVAL", LOSE, "0"]) == "1"
        })
        .await;
        until(&format!("{text} has a time to live again"), async || {
            ask(&store, &own).await.unwrap();
            lives(&server).into_iter().all(|(_, life)| life >= 0)
        })
        .await;
        assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    }
}

/// A counter that dies while it still limits is a fresh limit; one that is written in place
/// does not get a new time to live each time.
#[tokio::test]
async fn no_key_dies_before_its_state() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    // States that last longer with every hit, and longer than the first time to live.
    let quotas = [
        "1000/3s",
        "1000/3s leaky_bucket queue 999",
        "1000/3s sliding_window",
        "1000/3s concurrency",
        "1000/3s sliding_log",
        "1000/3s fixed_window",
    ];
    for text in quotas {
        let own = charge("q", text, quota(text)).cost(70).unwrap();
        for round in 0..14 {
            let start = Instant::now();
            let decision = ask(&store, &own).await.unwrap();
            assert!(decision.is_allowed(), "{text}");
            // None, if the machine took so long that it is over.
            let left = lives(&server).first().map_or(0, |(_, life)| u64::try_from(*life).unwrap());
            let life = Duration::from_millis(left) + start.elapsed();
            let needed = decision.verdicts()[0].reset_after();
            assert!(life >= needed, "{text}, hit {round}: lives {life:?} of {needed:?}");
        }
        assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    }
}

/// Whether every key of a server but overrides without an end has a time to live.
#[track_caller]
fn assert_all_end(server: &Server, keys_min: usize) {
    let mut lives = lives(server);
    lives.retain(|(key, _)| !key.contains("_override:"));
    assert!(lives.len() >= keys_min, "only {} keys", lives.len());
    for (key, life) in lives {
        // Two windows of 366 days are the longest that counts; a clock that stepped back adds up to as much.
        assert!((0..=4 * 366 * 86_400_000).contains(&life), "{key}: {life} ms");
    }
}

#[test]
fn everything_ends_after_random_histories() {
    let (server, runtime) = (Server::start(Flavour::Redis7), runtime());
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for _ in 0..40 {
        let history = histories(60).new_tree(&mut runner).unwrap().current();
        run(&mut RedisEngine::new(&server.url(), &runtime), &history).unwrap();
    }
    assert_all_end(&server, 200);
}

/// At the server's own time, where no minute is added for the sake of tests.
#[tokio::test]
async fn everything_ends_at_the_servers_time() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        let mut random = fastrand::Rng::with_seed(7);
        let quotas = FIVES.into_iter().chain([
            "5/60ms",
            "5/60ms sliding_log",
            "5/60ms fixed_window",
            "5/366d sliding_window",
        ]);
        let quotas: Vec<_> = quotas.map(quota).collect();
        let names: Vec<String> = (0..quotas.len()).map(|index| format!("q{index}")).collect();
        for round in 0..400 {
            let mut charges = Charges::new();
            for _ in 0..random.usize(1..4) {
                let index = random.usize(..quotas.len());
                let mut charge = charge(&names[index], ["a", "b", "c"][random.usize(..3)], quotas[index]);
                charge = charge.cost(random.u64(1..8)).unwrap();
                if random.bool() {
                    charge = charge.enforcement(Enforcement::Shadow);
                }
                let _ = charges.push(charge);
            }
            let check = charges.check().unwrap();
            let id = format!("id{round}");
            if random.u8(..4) == 0 {
                let hold = Reservation::hold(&id, Duration::from_millis(random.u64(1..100))).unwrap();
                store.reserve(&check, &hold).await.unwrap();
                store.settle(id.as_bytes(), Some(random.u32(..8))).await.unwrap();
            } else {
                let decision = store.check(&check).await.unwrap();
                if random.bool() {
                    store.refund(&check, &decision, random.u32(1..8)).await.unwrap();
                }
            }
        }
        let scope = OverrideScope::project("/x", "7", "42").unwrap();
        let kit = charge("q", "/x:7:42", quota("5/h fixed_window")).overridable(scope);
        ask(&store, &kit).await.unwrap();
        let end = store.now().after(Duration::from_secs(60));
        let to = Override { expires_at: Some(end), ..Override::limit(9) };
        store.overrides().set(scope, to).await.unwrap();
        assert!((1..=60_000).contains(&pttl(&server, "ratelimit_override:/x:7:42")));
        assert_all_end(&server, 30);
    }
}

/// What a key takes at most on any server, in bytes: with a subject of 16 bytes, a rule and
/// an endpoint of 8, 100 entries in a list. The same numbers are in `docs/redis.md`.
const BYTES: [(&str, &str, usize); 7] = [
    ("a rule with one quota", "rk:c:one-tier:user:12345678901", 136),
    ("a rule with four tiers", "rk:c:my-tiers:user:12345678901", 264),
    ("a log of 100 instants", "rk:l:my-logs!::user:12345678901", 2_216),
    ("100 holders", "rk:h:my-leases::user:12345678901", 2_216),
    ("a counter of Application Kit", "ratelimit:/search!:7:42", 72),
    ("an override", "ratelimit_override:/search!:7:42", 120),
    ("an id", "rk:i:5a2c1f6e-93b1-4c57-8d0e-2f7a6b1c9d30", 280),
];

#[tokio::test]
async fn keys_are_as_small_as_documented() {
    let subject = "user:12345678901";
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        let one = charge("one-tier", subject, quota("1000/h fixed_window"));
        // What is written in place grows a little with the second write.
        for _ in 0..2 {
            ask(&store, &one).await.unwrap();
        }
        let rule = Name::new("my-tiers").unwrap();
        let mut tiers = Charges::new();
        for (tier, text) in
            [("rps", "10/s"), ("rpm", "99/m"), ("rph", "999/h"), ("rpd", "9999/d fixed_window")]
        {
            let key = Key::new(Name::joined(rule, tier).unwrap(), subject).unwrap();
            tiers.push(Charge::new(key, quota(text))).unwrap();
        }
        for _ in 0..2 {
            store.check(&tiers.check().unwrap()).await.unwrap();
        }
        let log = charge("my-logs!", subject, quota("1000/h sliding_log"));
        let leases = charge("my-leases", subject, quota("1000/h concurrency"));
        for _ in 0..100 {
            assert!(is_allowed(&store, &log).await && is_allowed(&store, &leases).await);
        }
        let scope = OverrideScope::project("/search!", "7", "42").unwrap();
        let kit = charge("q", "/search!:7:42", quota("5/h fixed_window")).overridable(scope);
        ask(&store, &kit).await.unwrap();
        store.overrides().set(scope, Override::limit(9)).await.unwrap();
        let hold =
            Reservation::hold("5a2c1f6e-93b1-4c57-8d0e-2f7a6b1c9d30", Duration::from_secs(60)).unwrap();
        store.reserve(&Check::one(&one), &hold).await.unwrap();
        for (what, key, most) in BYTES {
            let bytes: usize = server.cli(&["MEMORY", "USAGE", key]).parse().unwrap();
            assert!(bytes <= most, "{what} takes {bytes} bytes on {flavour}");
            let row = format!("| {what} | {most} |");
            assert!(DOCS.contains(&row), "docs/redis.md does not say {row}");
        }
    }
}
