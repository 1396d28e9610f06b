//! Policies that change while requests are under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use ratekeeper::bounds::SERVICES_MAX;
use ratekeeper::policy::{Ask, Policies, PolicyLimiter, RequestFacts};
use ratekeeper::{MemoryStore, Origin};
use ratekeeper_testkit::cpu;

use crate::traces::Traces;
use crate::world::{World, by, left, now};

/// A policy whose rules are called after it.
fn named(name: &str, rules: usize) -> String {
    let rule = |n| format!("[[rules]]\nname = \"{name}{n}\"\nkeys = \"all\"\nquota = \"1000000/s\"\n");
    format!("service = \"api\"\n{}", (0..rules).map(rule).collect::<String>())
}

#[test]
fn no_request_sees_two_policies() {
    let policies = Policies::builder().mode(None).build().unwrap();
    let documents = [("a", 7), ("b", 3)].map(|(name, rules)| crate::toml(&named(name, rules)).unwrap());
    let install = |n: usize| policies.install("x", Ok(documents[n % 2].clone()), None).unwrap();
    install(0);
    let limiter = PolicyLimiter::new(MemoryStore::new(), policies.clone());
    let (is_over, facts) = (AtomicBool::new(false), RequestFacts::new("GET", "/"));
    let check = || {
        let (service, mut seen) = (limiter.service("api").unwrap(), [0_usize; 2]);
        while !is_over.load(Ordering::Relaxed) {
            let decision = service.check_now(&Ask::request(&facts)).unwrap();
            let names: Vec<&str> = decision.verdicts().iter().map(|verdict| verdict.name().label()).collect();
            match names.len() {
                7 => assert!(names.iter().all(|name| name.starts_with('a')), "{names:?}"),
                3 => assert!(names.iter().all(|name| name.starts_with('b')), "{names:?}"),
                _ => panic!("{names:?}"),
            }
            seen[usize::from(names.len() == 3)] += 1;
        }
        seen
    };
    std::thread::scope(|scope| {
        let checking: Vec<_> = (0..4).map(|_| scope.spawn(check)).collect();
        let start = Instant::now();
        (1..2_000).take_while(|_| start.elapsed() < Duration::from_secs(2)).for_each(install);
        is_over.store(true, Ordering::Relaxed);
        let seen: Vec<[usize; 2]> = checking.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!((0..2).all(|of| seen.iter().any(|seen| seen[of] > 0)), "one was never seen: {seen:?}");
    });
}

#[test]
fn a_request_under_way_keeps_the_policy_it_began_with() {
    let world = World::of(&named("a", 2));
    let facts = RequestFacts::new("GET", "/");
    let demand = world.service.demand(&Ask::request(&facts));
    world.install(&named("b", 3));
    let decision = now(demand.check()).unwrap();
    assert_eq!(left(&decision), [("a0", 999_999), ("a1", 999_999)]);
    now(demand.refund(&decision, 1)).unwrap();
    world.install(&named("a", 1));
    assert_eq!(left(&world.peek(&facts)), [("a0", 1_000_000)], "given back where it was charged");
}

fn limited(quotas: &str) -> String {
    format!("service = 'api'\n[[rules]]\nname = 'per-user'\nkeys = 'user:{{identity.user}}'\n{quotas}")
}

#[test]
fn counters_survive_a_limit_that_changes() {
    let world = World::of(&limited("quotas = { rpm = '10/min fixed_window', peak = '10/s' }"));
    for _ in 0..7 {
        assert!(world.allows(&by("ann")));
    }
    world.install(&limited("quotas = { rpm = '20/min fixed_window', peak = '20/s' }"));
    assert_eq!(left(&world.peek(&by("ann"))), [("per-user.rpm", 13), ("per-user.peak", 6)]);
    world.install(&limited("quotas = { rpm = '5/min fixed_window', rph = '100/h fixed_window' }"));
    assert_eq!(left(&world.ask(&by("ann"))), [("per-user.rpm", 0), ("per-user.rph", 100)]);
    world.wait(59);
    assert!(!world.allows(&by("ann")));
    world.wait(1);
    assert_eq!(world.until_denied(&by("ann")), (5, "per-user.rpm"), "the window kept its end");
}

