//! On, monitor, off: from the policy, the program, the environment, the store.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use ratekeeper::policy::{Ask, Policies};
use ratekeeper::{Enforcement, MODE_VARIABLE, Mode, Origin, Store, all_rules_of};

use crate::traces::Traces;
use crate::world::{World, by, left, now, without_mode};

const PLAIN: &str = r#"
    service = "api"
    [[rules]]
    name = "per-user"
    keys = "user:{identity.user}"
    quota = "2/min fixed_window"
"#;

fn in_policy(mode: &str) -> String {
    PLAIN.replace("[[rules]]", &format!("mode = \"{mode}\"\n[[rules]]"))
}

fn in_rule(mode: &str) -> String {
    format!("{PLAIN}\nmode = \"{mode}\"")
}

fn from_outside(text: &str, mode: Mode) -> World {
    World::set_up(crate::toml(text).unwrap(), Policies::builder().mode(Some(mode)))
}

/// The same mode in every way it can be said.
fn in_every_way(mode: Mode) -> Vec<(&'static str, World)> {
    let switched = |name: &str| {
        let world = World::of(PLAIN);
        world.switch(name, &format!("mode={mode}"));
        world
    };
    vec![
        ("the policy", World::of(&in_policy(mode.as_str()))),
        ("the rule", World::of(&in_rule(mode.as_str()))),
        ("the program", from_outside(PLAIN, mode)),
        ("the program, though the rule is on", from_outside(&in_rule("on"), mode)),
        ("a switch for all", switched("*")),
        ("a switch for the service", switched(&all_rules_of("api"))),
        ("a switch for the rule", switched("api/per-user")),
    ]
}

#[test]
fn off_does_nothing_at_all() {
    for (who, world) in in_every_way(Mode::Off) {
        for _ in 0..5 {
            assert_eq!(world.ask(&by("ann")).origin(), Origin::Unlimited, "{who} says so");
        }
        let facts = by("ann");
        let demand = world.service.demand(&Ask::request(&facts));
        assert!(!demand.is_limited() && now(demand.check()).unwrap().verdicts().is_empty(), "{who}");
        assert_eq!((world.store.calls(), world.store.inner.len()), (0, 0), "{who}");
    }
}

#[test]
fn monitor_counts_and_tells_and_never_denies() {
    for (who, world) in in_every_way(Mode::Monitor) {
        let told: Vec<_> = (0..10).map(|_| world.ask(&by("ann"))).collect();
        assert!(told.iter().all(ratekeeper::Decision::is_allowed), "{who} says so");
        assert!(told.iter().all(|decision| decision.verdicts()[0].enforcement() == Enforcement::Shadow));
        let left: Vec<u32> = told.iter().map(|decision| decision.verdicts()[0].remaining()).collect();
        assert_eq!(left[..3], [1, 0, 0], "{who}");
        assert_eq!(told.iter().filter(|decision| decision.is_over_limit()).count(), 8, "{who}");
        let status = world.status("per-user");
        assert_eq!((status.over_limit, status.denied), (8, 0), "{who}");
        world.install(&in_rule("on"));
        world.switch("api/per-user", "mode=on");
        assert!(!world.allows(&by("ann")), "what was counted stays counted, {who}");
    }
}

#[test]
fn what_is_said_for_many_makes_a_rule_do_less_but_never_more() {
    let cases = [
        (in_rule("monitor"), Some(Mode::On), Mode::Monitor),
        (in_rule("off"), Some(Mode::Monitor), Mode::Off),
        (in_policy("monitor"), Some(Mode::On), Mode::On),
        (in_policy("off"), None, Mode::Off),
        (PLAIN.to_owned(), None, Mode::On),
    ];
    for (text, outside, expected) in cases {
        let world = World::set_up(crate::toml(&text).unwrap(), Policies::builder().mode(outside));
        assert_eq!(world.status("per-user").mode, expected, "{text}");
        let is_denied = (0..5).any(|_| !world.allows(&by("ann")));
        assert_eq!(is_denied, expected == Mode::On, "{text}");
    }
    let watched = from_outside(PLAIN, Mode::Monitor);
    watched.switch("*", "enforce=100");
    assert!((0..5).all(|_| watched.allows(&by("ann"))), "a switch that says nothing of modes");
    let world = World::of(&in_rule("monitor"));
    world.switch("*", "mode=on");
    assert!((0..5).all(|_| world.allows(&by("ann"))), "all rules, but this one only watches");
    world.switch("api/per-user", "mode=on");
    assert!(!world.allows(&by("ann")), "this very rule");
}

