//! Which rules apply, and what is said about those that hardly can.

use std::net::IpAddr;

use proptest::prelude::*;
use ratekeeper::policy::{
    Addresses, Ask, Body, CompileOptions, Condition, Descriptor, Facts, KeyFunction, Policy, Request,
    RequestFacts, Scalar,
};
use ratekeeper::{Decision, Level, Origin};

use crate::world::{World, left, now, without_mode};

/// A request of which less is known.
#[derive(Clone, Debug)]
struct Partly {
    facts: RequestFacts,
    has_method: bool,
    has_path: bool,
}

impl Facts for Partly {
    fn method(&self) -> Option<&str> {
        self.facts.method().filter(|_| self.has_method)
    }
    fn path(&self) -> Option<&str> {
        self.facts.path().filter(|_| self.has_path)
    }
    fn route(&self) -> Option<&str> {
        Facts::route(&self.facts)
    }
    fn query_string(&self) -> Option<&str> {
        self.facts.query_string()
    }
    fn header(&self, name: &str) -> Option<&[u8]> {
        Facts::header(&self.facts, name)
    }
    fn header_from_end(&self, name: &str, back: usize) -> Option<&[u8]> {
        self.facts.header_from_end(name, back)
    }
    fn body(&self) -> Body<'_> {
        Body::Absent
    }
    fn peer(&self) -> Option<IpAddr> {
        None
    }
    fn claim(&self, _: &str) -> Option<Scalar<'_>> {
        None
    }
    fn descriptor(&self) -> Option<&Descriptor<'_>> {
        Facts::descriptor(&self.facts)
    }
}

const METHODS: [&str; 4] = ["GET", "POST", "PUT", "get"];
const PATHS: [&str; 8] = ["/", "/a", "/a/", "/a/b", "/a/b/c", "/b", "/\u{e9}\u{e9}", "/\u{e9}x"];
const ROUTES: [&str; 4] = ["/a/{id}", "/a/{id}/b", "/b", "/a"];

fn conditions() -> impl Strategy<Value = String> {
    let one_of = |texts: &'static [&'static str]| proptest::sample::select(texts);
    let several = |texts: &'static [&'static str]| {
        let some = proptest::sample::subsequence(texts, 0..texts.len());
        some.prop_map(|some| some.iter().map(|text| format!("'{text}'")).collect::<Vec<_>>().join(", "))
    };
    let list = |from: usize| (from..from + 35).map(|n| format!("'/{n}'")).collect::<Vec<_>>().join(",");
    // More alternatives than an index takes.
    let many = format!("(path in [{}] || path in ['/a',{}])", list(0), list(35));
    let leaf = prop_oneof![
        4 => one_of(&METHODS).prop_map(|text| format!("method == '{text}'")),
        2 => several(&METHODS).prop_map(|texts| format!("method in [{texts}]")),
        4 => one_of(&ROUTES).prop_map(|text| format!("'{text}' == route")),
        2 => several(&ROUTES).prop_map(|texts| format!("route in [{texts}]")),
        4 => one_of(&PATHS).prop_map(|text| format!("path == '{text}'")),
        2 => several(&PATHS).prop_map(|texts| format!("path in [{texts}]")),
        4 => one_of(&PATHS).prop_map(|text| format!("path.startsWith('{text}')")),
        1 => Just("path.startsWith('')".to_owned()),
        1 => Just("path.endsWith('/b')".to_owned()),
        2 => Just("descriptor_keys == 'k,k' && descriptor['k#2'] == '1'".to_owned()),
        1 => Just("descriptor_keys in ['k', 'l', null]".to_owned()),
        2 => Just("has(header.x)".to_owned()),
        2 => Just("header.x == '1'".to_owned()),
        1 => Just(many),
        1 => Just("true".to_owned()),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} && {b})")),
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
            1 => inner.prop_map(|a| format!("!({a})")),
        ]
    })
}

fn requests() -> impl Strategy<Value = Partly> {
    let select = |texts: &'static [&'static str]| proptest::sample::select(texts);
    let route = proptest::option::weighted(0.8, select(&ROUTES));
    let header = proptest::option::of(proptest::sample::select(&["1", "2"][..]));
    let known = (proptest::bool::weighted(0.9), proptest::bool::weighted(0.8));
    (select(&METHODS), select(&PATHS), route, header, known).prop_map(
        |(method, path, route, header, (has_method, has_path))| {
            let facts = RequestFacts::new(method, path);
            let facts = route.into_iter().fold(facts, RequestFacts::route);
            let facts = match header {
                Some(value) => {
                    facts.header("x", value).descriptor([("k", "1"), ("k", value)].into_iter().collect())
                }
                None => facts,
            };
            Partly { facts, has_method, has_path }
        },
    )
}

