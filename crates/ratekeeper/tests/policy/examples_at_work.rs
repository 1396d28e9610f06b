//! Requests in front of the policies under `examples/policies`: who is limited when.

use ratekeeper::policy::{Ask, RequestFacts};
use ratekeeper::{Enforcement, Level, Origin, Wait};
use serde_json::json;

use crate::world::{World, by, left, now, strictest};

/// A text to be analysed, for a tenant in a language.
fn analyze(tenant: &str, language: &str) -> RequestFacts {
    RequestFacts::new("POST", "/analyze").json(json!({ "tenant_id": tenant, "language": language }))
}

#[test]
fn sentiment_the_first_key_that_resolves_is_counted_under() {
    let world = World::example("sentiment-service.toml");
    let all = analyze("acme", "en").claim("premium_key", "k").claim("user", "ann").peer([1, 2, 3, 4]);
    let half = RequestFacts::new("POST", "/").json(json!({ "tenant_id": "acme" })).claim("user", "ann");
    let broken = RequestFacts::new("POST", "/").body(b"{\"tenant_id\": \"acme\", ").peer([1, 2, 3, 4]);
    for facts in [&all, &analyze("acme", "en"), &half, &broken] {
        assert!(world.allows(facts));
    }
    let subjects = ["apiKey:k", "ip:1.2.3.4", "tenant:acme:lang:en", "user:ann"];
    assert!(world.store.subjects().iter().eq(subjects), "{:?}", world.store.subjects());
    let nobody = world.ask(&RequestFacts::new("POST", "/").body(b""));
    assert_eq!((nobody.origin(), world.status("analyze").unresolved), (Origin::Unlimited, 1));
    assert_eq!(world.status("analyze").failed, 0, "a body that is no JSON is no failure");
}

#[test]
fn sentiment_tenants_and_languages_have_windows_of_their_own() {
    let world = World::example("sentiment-service.toml");
    assert_eq!(world.until_denied(&analyze("acme", "en")), (20, "analyze.rps"));
    assert_eq!(world.ask(&analyze("acme", "en")).retry_after(), Wait::micros(1_000_000));
    assert_eq!(world.until_denied(&analyze("acme", "de")), (20, "analyze.rps"));
    for _ in 1..50 {
        world.wait(1);
        assert_eq!(world.until_denied(&analyze("acme", "en")).0, 20);
    }
    world.wait(1);
    let denied = world.ask(&analyze("acme", "en"));
    assert_eq!(strictest(&denied), "analyze.rpm", "1000 in 50 seconds");
    assert_eq!(denied.retry_after(), Wait::micros(10_000_000), "the minute began with the first");
    let expected =
        [("analyze.rps", 20), ("analyze.rpm", 0), ("analyze.rph", 49_000), ("analyze.rpd", 99_000)];
    assert_eq!(left(&denied), expected);
}

#[test]
fn sentiment_an_entry_in_custom_replaces_all_tiers() {
    let world = World::example("sentiment-service.toml");
    let first = world.ask(&analyze("client-corp", "en"));
    let expected = [("analyze.rpm", 499), ("analyze.rph", 19_999), ("analyze.rpd", 249_999)];
    assert_eq!(left(&first), expected);
    assert!(first.verdicts().iter().all(|verdict| verdict.level() == Level::Custom));
    assert_eq!(world.until_denied(&analyze("client-corp", "en")), (499, "analyze.rpm"), "none per second");
    assert_eq!(world.until_denied(&analyze("client-corp", "de")), (20, "analyze.rps"), "another key");
    assert_eq!(world.until_denied(&analyze("nike", "ja")), (100, "analyze.rpm"));
    let premium = analyze("nike", "ja").claim("premium_key", "premium-client-xyz");
    assert_eq!(world.until_denied(&premium), (100, "analyze.rps"));
}

fn image(user: usize, body: serde_json::Value) -> RequestFacts {
    RequestFacts::new("POST", "/images").claim("user", format!("u{user}")).json(body)
}

