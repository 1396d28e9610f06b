//! Whose limit holds, and what a decision on several says.

use ratekeeper::policy::{Ask, RequestFacts};
use ratekeeper::{Level, Origin, Outcome, Override, OverrideScope};

use crate::world::{World, by, left, now, strictest};

const LADDER: &str = r#"
    service = "api"
    [[rules]]
    name = "calls"
    keys = ["user:{identity.user}", "ip:{client.ip}"]
    quota = "1/min fixed_window"
    allow = ["192.0.2.0/24"]
    unlimited = ["user:root"]
    overrides = true
    [rules.plans]
    gold = "20/min fixed_window"
    free = { rps = "3/s fixed_window", rpm = "20/min fixed_window" }
    staff = "unlimited"
    [rules.custom]
    "user:ann" = "30/min fixed_window"
    "user:eve" = "unlimited"
"#;

fn on(user: &str, plan: &str) -> RequestFacts {
    by(user).claim("plan", plan.to_owned())
}

fn of(facts: RequestFacts, org: &str, project: &str) -> RequestFacts {
    facts.claim("org", org.to_owned()).claim("project", project.to_owned())
}

#[test]
fn the_first_level_that_fits_holds() {
    let world = World::of(LADDER);
    world.override_organisation("api/calls", "acme", 50);
    world.override_project("api/calls", ("acme", "web"), 40);
    let cases = [
        (by("bob"), Level::Default, 1),
        (on("bob", "silver"), Level::Default, 1),
        (on("bob", "gold"), Level::Plan, 20),
        (on("ann", "gold"), Level::Custom, 30),
        (of(by("bob"), "acme", "app"), Level::Organisation, 50),
        (of(on("ann", "gold"), "acme", "app"), Level::Organisation, 50),
        (of(on("ann", "gold"), "acme", "web"), Level::Project, 40),
        (of(on("ann", "gold"), "other", "web"), Level::Custom, 30),
        (by("ann").claim("org", "acme"), Level::Organisation, 50),
        (by("ann").claim("project", "web"), Level::Custom, 30),
    ];
    for (facts, level, limit) in cases {
        let decision = world.peek(&facts);
        let [verdict] = decision.verdicts() else { panic!("{decision:?}") };
        assert_eq!((verdict.level(), verdict.quota().limit()), (level, limit), "{facts:?}");
    }
}

#[test]
fn nothing_limits_who_is_not_limited() {
    let world = World::of(LADDER);
    world.override_project("api/calls", ("acme", "web"), 40);
    let exempt = [
        of(by("root"), "acme", "web"),
        of(on("bob", "gold").peer([192, 0, 2, 1]), "acme", "web"),
        on("bob", "staff"),
        on("eve", "free"),
    ];
    for facts in exempt {
        assert_eq!(world.ask(&facts).origin(), Origin::Unlimited, "{facts:?}");
    }
    assert_eq!(world.store.calls(), 0);
    assert!(!world.peek(&by("bob").peer([192, 0, 3, 1])).verdicts().is_empty(), "a neighbour");
}

#[test]
fn limits_of_a_plan_are_counted_apart_from_none_and_told_per_tier() {
    let world = World::of(LADDER);
    assert_eq!(left(&world.ask(&on("bob", "free"))), [("calls.rps", 2), ("calls.rpm", 19)]);
    assert_eq!(world.until_denied(&on("bob", "free")), (2, "calls.rps"));
    assert_eq!(world.until_denied(&on("bob", "gold")), (20, "calls"), "another counter: another name");
    assert_eq!(world.until_denied(&on("bob", "none")), (0, "calls"), "the same one, with another limit");
}

#[test]
fn overrides_name_one_of_several_quotas_or_an_endpoint() {
    let world = World::of(
        r#"
        service = "api"
        [[rules]]
        name = "calls"
        keys = "user:{identity.user}"
        quotas = { rps = "5/s fixed_window", rpm = "50/min fixed_window" }
        overrides = { endpoint = "{route}", organisation = "{header.x-org}", project = "{header.x-project}" }
    "#,
    );
    world.override_project("/maps.rpm", ("acme", "web"), 7);
    world.override_project("/maps", ("acme", "web"), 1);
    let facts = |route: &str| by("ann").route(route).header("x-org", "acme").header("x-project", "web");
    let limits = |facts: &RequestFacts| -> Vec<(u32, Level)> {
        let decision = world.peek(facts);
        decision.verdicts().iter().map(|verdict| (verdict.quota().limit(), verdict.level())).collect()
    };
    assert_eq!(limits(&facts("/maps")), [(5, Level::Default), (7, Level::Project)]);
    assert_eq!(limits(&facts("/other")), [(5, Level::Default), (50, Level::Default)]);
    assert_eq!(limits(&by("ann").route("/maps")), [(5, Level::Default), (50, Level::Default)], "nobody's");
    let long = by("ann").route("/maps").header("x-org", "o".repeat(5_000)).header("x-project", "p");
    assert_eq!(limits(&long), [(5, Level::Default), (50, Level::Default)], "nobody can be called so");
}

