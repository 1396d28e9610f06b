//! What is on the server is what Application Kit and people with `redis-cli` expect.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{
    Algorithm, Charge, Check, Key, Limiter, ManualClock, Name, Override, OverrideScope, Reservation, Rule,
    Settled, Store, StoreErrorKind, Timestamp, Wait,
};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::engine::{builder, script};
use crate::setup::{ask, charge, is_allowed, keys, left, pttl, quota, store, together, until};

const ELEMENTS: &str = "/api/matrix/elements";
const COUNTER: &str = "ratelimit:/api/matrix/elements:7:42";
const MINUTE: i64 = 60_000;

/// A charge that Application Kit would count, too: five a minute.
fn shared<'a>(endpoint: &'a str, subject: &'a str) -> Charge<'a> {
    let scope = OverrideScope::project(endpoint, "7", "42").unwrap();
    charge("kit", subject, quota("5/60s fixed_window")).overridable(scope)
}

fn elements() -> Charge<'static> {
    shared(ELEMENTS, "/api/matrix/elements:7:42")
}

/// How often a server has run a command.
pub(crate) fn calls(server: &Server, command: &str) -> usize {
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_counter_that_application_kit_began_goes_on() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        assert_eq!(server.cli(&["SET", COUNTER, "3", "PX", "50000"]), "OK");
        let decision = ask(&store, &elements()).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.verdicts()[0].remaining()), (true, 1), "{flavour}");
        assert_eq!(server.cli(&["GET", COUNTER]), "4");
        assert_eq!(calls(&server, "incrby"), 1, "counted as {flavour} counts, not written over");
        let life = pttl(&server, COUNTER);
        assert!((1..=50_000).contains(&life), "the window stays: {life} ms on {flavour}");
        // The other side counts on, and we see it.
        assert_eq!(server.cli(&["INCRBY", COUNTER, "1"]), "5");
        let denied = ask(&store, &elements()).await.unwrap();
        assert!(!denied.is_allowed() && denied.verdicts()[0].remaining() == 0);
        assert!((Wait::micros(1)..=Wait::micros(50_000_000)).contains(&denied.retry_after()), "{denied}");
        assert_eq!(server.cli(&["GET", COUNTER]), "5", "a denial counts nothing");
        assert_eq!(keys(&server), [COUNTER]);
    }
}

#[tokio::test]
async fn what_we_count_is_a_plain_number_with_a_time_to_live() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    ask(&store, &elements().cost(2).unwrap()).await.unwrap();
    assert_eq!(server.cli(&["GET", COUNTER]), "2");
    assert_eq!(server.cli(&["OBJECT", "ENCODING", COUNTER]), "int");
    assert!((MINUTE - 20_000..=MINUTE).contains(&pttl(&server, COUNTER)));
    // All of a batch in one window, also its first.
    let other = shared("/other", "/other:7:42");
    let check = Check::one(&other);
    let all = (0..8).map(|_| store.check(&check));
    let admitted =
        futures_util::future::join_all(all).await.into_iter().filter(|d| d.as_ref().unwrap().is_allowed());
    assert_eq!(admitted.count(), 5);
    assert_eq!(server.cli(&["GET", "ratelimit:/other:7:42"]), "5");
    // Costs more than there will ever be: no trace.
    let none = shared("/none", "/none:7:42").cost(6).unwrap();
    assert!(ask(&store, &none).await.unwrap().retry_after().is_never());
    assert_eq!(server.cli(&["EXISTS", "ratelimit:/none:7:42"]), "0");
}

#[tokio::test]
async fn a_counter_without_a_time_to_live_is_healed() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    for (value, admitted) in [("3", true), ("5", false)] {
        assert_eq!(server.cli(&["SET", COUNTER, value]), "OK");
        assert_eq!(left(&store, &elements()).await, 5 - value.parse::<u32>().unwrap());
        assert_eq!(pttl(&server, COUNTER), -1, "a peek writes nothing");
        let decision = ask(&store, &elements()).await.unwrap();
        assert_eq!(decision.is_allowed(), admitted);
        assert!((1..=MINUTE).contains(&pttl(&server, COUNTER)), "healed with {value}");
        assert_eq!(decision.verdicts()[0].reset_after(), Duration::from_secs(60));
    }
    assert_eq!(server.cli(&["GET", COUNTER]), "5");
}