#[test]
fn image_requests_without_a_model_count_apart() {
    let world = World::example("image-service.yaml");
    let unnamed = |user| image(user, json!({ "hd_mode": true }));
    let first = |user| image(user, json!({ "hd_mode": true, "model_version": "v1" }));
    for user in 0..60 {
        assert!(world.allows(&unnamed(user)) && world.allows(&first(user)));
    }
    for facts in [unnamed(99), first(99)] {
        assert_eq!(strictest(&world.ask(&facts)), "hd.rpm", "60 of each");
    }
    assert!(world.allows(&image(99, json!({ "hd_mode": true, "model_version": "v2" }))));
    assert!(world.allows(&image(99, json!({ "hd_mode": false }))), "sd is counted apart");
    assert_eq!(world.status("hd").unresolved, 61);
    world.wait(1);
    assert!(world.allows(&first(99)) && !world.allows(&first(99)), "a token a second");
}

#[test]
fn image_models_users_and_resolutions_are_limited_together() {
    let world = World::example("image-service.yaml");
    let scarce = |user| image(user, json!({ "hd_mode": true, "model_version": "gpt-vision" }));
    for user in 0..10 {
        assert!(world.allows(&scarce(user)));
    }
    let denied = world.ask(&scarce(10));
    assert_eq!((strictest(&denied), denied.retry_after()), ("hd.rpm", Wait::micros(6_000_000)));
    assert!(left(&denied).contains(&("per-user.rpm", 50)), "not charged: {:?}", left(&denied));
    let plain = image(11, json!({ "model_version": "gpt-vision" }));
    assert_eq!(world.until_denied(&plain), (50, "per-user.rpm"));
    for hd_mode in [json!("yes"), json!(1), json!(null), json!([])] {
        let names = left(&world.ask(&image(12, json!({ "hd_mode": hd_mode }))));
        assert_eq!(names[0].0, "sd.rpm", "what is not true is no hd");
    }
}

#[test]
fn plans_give_other_numbers_and_custom_beats_them() {
    let world = World::example("free-and-paid.toml");
    let on = |user: &str, plan: &str| by(user).claim("plan", plan.to_owned());
    assert_eq!(world.until_denied(&by("ann")), (5, "api.rps"));
    assert_eq!(world.until_denied(&on("bob", "platinum")), (5, "api.rps"), "not listed");
    assert_eq!(world.until_denied(&on("cat", "free")), (10, "api.rps"));
    assert_eq!(world.until_denied(&on("dan", "paid")), (200, "api.rps"));
    assert_eq!(world.until_denied(&on("acme", "free")), (1_000, "api"));
    let of = |facts: &RequestFacts| world.peek(facts).verdicts()[0].level();
    assert_eq!(of(&by("ann")), Level::Default);
    assert_eq!(of(&on("cat", "free")), Level::Plan);
    assert_eq!(of(&on("acme", "free")), Level::Custom);
    let tiers = left(&world.peek(&on("eve", "paid")));
    assert_eq!(tiers, [("api.rps", 200), ("api.rpd", 1_000_000), ("api.monthly", 20_000_000)]);
    world.store.calls();
    let internal = world.ask(&on("ops", "internal"));
    assert_eq!((internal.origin(), world.store.calls()), (Origin::Unlimited, 0));
}

#[test]
fn a_project_that_was_sold_more_has_more() {
    let world = World::example("free-and-paid.toml");
    world.override_project("free-and-paid/api.rps", ("acme", "web"), 50);
    let sold = by("ann").claim("org", "acme").claim("project", "web");
    let decision = world.ask(&sold);
    assert_eq!(decision.verdicts()[0].level(), Level::Project);
    assert_eq!(decision.verdicts()[0].quota().to_string(), "50/s burst 250", "the burst grows with it");
    assert_eq!(decision.verdicts()[1].level(), Level::Default, "one quota, not all");
}

#[test]
fn who_keeps_trying_is_turned_away_for_longer_and_longer() {
    let world = World::example("free-and-paid.toml");
    let user = by("ann").claim("plan", "free");
    for minutes in [5, 10, 20, 40, 80, 160, 320, 640, 1_280] {
        assert_eq!(world.until_denied(&user), (10, "api.rps"), "full again, {minutes}");
        let denials = (1..100).map(|_| world.ask(&user)).collect::<Vec<_>>();
        let (last, before) = denials.split_last().unwrap();
        assert!(before.iter().all(|denial| strictest(denial) == "api.rps"));
        assert_eq!(strictest(last), "api.penalty", "the hundredth");
        assert_eq!(last.retry_after(), Wait::micros(minutes * 60_000_000));
        world.wait(minutes * 60 - 1);
        assert!(!world.allows(&user), "{minutes}");
        world.wait(1);
    }
    assert_eq!(world.status("api").penalties, 9);
}

