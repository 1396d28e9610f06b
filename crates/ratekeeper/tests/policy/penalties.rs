//! Who is denied again and again is denied for a while, whatever room there is.

use std::time::Duration;

use ratekeeper::policy::{Ask, RequestFacts};
use ratekeeper::{Decision, Outcome, Settled, Wait};

use crate::world::{World, by, left, now, strictest};

/// Two a second; who is denied three times in ten seconds is denied for a minute.
const PLAIN: &str = r#"
    service = "api"
    [[rules]]
    name = "per-user"
    keys = "user:{identity.user}"
    quota = "2/s"
    penalty = { denials = 3, within = "10s", duration = "1min" }
"#;

fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

/// Asks until a penalty is given.
fn offend(world: &World, facts: &RequestFacts) -> Decision {
    for _ in 0..1_000 {
        let decision = world.ask(facts);
        if strictest(&decision) == "per-user.penalty" {
            return decision;
        }
    }
    panic!("no penalty is given");
}

#[test]
fn after_so_many_denials_there_is_no_room_though_the_quota_has_some() {
    let world = World::of(PLAIN);
    let ann = by("ann");
    assert_eq!(world.until_denied(&ann), (2, "per-user"));
    assert_eq!(strictest(&world.ask(&ann)), "per-user", "the second denial");
    let third = world.ask(&ann);
    assert_eq!(strictest(&third), "per-user.penalty");
    assert_eq!(third.retry_after(), Wait::micros(60_000_000));
    world.wait(30);
    let denied = world.ask(&ann);
    assert_eq!((denied.outcome(), denied.retry_after()), (Outcome::Deny, Wait::micros(30_000_000)));
    assert!(world.allows(&by("bob")), "it is nobody else's penalty");
    world.advance(Duration::from_micros(29_999_999));
    assert!(!world.allows(&ann), "denied just before");
    world.advance(Duration::from_micros(1));
    let after = world.ask(&ann);
    assert_eq!(left(&after), [("per-user", 1)], "allowed at it, and nothing was charged meanwhile");
    assert_eq!((world.status("per-user").penalties, world.status("per-user").denied), (1, 5));
}

#[test]
fn denials_are_forgotten_when_their_time_is_over() {
    let world = World::of(PLAIN);
    let ann = by("ann");
    for round in 0..20 {
        assert_eq!(world.until_denied(&ann), (2, "per-user"));
        assert_eq!(strictest(&world.ask(&ann)), "per-user", "two in ten seconds are not three: {round}");
        world.wait(10);
    }
    assert_eq!(world.status("per-user").penalties, 0);
    world.until_denied(&ann);
    world.advance(Duration::from_micros(9_999_999));
    world.until_denied(&ann);
    assert_eq!(strictest(&world.ask(&ann)), "per-user.penalty", "the third, just in time");
}

#[test]
fn nobody_is_penalised_twice_for_the_same_denials() {
    let world = World::of(&with(PLAIN, "within = \"10s\"", "within = \"1h\""));
    offend(&world, &by("ann"));
    world.wait(60);
    assert_eq!(world.until_denied(&by("ann")), (2, "per-user"));
    assert_eq!(strictest(&world.ask(&by("ann"))), "per-user", "two denials since");
    assert_eq!(strictest(&world.ask(&by("ann"))), "per-user.penalty");
}