/// It was set, and held for nothing.
#[test]
fn an_override_for_a_rule_of_several_quotas_is_refused() {
    let policy = r#"
        service = "api"
        [[rules]]
        name = "calls"
        keys = "user:{identity.user}"
        quotas = { rps = "5/s", rpm = "50/min" }
        overrides = true
        plan = "{identity.plan}"
        plans = { hourly = { rph = 9 } }
        [[rules]]
        name = "one"
        keys = "user:{identity.user}"
        quota = "5/s"
        overrides = true
        plan = "{identity.plan}"
        plans = { tiers = { rps = 9, rpm = 90 } }
    "#;
    let world = World::of(policy);
    let set = |endpoint: &str| {
        let scope = OverrideScope::organisation(endpoint, "acme").unwrap();
        now(world.service.set_override(scope, Override::limit(7)))
    };
    let error = set("api/calls").unwrap_err().into_input().unwrap().to_string();
    let expected = "override: got endpoint `api/calls` of a rule with quotas of their own names; expected one of \
                    `api/calls.rph`, `api/calls.rpm`, `api/calls.rps`";
    assert_eq!(error, expected);
    for endpoint in ["api/calls.rpm", "api/one", "api/one.rpm", "/maps"] {
        set(endpoint).unwrap();
    }
    let facts = by("ann").claim("org", "acme").claim("project", "web");
    let limits: Vec<u32> =
        world.peek(&facts).verdicts().iter().map(|verdict| verdict.quota().limit()).collect();
    assert_eq!(limits, [5, 7, 7]);
}

/// Rules that call their overrides something else look their quotas up by that and the name of each.
#[test]
fn an_override_for_an_endpoint_of_several_quotas_is_refused() {
    let tiers = "keys = 'user:{identity.user}'\nquotas = { rps = '5/s', rpm = '50/min' }";
    let one = "keys = 'user:{identity.user}'\nquota = '5/s'";
    let rule = |name: &str, quotas: &str, endpoint: &str| {
        format!("[[rules]]\nname = '{name}'\n{quotas}\noverrides = {{ endpoint = '{endpoint}' }}\n")
    };
    let refusal = |rules: &[String], endpoint: &str| {
        let world = World::of(&format!("service = 'api'\n{}", rules.concat()));
        let scope = OverrideScope::organisation(endpoint, "acme").unwrap();
        let refused = now(world.service.set_override(scope, Override::limit(7))).err();
        // A server has all policies.
        let whole = now(world.limiter.set_override(scope, Override::limit(7))).err();
        let told = |error: ratekeeper::StoreError| error.into_input().unwrap().to_string();
        assert_eq!(whole.map(told), refused.map(told), "{endpoint}");
        let error = now(world.service.set_override(scope, Override::limit(7))).err().map(told)?;
        Some(error.split_once("expected ").unwrap().1.to_owned())
    };
    let fixed = &[rule("calls", tiers, "/search")];
    let names = Some("one of `/search.rpm`, `/search.rps`".to_owned());
    assert_eq!(refusal(fixed, "/search"), names);
    for endpoint in ["/search.rpm", "/search.rps", "/other", "api/calls"] {
        assert_eq!(refusal(fixed, endpoint), None, "{endpoint}");
    }
    // Another rule has one quota there, so it holds for that.
    assert_eq!(refusal(&[rule("calls", tiers, "/search"), rule("one", one, "/search")], "/search"), None);
    let found = &[rule("calls", tiers, "{route}")];
    assert_eq!(refusal(found, "/search"), names);
    for endpoint in ["/search.rpm", "/search.rps"] {
        assert_eq!(refusal(found, endpoint), None, "{endpoint}");
    }
    assert_eq!(refusal(&[rule("calls", tiers, "{route}"), rule("one", one, "/search")], "/search"), None);
    assert_eq!(refusal(&[rule("calls", tiers, "/search"), rule("one", one, "{route}")], "/search"), None);
    // The name of a rule is no route.
    let bare = format!("[[rules]]\nname = 'bare'\n{tiers}\noverrides = true\n");
    let both = &[bare, rule("one", one, "{route}")];
    assert_eq!(refusal(both, "api/bare"), Some("one of `api/bare.rpm`, `api/bare.rps`".to_owned()));
    let part = &[rule("calls", tiers, "/v1{route}")];
    assert_eq!(refusal(part, "/v1/search"), Some("one of `/v1/search.rpm`, `/v1/search.rps`".to_owned()));
    assert_eq!(refusal(part, "/v2/search"), None);
}

