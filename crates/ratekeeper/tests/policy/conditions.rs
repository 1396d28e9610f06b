//! A condition that fails does not lift the limit, nobody pays less by confusing a cost, and one request is only so
//! much work.

use ratekeeper::policy::{Ask, CompileOptions, Format, OnError, Policy, PolicySpec, RequestFacts};
use ratekeeper::{CONDITION_BUDGET, Decision, Origin};
use serde_json::json;

use crate::world::{World, left};

fn rule(more: &str) -> String {
    format!("service = 'api'\n[[rules]]\nname = 'r'\nkeys = 'all'\nquota = '10/h fixed_window'\n{more}\n")
}

fn post(body: serde_json::Value) -> RequestFacts {
    RequestFacts::new("POST", "/").json(body)
}

fn names(decision: &Decision) -> Vec<&'static str> {
    left(decision).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_condition_that_fails_applies_its_rule() {
    let cases = [
        ("body.rows > 100", post(json!({ "rows": "200" }))),
        ("header['x-internal'] != 'yes'", RequestFacts::new("GET", "/")),
        ("body.rows > 100", RequestFacts::new("POST", "/").body(b"{\"rows\": 1e999}")),
        ("body.rows > 100", RequestFacts::new("POST", "/").body(b"{\"x\": \"\\ud800\", \"rows\": 200}")),
        ("body.rows > 100", RequestFacts::new("POST", "/").unreadable_body()),
        ("body.rows > 100", RequestFacts::new("POST", "/")),
        ("body.n / body.m > 1", post(json!({ "n": 1, "m": 0 }))),
        ("!identity.internal", RequestFacts::new("GET", "/")),
    ];
    for (when, facts) in cases {
        let world = World::of(&rule(&format!("when = \"{when}\"")));
        assert_eq!(names(&world.ask(&facts)), ["r"], "{when}");
        let skipping = World::of(&rule(&format!("when = \"{when}\"\non_error = \"skip\"")));
        let applies = usize::from(when.starts_with("header"));
        assert_eq!(names(&skipping.ask(&facts)).len(), applies, "{when}: skipped, unless it is true");
    }
    let world = World::of(&rule("when = \"body.rows > 100\""));
    for facts in [RequestFacts::new("GET", "/").body(b""), post(json!({})), post(json!({ "rows": null }))] {
        assert_eq!(
            world.ask(&facts).origin(),
            Origin::Unlimited,
            "absent is null, which is not more than 100"
        );
    }
    assert_eq!(world.status("r").failed, 0);
}

#[test]
fn a_cost_that_fails_is_the_smallest_limit_or_what_the_rule_says() {
    let tiers = "service = 'api'\n[[rules]]\nname = 'r'\nkeys = 'all'\nrpm = 7\nrph = 50\ncost = 'size(body.items)'\n";
    let cost = |world: &World, facts: &RequestFacts| world.ask(facts).verdicts()[0].cost();
    for (text, expected) in [(tiers.to_owned(), 7), (format!("{tiers}cost_on_error = 3\n"), 3)] {
        for wrong in [post(json!({ "items": 5 })), post(json!([])), RequestFacts::new("POST", "/").body(b"{")]
        {
            assert_eq!(cost(&World::of(&text), &wrong), expected, "{wrong:?}");
        }
        for absent in
            [post(json!({})), post(json!({ "items": null })), RequestFacts::new("POST", "/").body(b"")]
        {
            assert_eq!(cost(&World::of(&text), &absent), 1, "{absent:?}");
        }
    }
    let bucket = rule("cost = 'size(body.items)'").replace("10/h fixed_window", "100/h burst 4");
    assert_eq!(cost(&World::of(&bucket), &post(json!({ "items": 5 }))), 4, "what can pass at all");
}

/// A request that takes about `steps` of work of `body.tags.exists(t, t == 'expensive')`.
fn zeros(count: usize) -> RequestFacts {
    post(json!({ "tags": vec![0; count] }))
}

const EXPENSIVE: &str = "when = \"body.tags.exists(t, t == 'expensive')\"";

