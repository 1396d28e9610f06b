//! Nothing of ours stays for ever, and none of it is large.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ratekeeper::{
    Charge, Charges, Check, Enforcement, Key, ManualClock, Name, Origin, Override, OverrideScope,
    Reservation, Store, Timestamp,
};
use ratekeeper_testkit::history::{histories, run};
use ratekeeper_testkit::penal::PenalRule;
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::{RedisEngine, builder, runtime};
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

/// Takes the time to live of every key.
const LOSE_ALL: &str =
    "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('PERSIST', key) end return 1";

/// What lost its time to live gets one with the first write after the end that its value names, never with a peek.
#[tokio::test]
async fn ids_and_notes_that_lost_their_time_to_live_end_as_they_should() {
    let server = Server::start(Flavour::Redis7);
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let store = builder(&server.url()).clock(Arc::new(clock.clone())).build().unwrap();
    store.ping().await.unwrap();
    let own = charge("q", "own", quota("5/10s"));
    let (check, once) = (Check::one(&own), Reservation::once("id", Duration::from_secs(20)).unwrap());
    store.reserve(&check, &once).await.unwrap();
    let other = charge("q", "other", quota("5/10s"));
    let mut told = store.check(&Check::one(&other)).await.unwrap();
    told.set_nonce(7);
    // Each keeps its own count, as whoever was told of the decision.
    let copy = told.apart();
    assert_eq!(store.refund(&Check::one(&other), &told, 1).await.unwrap(), 1);
    assert_eq!(server.cli(&["EVAL", LOSE_ALL, "0"]), "1");
    let lost = || lives(&server).into_iter().filter(|(_, life)| *life < 0).count();
    let all = lost();
    assert_eq!(all, 4, "two counters, an id and a note: {:?}", lives(&server));

    clock.advance(Duration::from_secs(60));
    store.check(&check.peek()).await.unwrap();
    assert_eq!(lost(), all, "a peek writes nothing");
    assert_eq!(store.reserve(&check, &once).await.unwrap().origin(), Origin::Store, "the id is forgotten");
    assert_eq!(lost(), all - 2, "the counter and the id: {:?}", lives(&server));
    assert_eq!(store.refund(&Check::one(&other), &copy, 1).await.unwrap(), 0);
    assert!(lives(&server).iter().all(|(key, _)| !key.contains("rk:g:")), "the note: {:?}", lives(&server));
    store.check(&Check::one(&other)).await.unwrap();
    assert_eq!(lost(), 0, "{:?}", lives(&server));
}

/// Every kind of key with an end that `docs/redis.md` lists gets one again by what is usually done with it.
#[tokio::test]
async fn every_kind_of_key_that_lost_its_time_to_live_gets_one_again() {
    let server = Server::start(Flavour::Redis7);
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let store = builder(&server.url()).clock(Arc::new(clock.clone())).build().unwrap();
    store.ping().await.unwrap();
    let rule = PenalRule::new("q", "2/10s fixed_window", &["1/5s fixed_window"], None);
    let scope = OverrideScope::project("/x", "7", "42").unwrap();
    let kit = charge("kit", "/x:7:42", quota("5/10s fixed_window")).overridable(scope);
    let own: Vec<_> = FIVES.iter().map(|text| text.replace("/h", "/10s")).collect();
    let use_all = async |round: usize| {
        for text in &own {
            ask(&store, &charge("q", text, quota(text))).await.unwrap();
        }
        ask(&store, &kit).await.unwrap();
        // A gate and its strikes.
        let denied = charge("q", "penal", quota("0/10s"));
        let penalties = [rule.penalty("penal", 0..1)];
        for _ in 0..3 {
            let check = Check::one(&denied).with_penalties(&penalties).unwrap();
            assert!(!store.check(&check).await.unwrap().is_allowed());
        }
        let other = charge("q", "other", quota("5/10s"));
        let once = Reservation::once("id", Duration::from_secs(20)).unwrap();
        store.reserve(&Check::one(&other), &once).await.unwrap();
        let told = charge("q", "told", quota("5/10s"));
        let mut decision = ask(&store, &told).await.unwrap();
        decision.set_nonce(1 + round as u64);
        // Each keeps its own count, as whoever was told of the decision.
        let copy = decision.apart();
        store.refund(&Check::one(&told), &decision, 1).await.unwrap();
        store.shared_secret().await.unwrap();
        copy
    };
    let decision = use_all(0).await;
    let kinds = ["rk:c:", "rk:l:", "rk:h:", "rk:i:", "rk:g:", "rk:secret", "ratelimit:"];
    let found = lives(&server);
    for kind in kinds {
        assert!(found.iter().any(|(key, life)| key.starts_with(kind) && *life > 0), "{kind}: {found:?}");
    }
    assert_eq!(server.cli(&["EVAL", LOSE_ALL, "0"]), "1");
    clock.advance(Duration::from_secs(60));
    use_all(1).await;
    let told = charge("q", "told", quota("5/10s"));
    // The note of the first refund goes when it is asked for again.
    assert_eq!(store.refund(&Check::one(&told), &decision, 1).await.unwrap(), 0);
    let endless: Vec<_> = lives(&server).into_iter().filter(|(_, life)| *life < 0).collect();
    assert_eq!(endless, [], "still without an end");
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
const BYTES: [(&str, &str, usize); 8] = [
    ("a rule with one quota", "rk:c:one-tier:user:12345678901", 136),
    ("three tiers up to an hour", "rk:c:my-tiers:user:12345678901", 240),
    ("a tier of a day", "rk:d:my-tiers:user:12345678901", 144),
    ("a log of 100 instants", "rk:l:my-logs!::user:12345678901", 1_800),
    ("100 holders", "rk:h:my-leases::user:12345678901", 2_060),
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