#[test]
fn of_several_rules_the_strictest_is_named_and_all_are_told() {
    let world = World::of(
        r#"
        service = "api"
        [[rules]]
        name = "wide"
        keys = "all"
        quota = "100/min fixed_window"
        [[rules]]
        name = "narrow"
        keys = "all"
        quotas = ["4/s fixed_window", "6/h fixed_window"]
    "#,
    );
    let facts = RequestFacts::new("GET", "/");
    let first = world.ask(&facts);
    assert_eq!(left(&first), [("wide", 99), ("narrow.rps", 3), ("narrow.rph", 5)]);
    assert_eq!(strictest(&first), "narrow.rps", "the least of its whole is left");
    assert_eq!(world.until_denied(&facts), (3, "narrow.rps"));
    world.wait(1);
    assert_eq!(world.until_denied(&facts), (2, "narrow.rph"), "no stricter limit hides behind another");
    assert_eq!(left(&world.ask(&facts)), [("wide", 94), ("narrow.rps", 2), ("narrow.rph", 0)]);
}

#[test]
fn what_the_program_asks_for_is_charged_where_the_policy_says_nothing() {
    let rule = |name: &str, cost: &str| {
        format!("[[rules]]\nname = '{name}'\nkeys = 'all'\nquota = '100/min fixed_window'\n{cost}\n")
    };
    let rules =
        [("asked", ""), ("each", "per_request = true"), ("fixed", "cost = 3"), ("body", "cost = 'body.n'")];
    let rules: String = rules.iter().map(|(name, cost)| rule(name, cost)).collect();
    let world = World::of(&format!("service = 'api'\n{rules}"));
    let facts = RequestFacts::new("GET", "/").json(serde_json::json!({ "n": 7 }));
    let ask = Ask::request(&facts).cost(20);
    let counts = || left(&world.peek(&facts)).into_iter().map(|(_, left)| left).collect::<Vec<_>>();
    assert!(world.service.check_now(&ask).unwrap().is_allowed());
    assert_eq!(counts(), [80, 99, 97, 93]);
    now(world.service.reserve(&ask, "id", std::time::Duration::from_secs(10))).unwrap();
    assert_eq!(counts(), [60, 98, 94, 86]);
    now(world.service.settle("id", 5)).unwrap();
    assert_eq!(counts(), [75, 98, 94, 86], "only what was asked is settled");
    let beyond = world.service.check_now(&Ask::request(&facts).cost(1 << 40));
    assert!(beyond.unwrap_err().to_string().starts_with("cost: got 1099511627776"));
}

/// A limit of this process beside a shared one.
const BOTH: &str = r#"
    service = "api"
    [[rules]]
    name = "here"
    keys = "all"
    quota = "NEAR/min fixed_window"
    scope = "process"
    [[rules]]
    name = "everywhere"
    keys = "all"
    quota = "FAR/min fixed_window"
    [[rules]]
    name = "at-once"
    keys = "all"
    quota = "3/10s concurrency"
    scope = "process"
"#;

fn both(here: &str, there: &str) -> String {
    BOTH.replace("NEAR", here).replace("FAR", there)
}

#[test]
fn what_this_process_denies_is_charged_to_nobody() {
    let text = both("2", "10");
    let (one, facts) = (World::of(&text), RequestFacts::new("GET", "/"));
    let other = one.beside(&text);
    assert_eq!(one.until_denied(&facts), (2, "here"));
    assert_eq!(one.store.calls(), 2, "the shared store need not be asked about it");
    assert_eq!(left(&other.ask(&facts)), [("here", 1), ("at-once", 2), ("everywhere", 7)]);
    assert!(!now(one.service.check(&Ask::request(&facts))).unwrap().is_allowed());
    assert_eq!(left(&one.peek(&facts)), [("here", 0), ("at-once", 1), ("everywhere", 7)]);
}

#[test]
fn what_the_shared_store_denies_this_process_gets_back() {
    let text = both("10", "2");
    let (world, facts) = (World::of(&text), RequestFacts::new("GET", "/"));
    assert_eq!(world.until_denied(&facts), (2, "everywhere"));
    for _ in 0..20 {
        let denied = now(world.service.check(&Ask::request(&facts))).unwrap();
        assert_eq!(denied.outcome(), Outcome::Deny);
        assert_eq!(left(&denied), [("here", 8), ("at-once", 1), ("everywhere", 0)]);
    }
}