#[test]
fn a_request_beyond_its_budget_is_denied_whole_and_uncharged() {
    let world =
        World::of(&format!("{}[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '5/h'\n", rule(EXPENSIVE)));
    let denied = world.ask(&zeros(30_000));
    assert!(!denied.is_allowed() && denied.verdicts().is_empty());
    assert_eq!((denied.origin(), denied.reason()), (Origin::Budget, Some(CONDITION_BUDGET)));
    assert!(denied.retry_after().is_never());
    assert_eq!(
        denied.to_string(),
        "denied: the conditions of the policy are more work than one request may be"
    );
    assert!(!world.peek(&zeros(30_000)).is_allowed());
    assert_eq!(left(&world.ask(&zeros(3))), [("all", 4)], "nothing was charged");
    let status = world.status("r");
    assert_eq!((status.beyond_budget, status.failed), (2, 2));
    let far = World::far(&rule(EXPENSIVE));
    let demand = far.service.demand(&Ask::request(&zeros(30_000)));
    assert!(demand.is_limited() && demand.is_enforced() && demand.rules().count() == 0);
    let text = format!("condition_steps = 500000\n{}", rule(EXPENSIVE));
    assert_eq!(World::of(&text).ask(&zeros(30_000)).origin(), Origin::Unlimited, "a larger budget");
}

#[test]
fn the_budget_is_one_for_all_rules() {
    let many = |count: usize, more: &str| {
        let rules = (0..count).map(|n| {
            format!("[[rules]]\nname = 'r{n}'\nkeys = 'all'\nquota = '10/h'\n{EXPENSIVE}\n{more}\n")
        });
        World::of(&format!("service = 'api'\n{}", rules.collect::<String>()))
    };
    assert_eq!(many(64, "").ask(&zeros(100)).origin(), Origin::Unlimited);
    let cases = [(64, 1_000), (1_000, 100), (1_000, 120_000)];
    for (rules, count) in cases {
        assert_eq!(many(rules, "").ask(&zeros(count)).reason(), Some(CONDITION_BUDGET), "{rules} rules");
    }
    let watched = many(64, "mode = 'monitor'");
    assert_eq!(watched.ask(&zeros(1_000)).origin(), Origin::Unlimited, "who only watches only counts");
    assert_eq!(watched.status("r63").beyond_budget, 1);
    let for_nobody = many(64, "enforce_percent = 0");
    assert_eq!(for_nobody.ask(&zeros(1_000)).origin(), Origin::Unlimited, "enforced for no key");
    let lifted = many(64, "");
    lifted.switch("*", "emergency=lift");
    assert_eq!(lifted.ask(&zeros(1_000)).origin(), Origin::Unlimited, "what is lifted denies nothing");
    let costly = World::of(&rule("cost = 'size(body.tags.filter(t, t == 0))'"));
    assert_eq!(costly.ask(&zeros(30_000)).reason(), Some(CONDITION_BUDGET), "a cost as well");
    let pattern = World::of(&rule("when = \"body.t.matches('[01]*1[01]{200}')\""));
    assert_eq!(pattern.ask(&post(json!({ "t": "0".repeat(240_000) }))).reason(), Some(CONDITION_BUDGET));
    assert_eq!(pattern.ask(&post(json!({ "t": "0".repeat(100) }))).origin(), Origin::Unlimited);
}

/// Few nodes, and much to look at: whatever takes time is paid for.
#[test]
fn what_is_looked_at_is_paid_for_too() {
    let many = |when: &str| {
        let rules = (0..20)
            .map(|n| format!("[[rules]]\nname = 'r{n}'\nkeys = 'all'\nquota = '10/h'\nwhen = \"{when}\"\n"));
        World::of(&format!("service = 'api'\ncondition_steps = 1000\n{}", rules.collect::<String>()))
    };
    let get = || RequestFacts::new("GET", "/");
    let long = "0".repeat(60_000);
    let cookies = get().header("cookie", format!("a={long}; b={long}"));
    let lines = (0..128).fold(get(), |facts, n| facts.header("cookie", format!("c{n}=1")));
    let headers = (0..5_000).fold(get(), |facts, n| facts.header(&format!("x-{n}"), "1"));
    let texts = || post(json!({ "a": long, "b": format!("{long}1"), "c": { "long": { long.clone(): 1 } } }));
    let cases = [
        ("cookie.x == 'y'", cookies.clone()),
        ("cookie.x.startsWith('y')", cookies.clone()),
        ("has(cookie.x)", cookies),
        ("cookie.x == 'y'", lines),
        ("header['x-key'] == 'y'", headers.clone()),
        ("has(header.key)", headers),
        ("header['x-key'] == 'y'", get().header("x-key", long.as_bytes())),
        ("query.x == 'y'", RequestFacts::new("GET", &format!("/?a={long}"))),
        ("body.b.startsWith(body.a) && false", texts()),
        ("body.b.endsWith(body.a) && false", texts()),
        ("body.a > body.b", texts()),
        ("int(body.a) == 1", texts()),
        ("double(body.a) == 1.0", texts()),
        ("body[body.a] == 1", texts()),
        ("body.a in body", texts()),
        ("body.c == body.c && false", texts()),
    ];
    for (when, facts) in cases {
        assert_eq!(many(when).ask(&facts).reason(), Some(CONDITION_BUDGET), "{when}");
    }
    let usual = (0..40).fold(get(), |facts, n| facts.header(&format!("x-{n}"), "1")).header("cookie", "a=1");
    for when in ["cookie.x == 'y'", "header['x-key'] == 'y'", "query.x == 'y'", "path == '/x'"] {
        assert_eq!(many(when).ask(&usual).origin(), Origin::Unlimited, "{when}");
    }
}