#[tokio::test]
async fn no_instant_of_a_window_is_without_an_answer() {
    // Its last millisecond, for which the server says 0, comes once in 20 here.
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let store = store(&server, "").await;
        let scope = OverrideScope::project("/brief", "7", "42").unwrap();
        let brief = charge("kit", "/brief:7:42", quota("1/20ms fixed_window")).overridable(scope);
        let mut admitted = 0;
        until("ten windows", async || {
            admitted += usize::from(is_allowed(&store, &brief).await);
            let all = (0..8).map(|_| is_allowed(&store, &brief));
            admitted += futures_util::future::join_all(all).await.into_iter().filter(|is| *is).count();
            admitted > 10
        })
        .await;
    }
}

#[tokio::test]
async fn overrides_by_hand_apply_at_once() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let project = "ratelimit_override:/api/matrix/elements:7:42";
    let organisation = "ratelimit_org_override:/api/matrix/elements:7";
    let limit = async || {
        let quota = *ask(&store, &elements().cost(0).unwrap()).await.unwrap().verdicts()[0].quota();
        (quota.limit(), quota.window())
    };
    let seconds = Duration::from_secs;
    assert_eq!(limit().await, (5, seconds(60)));
    assert_eq!(server.cli(&["HSET", organisation, "max_requests", "9", "expiry", "30"]), "2");
    assert_eq!(limit().await, (9, seconds(30)));
    assert_eq!(server.cli(&["HSET", project, "max_requests", "2", "expiry", "10"]), "2");
    assert_eq!(limit().await, (2, seconds(10)), "the project's comes first");
    for expected in [true, true, false] {
        assert_eq!(is_allowed(&store, &elements()).await, expected);
    }
    assert!((1..=10_000).contains(&pttl(&server, COUNTER)), "a window begins as long as the override says");
    assert_eq!(server.cli(&["HSET", project, "max_requests", "4"]), "0");
    assert_eq!(left(&store, &elements()).await, 2, "what was counted stays counted");
    assert_eq!(server.cli(&["PEXPIRE", project, "30"]), "1");
    until("the override expires", async || limit().await == (9, seconds(30))).await;
    assert_eq!(server.cli(&["DEL", organisation]), "1");
    assert_eq!(limit().await, (5, seconds(60)));
}

#[tokio::test]
async fn overrides_of_ours_can_be_read_by_hand() {
    let server = Server::start(Flavour::Valkey9);
    let store = store(&server, "").await;
    let set = async |scope: OverrideScope<'_>, to: Override| store.overrides().set(scope, to).await.unwrap();
    let project = OverrideScope::project("/datasets/{dataset_id}/search", "1", "2").unwrap();
    set(project, Override { window: Some(Duration::from_secs(60)), ..Override::limit(1_000) }).await;
    let key = "ratelimit_override:/datasets/{dataset_id}/search:1:2";
    let fields = |key: &str| server.cli(&["HGETALL", key]).replace('\n', " ");
    assert_eq!(fields(key), "max_requests 1000 expiry 60");
    assert_eq!(pttl(&server, key), -1, "it stays until it is deleted");

    let organisation = project.without_project();
    let end = store.now().after(Duration::from_secs(86_400));
    let temporary = Override {
        window: Some(Duration::from_millis(1_500)),
        expires_at: Some(end),
        reason: "a launch".into(),
        author: "ann".into(),
        ..Override::limit(500)
    };
    set(organisation, temporary).await;
    let key = "ratelimit_org_override:/datasets/{dataset_id}/search:1";
    let expected = format!(
        "max_requests 500 expiry 2 window_ms 1500 expires_at {} reason a launch author ann",
        end.as_micros()
    );
    assert_eq!(fields(key), expected);
    assert!((86_300_000..=86_400_000).contains(&pttl(&server, key)));
    // Replaced whole: nothing of the old one is left.
    set(organisation, Override::limit(7)).await;
    assert_eq!((fields(key), pttl(&server, key)), ("max_requests 7".to_owned(), -1));
}