fn policy_of(conditions: &[Option<String>]) -> String {
    let rule = |(n, when): (usize, &Option<String>)| {
        let when = when.as_ref().map_or_else(String::new, |when| format!("when = \"{when}\"\n"));
        format!("[[rules]]\nname = \"r{n}\"\nkeys = \"all\"\nquota = \"1000000/s\"\n{when}")
    };
    format!("service = \"api\"\n{}", conditions.iter().enumerate().map(rule).collect::<String>())
}

fn names(decision: &Decision) -> Vec<&'static str> {
    left(decision).into_iter().map(|(name, _)| name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]
    #[test]
    fn exactly_the_rules_apply_whose_conditions_hold(
        texts in proptest::collection::vec(proptest::option::weighted(0.9, conditions()), 1..30),
        requests in proptest::collection::vec(requests(), 1..12),
    ) {
        let world = World::of(&policy_of(&texts));
        let parsed = |text: &String| Condition::parse(text).unwrap();
        let conditions: Vec<Option<Condition>> = texts.iter().map(|text| text.as_ref().map(parsed)).collect();
        let mut failures = vec![(0, 0); conditions.len()];
        let addresses = Addresses::default();
        for facts in &requests {
            let request = Request::new(facts, &addresses);
            let mut expected = Vec::new();
            for (n, condition) in conditions.iter().enumerate() {
                match condition.as_ref().map(|condition| (condition, condition.evaluate(&request))) {
                    None | Some((_, Ok(true))) => expected.push(format!("r{n}")),
                    Some((_, Ok(false))) => {}
                    Some((condition, Err(_))) => {
                        // What cannot be told applies.
                        expected.push(format!("r{n}"));
                        failures[n].0 += u64::from(!condition.requires().rules_out(facts));
                        failures[n].1 += 1;
                    }
                }
            }
            let decision = world.service.check_now(&Ask::request(facts)).unwrap();
            prop_assert_eq!(names(&decision), expected, "{:?}", facts);
        }
        for (n, (least, most)) in failures.into_iter().enumerate() {
            let failed = world.status(&format!("r{n}")).failed;
            prop_assert!((least..=most).contains(&failed), "{:?}: {}, not {}", texts[n], failed, least);
        }
    }
}

fn warnings(rules: &str) -> Vec<String> {
    let spec = crate::toml(&format!("service = 'api'\n{rules}")).unwrap_or_else(|error| panic!("{error}"));
    let policy = Policy::compile(&spec, "policy.toml", &CompileOptions::default()).unwrap();
    policy.warnings().iter().map(ToString::to_string).collect()
}

fn rule(name: &str, more: &str) -> String {
    format!("[[rules]]\nname = '{name}'\n{more}\n")
}

#[test]
fn what_can_never_matter_is_told() {
    let user = "keys = 'user:{identity.user}'";
    let never = |when: &str| rule("a", &format!("{user}\nquota = '1/s'\nwhen = \"{when}\""));
    for when in ["false", "method == 'GET' && method == 'POST'", "path.startsWith('/a') && path == '/b'"] {
        let told = warnings(&never(when));
        let expected = "policy.toml:6:8: rules[0].when: got a condition that no request meets; expected one \
                        that some request meets";
        assert_eq!(told, [expected], "{when}");
    }
    let outdone = rule("wide", &format!("{user}\nquotas = ['10/s', '5/min']"))
        + &rule("narrow", &format!("{user}\nquotas = ['9/s', '7/h']"));
    let expected = "policy.toml:3:8: rules[0].name: got wide.rps (10/s), which never decides; expected less \
                    than 9/s, which rule `narrow` allows under the same key and condition";
    assert_eq!(warnings(&outdone), [expected]);
    let unreachable = rule("a", &format!("{user}\nquota = '1/s'\nunlimited = ['ip:1']"))
        + "[rules.custom]\n'usr:ann' = '2/s'\n'user:ann' = '3/s'\n";
    let told = warnings(&unreachable);
    assert_eq!(told.len(), 2, "{told:?}");
    let expected = "policy.toml:3:8: rules[0].custom: got \"usr:ann\", which no request has as its key; \
                    expected a key as one of `keys` writes it";
    assert_eq!(told[0], expected);
    assert!(told[1].contains("rules[0].unlimited: got \"ip:1\""), "{told:?}");
}