#[test]
fn a_body_that_cannot_be_read_has_a_subject_of_its_own() {
    let keyed = "service = 'api'\n[[rules]]\nname = 'tenant'\nkeys = '{body.tenant}'\nquota = '1/h'\n[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '100/h'\n";
    let unreadable = || RequestFacts::new("POST", "/").body(b"{\"tenant\": 1e999}");
    let subjects = |text: &str, facts: &RequestFacts| -> Vec<String> {
        let demand = World::of(text).service.demand(&Ask::request(facts));
        demand.rules().map(|rule| rule.subject.to_owned()).collect()
    };
    assert_eq!(subjects(keyed, &unreadable()), ["#unreadable", "all"]);
    assert_eq!(subjects(keyed, &RequestFacts::new("POST", "/").body(b"")), ["all"], "an absent one has none");
    let named = post(json!({ "tenant": "#unreadable" }));
    assert_eq!(subjects(keyed, &named), ["%23unreadable", "all"]);
    let next = keyed.replace("'{body.tenant}'", "['t:{body.tenant}', 'm:{method}']");
    assert_eq!(subjects(&next, &unreadable()), ["m:POST", "all"]);
    let fallback = keyed.replace("quota = '1/h'", "fallback = 'none'\nquota = '1/h'");
    assert_eq!(subjects(&fallback, &unreadable()), ["#fallback:none", "all"]);
    let world = World::of(keyed);
    assert!(world.allows(&unreadable()) && !world.allows(&unreadable()));
    assert!(world.allows(&post(json!({ "tenant": "acme" }))));
}

#[test]
fn no_request_counts_under_the_fallback_but_those_without_a_key() {
    let text = "service = 'api'\n[[rules]]\nname = 'r'\nkeys = '{identity.user}'\nfallback = 'nobody'\nquota = '1/h'\n";
    let (known, unknown) =
        (RequestFacts::new("GET", "/").claim("user", "nobody"), RequestFacts::new("GET", "/"));
    let world = World::of(text);
    assert!(world.allows(&unknown) && !world.allows(&unknown));
    assert!(world.allows(&known), "a user who is called so has a counter of its own");
    let caller = text.replace("keys = '{identity.user}'", "caller_key = true");
    let world = World::of(&caller);
    assert!(world.allows(&unknown) && !world.allows(&unknown));
    for key in ["nobody", "#fallback:nobody", "fallback:nobody", "##fallback:nobody"] {
        assert!(world.service.check_now(&Ask::key(key)).unwrap().is_allowed(), "{key}");
    }
    let custom = format!("{text}[rules.custom]\nnobody = '3/h'\n");
    assert_eq!(
        World::of(&custom).until_denied(&unknown).0,
        3,
        "an entry for it is an entry for those without a key"
    );
}

#[test]
fn numbers_that_differ_are_keys_that_differ() {
    let world = World::of("service = 'api'\n[[rules]]\nname = 'r'\nkeys = '{body.id}'\nquota = '1/h'\n");
    let of = |id: &str| RequestFacts::new("POST", "/").body(format!("{{\"id\": {id}}}").as_bytes());
    for id in
        ["18446744073709551617", "18446744073709551618", "1e20", "0.12345678901234567", "0.12345678901234568"]
    {
        assert!(world.allows(&of(id)), "{id}");
    }
    for spelling in [
        "18446744073709551617.0",
        "1.8446744073709551617e19",
        "\"18446744073709551617\"",
        "100000000000000000000",
    ] {
        assert!(!world.allows(&of(spelling)), "{spelling} is one of them again");
    }
}