#[tokio::test]
async fn endpoints_are_used_as_they_are_and_never_meet() {
    let server = Server::start(Flavour::Redis62);
    let store = store(&server, "").await;
    let endpoints = [
        "/datasets/{dataset_id}/search",
        "/api/v1/datasets/<int:dataset_id>/search",
        "/a",
        "/a/elements",
        "/a:7:42",
        "/a:7",
        "/with space and %",
        "/caf\u{e9}",
    ];
    for (index, endpoint) in endpoints.iter().enumerate() {
        let subject = format!("{endpoint}:7:42");
        let own = shared(endpoint, &subject);
        assert_eq!(left(&store, &own).await, 5, "{endpoint} is new");
        ask(&store, &own.cost(1 + index as u64 % 5).unwrap()).await.unwrap();
        let count = server.cli(&["GET", &format!("ratelimit:{endpoint}:7:42")]);
        assert_eq!(count, (1 + index % 5).to_string(), "{endpoint}");
    }
    assert_eq!(server.cli(&["DBSIZE"]), endpoints.len().to_string());
    // What Application Kit would not count is not in its counters.
    let scope = OverrideScope::project("/a", "acme", "42").unwrap();
    let words = charge("kit", "/a:acme:42", quota("5/60s fixed_window")).overridable(scope);
    let not_overridable = charge("kit", "/b:7:42", quota("5/60s fixed_window"));
    let calendar = shared("/c", "/c:7:42");
    let calendar =
        charge("kit", "/c:7:42", quota("5/calendar minute")).overridable(calendar.override_scope().unwrap());
    for other in [words, not_overridable, calendar] {
        ask(&store, &other).await.unwrap();
    }
    let own: Vec<String> = keys(&server).into_iter().filter(|key| key.starts_with("rk:")).collect();
    assert_eq!(own, ["rk:c:kit:/a:acme:42", "rk:c:kit:/b:7:42", "rk:c:kit:/c:7:42"]);
}

#[tokio::test]
async fn what_is_given_back_goes_to_its_own_window() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let three = elements().cost(3).unwrap();
    let check = Check::one(&three);
    let decision = store.check(&check).await.unwrap();
    let life = pttl(&server, COUNTER);
    store.refund(&check, &decision, 2).await.unwrap();
    assert_eq!(server.cli(&["GET", COUNTER]), "1");
    assert!((1..=life).contains(&pttl(&server, COUNTER)), "the window stays");
    store.refund(&check, &decision, 3).await.unwrap();
    assert_eq!(server.cli(&["GET", COUNTER]), "0", "never below nothing");

    assert!(store.reset(three.key(), Algorithm::FixedWindow).await.unwrap());
    assert!(!store.reset(three.key(), Algorithm::FixedWindow).await.unwrap());
    assert_eq!(keys(&server), [""; 0]);
    // A window that ended elsewhere, and another that began.
    assert_eq!(server.cli(&["SET", COUNTER, "4", "PX", "30000"]), "OK");
    store.refund(&check, &decision, 3).await.unwrap();
    assert_eq!(server.cli(&["GET", COUNTER]), "4");
}