fn matrix(origins: usize, destinations: usize) -> RequestFacts {
    let body = json!({ "origins": vec![0; origins], "destinations": vec![0; destinations] });
    let facts = RequestFacts::new("POST", "/api/matrix").route("/api/matrix");
    facts.claim("org", "1").claim("project", "7").json(body)
}

#[test]
fn matrix_elements_and_requests_are_charged_together_or_not_at_all() {
    let world = World::example("matrix.toml");
    assert_eq!(world.until_denied(&matrix(10, 5)), (20, "/api/matrix/elements"));
    let denied = world.ask(&matrix(1, 1));
    assert_eq!(left(&denied), [("/api/matrix", 80), ("/api/matrix/elements", 0)], "no request was charged");
    assert_eq!(denied.retry_after(), Wait::micros(60_000_000));
    world.wait(60);
    assert_eq!(world.until_denied(&matrix(2, 2)), (100, "/api/matrix"), "elements are left");
    assert_eq!(left(&world.ask(&matrix(2, 2))), [("/api/matrix", 0), ("/api/matrix/elements", 600)]);
    let never = world.ask(&matrix(40, 26));
    assert!(never.retry_after().is_never(), "1040 elements never pass");
    world.override_project("/api/matrix/elements", ("1", "7"), 2_000);
    world.wait(60);
    assert!(world.allows(&matrix(40, 26)), "unless the project may have 2000");
}

#[test]
fn a_body_that_is_wrong_costs_all_there_is_and_one_that_is_absent_costs_one() {
    let world = World::example("matrix.toml");
    let with = |body: &[u8]| matrix(0, 0).body(body);
    let absent: [&[u8]; 2] = [b"", b"{}"];
    let wrong: [&[u8]; 6] =
        [b"{", b"[]", b"{\"origins\": 5}", b"\"text\"", b"{\"origins\": [1]}", b"{\"origins\": 1e999}"];
    for body in wrong {
        let decision = world.ask(&with(body));
        assert_eq!(decision.verdicts()[1].cost(), 1_000, "{}", String::from_utf8_lossy(body));
        assert!(decision.is_allowed(), "as much as there is, and no more: {decision}");
        world.wait(60);
    }
    for body in absent {
        assert!(world.ask(&with(body)).verdicts().iter().all(|verdict| verdict.cost() == 1));
    }
    assert_eq!(left(&world.peek(&matrix(1, 1))), [("/api/matrix", 98), ("/api/matrix/elements", 998)]);
    assert_eq!(world.status("/api/matrix").failed, 0);
    assert!(world.status("/api/matrix/elements").failed >= 6);
}

#[test]
fn nobody_pays_less_by_asking_for_more_than_can_be_counted() {
    let world = World::example("matrix.toml");
    let beyond = world.ask(&matrix(40_000, 40_000));
    assert!(!beyond.is_allowed(), "1.6 billion elements: {beyond}");
    assert!(beyond.retry_after().is_never());
    assert_eq!(left(&beyond), [("/api/matrix", 100), ("/api/matrix/elements", 1_000)]);
}

#[test]
fn a_batch_is_one_request_and_all_of_its_elements() {
    let world = World::example("batch-geocoding.json");
    let to = |method: &str, route: &str| {
        RequestFacts::new(method, "/geocode/batch").route(route).claim("org", 1_i64).claim("project", 2_i64)
    };
    let batch = |size: usize| to("POST", "/geocode/batch").json(json!(vec!["x"; size]));
    assert_eq!(world.until_denied(&batch(300)), (3, "/geocode/batch/elements"));
    assert_eq!(left(&world.ask(&batch(100)))[1].1, 0, "what fits still passes");
    assert_eq!(world.until_denied(&batch(0)), (96, "/geocode/batch"), "elements are gone, but none is asked");
    assert_eq!(world.ask(&to("GET", "/geocode/batch")).origin(), Origin::Unlimited);
    assert_eq!(world.ask(&to("POST", "/geocode")).origin(), Origin::Unlimited);
    world.wait(60);
    assert!(world.allows(&to("POST", "/geocode/batch").body(b"[1, 2")));
    assert_eq!(world.ask(&batch(1_001)).retry_after(), Wait::NEVER);
}

