//! Penalties on real servers: one call for everything, many callers at once, servers that
//! do not write, keys that are not ours. What penalties do is in the tables.

use std::sync::Arc;

use futures_util::future::join_all;
use ratekeeper::{
    Charge, Check, Decision, Enforcement, Key, Quota, RedisStore, Store, StoreError, StoreErrorKind,
};
use ratekeeper_testkit::penal::PenalRule;
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::fresh_prefix;
use crate::setup::{charge, keys, left, quota, store, tiers, together};

const SENTENCES: [&str; 2] = ["1/1h fixed_window", "1/1d fixed_window"];
const ONE: &str = "1/1h fixed_window";

fn rule(name: &str, strikes: &str) -> PenalRule {
    PenalRule::new(name, strikes, &SENTENCES, Some("4/1h"))
}

/// A check of one charge whose rule has a penalty.
async fn ask(store: &RedisStore, rule: &PenalRule, charge: &Charge<'_>) -> Result<Decision, StoreError> {
    let subject = std::str::from_utf8(charge.key().subject()).unwrap();
    let penalties = [rule.penalty(subject, 0..1)];
    store.check(&Check::one(charge).with_penalties(&penalties).unwrap()).await
}

/// What is left of the gate, the strikes and the offences.
async fn counters(store: &RedisStore, rule: &PenalRule, subject: &str) -> Vec<u32> {
    let counters = rule.counters.iter().enumerate().map(async |(index, (name, quota))| {
        let charge = Charge::new(Key::new(*name, subject).unwrap(), quota);
        left(store, &if index == 0 { charge.any_window() } else { charge }).await
    });
    join_all(counters).await
}

fn is_penalised(decision: &Decision) -> bool {
    decision.verdicts().len() > 1
}

async fn many_at_once_are_one_offence_on(flavour: Flavour) {
    let server = Server::start(flavour);
    let prefix = fresh_prefix();
    let stores = join_all((0..4).map(|_| store(&server, &prefix))).await;
    let rule = Arc::new(rule("many", "3/1h fixed_window"));
    let callers = (0..64).map(|caller| {
        let (store, rule) = (stores[caller % 4].clone(), Arc::clone(&rule));
        let denied = charge("many", "ann", quota(ONE)).cost(2).unwrap();
        tokio::spawn(async move { ask(&store, &rule, &denied).await.unwrap() })
    });
    let decisions: Vec<Decision> = join_all(callers).await.into_iter().map(Result::unwrap).collect();
    assert!(decisions.iter().all(|decision| !decision.is_allowed()));
    let tipped: usize = decisions.iter().map(|decision| decision.tipped().len()).sum();
    assert_eq!(tipped, 1, "{flavour}");
    assert_eq!(decisions.iter().filter(|decision| !is_penalised(decision)).count(), 2, "{flavour}");
    assert_eq!(counters(&stores[0], &rule, "ann").await, [0, 3, 3], "{flavour}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_are_one_offence() {
    for flavour in Flavour::ALL {
        many_at_once_are_one_offence_on(flavour).await;
    }
}

#[tokio::test]
async fn a_penalty_takes_one_call_and_the_key_of_its_rule() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let rule = rule("api", "2/1h fixed_window");
    let charges = together(&tiers("api", &[quota("5/h"), quota("9/d")]));
    let penalties = [rule.penalty("s", 0..2)];
    let check = charges.check().unwrap().with_penalties(&penalties).unwrap();
    let batches = store.health().batches;
    let mut asked = 0;
    let tipped = loop {
        asked += 1;
        let decision = store.check(&check).await.unwrap();
        if !decision.tipped().is_empty() {
            break decision;
        }
    };
    assert_eq!(
        (asked, tipped.is_allowed()),
        (7, false),
        "five pass, one is denied, the next is one too many"
    );
    assert_eq!(store.health().batches - batches, asked, "one call each");
    let kept = ["rk:c:api:s", "rk:d:api:s"];
    assert_eq!(keys(&server), kept, "quotas, gate, strikes and offences are one value, the day another");
    assert!(is_penalised(&store.check(&check).await.unwrap()));
    assert_eq!(counters(&store, &rule, "s").await, [0, 2, 3]);
}