#[test]
fn a_place_in_this_process_is_held_until_it_is_given_back() {
    let text = both("100", "100");
    let (world, facts) = (World::of(&text), RequestFacts::new("GET", "/"));
    let demand = world.service.demand(&Ask::request(&facts));
    assert!(demand.holds() && demand.is_limited() && demand.is_enforced());
    let decisions: Vec<_> = (0..3).map(|_| now(demand.check()).unwrap()).collect();
    assert_eq!(strictest(&world.ask(&facts)), "at-once");
    now(demand.release(&decisions[0])).unwrap();
    now(demand.release(&decisions[0])).unwrap();
    let held = world.ask(&facts);
    assert!(held.is_allowed() && !world.allows(&facts), "one place, however often it is given back");
    assert_eq!(left(&world.peek(&facts)), [("here", 96), ("at-once", 0), ("everywhere", 96)], "only places");
    now(demand.refund(&held, 1)).unwrap();
    assert_eq!(left(&world.peek(&facts)), [("here", 97), ("at-once", 1), ("everywhere", 97)]);
    world.wait(10);
    assert_eq!(left(&world.peek(&facts))[1], ("at-once", 3), "who never comes back holds it no longer");
}

#[test]
fn a_reservation_in_both_is_settled_in_both() {
    let text = both("20", "10");
    let (world, facts) = (World::of(&text), RequestFacts::new("GET", "/"));
    let hold = std::time::Duration::from_secs(60);
    let reserve = |id, cost| {
        let ask = Ask::request(&facts).cost(cost);
        now(world.service.reserve(&ask, id, hold)).unwrap()
    };
    let counts = || left(&world.peek(&facts)).into_iter().map(|(_, left)| left).collect::<Vec<_>>();
    assert!(reserve("a", 3).is_allowed() && reserve("a", 3).is_allowed(), "the same id is charged once");
    assert_eq!(counts(), [17, 0, 7]);
    now(world.service.settle("a", 1)).unwrap();
    assert_eq!(counts(), [19, 2, 9]);
    let denied = reserve("b", 2);
    assert!(denied.is_allowed());
    now(world.service.cancel("b")).unwrap();
    assert_eq!(counts(), [19, 2, 9]);
    let dear = World::of(&both("20", "2"));
    let ask = Ask::request(&facts).cost(3);
    let denied = now(dear.service.reserve(&ask, "c", hold)).unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(left(&denied), [("here", 20), ("at-once", 3), ("everywhere", 2)], "nothing was charged");
    assert_eq!(left(&dear.peek(&facts)), [("here", 20), ("at-once", 3), ("everywhere", 2)]);
}

/// Nought was refused, or meant one unit in an outage.
#[test]
fn a_limit_of_0_lets_nothing_pass_whoever_says_it() {
    let policy = r#"
        service = "api"
        [[rules]]
        name = "calls"
        keys = "user:{identity.user}"
        quota = "5/h"
        plan = "{identity.plan}"
        on_outage = "local"
        [rules.plans]
        none = "0/h"
        tiers = { rps = 0, rpm = 10 }
        [rules.custom]
        "user:eve" = "0/h"
        "user:root" = "unlimited"
    "#;
    let world = World::of(policy);
    let none = [by("eve"), on("bob", "none"), on("bob", "tiers")];
    for is_away in [false, true] {
        world.store.is_away.store(is_away, std::sync::atomic::Ordering::SeqCst);
        for facts in &none {
            let denied = world.ask(facts);
            assert!(!denied.is_allowed(), "{facts:?}, away: {is_away}");
            assert_eq!(denied.retry_after().duration(), None, "never: {denied}");
        }
        assert!(world.allows(&by("bob")) && world.allows(&by("root")));
    }
}

#[test]
fn without_the_store_this_process_still_guards_itself() {
    let (world, facts) = (World::of(&both("2", "10")), RequestFacts::new("GET", "/"));
    world.store.is_away.store(true, std::sync::atomic::Ordering::SeqCst);
    let first = world.ask(&facts);
    assert_eq!((first.origin(), left(&first)), (Origin::Outage, vec![("here", 1), ("at-once", 2)]));
    assert_eq!(world.until_denied(&facts), (1, "here"));
    let demand = world.service.demand(&Ask::request(&facts));
    now(demand.refund(&first, 1)).unwrap();
    assert!(world.allows(&facts), "what was charged here is given back here");
}