#[test]
fn what_was_removed_is_gone_at_once() {
    let custom = "quota = '5/min fixed_window'\n[rules.custom]\n'user:ann' = '1/min fixed_window'\n";
    let more = "[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '1/min fixed_window'\n";
    let world = World::of(&limited(&format!("{custom}{more}")));
    assert!(world.allows(&by("ann")) && !world.allows(&by("ann")));
    world.install(&limited(custom));
    assert!(!world.allows(&by("ann")), "the rule is gone, the entry not");
    assert_eq!(world.policies().status()[0].rules.len(), 1);
    world.install(&limited("quota = '5/min fixed_window'"));
    assert_eq!(world.until_denied(&by("ann")), (4, "per-user"), "the entry is gone, too");
}

#[test]
fn what_happened_to_a_rule_is_known_after_a_reload() {
    let text = |limit: u32| {
        limited(&format!(
            "quota = '{limit}/min fixed_window'\ncost = 'body.n'\nwhen = \"!header.x.contains('z')\""
        ))
    };
    let world = World::of(&text(1));
    let has = |facts: RequestFacts| facts.header("x", "1").json(serde_json::json!({ "n": "1" }));
    world.ask(&by("ann"));
    world.ask(&has(RequestFacts::new("GET", "/")));
    world.ask(&has(by("ann")));
    world.ask(&has(by("ann")));
    let before = world.status("per-user");
    assert_eq!((before.unresolved, before.failed, before.denied), (1, 4, 2));
    assert_eq!(
        before.last_failure.as_deref(),
        Some("cost: the cost is text, not a whole number from 0 to 1000000000")
    );
    world.install(&text(2));
    assert_eq!(world.status("per-user"), before);
    world.ask(&by("bob"));
    let after = world.status("per-user");
    assert_eq!((after.failed, after.last_failure.unwrap().as_str()), (6, "cost: the body was not read"));
}

#[test]
fn a_bad_document_is_refused_whole_and_told_once() {
    let world = World::of(&named("a", 2));
    let policies = world.policies().clone();
    let good = policies.policy("api").unwrap();
    let wrong = named("c", 3).replace("c2\"\nkeys = \"all\"", "c2\"\nkeys = \"{nobody}\"");
    let wrong_later = named("c", 70);
    let refuse = |text: &str| policies.install("p.toml", crate::toml(text), Some("api")).unwrap_err();
    let traces = Traces::of(|| {
        for _ in 0..5 {
            let told = refuse(&wrong).to_string();
            assert!(told.starts_with("policy.toml:12:8: rules[2].keys: got"), "{told}");
        }
        refuse(&wrong_later);
        assert!(crate::toml("service = ").is_err());
        refuse("service = ");
    });
    assert_eq!(traces.count("a policy was refused"), 3, "once for each reason: {traces:?}");
    assert_eq!(traces.count("reason=\""), 3, "quoted, whatever is in it: {traces:?}");
    assert_eq!(traces.count("\n"), 0, "{traces:?}");
    let status = policies.status_of("api").unwrap();
    assert_eq!((status.installed, status.refused, status.in_force), (1, 7, true));
    assert!(status.last_refusal.unwrap().starts_with("policy.toml:1:11: got"));
    assert!(Arc::ptr_eq(&good, &policies.policy("api").unwrap()), "the good one stays");
    world.install(&named("c", 3));
    let status = policies.status_of("api").unwrap();
    assert_eq!((status.installed, status.refused, status.last_refusal), (2, 7, None));
    assert_eq!(left(&world.ask(&RequestFacts::new("GET", "/"))).len(), 3);
}

#[test]
fn a_policy_that_is_withdrawn_limits_nobody_until_it_is_back() {
    let world = World::of(&limited("quota = '1/min fixed_window'"));
    assert!(world.allows(&by("ann")) && !world.allows(&by("ann")));
    let traces = Traces::of(|| {
        world.policies().withdraw("elsewhere.toml", "api");
        assert!(!world.allows(&by("ann")), "it did not come from there");
        world.policies().withdraw("policy.toml", "api");
        world.policies().withdraw("policy.toml", "api");
        world.policies().withdraw("policy.toml", "unknown");
    });
    assert_eq!(traces.count("the policy is gone"), 1);
    assert_eq!(world.ask(&by("ann")).origin(), Origin::Unlimited);
    let status = world.policies().status_of("api").unwrap();
    assert!(!status.in_force && status.source.is_none() && status.rules.is_empty());
    assert!(world.service.policy().is_none() && !world.service.needs().identity);
    world.install(&limited("quota = '1/min fixed_window'"));
    assert!(!world.allows(&by("ann")), "counters outlive it");
}