#[test]
fn penalties_escalate_and_are_forgiven_one_by_one() {
    let growing = with(PLAIN, r#"duration = "1min""#, r#"duration = "1min", escalate = 3, max = "10min""#);
    let world = World::of(&growing);
    let minutes = |world: &World| offend(world, &by("ann")).retry_after().as_micros().unwrap() / 60_000_000;
    for expected in [1, 3, 9] {
        assert_eq!(minutes(&world), expected);
        world.wait(expected * 60);
    }
    for _ in 0..3 {
        assert_eq!(minutes(&world), 10, "the longest, again and again");
        world.wait(600);
    }
    world.wait(20 * 60);
    assert_eq!(minutes(&world), 9, "one was forgotten, in twice the time of the longest");
    world.wait(5 * 20 * 60);
    assert_eq!(minutes(&world), 1, "all are forgotten");
}

#[test]
fn a_penalty_that_is_known_costs_no_call_to_the_store() {
    let world = World::far(PLAIN);
    offend(&world, &by("ann"));
    world.store.calls();
    for _ in 0..10 {
        assert!(!world.allows(&by("ann")));
        assert!(!now(world.service.check(&Ask::request(&by("ann")))).unwrap().is_allowed());
    }
    assert_eq!(world.store.calls(), 0);
    assert!(world.allows(&by("bob")) && world.store.calls() == 1);
}

#[test]
fn instances_that_share_a_store_share_penalties() {
    let one = World::far(PLAIN);
    let other = one.beside(PLAIN);
    offend(&one, &by("ann"));
    // Not a whole number of milliseconds is left, as is usual.
    one.advance(Duration::from_micros(20_000_123));
    let found = other.ask(&by("ann"));
    assert_eq!((strictest(&found), found.retry_after()), ("per-user.penalty", Wait::micros(39_999_877)));
    assert!(other.store.calls() > 0);
    assert!(!other.allows(&by("ann")));
    assert_eq!(other.store.calls(), 0, "now it is known here, too");
    assert_eq!(other.status("per-user").denied, 2, "both were denied");
    one.advance(Duration::from_micros(39_999_876));
    assert!(!other.allows(&by("ann")) && !one.allows(&by("ann")), "denied just before");
    one.advance(Duration::from_micros(1));
    assert_eq!(left(&other.ask(&by("ann"))), [("per-user", 1)], "who found out paid nothing for it");
}

#[test]
fn who_finds_out_about_a_penalty_is_charged_nowhere() {
    let text = format!(
        "{PLAIN}\n[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '100/h fixed_window'\n\
         [[rules]]\nname = 'here'\nkeys = 'all'\nquota = '100/h fixed_window'\nscope = 'process'\n\
         [[rules]]\nname = 'places'\nkeys = 'all'\nquota = '5/1min concurrency'\n"
    );
    let one = World::of(&text);
    let other = one.beside(&text);
    offend(&one, &by("ann"));
    one.advance(Duration::from_micros(5_000_001));
    let before = left(&other.peek(&by("bob")));
    assert_eq!(before, [("here", 100), ("per-user", 2), ("all", 98), ("places", 3)]);
    assert_eq!(strictest(&other.ask(&by("ann"))), "per-user.penalty");
    assert_eq!(left(&other.peek(&by("bob"))), before);
    let async_one = one.beside(&text);
    let found = now(async_one.service.check(&Ask::request(&by("ann")))).unwrap();
    assert_eq!((found.outcome(), left(&other.peek(&by("bob")))), (Outcome::Deny, before));
}

#[test]
fn a_reservation_that_meets_a_penalty_is_none() {
    let one = World::of(PLAIN);
    let other = one.beside(PLAIN);
    offend(&one, &by("ann"));
    one.advance(Duration::from_micros(5_000_001));
    let hold = Duration::from_secs(3_600);
    let facts = by("ann");
    let reserve = |id| now(other.service.reserve(&Ask::request(&facts), id, hold)).unwrap();
    assert!(!reserve("first").is_allowed() && !reserve("first").is_allowed());
    one.wait(60);
    assert!(other.allows(&facts));
    assert_eq!(now(other.service.cancel("first")).unwrap(), Settled::Unknown, "nothing is given back twice");
    assert_eq!(left(&other.peek(&facts)), [("per-user", 1)]);
    assert!(reserve("first").is_allowed(), "the penalty is over, for that id as well");
    assert!(!reserve("second").is_allowed(), "nothing is left");
}

#[test]
fn a_rule_that_watches_counts_penalties_and_denies_nobody() {
    let world = World::of(&with(PLAIN, "quota =", "mode = \"monitor\"\nquota ="));
    for _ in 0..50 {
        let decision = world.ask(&by("ann"));
        assert!(decision.is_allowed());
        assert_eq!(decision.verdicts().len(), 1, "it is not told of: {decision:?}");
    }
    let status = world.status("per-user");
    assert_eq!((status.penalties, status.denied, status.over_limit), (1, 0, 48));
}

#[test]
fn an_operators_lift_ends_penalties_and_a_block_gives_none() {
    let world = World::of(PLAIN);
    offend(&world, &by("ann"));
    assert!(!world.allows(&by("ann")));
    world.switch("*", "emergency=lift");
    assert!(world.allows(&by("ann")), "everything passes");
    world.switch("*", "emergency=block");
    for _ in 0..20 {
        assert!(!world.allows(&by("bob")), "nothing passes");
    }
    now(world.limiter.store().control().clear_switch("*")).unwrap();
    assert!(!world.allows(&by("ann")), "it was lifted, not pardoned");
    assert!(world.allows(&by("bob")), "being blocked is no offence");
    assert_eq!(world.status("per-user").penalties, 1);
}

#[test]
fn a_reset_pardons() {
    let growing = with(PLAIN, r#"duration = "1min""#, r#"duration = "1min", escalate = 2, max = "1h""#);
    let world = World::of(&growing);
    offend(&world, &by("ann"));
    let facts = by("ann");
    let forgotten = now(world.service.reset(&Ask::request(&facts))).unwrap();
    assert_eq!(forgotten, 3, "the quota, the penalty, and that there was one");
    assert_eq!(now(world.service.reset(&Ask::request(&facts))).unwrap(), 0);
    assert_eq!(world.until_denied(&facts), (2, "per-user"));
    let again = offend(&world, &facts);
    assert_eq!(again.retry_after(), Wait::micros(60_000_000), "the first one, as if there had been none");
}

#[test]
fn a_pardon_reaches_other_instances_within_a_second() {
    let one = World::far(PLAIN);
    let other = one.beside(PLAIN);
    offend(&one, &by("ann"));
    assert!(!one.allows(&by("ann")) && !other.allows(&by("ann")));
    now(one.service.reset(&Ask::request(&by("ann")))).unwrap();
    assert!(one.allows(&by("ann")), "here at once");
    assert!(!other.allows(&by("ann")), "there it is remembered");
    one.wait(1);
    assert!(other.allows(&by("ann")));
}

#[test]
fn a_penalty_that_is_remembered_is_asked_about_once_a_second() {
    let world = World::far(PLAIN);
    let end = offend(&world, &by("ann")).retry_after().as_micros().unwrap();
    for second in 1..10 {
        world.wait(1);
        world.store.calls();
        for _ in 0..5 {
            let told = world.ask(&by("ann")).retry_after();
            assert_eq!(
                told,
                Wait::micros(end - second * 1_000_000),
                "what is told is the end of the penalty"
            );
        }
        assert_eq!(world.store.calls(), 1, "one request asks");
    }
}

#[tokio::test]
async fn who_waits_in_line_is_not_penalised_for_it() {
    let world = World::of(PLAIN);
    let facts = by("ann");
    for _ in 0..20 {
        let decision = world.service.until_allowed(&Ask::request(&facts), Duration::ZERO).await;
        decision.unwrap();
    }
    assert_eq!(world.status("per-user").penalties, 0);
    offend(&world, &facts);
}

#[test]
fn of_two_penalties_the_longer_one_is_told() {
    let two = r#"
        service = "api"
        [[rules]]
        name = "short"
        keys = "user:{identity.user}"
        quota = "1/s"
        penalty = { denials = 1, within = "1s", duration = "10s" }
        [[rules]]
        name = "long"
        keys = "user:{identity.user}"
        quota = "1/s"
        penalty = { denials = 1, within = "1s", duration = "10min" }
    "#;
    let one = World::of(two);
    let other = one.beside(two);
    assert!(one.allows(&by("ann")));
    let sentenced = one.ask(&by("ann"));
    assert_eq!((strictest(&sentenced), sentenced.retry_after()), ("long.penalty", Wait::micros(600_000_000)));
    for world in [&one, &other, &one, &other] {
        let denied = world.ask(&by("ann"));
        assert_eq!(denied.retry_after(), Wait::micros(600_000_000), "{denied}");
        assert_eq!(strictest(&denied), "long.penalty");
    }
}

#[test]
fn penalties_of_one_process_stay_in_it() {
    let local = with(PLAIN, "quota =", "scope = \"process\"\nquota =");
    let one = World::of(&local);
    let other = one.beside(&local);
    offend(&one, &by("ann"));
    assert!(!one.allows(&by("ann")) && other.allows(&by("ann")));
    assert_eq!(one.store.calls() + other.store.calls(), 0);
    one.wait(60);
    assert!(one.allows(&by("ann")));
}

#[test]
fn an_outage_is_no_offence() {
    let world = World::of(&with(PLAIN, "quota =", "on_outage = \"deny\"\nquota ="));
    world.store.is_away.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!((0..20).all(|_| !world.allows(&by("ann"))));
    world.store.is_away.store(false, std::sync::atomic::Ordering::SeqCst);
    assert!(world.allows(&by("ann")));
}

#[test]
fn many_at_once_are_one_offence() {
    let growing = with(PLAIN, r#"duration = "1min""#, r#"duration = "1min", escalate = 10, max = "1d""#);
    for _ in 0..50 {
        let world = World::of(&growing);
        let instances: Vec<World> = (0..4).map(|_| world.beside(&growing)).collect();
        std::thread::scope(|scope| {
            for instance in &instances {
                scope.spawn(|| (0..20).for_each(|_| drop(instance.ask(&by("ann")))));
            }
        });
        let given: u64 = instances.iter().map(|instance| instance.status("per-user").penalties).sum();
        assert_eq!(given, 1, "the clock stands still");
        for instance in instances.iter().chain([&world]) {
            assert_eq!(instance.ask(&by("ann")).retry_after(), Wait::micros(60_000_000));
        }
    }
}

/// Two an hour; who is denied twice in a minute is denied for two seconds.
const SHORT: &str = r#"
    service = "api"
    [[rules]]
    name = "per-user"
    keys = "user:{identity.user}"
    quota = "2/h fixed_window"
    penalty = { denials = 2, within = "1min", duration = "2s" }
"#;

#[test]
fn a_penalty_never_tells_less_than_the_quota_behind_it() {
    for world in [World::of(SHORT), World::far(SHORT)] {
        let ann = by("ann");
        assert_eq!(world.until_denied(&ann), (2, "per-user"));
        for passed in [0, 0, 500_123, 499_877, 300_001] {
            world.advance(Duration::from_micros(passed));
            let denied = world.ask(&ann);
            let left = 3_600_000_000 - (denied.at().as_micros() - 1_700_000_000_000_000);
            assert_eq!(denied.retry_after(), Wait::micros(left), "{denied}");
        }
        world.wait(3_598);
        assert!(!world.allows(&ann), "neither before it");
        let told = world.ask(&ann).retry_after().as_micros().unwrap();
        world.advance(Duration::from_micros(told));
        assert!(world.allows(&ann), "who obeys is allowed at it");
    }
}

#[test]
fn what_is_told_from_memory_is_exact_to_the_microsecond() {
    let world = World::far(PLAIN);
    let end = offend(&world, &by("ann")).retry_after().as_micros().unwrap();
    world.advance(Duration::from_micros(1_000_123));
    world.store.calls();
    for asked in 1..4 {
        assert_eq!(world.ask(&by("ann")).retry_after(), Wait::micros(end - 1_000_123), "question {asked}");
    }
    assert_eq!(world.store.calls(), 1, "one request asked");
}

/// What another rule said of another request is no part of the answer, and of the same it is.
#[test]
fn what_is_told_from_memory_is_the_latest_of_those_that_deny_this_request() {
    let text = format!(
        "{PLAIN}\n[[rules]]\nname = 'slow'\nwhen = \"path == '/slow'\"\nkeys = 'all'\nquota = '2/h fixed_window'\n"
    );
    let world = World::far(&text);
    let facts = |path: &str| RequestFacts::new("GET", path).claim("user", "ann");
    let (slow, quick) = (facts("/slow"), facts("/quick"));
    assert!(world.allows(&slow) && world.allows(&slow));
    let micros = |facts: &RequestFacts| world.ask(facts).retry_after().as_micros().unwrap();
    while micros(&quick) < 60_000_000 {}
    for _ in 0..3 {
        assert_eq!((micros(&slow), micros(&quick)), (3_600_000_000, 60_000_000));
    }
    world.wait(1);
    for _ in 0..3 {
        assert_eq!((micros(&quick), micros(&slow)), (59_000_000, 3_599_000_000));
    }
}