/// A server that does not write denies, but counts no strike and shuts no gate; one that is shut
/// stays so.
#[tokio::test]
async fn a_full_server_denies_without_strikes() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        let rule = rule("q", "2/1h fixed_window");
        let of = |subject: &'static str| charge("q", subject, quota(ONE));
        for subject in ["spent", "shut"] {
            assert!(ask(&store, &rule, &of(subject)).await.unwrap().is_allowed());
        }
        for _ in 0..2 {
            assert!(!ask(&store, &rule, &of("shut")).await.unwrap().is_allowed());
        }
        assert!(!ask(&store, &rule, &of("spent")).await.unwrap().is_allowed(), "one strike");
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
        let (spent, shut, free) = (of("spent"), of("shut"), of("free"));
        let asked = [&spent, &shut, &free].repeat(3);
        for (own, answer) in asked.iter().zip(join_all(asked.iter().map(|own| ask(&store, &rule, own))).await)
        {
            let subject = own.key().subject();
            match answer {
                Ok(denied) => {
                    assert!(!denied.is_allowed() && denied.tipped().is_empty(), "{flavour}: {denied:?}");
                    assert_eq!(is_penalised(&denied), subject == b"shut", "{flavour}: {denied:?}");
                }
                Err(error) => {
                    assert_eq!(
                        (error.kind(), subject),
                        (StoreErrorKind::Capacity, &b"free"[..]),
                        "{flavour}"
                    );
                }
            }
        }
        // A rule that only watches denies nothing, so it could not be counted what it let pass.
        let watched = of("spent").enforcement(Enforcement::Shadow);
        assert_eq!(ask(&store, &rule, &watched).await.unwrap_err().kind(), StoreErrorKind::Capacity);
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
        assert_eq!(counters(&store, &rule, "spent").await, [1, 1, 4], "{flavour}: one strike, as before");
        assert_eq!(
            ask(&store, &rule, &of("spent")).await.unwrap().tipped(),
            [rule.counters[0].0],
            "{flavour}"
        );
    }
}

#[tokio::test]
async fn a_penalty_that_cannot_be_read_is_the_failure_of_its_check() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let rule = rule("q", "2/1h fixed_window");
    // A list of its own, so that the value is the penalty's alone.
    let log: &Quota = quota("5/h sliding_log");
    let own = charge("q", "s", log);
    for poison in ["'RPUSH', KEYS[1], 'a'", "'SET', KEYS[1], 'garbage'", "'SET', KEYS[1], ''"] {
        let _ = server.cli(&["EVAL", &format!("redis.call({poison})"), "1", "rk:c:q:s"]);
        let before = server.cli(&["DUMP", "rk:c:q:s"]);
        let well = charge("well", "s", quota("99/h"));
        let penal = rule.penalty("s", 0..1);
        let penalties = [penal];
        let check = Check::one(&own).with_penalties(&penalties).unwrap();
        let healthy = Check::one(&well);
        let answers = join_all([&healthy, &check, &healthy].map(|check| store.check(check))).await;
        let [first, poisoned, last] = answers.try_into().unwrap();
        assert!(first.unwrap().is_allowed() && last.unwrap().is_allowed(), "{poison}: others are well");
        assert_eq!(poisoned.unwrap_err().kind(), StoreErrorKind::Unreadable, "{poison}");
        assert_eq!(server.cli(&["DUMP", "rk:c:q:s"]), before, "{poison} is untouched");
        assert_eq!(left(&store, &own).await, 5, "{poison}: nothing is charged");
        assert_eq!(server.cli(&["DEL", "rk:c:q:s"]), "1");
    }
    assert!(ask(&store, &rule, &own).await.unwrap().is_allowed());
}