#[test]
fn layers_deny_together_and_name_the_strictest() {
    let world = World::example("layered.toml");
    let request = |path: &str, user: &str| RequestFacts::new("GET", path).claim("user", user.to_owned());
    let ann = request("/", "ann").peer([9, 9, 9, 9]);
    assert_eq!(world.until_denied(&ann), (20, "per-user"));
    let denied = world.ask(&ann);
    let expected = [("process", 1_980), ("per-ip", 180), ("per-user", 0), ("per-user-monthly", 499_980)];
    assert_eq!(left(&denied), expected, "the others are not charged, in this process neither");
    let expensive = request("/expensive", "bob").peer([9, 9, 9, 9]);
    assert_eq!(world.until_denied(&expensive), (5, "expensive"));
    let crowd = |n: usize| request("/", &format!("u{n}")).peer([9, 9, 9, 9]);
    assert_eq!((0..300).filter(|n| world.allows(&crowd(*n))).count(), 175, "200 of one address");
    let monthly = world.peek(&crowd(1)).verdicts().last().cloned().unwrap();
    assert_eq!(monthly.enforcement(), Enforcement::Shadow);
}

#[test]
fn layers_know_proxies_probes_and_what_one_process_can_do() {
    let world = World::example("layered.toml");
    let through = |proxy: [u8; 4], says: &str| {
        RequestFacts::new("GET", "/").peer(proxy).header("X-Forwarded-For", says.as_bytes())
    };
    for n in 0..200 {
        assert!(world.allows(&through([9, 9, 9, 9], &format!("8.8.8.{n}"))), "{n}");
    }
    assert!(!world.allows(&through([9, 9, 9, 9], "8.8.9.1")), "nobody asked this proxy: one address");
    assert!(world.allows(&through([10, 0, 0, 1], "6.6.6.6, 8.8.9.1")));
    assert_eq!(left(&world.peek(&through([10, 0, 0, 2], "8.8.9.1")))[1], ("per-ip", 199), "from the right");
    let probe = RequestFacts::new("GET", "/").peer([192, 0, 2, 7]);
    assert_eq!(world.until_denied(&probe), (2_000 - 201, "process"), "allowed, but not without end");
}

#[test]
fn datasets_are_counted_as_application_kit_counts_them() {
    let world = World::example("datasets.yaml");
    let route = "/datasets/{dataset_id}/search";
    let search = |project: i64| {
        let facts = RequestFacts::new("GET", "/datasets/d1/search").route(route);
        facts.claim("org", 3_i64).claim("project", project)
    };
    assert_eq!(world.until_denied(&search(4)), (100, "search"));
    assert!(world.store.subjects().contains("/datasets/{dataset_id}/search:3:4"), "{:?}", world.store);
    world.override_organisation(route, "3", 30);
    assert_eq!(world.until_denied(&search(5)), (30, "search"), "each project, never together");
    world.override_project(route, ("3", "6"), 60);
    assert_eq!(world.until_denied(&search(6)), (60, "search"));
    let hook = |path: &str| RequestFacts::new("POST", path);
    assert_eq!(world.until_denied(&hook("/webhook/a")), (10, "webhook"));
    assert_eq!(world.until_denied(&hook("/webhook/b")), (10, "webhook"));
}

#[test]
fn a_key_of_the_callers_has_its_own_entry_or_the_general_limit() {
    let world = World::example("ml-service.json");
    let passes = |key: &str| {
        let ask = || now(world.limiter.check("ml-service", key)).unwrap();
        (0..1_000).take_while(|_| ask().is_allowed()).count()
    };
    assert_eq!(passes("user:9"), 20);
    assert_eq!(passes("user:1234"), 10);
    assert_eq!(passes("apiKey:premium-tier"), 100);
    assert_eq!(passes("tenant:client-corp:lang:en"), 500, "no limit per second");
    let denied = now(world.limiter.check("ml-service", "user:1234")).unwrap();
    assert_eq!(left(&denied), [("general.rps", 0), ("general.rpm", 490), ("general.rpd", 49_990)]);
    world.wait(1);
    assert_eq!(passes("user:1234"), 10, "a window begins with its first request");
    let elsewhere = now(world.limiter.check("other-service", "user:1234")).unwrap();
    assert_eq!(elsewhere.origin(), Origin::Unlimited);
    let half = world.service.check_now(&Ask::key("user:1234").cost(11)).unwrap();
    assert!(half.retry_after().is_never());
}