#[test]
fn keys_that_a_caller_can_leave_out_are_warned_of() {
    let warnings = |keys: &str, more: &str| {
        let text = format!("service = 'api'\n[[rules]]\nname = 'r'\nkeys = {keys}\nquota = '1/h'\n{more}\n");
        let world = World::of(&text);
        let warnings = world.policies().policy("api").unwrap().warnings().to_vec();
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for keys in
        ["'{header.x-api-key}'", "['k:{header.k}', 'c:{cookie.c}', 'q:{query.q}', 'b:{body.b}:{client.ip}']"]
    {
        let told = warnings(keys, "").join("\n");
        assert!(told.contains("keys that a caller can leave out, and no `fallback`"), "{keys}: {told}");
        assert!(warnings(keys, "fallback = 'none'").is_empty());
    }
    for keys in ["['k:{header.k}', 'ip:{client.ip}']", "'{identity.user}'", "'all'", "'{path}'"] {
        assert!(warnings(keys, "").is_empty(), "{keys}");
    }
}

#[test]
fn the_new_fields_are_checked() {
    for (text, expected) in [
        (rule("on_error = 'deny'"), "rules[0].on_error: got \"deny\"; expected apply or skip"),
        (rule("on_error = 'skip'"), "`on_error` without `when`"),
        (rule("cost_on_error = 5"), "`cost_on_error` without an expression"),
        (rule("cost = 'size(body)'\ncost_on_error = 0"), "expected a whole number from 1 to 1000000000"),
        (
            format!("condition_steps = 10\n{}", rule("")),
            "condition_steps: got 10; expected a whole number from 1000 to 1000000",
        ),
        (rule("").replace("keys = 'all'", "keys = '{header.a}%{header.b}'"), "`%` is in escaped values too"),
    ] {
        let problems = PolicySpec::read("p.toml", Format::Toml, text.as_bytes()).unwrap_err().to_string();
        assert!(problems.contains(expected), "{problems}");
    }
    let spec = crate::toml(&rule("when = 'true'\non_error = 'skip'\ncost = 'size(body)'\ncost_on_error = 5"))
        .unwrap();
    assert_eq!((spec.rules[0].on_error, spec.rules[0].cost_on_error), (OnError::Skip, Some(5)));
}

#[test]
fn overrides_of_an_organisation_that_the_key_does_not_name_are_warned_of_and_refused_on_a_cluster() {
    let policy = |keys: &str, more: &str| {
        format!(
            "service = 'api'\n{more}\n[[rules]]\nname = 'r'\nkeys = {keys}\nquota = '1/h'\noverrides = true\n\
             fallback = 'none'\n"
        )
    };
    let compiled = |text: &str, parted: bool| {
        let spec = PolicySpec::read("policy.toml", Format::Toml, text.as_bytes()).unwrap();
        let mut options = CompileOptions::default();
        options.parted = parted;
        Policy::compile(&spec, "policy.toml", &options)
    };
    let apart = [
        (
            "'ip:{client.ip}'",
            "\"ip:{client.ip}\" with `overrides` of \"{identity.org}\", which it does not name",
        ),
        (
            "['org:{identity.org}:user:{identity.user}', 'ip:{client.ip}']",
            "\"org:{identity.org}:ip:{client.ip}\"",
        ),
        ("'{identity.org}:1:2:3:4:5:6:7:{client.ip}'", "which it does not name"),
    ];
    for (keys, why) in apart {
        let text = policy(keys, "");
        let warnings = compiled(&text, false).unwrap().warnings().to_vec();
        assert!(warnings.len() == 1 && warnings[0].to_string().contains(why), "{keys}: {warnings:?}");
        let refused = compiled(&text, true).unwrap_err().to_string();
        assert!(refused.contains(why) && refused.contains("and this is refused"), "{keys}: {refused}");
        let refused = compiled(&policy(keys, "store = 'redis+cluster://127.0.0.1:1'"), false).unwrap_err();
        assert!(refused.to_string().contains(why), "{keys}: {refused}");
    }
    let hidden = policy("'{identity.org}:{client.ip}'", "hash_keys = true");
    assert!(compiled(&hidden, true).unwrap_err().to_string().contains("beside `hash_keys`"));
    let together = [
        "'{identity.org}'",
        "'/search:{identity.org}:{identity.project}'",
        "['org:{identity.org}:user:{identity.user}', 'user:{identity.user}']",
    ];
    for keys in together {
        let good = compiled(&policy(keys, ""), true).unwrap();
        assert_eq!(good.warnings(), [], "{keys}");
    }
}