/// A path has one spelling: a rule on another one would never apply.
#[test]
fn a_path_that_no_request_has_is_told() {
    let of = |when: &str| warnings(&rule("a", &format!("keys = 'all'\nquota = '1/s'\nwhen = \"{when}\"")));
    let cases = [
        ("path == '/caf\u{e9}'", "\"/caf\u{e9}\", which no path is spelled like; expected \"/caf%C3%A9\""),
        ("path in ['/a', '/%62']", "\"/%62\", which no path is spelled like; expected \"/b\""),
        ("path.startsWith('/a b')", "\"/a b\", which no path is spelled like; expected \"/a%20b\""),
    ];
    for (when, expected) in cases {
        let told = of(when);
        assert_eq!(told, [format!("policy.toml:6:8: rules[0].when: got {expected}")], "{when}");
    }
    assert!(of("path == '/caf%C3%A9' || path.startsWith('/a%20b/')").is_empty());
}

#[test]
fn what_can_matter_is_no_cause_for_alarm() {
    let first = rule("a", "keys = 'user:{identity.user}'\nquota = '10/s'");
    let others = [
        "keys = 'ip:{client.ip}'\nquota = '9/s'",
        "keys = 'user:{identity.user}'\nquota = '9/min'",
        "keys = 'user:{identity.user}'\nquota = '9/s burst 20'",
        "keys = 'user:{identity.user}'\nquota = '9/s fixed_window'",
        "keys = 'user:{identity.user}'\nquota = '9/s'\nwhen = \"method == 'GET'\"",
        "keys = 'user:{identity.user}'\nquota = '9/s'\nmode = 'monitor'",
        "keys = 'user:{identity.user}'\nquota = '9/s'\nscope = 'process'",
        "keys = 'user:{identity.user}'\nquota = '9/s'\ncost = 2",
        "keys = 'user:{identity.user}'\nquota = '9/s'\nenforce_percent = 10",
        "keys = 'user:{identity.user}'\nquota = '9/s'\nallow = ['192.0.2.1']",
        "keys = 'user:{identity.user}'\nquota = '9/s'\nplans = { gold = '20/s' }",
        "keys = 'user:{identity.user}'\nquota = '9/s'\nwhen = \"has(body.x) || method == 'GET'\"",
    ];
    for other in others {
        assert_eq!(warnings(&(first.clone() + &rule("b", other))), [""; 0], "{other}");
    }
}

#[test]
fn the_program_finds_keys_where_templates_cannot() {
    let text = "service = 'api'\n[[rules]]\nname = 'tenant'\ncaller_key = true\nquota = '1/min fixed_window'\n\
                [rules.custom]\n'big' = '3/min fixed_window'\n";
    let function = KeyFunction::new(|facts| {
        let tenant = std::str::from_utf8(facts.header("x-tenant")?).ok()?;
        Some(tenant.strip_prefix("tenant-")?.into())
    });
    let world = World::set_up(crate::toml(text).unwrap(), without_mode().key_function("tenant", function));
    let from = |tenant: &str| RequestFacts::new("GET", "/").header("x-tenant", tenant);
    assert_eq!(world.until_denied(&from("tenant-small")), (1, "tenant"));
    assert_eq!(world.until_denied(&from("tenant-big")), (3, "tenant"));
    assert_eq!(world.peek(&from("tenant-big")).verdicts()[0].level(), Level::Custom);
    for nobody in [from("other"), from("tenant-"), RequestFacts::new("GET", "/")] {
        assert_eq!(world.ask(&nobody).origin(), Origin::Unlimited);
    }
    assert_eq!(world.status("tenant").unresolved, 3);
    let facts = from("tenant-small");
    let told = world.service.check_now(&Ask::request(&facts).with_key("other")).unwrap();
    assert!(told.is_allowed(), "a key that is given counts, not the one that could be found");
    assert!(
        !now(world.limiter.check("api", "small")).unwrap().is_allowed(),
        "the same key, however it is made"
    );
}

/// A rule on the first of two values would be escaped by sending both.
#[test]
fn a_parameter_that_is_sent_twice_is_what_handlers_see() {
    let text = "service = 'api'\n[[rules]]\nname = 'costly'\nkeys = 'all'\nquota = '1/min fixed_window'\n\
                when = \"query.expensive == 'true'\"\n";
    let world = World::set_up(crate::toml(text).unwrap(), without_mode());
    let escape = RequestFacts::new("GET", "/?expensive=false&expensive=true");
    assert_eq!(world.until_denied(&escape), (1, "costly"));
    let cheap = RequestFacts::new("GET", "/?expensive=true&expensive=false");
    assert_eq!(world.ask(&cheap).origin(), Origin::Unlimited);
}