#[test]
fn an_update_of_one_service_touches_no_other() {
    let world = World::of(&named("a", 2));
    let other = named("b", 2).replace("api", "other");
    world.install(&other);
    let before = world.policies().policy("api").unwrap();
    for n in 0..5 {
        world.install(&other.replace("1000000/s", &format!("{}/s", n + 1)));
        world.policies().install("x", crate::toml("rules = 5"), Some("other")).unwrap_err();
    }
    world.policies().withdraw("policy.toml", "other");
    assert!(world.policies().policy("other").is_none());
    assert!(Arc::ptr_eq(&before, &world.policies().policy("api").unwrap()));
    let status = world.policies().status_of("api").unwrap();
    assert_eq!((status.installed, status.refused), (1, 0));
}

#[test]
fn ten_thousand_entries_are_read_at_once_and_each_is_found() {
    let entry = |n: usize| format!("'user:u{n}' = '{}/min fixed_window'\n", n % 500 + 2);
    let text = limited("quota = '1/min fixed_window'\n[rules.custom]\n")
        + &(0..10_000).map(entry).collect::<String>();
    let before = cpu::of_this_thread();
    let world = World::of(&text);
    let took = cpu::of_this_thread() - before;
    assert!(took < Duration::from_secs(1), "{took:?}");
    for n in 0..10_000 {
        let decision = world.peek(&by(&format!("u{n}")));
        assert_eq!(decision.verdicts()[0].quota().limit() as usize, n % 500 + 2, "{n}");
    }
    assert_eq!(world.peek(&by("u10000")).verdicts()[0].quota().limit(), 1);
}

#[test]
fn made_up_services_take_no_place_from_real_ones() {
    let world = World::of(&named("a", 1));
    for n in 0..=SERVICES_MAX {
        let decision = now(world.limiter.check(&format!("made-up-{n}"), "key")).unwrap();
        assert_eq!(decision.origin(), Origin::Unlimited);
    }
    assert_eq!(world.policies().status().len(), 1);
    world.install(&named("b", 1).replace("api", "real"));
    assert_eq!(world.policies().status().len(), 2);
}

#[test]
fn sources_that_fail_or_give_nonsense_are_told_of_once() {
    let policies = Policies::builder().mode(None).build().unwrap();
    let traces = Traces::of(|| {
        for reason in ["no answer", "no answer", "no answer", "not allowed"] {
            policies.source_failed("mongodb", reason);
        }
    });
    assert_eq!(traces.count("policies cannot be read"), 2);
    let status = &policies.sources_status()[0];
    assert_eq!((status.failure.as_deref(), status.failures), (Some("not allowed"), 4));
    policies.source_answered("mongodb");
    let status = &policies.sources_status()[0];
    assert_eq!((status.failure.as_deref(), status.failures), (None, 4));
    let traces = Traces::of(|| {
        for _ in 0..3 {
            policies.install("mongodb", crate::toml("="), None).unwrap_err();
        }
    });
    assert_eq!((traces.count("a policy was refused"), policies.sources_status()[0].refused), (1, 3));
}

/// A process that forks keeps forks out while policies change: a child would find locks held for ever.
#[test]
fn every_change_is_made_within_the_fence() {
    let (book, log) = (Arc::<OnceLock<Policies>>::default(), Arc::<Mutex<Vec<[bool; 2]>>>::default());
    let (seen, noted) = (Arc::clone(&book), Arc::clone(&log));
    let is_in_force = move || seen.get().is_some_and(|policies| policies.policy("api").is_some());
    let builder = Policies::builder().mode(None).fence(move |run| {
        let before = is_in_force();
        run();
        noted.lock().unwrap().push([before, is_in_force()]);
    });
    let policies = book.get_or_init(|| builder.build().unwrap());
    let within = |what: &str, expected: [bool; 2], change: &dyn Fn()| {
        change();
        let steps = std::mem::take(&mut *log.lock().unwrap());
        assert!(steps.contains(&expected), "{what}: {steps:?}");
    };
    within("install", [false, true], &|| policies.install("x", crate::toml(&named("a", 1)), None).unwrap());
    within("refuse", [true, true], &|| {
        drop(policies.install("x", crate::toml("rules = 1"), None).unwrap_err());
    });
    within("fail", [true, true], &|| policies.source_failed("x", "it is away"));
    within("answer", [true, true], &|| policies.source_answered("x"));
    within("withdraw", [true, false], &|| policies.withdraw("x", "api"));
}