/// The modes in which a question is asked, and what becomes of a rule.
#[test]
fn whoever_asks_says_what_a_question_does() {
    let (on, monitor, off) = (Some(Mode::On), Some(Mode::Monitor), Some(Mode::Off));
    // The rule, its policies, the service just now, the question, and what comes of it.
    let cases = [
        (PLAIN.to_owned(), monitor, None, on, Mode::On),
        (PLAIN.to_owned(), on, None, monitor, Mode::Monitor),
        (PLAIN.to_owned(), on, monitor, None, Mode::Monitor),
        (PLAIN.to_owned(), monitor, on, None, Mode::On),
        (PLAIN.to_owned(), on, monitor, on, Mode::On),
        (PLAIN.to_owned(), off, None, on, Mode::On),
        (PLAIN.to_owned(), on, None, off, Mode::Off),
        (in_rule("monitor"), None, on, on, Mode::Monitor),
        (in_rule("on"), None, None, monitor, Mode::Monitor),
        (in_policy("monitor"), None, None, None, Mode::Monitor),
        (in_policy("monitor"), None, None, on, Mode::On),
    ];
    for (number, (text, given, service, question, expected)) in cases.into_iter().enumerate() {
        let world = World::set_up(crate::toml(&text).unwrap(), Policies::builder().mode(given));
        assert_eq!(in_mode(&world, service, question), expected, "case {number}");
        if question.is_none() {
            let status = world.policies().status_in(service);
            assert_eq!(status[0].rules[0].mode, expected, "as the status has it, case {number}");
        }
    }
    let world = World::of(PLAIN);
    world.switch("*", "mode=on");
    assert_eq!(in_mode(&world, monitor, None), Mode::On, "operators stand above the environment");
    assert_eq!(in_mode(&world, None, monitor), Mode::Monitor, "nobody makes a question do more");
    world.switch("api/per-user", "mode=off");
    assert_eq!(in_mode(&world, None, on), Mode::Off);
}

/// What the rule does with a question in these modes.
fn in_mode(world: &World, service: Option<Mode>, question: Option<Mode>) -> Mode {
    let facts = by("ann");
    let ask = Ask::request(&facts).service_mode(service);
    let ask = question.map_or(ask, |mode| ask.mode(mode));
    let decisions: Vec<_> = (0..4).map(|_| world.service.check_now(&ask).unwrap()).collect();
    match decisions.last() {
        Some(last) if last.origin() == Origin::Unlimited => Mode::Off,
        Some(last) if last.is_allowed() => Mode::Monitor,
        _ => Mode::On,
    }
}

/// All rules count what is only watched, also beside one that is full.
#[test]
fn a_question_in_monitor_mode_is_counted_by_every_rule() {
    let world = World::of(&format!(
        "{PLAIN}\n[[rules]]\nname = \"big\"\nkeys = \"all\"\nquota = \"100/min fixed_window\""
    ));
    let facts = by("ann");
    let ask = Ask::request(&facts).mode(Mode::Monitor);
    let told: Vec<_> = (0..5).map(|_| world.service.check_now(&ask).unwrap()).collect();
    assert_eq!(left(&told[4]), [("per-user", 0), ("big", 95)]);
    assert_eq!((world.status("per-user").over_limit, world.status("per-user").denied), (3, 0));
}

#[test]
fn switches_end_by_themselves() {
    let world = World::of(PLAIN);
    assert_eq!(world.until_denied(&by("ann")).0, 2);
    let end = world.store.now().after(Duration::from_secs(30));
    world.switch(&all_rules_of("api"), &format!("mode=monitor until={}", end.as_micros()));
    assert!(world.allows(&by("ann")));
    world.advance(Duration::from_micros(29_999_999));
    assert!(world.allows(&by("ann")), "monitor for half a minute");
    world.advance(Duration::from_micros(1));
    assert!(!world.allows(&by("ann")));
}

#[test]
fn switches_reach_whom_they_name_and_nobody_else() {
    let two = format!("{PLAIN}\n[[rules]]\nname = \"all\"\nkeys = \"all\"\nquota = \"3/min fixed_window\"");
    let world = World::of(&two);
    world.switch("api/per-user", "mode=off");
    assert_eq!(world.until_denied(&by("ann")), (3, "all"));
    world.switch(&all_rules_of("other"), "mode=off");
    world.switch("other/all", "mode=off");
    world.switch("all", "mode=off");
    assert!(!world.allows(&by("ann")), "another service, another rule");
    world.switch(&all_rules_of("api"), "mode=off");
    assert_eq!(world.ask(&by("ann")).origin(), Origin::Unlimited);
    now(world.store.control().clear_switch(&all_rules_of("api"))).unwrap();
    assert!(!world.allows(&by("ann")), "taken back");
}

#[test]
fn being_over_a_limit_that_watches_marks_the_span() {
    let (watches, denies) = (World::of(&in_rule("monitor")), World::of(PLAIN));
    let marks = |world: &World, span: &dyn Fn() -> tracing::Span| {
        Traces::of(|| span().in_scope(|| drop(world.ask(&by("ann"))))).marks()
    };
    let declared = || tracing::info_span!("request", ratelimit.over_limit = tracing::field::Empty);
    assert!(marks(&watches, &declared).is_empty() && marks(&watches, &declared).is_empty(), "within");
    assert_eq!(marks(&watches, &declared), ["ratelimit.over_limit=true"]);
    assert!(marks(&watches, &|| tracing::info_span!("request")).is_empty(), "it has no such field");
    assert!((0..5).all(|_| marks(&denies, &declared).is_empty()), "a denial tells itself");
}