#[tokio::test]
async fn reservations_hold_such_counters_too() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let estimate = elements().cost(3).unwrap();
    let check = Check::one(&estimate);
    for (id, actual, count) in [("less", Some(1), "1"), ("more", Some(4), "5"), ("never", None, "5")] {
        let hold = Reservation::hold(id, Duration::from_secs(600)).unwrap();
        let decision = store.reserve(&check, &hold).await.unwrap();
        let repeated = store.reserve(&check, &hold).await.unwrap();
        assert_eq!(decision.is_allowed(), id != "never", "{id}");
        assert_eq!(repeated.verdicts()[0].remaining(), decision.verdicts()[0].remaining(), "charged once");
        let expected =
            if decision.is_allowed() { [Settled::Done, Settled::Already] } else { [Settled::Unknown; 2] };
        for settled in expected {
            assert_eq!(store.settle(id.as_bytes(), actual).await.unwrap(), settled, "{id}");
        }
        assert_eq!(server.cli(&["GET", COUNTER]), count, "{id}");
    }
}

/// Whether two values have the same length, and the same counters in the same places.
const SAME_COUNTERS: &str = "local one, other = KEYS[1], KEYS[2]
    local function head(key) return redis.call('GETRANGE', key, 0, ARGV[1]) end
    return redis.call('STRLEN', one) == redis.call('STRLEN', other) and head(one) == head(other) and 1 or 0";

/// What a rule no longer asks for goes with the first write after it is over, and what it asks for stands in its
/// order: from then on a check costs what it costs on a new key.
#[tokio::test]
async fn a_changed_set_of_tiers_leaves_nothing_behind() {
    let server = Server::start(Flavour::Redis7);
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let store = builder(&server.url()).clock(Arc::new(clock.clone())).build().unwrap();
    store.ping().await.unwrap();
    let limiter = |quotas: &str| {
        let rule = Rule::new("api", |user: &str| Some(user.into())).quotas(quotas);
        Limiter::builder(store.clone()).rule(rule).build().unwrap()
    };
    let same = || {
        // Format, count and length of the rest, then tag, window, limit and burst of two counters.
        let last = (4 + 2 * 20 - 1).to_string();
        server.cli(&["EVAL", SAME_COUNTERS, "2", "rk:c:api:old", "rk:c:api:new", &last])
    };
    let after = limiter("{rpm=50, rph=500}");
    for before in ["{rps=5, rpm=50, rph=500}", "{rps=5, rph=500}", "{rph=500, rpm=50}", "{rps=5}"] {
        assert!(limiter(before).check("old").await.unwrap().is_allowed());
        clock.advance(Duration::from_secs(2));
        for user in ["old", "new"] {
            assert!(after.check(user).await.unwrap().is_allowed(), "{before}");
        }
        assert_eq!(same(), "1", "{before}");
        // A tier that is not over yet stays, and goes when it is.
        assert!(limiter("{rps=1}").check("old").await.unwrap().is_allowed());
        assert!(after.check("old").await.unwrap().is_allowed());
        assert_eq!(same(), "0", "{before}");
        clock.advance(Duration::from_secs(2));
        assert!(after.check("old").await.unwrap().is_allowed());
        assert_eq!(same(), "1", "{before}");
        assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    }
}

/// How many counters a value has is told in a byte: what would be more is refused, nothing is charged, and the value
/// stays readable.
#[tokio::test]
async fn a_rule_and_key_have_at_most_255_counters() {
    let server = Server::start(Flavour::Redis7);
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let store = builder(&server.url()).clock(Arc::new(clock.clone())).build().unwrap();
    store.ping().await.unwrap();
    let rule = Name::new("many").unwrap();
    let tiers = |from: usize, count: usize, text: &str| {
        let charges: Vec<Charge<'_>> = (from..from + count)
            .map(|index| {
                let name = Name::joined(rule, &format!("q{index}")).unwrap();
                Charge::new(Key::new(name, "s").unwrap(), quota(text))
            })
            .collect();
        together(&charges)
    };
    for from in [0, 60, 120, 180] {
        let text = if from == 0 { "5/m" } else { "5/h" };
        assert!(store.check(&tiers(from, 60, text).check().unwrap()).await.unwrap().is_allowed());
    }
    let last = tiers(240, 15, "5/h");
    assert!(store.check(&last.check().unwrap()).await.unwrap().is_allowed());
    assert_eq!(store.stored_counters("many", b"s").await.unwrap().len(), 255);
    let one_more = tiers(255, 1, "5/h");
    let error = store.check(&one_more.check().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Input, "{error}");
    let input = error.into_input().unwrap().to_string();
    assert!(input.contains("more than 255 counters of a rule for one key"), "{input}");
    assert_eq!(left(&store, &last.check().unwrap().charges()[0]).await, 4, "nothing was charged");
    // What is settled beyond its estimate is no reason to write what cannot be read.
    clock.advance(Duration::from_secs(61));
    let hold = Reservation::hold("id", Duration::from_secs(7_200)).unwrap();
    assert!(store.reserve(&one_more.check().unwrap(), &hold).await.unwrap().is_allowed(), "sixty are over");
    assert_eq!(store.stored_counters("many", b"s").await.unwrap().len(), 196);
    assert_eq!(store.settle(b"id", Some(3)).await.unwrap(), Settled::Done);
    assert_eq!(left(&store, &one_more.check().unwrap().charges()[0]).await, 2);
}

