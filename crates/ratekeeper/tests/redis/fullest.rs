//! The checks with most work that are let in: what they take the server. A batch counts them as 5 ms at most.

use std::time::Duration;

use ratekeeper::bounds::{CHARGES_MAX, LIST_CHARGES_MAX};
use ratekeeper::{Charge, Check, Key, Name, Penalty, RedisStore, Reservation, Store};
use ratekeeper_testkit::penal::PenalRule;
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::lists::Full;
use crate::setup::{charge, quota, store, together};

/// Each is repeated, because another process may have had the processor.
const ROUNDS: usize = 7;
const OTHERS: usize = CHARGES_MAX - LIST_CHARGES_MAX;
const SENTENCES: [&str; 2] = ["1/1h fixed_window", "1/1d fixed_window"];

/// What a call of the script took, in microseconds of the server's clock.
fn script_micros(server: &Server) -> f64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).unwrap();
    line.split(',').find_map(|field| field.strip_prefix("usec=")).unwrap().parse().unwrap()
}

/// Asks under ids of its own, which the short ways do not know, and prints the least that it took. Says whether it
/// was allowed.
async fn prints(
    (server, store): (&Server, &RedisStore),
    what: &str,
    check: &Check<'_>,
    prepare: impl Fn(),
) -> bool {
    let (mut least, mut is_allowed) = (f64::MAX, true);
    for round in 0..ROUNDS {
        prepare();
        assert_eq!(server.cli(&["CONFIG", "RESETSTAT"]), "OK");
        let id = format!("{what} {round}");
        let once = Reservation::once(&id, Duration::from_secs(60)).unwrap();
        is_allowed = store.reserve(check, &once).await.unwrap().is_allowed();
        least = least.min(script_micros(server));
    }
    println!("{least:>6.0} us: {what}");
    is_allowed
}

fn rules() -> Vec<PenalRule> {
    let rule =
        |index: usize| PenalRule::new(&format!("r{index}"), "100/h fixed_window", &SENTENCES, Some("9/h"));
    (0..CHARGES_MAX).map(rule).collect()
}

/// A penalty for each of the rules, whose charges begin at a place.
fn penalties(rules: &[PenalRule], start: usize) -> Vec<Penalty<'_>> {
    let each = rules.iter().zip(start..);
    each.map(|(rule, place)| rule.penalty("ann", place..place + 1)).collect()
}

#[tokio::test]
async fn many_rules_with_penalties() {
    for flavour in [Flavour::Redis7, Flavour::Valkey9] {
        println!("{flavour}");
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        let (rules, at) = (rules(), (&server, &store));
        let names: Vec<String> = rules.iter().map(|rule| rule.name.to_string()).collect();
        let penalties = penalties(&rules, 0);
        for text in ["1000/h", "1000/h sliding_window", "1000/h leaky_bucket queue 900"] {
            for (cost, is_room) in [(1, true), (2_000, false)] {
                let charge = |name| charge(name, "ann", quota(text)).cost(cost).unwrap();
                let charges: Vec<Charge<'_>> = names.iter().map(|name| charge(name)).collect();
                let charges = together(&charges);
                let check = charges.check().unwrap();
                let how = if is_room { "admitted" } else { "denied" };
                let what = format!("{CHARGES_MAX} keys by {text}, {how}");
                assert_eq!(prints(at, &what, &check, || {}).await, is_room);
                let penal = check.with_penalties(&penalties).unwrap();
                let what = format!("{what}, with a penalty each");
                assert_eq!(prints(at, &what, &penal, || {}).await, is_room);
            }
        }
    }
}

/// Charges on quotas of one rule, which are in one value.
fn in_one_value(from: usize, count: usize) -> Vec<Charge<'static>> {
    let rule = Name::new("many").unwrap();
    let charges = (from..from + count).map(|index| {
        let name = Name::joined(rule, &format!("q{index}")).unwrap();
        Charge::new(Key::new(name, "ann").unwrap(), quota("1000/h"))
    });
    charges.collect()
}

/// As many counters in one value as there may be.
async fn fill_value(store: &RedisStore) {
    for from in [0, 64, 128, 191] {
        let charges = together(&in_one_value(from, 64));
        assert!(store.check(&charges.check().unwrap()).await.unwrap().is_allowed());
    }
    assert_eq!(store.stored_counters("many", b"ann").await.unwrap().len(), 255);
}

#[tokio::test]
async fn as_many_lists_as_there_may_be_and_all_else() {
    let lists = [
        (Flavour::Redis7, "10000/10s sliding_log", "rk:l:q::s"),
        (Flavour::Valkey9, "10000/10s concurrency", "rk:h:q::s"),
    ];
    for (flavour, text, key) in lists {
        println!("{flavour}");
        let full = Full::new(flavour, text, key, 10_000).await;
        let at = (&full.server, &full.store);
        fill_value(&full.store).await;
        let whole = together(&in_one_value(64, CHARGES_MAX));
        let what = format!("{CHARGES_MAX} of 255 counters in a value");
        assert!(prints(at, &what, &whole.check().unwrap(), || {}).await);

        let subjects: Vec<String> = (0..LIST_CHARGES_MAX).map(|index| format!("s{index}")).collect();
        let prefix = full.key.strip_suffix('s').unwrap();
        // Half of the entries of each have expired.
        let again = || {
            for subject in &subjects {
                let key = format!("{prefix}{subject}");
                assert_eq!(full.server.cli(&["COPY", "backup", &key, "REPLACE"]), "1");
            }
            full.again(Duration::from_secs(15));
        };
        let lists: Vec<Charge<'_>> =
            subjects.iter().map(|subject| charge("q", subject, quota(text))).collect();
        let rules = rules();
        let names: Vec<String> = rules.iter().map(|rule| rule.name.to_string()).collect();
        let apart = names.iter().map(|name| charge(name, "ann", quota("1000/h sliding_window")));
        let many = in_one_value(64, OTHERS);
        for (others, what) in [
            (Vec::new(), "nothing"),
            (many, "40 of 255 counters in a value"),
            (apart.take(OTHERS).collect(), "40 keys with a penalty each"),
        ] {
            let all = together(&[&lists[..], &others].concat());
            let penalties =
                if what.contains("penalty") { penalties(&rules[..OTHERS], lists.len()) } else { Vec::new() };
            let check = all.check().unwrap();
            let check = check.with_penalties(&penalties).unwrap();
            let what = format!("{LIST_CHARGES_MAX} lists by {text} and {what}");
            assert!(prints(at, &what, &check, again).await);
        }
    }
}