#[test]
fn a_rule_is_tried_out_beside_one_that_is_on() {
    let beside = format!(
        "{PLAIN}\n[[rules]]\nname = \"strict\"\nkeys = \"user:{{identity.user}}\"\n\
         quota = \"1/min fixed_window\"\nmode = \"monitor\""
    );
    let world = World::of(&beside);
    assert_eq!(left(&world.ask(&by("ann"))), [("per-user", 1), ("strict", 0)]);
    let second = world.ask(&by("ann"));
    assert!(second.is_allowed() && second.is_over_limit());
    let third = world.ask(&by("ann"));
    assert_eq!((third.is_allowed(), crate::world::strictest(&third)), (false, "per-user"));
    assert_eq!((world.status("strict").over_limit, world.status("strict").denied), (2, 0));
    assert_eq!((world.status("per-user").over_limit, world.status("per-user").denied), (0, 1));
}

/// The users that a rule is enforced for.
fn enforced(world: &World) -> BTreeSet<usize> {
    let is_enforced = |user: &usize| {
        let facts = by(&format!("u{user}"));
        world.service.demand(&Ask::request(&facts)).is_enforced()
    };
    (0..2_000).filter(is_enforced).collect()
}

#[test]
fn a_ramp_grows_and_nobody_leaves_it() {
    let live = World::of(PLAIN);
    let mut before = BTreeSet::new();
    for percent in [0, 1, 5, 10, 25, 50, 75, 99, 100] {
        let written = World::of(&format!("{PLAIN}\nenforce_percent = {percent}"));
        live.switch("*", &format!("enforce={percent}"));
        let now = enforced(&written);
        assert!(now.is_superset(&before), "{percent}");
        assert_eq!(now, enforced(&live), "the same, whoever says it");
        assert!(now.len().abs_diff(percent * 20) < 100, "{} at {percent} per cent", now.len());
        before = now;
    }
    live.switch("api/per-user", "mode=monitor enforce=100");
    assert!(enforced(&live).is_empty(), "who watches enforces for nobody");
}

#[test]
fn keys_outside_of_a_ramp_are_watched() {
    let world = World::of(&format!("{PLAIN}\nenforce_percent = 50"));
    let inside = enforced(&world);
    for user in 0..50 {
        let facts = by(&format!("u{user}"));
        let denied = (0..4).filter(|_| !world.allows(&facts)).count();
        assert_eq!(denied, if inside.contains(&user) { 2 } else { 0 }, "{user}");
    }
    let status = world.status("per-user");
    assert_eq!(status.denied + status.over_limit, 100);
    assert!(status.denied > 20 && status.over_limit > 20, "{status:?}");
}

#[test]
fn the_environment_says_the_mode() {
    let says = [("monitor", "monitor"), ("OFF", "off"), ("on", "on"), ("", "monitor"), ("maybe", "wrong")];
    for (says, expected) in says {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "modes::in_an_environment", "--nocapture"]);
        let output = again.env(MODE_VARIABLE, says).env(EXPECTED, expected).output().unwrap();
        assert!(output.status.success(), "{says}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("looked at"), "{output:?}");
    }
}

/// What the mode is expected to be.
const EXPECTED: &str = "RATEKEEPER_TEST_EXPECTED_MODE";

/// Run by the test above, in an environment of its own.
#[test]
fn in_an_environment() {
    let Ok(expected) = std::env::var(EXPECTED) else { return };
    println!("looked at");
    match Policies::builder().build() {
        Err(error) => assert!(expected == "wrong" && error.to_string().contains(MODE_VARIABLE), "{error}"),
        Ok(_) => {
            let spec = || crate::toml(&in_policy("monitor")).unwrap();
            let world = World::set_up(spec(), Policies::builder());
            assert_eq!(world.status("per-user").mode.as_str(), expected);
            let told = World::set_up(spec(), without_mode());
            assert_eq!(told.status("per-user").mode, Mode::Monitor, "the program knows better");
        }
    }
}

#[test]
fn a_rule_that_was_switched_off_gives_back_what_it_charged() {
    let (world, facts) = (World::of(PLAIN), by("ann"));
    let decision = world.ask(&facts);
    assert_eq!(left(&decision), [("per-user", 1)]);
    world.switch("api/per-user", "mode=off");
    let ask = Ask::request(&facts);
    let error = now(world.service.demand(&ask).refund(&decision, 1)).unwrap_err().to_string();
    assert!(error.contains("no rule applies to") && error.contains("in_any_mode"), "{error}");
    assert_eq!(now(world.service.demand(&ask.in_any_mode()).refund(&decision, 1)).unwrap(), 1);
    world.switch("api/per-user", "mode=on");
    assert_eq!(left(&world.peek(&facts)), [("per-user", 2)]);
}