/// A script that says by a command when it leaves the short way.
fn telling() -> String {
    let (general, telling) =
        ("local function general()\n", "local function general()\n  redis.call('ECHO', 'general')\n");
    let script = script();
    assert_eq!(script.matches(general).count(), 1);
    script.replace(general, telling)
}

/// Tiers that went still count until they are over. Meanwhile a check costs what it costs on a new key: the same
/// commands, on the short way. Only what is over, and a time to live that ends too soon, take the general way once.
#[tokio::test]
async fn tiers_that_went_make_no_check_dearer() {
    let server = Server::start(Flavour::Redis7);
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let store = builder(&server.url()).script(&telling()).clock(Arc::new(clock.clone())).build().unwrap();
    store.ping().await.unwrap();
    let limiter = |quotas: &str| {
        let rule = Rule::new("api", |user: &str| Some(user.into())).quotas(quotas);
        Limiter::builder(store.clone()).rule(rule).build().unwrap()
    };
    let (before, after) = (limiter("{rps=200, rpm=200, rph=5000, rpd=500}"), limiter("{rph=5000, rpm=200}"));
    // So much that no check needs a longer time to live.
    assert!(before.check_cost("old", 100).await.unwrap().is_allowed());
    assert!(after.check_cost("new", 100).await.unwrap().is_allowed());
    for user in ["old", "new"] {
        assert!(after.check(user).await.unwrap().is_allowed());
    }
    let left = async |name: &str| {
        let counters = store.stored_counters("api", b"old").await.unwrap();
        counters.into_iter().find(|counter| counter.quota == name).map(|counter| counter.remaining)
    };
    assert_eq!((left("rph").await, left("rpd").await), (Some(4899), Some(400)));
    let counted = |server: &Server| ["echo", "get", "setrange", "set"].map(|command| calls(server, command));
    for user in ["new", "old"] {
        // The first check may have something to put in order.
        after.check(user).await.unwrap();
        let start = counted(&server);
        for _ in 0..5 {
            assert!(after.check(user).await.unwrap().is_allowed());
        }
        let end = counted(&server);
        let [general, read, in_place, anew] = std::array::from_fn(|command| end[command] - start[command]);
        assert_eq!((general, read, in_place + anew), (0, 5, 5), "{user}: the general way, reads, writes");
    }
    assert_eq!((left("rph").await, left("rpd").await), (Some(4893), Some(400)), "each is counted for itself");
    // Asked together, and looked at in between.
    let start = counted(&server);
    let all = futures_util::future::join_all((0..6).map(|_| after.check("old"))).await;
    assert!(all.into_iter().all(|decision| decision.unwrap().is_allowed()));
    assert_eq!(counted(&server)[0], start[0]);
    assert_eq!((left("rph").await, left("rpm").await), (Some(4887), Some(87)));
    assert!(before.check("old").await.unwrap().is_allowed());
    assert_eq!((left("rph").await, left("rpd").await), (Some(4886), Some(399)));
}
