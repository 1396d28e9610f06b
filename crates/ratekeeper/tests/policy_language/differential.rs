//! Our evaluation against the interpreter of the `cel` crate: random
//! expressions over random requests mean the same to both.
//!
//! There is one difference, on purpose: to the crate a missing field is an error, to us it is null, which orders
//! before nothing. So what has a value there has the same here; what is an error there may only have a value here if
//! something is absent or null.

use std::collections::HashMap;
use std::net::IpAddr;

use cel::{Context, Program, Value};
use proptest::prelude::*;
use ratekeeper::bounds::COST_MAX;
use ratekeeper::policy::{Addresses, Condition, Cost, Request, RequestFacts};
use serde_json::{Value as Json, json};

/// A request, as plain data for both sides.
#[derive(Clone, Debug)]
struct Case {
    route: Option<&'static str>,
    query: Vec<(&'static str, &'static str)>,
    headers: Vec<(&'static str, &'static str)>,
    claims: Vec<(&'static str, Json)>,
    peer: Option<IpAddr>,
    body: Option<Json>,
}

fn scalar() -> impl Strategy<Value = Json> {
    prop_oneof![
        1 => Just(json!(null)),
        2 => any::<bool>().prop_map(|truth| json!(truth)),
        4 => (-3..4_i64).prop_map(|number| json!(number)),
        1 => Just(json!(i64::MAX)),
        1 => Just(json!(u64::MAX)),
        1 => Just(json!(2.0)),
        1 => Just(json!(0.5)),
        1 => Just(json!(-1e300)),
        1 => "|a|ab|2|0\\.5|caf\u{e9}".prop_map(|text| json!(text)),
    ]
}

fn bodies() -> impl Strategy<Value = Json> {
    let list = || proptest::collection::vec(scalar(), 0..4);
    let items = proptest::collection::vec(scalar().prop_map(|x| json!({ "x": x })), 0..4);
    (scalar(), scalar(), list(), list(), scalar(), items, 0..64_u8).prop_map(
        |(a, b, l, m, x, items, keep)| {
            let all = json!({ "a": a, "b": b, "l": l, "m": m, "o": { "x": x }, "items": items });
            let Json::Object(members) = all else { return all };
            let kept =
                members.into_iter().enumerate().filter(|(index, _)| keep & (1 << index) == 0 || keep > 40);
            Json::Object(kept.map(|(_, member)| member).collect())
        },
    )
}

fn cases() -> impl Strategy<Value = Case> {
    let claims = || scalar().prop_filter("claims are not null", |claim| !claim.is_null());
    (
        proptest::option::weighted(0.85, Just("/r/{id}")),
        proptest::option::weighted(0.85, prop_oneof![Just("2"), Just("ab"), Just("")]),
        proptest::option::weighted(0.85, prop_oneof![Just("a"), Just("0.5")]),
        proptest::option::weighted(0.85, claims()),
        proptest::option::weighted(0.85, claims()),
        proptest::option::weighted(0.85, prop_oneof![Just("1.2.3.4"), Just("2001:db8::7")]),
        proptest::option::weighted(0.85, bodies()),
    )
        .prop_map(|(route, page, header, plan, n, peer, body)| Case {
            route,
            query: page.map(|page| ("page", page)).into_iter().collect(),
            headers: header.map(|value| ("x-a", value)).into_iter().collect(),
            claims: plan.map(|plan| ("plan", plan)).into_iter().chain(n.map(|n| ("n", n))).collect(),
            peer: peer.map(|peer| peer.parse().expect("an address")),
            body,
        })
}

impl Case {
    /// Whether expressions can find all that they ask for, unless they ask for an element of a list.
    fn is_whole(&self) -> bool {
        let Some(Json::Object(body)) = &self.body else { return false };
        let all =
            [self.route.is_some(), self.query.len() == 1, self.headers.len() == 1, self.claims.len() == 2];
        all == [true; 4]
            && self.peer.is_some()
            && body.len() == 6
            && !Json::Object(body.clone()).to_string().contains("null")
    }

    fn facts(&self) -> RequestFacts {
        let query: Vec<String> = self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut facts = RequestFacts::new("POST", &format!("/api/a?{}", query.join("&")));
        facts = self.route.into_iter().fold(facts, RequestFacts::route);
        facts = self.headers.iter().fold(facts, |facts, (name, value)| facts.header(name, *value));
        facts = self.peer.into_iter().fold(facts, RequestFacts::peer);
        for (name, claim) in &self.claims {
            facts = match claim {
                Json::String(text) => facts.claim(name, text.clone()),
                Json::Bool(truth) => facts.claim(name, *truth),
                claim => match (claim.as_i64(), claim.as_u64()) {
                    (Some(number), _) => facts.claim(name, number),
                    (_, Some(number)) => facts.claim(name, number),
                    _ => facts.claim(name, claim.as_f64().expect("a number")),
                },
            };
        }
        match &self.body {
            Some(body) => facts.json(body.clone()),
            None => facts.body(b""),
        }
    }

    fn context(&self) -> Context<'static, 'static> {
        let texts = |pairs: &[(&'static str, &'static str)]| -> HashMap<String, Value> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
        };
        let claims: HashMap<String, Value> =
            self.claims.iter().map(|(name, claim)| ((*name).to_owned(), value_of(claim))).collect();
        let client: HashMap<String, Value> = match self.peer {
            Some(IpAddr::V4(_)) => [("ip", "1.2.3.4"), ("address", "1.2.3.4")].as_slice(),
            Some(IpAddr::V6(_)) => &[("ip", "2001:db8::/64"), ("address", "2001:db8::7")],
            None => &[],
        }
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Value::from(*value)))
        .collect();
        let mut context = Context::default();
        context.add_variable_from_value("method", "POST");
        context.add_variable_from_value("path", "/api/a");
        if let Some(route) = self.route {
            context.add_variable_from_value("route", route);
        }
        context.add_variable_from_value("query", texts(&self.query));
        context.add_variable_from_value("header", texts(&self.headers));
        context.add_variable_from_value("cookie", texts(&[]));
        context.add_variable_from_value("client", client);
        context.add_variable_from_value("identity", claims);
        context.add_variable_from_value("body", value_of(self.body.as_ref().unwrap_or(&json!({}))));
        context
    }
}

/// JSON as our documentation says: a number is whole by its value.
fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(*truth),
        Json::String(text) => Value::from(text.as_str()),
        Json::Number(number) => {
            let float = number.as_f64().expect("a number");
            match number.as_i64() {
                Some(whole) => Value::Int(whole),
                None if float.fract() == 0.0 && float.abs() < 9e15 => Value::Int(float as i64),
                None => Value::Float(float),
            }
        }
        Json::Array(items) => Value::List(items.iter().map(value_of).collect::<Vec<_>>().into()),
        Json::Object(members) => {
            let members: HashMap<String, Value> =
                members.iter().map(|(name, member)| (name.clone(), value_of(member))).collect();
            Value::from(members)
        }
    }
}

/// Values of a request, of any kind.
fn fields() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("body.a"),
        Just("body.b"),
        Just("body['a']"),
        Just("body.l[0]"),
        Just("body.l[body.a]"),
        Just("body.o.x"),
        Just("body.items[1].x"),
        Just("identity.plan"),
        Just("identity.n"),
    ]
}

/// Texts.
fn texts() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("method"),
        Just("path"),
        Just("route"),
        Just("query.page"),
        Just("query['page']"),
        Just("header['x-a']"),
        Just("client.ip"),
        Just("client.address"),
        Just("cookie.c"),
        Just("'a'"),
        Just("'2'"),
        Just("''"),
        Just("'POST'"),
        Just("'caf\u{e9}'"),
        Just("'0.5'"),
    ]
}

/// Numbers.
fn numbers() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("0"),
        Just("1"),
        Just("-2"),
        Just("2"),
        Just("9223372036854775807"),
        Just("0.5"),
        Just("2.0"),
        Just("-0.0"),
        Just("1e300"),
        Just("9007199254740993"),
    ]
}

/// Expressions that have no others within them.
fn leaves() -> impl Strategy<Value = String> {
    prop_oneof![
        10 => fields().prop_map(str::to_owned),
        2 => texts().prop_map(str::to_owned),
        3 => numbers().prop_map(str::to_owned),
        1 => prop_oneof![Just("true"), Just("false"), Just("null")].prop_map(str::to_owned),
        1 => prop_oneof![
            Just("has(body.a)"), Just("has(body.o.x)"), Just("has(header.host)"), Just("has(identity.plan)"),
            Just("'page' in query"), Just("'x-a' in header"), Just("'a' in body"),
            Just("has(client.ip)"), Just("2 in body.l"), Just("body.o == body.o"), Just("size(body) > 3"),
        ].prop_map(str::to_owned),
    ]
}

/// Expressions that often are of one kind, and sometimes of another.
fn expressions() -> impl Strategy<Value = String> {
    leaves().prop_recursive(4, 24, 3, |inner| {
        let list = prop_oneof![
            Just("body.l".to_owned()), Just("body.m".to_owned()), Just("[1, 'a', 0.5]".to_owned()),
            Just("body.items".to_owned()), Just("[]".to_owned()),
            inner.clone().prop_map(|element| format!("[{element}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
        ];
        let operator = prop_oneof![
            Just("=="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">="), Just("&&"), Just("||"),
            Just("-"), Just("*"), Just("/"), Just("%"),
        ];
        let macros = prop_oneof![Just("all"), Just("exists"), Just("exists_one"), Just("filter"), Just("map")];
        let test = prop_oneof![Just("startsWith"), Just("endsWith"), Just("contains")];
        prop_oneof![
            6 => (inner.clone(), operator, inner.clone()).prop_map(|(a, operator, b)| format!("({a} {operator} {b})")),
            // Not of whatever: the crate adds a map to a list, which CEL does not.
            1 => (list.clone(), list.clone()).prop_map(|(a, b)| format!("({a} + {b})")),
            1 => (any::<bool>(), inner.clone()).prop_map(|(text, a)| {
                if text { format!("('a' + {a})") } else { format!("(2 + {a})") }
            }),
            1 => inner.clone().prop_map(|a| format!("!({a})")),
            1 => inner.clone().prop_map(|a| format!("-({a})")),
            1 => (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            2 => (inner.clone(), list.clone()).prop_map(|(a, list)| format!("({a} in {list})")),
            1 => (list.clone(), inner.clone()).prop_map(|(list, index)| format!("{list}[{index}]")),
            2 => prop_oneof![inner.clone(), list.clone()].prop_map(|a| format!("size({a})")),
            1 => (inner.clone(), test, inner.clone()).prop_map(|(a, test, b)| format!("({a}).{test}({b})")),
            1 => inner.clone().prop_map(|a| format!("({a}).matches('^[a-z]+$')")),
            1 => inner.clone().prop_map(|a| format!("int({a})")),
            1 => inner.clone().prop_map(|a| format!("double({a})")),
            2 => (prop_oneof![list.clone(), Just("body.o".to_owned())], macros, inner.clone())
                .prop_map(|(list, name, a)| format!("{list}.{name}(x, {})", of_element(&a))),
            1 => (list.clone(), inner.clone(), inner.clone())
                .prop_map(|(list, a, b)| format!("{list}.map(x, {}, {b})", of_element(&a))),
            1 => list,
        ]
    })
}

/// The same expression about the variable of a macro.
fn of_element(text: &str) -> String {
    text.replace("body.b", "x").replace("body.o.x", "x.x").replace("body.o", "x")
}

/// What both make of an expression; `None` if ours refuses to read it.
fn compare(text: &str, case: &Case) -> Result<Option<&'static str>, TestCaseError> {
    let (facts, addresses) = (case.facts(), Addresses::default());
    let request = Request::new(&facts, &addresses);
    let (condition, cost) = (Condition::parse(text), Cost::parse(text));
    if condition.is_err() && cost.is_err() {
        return Ok(None);
    }
    let program = Program::compile(text).expect("ours has read it");
    let theirs = program.execute(&case.context());
    // No case has a cookie.
    let absent = ["null", "[", ".nothing", "cookie."];
    let may_be_absent = !case.is_whole() || absent.iter().any(|part| text.contains(part));
    if let Ok(condition) = &condition {
        let ours = condition.evaluate(&request);
        let expected = match theirs {
            Ok(Value::Bool(truth)) => Some(truth),
            _ => None,
        };
        let is_allowed = may_be_absent && theirs.is_err() || ours.clone().ok() == expected;
        prop_assert!(is_allowed, "{}: {:?} but {:?}", text, ours, theirs);
        let ruled_out = condition.requires().rules_out(&facts);
        prop_assert!(!ruled_out || ours == Ok(false), "{}: ruled out, but {:?}", text, ours);
    }
    if let Ok(cost) = &cost {
        let ours = cost.evaluate(&request);
        let expected = match theirs {
            Ok(Value::Int(cost)) => u32::try_from(cost).ok().filter(|cost| *cost <= COST_MAX),
            Ok(Value::Null) => Some(1),
            _ => None,
        };
        let is_allowed = may_be_absent && theirs.is_err() || ours.clone().ok() == expected;
        prop_assert!(is_allowed, "{}: {:?} but {:?}", text, ours, theirs);
    }
    Ok(Some(if theirs.is_ok() { "value" } else { "error" }))
}

#[test]
fn random_expressions_mean_the_same_to_the_cel_crate() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(6_000) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let seen = std::cell::RefCell::new(HashMap::new());
    let result = runner.run(&(expressions(), cases()), |(text, case)| {
        let outcome = compare(&text, &case)?;
        *seen.borrow_mut().entry(outcome).or_insert(0) += 1;
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let seen = seen.into_inner();
    for outcome in [Some("value"), Some("error")] {
        assert!(seen.get(&outcome).copied().unwrap_or(0) > 300, "too little is compared: {seen:?}");
    }
}

/// Conditions of which something can be told beforehand.
fn selectors() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("method == 'POST'"),
        Just("'GET' == method"),
        Just("method in ['GET', 'POST', 5]"),
        Just("method in ['GET', 'PUT']"),
        Just("path == '/api/a'"),
        Just("path == '/other'"),
        Just("path.startsWith('/api/')"),
        Just("path.startsWith('/x')"),
        Just("route == '/r/{id}'"),
        Just("route == '/s'"),
        Just("has(body.a)"),
        Just("identity.n == 2"),
    ];
    leaf.prop_map(str::to_owned).prop_recursive(4, 16, 2, |inner| {
        prop_oneof![
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} && {b})")),
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
            1 => inner.prop_map(|a| format!("!({a})")),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_ruled_out_is_false(text in selectors(), case in cases()) {
        prop_assert!(compare(&text, &case)?.is_some());
    }
}

/// Expressions that are worth a look of their own.
const CHOSEN: &[&str] = &[
    "method == 'POST' && path.startsWith('/api/') && identity.plan != 'free'",
    "size(body.l) * size(body.items)",
    "route == 'x' || true",
    "true || route == 'x'",
    "route == 'x' && false",
    "route == 'x'",
    "!has(body.deep.a.c) && has(body.deep.a.b)",
    "has(body.nothing.a)",
    "body.deep.a.b[0].c == 1 && body.deep == body.deep",
    "body.max + 1",
    "body.min - 1",
    "-body.min",
    "body.min / -1",
    "body.min % -1",
    "body.max * 2",
    "1 / 0",
    "1 % 0",
    "7 / -2",
    "7 % -2",
    "-7 % 2",
    "1.0 / 0.0 > 1e308",
    "0.0 / 0.0 == 0.0 / 0.0",
    "0.0 / 0.0 != 0.0 / 0.0",
    "0.0 / 0.0 < 1.0",
    "9007199254740993 == 9007199254740992.0",
    "body.l == [1, 'a', null, 0.5]",
    "null in body.l && 0.5 in body.l && 1.0 in body.l && !('b' in body.l)",
    "1 in [1, route]",
    "1 in body.o",
    "null in body.o",
    "size(body.t)",
    "int('12') + int(2.9) + int(-2.9)",
    "int('1.5')",
    "int(9.3e18)",
    "double('1.5') == 1.5 && double(1) == 1.0",
    "int(' 1')",
    "body.items.exists(x, x.x == 2)",
    "body.items.all(x, x.x > 0)",
    "body.items.all(x, x.x > 1)",
    "body.items.exists_one(x, x.x == 2)",
    "body.items.filter(x, has(x.x)).exists_one(x, x.x == 2)",
    "size(body.items.filter(x, has(x.x)).map(x, x.x * 2))",
    "body.items.map(x, has(x.x), x.x + 1) == [2, 3]",
    "body.l.exists(x, body.items.exists(x, has(x.x) && x.x == 1))",
    "body.l.exists(x, [2].exists(y, x == y))",
    "[[1], [2]].all(x, x.all(y, y > 0))",
    "body.o.all(x, x == 'x')",
    "[true, 1].exists(x, x)",
    "[1, true].exists(x, x)",
    "[1, false].all(x, x)",
    "[1].all(x, x)",
    "'a' < 'b' && false < true && 1 < 1.5 && 'Z' < 'a'",
    "'a' < 1",
    "[1] < [2]",
    "body.l[1.0] == 'a'",
    "body.l[0.5] == 'a'",
    "body.l['0'] == 1",
    "body.l[4] == 1",
    "body['a'] == 1 && body.o['x'][0] == 1",
    "body[1] == 1",
    "client.ip == '2001:db8::/64' && client['address'] == '2001:db8::7'",
    "identity.n == 2 && identity['n'] + 1 == 3",
    "'x-a' in header && !('x-b' in header) && header['x-a'] == 'a'",
    "query.page.matches('^[0-9]$') && matches(query.page, '2')",
    "true ? 1 : route",
    "1 ? 2 : 3",
    "body.a ? 2 : 3",
    "(body.a == 1 ? 'x' : 2) == 'x'",
];

#[test]
fn chosen_expressions_mean_the_same_to_the_cel_crate() {
    let case = Case {
        route: None,
        query: vec![("page", "2")],
        headers: vec![("x-a", "a")],
        claims: vec![("plan", json!("free")), ("n", json!(2.0))],
        peer: Some("2001:db8::7".parse().expect("an address")),
        body: Some(json!({
            "a": 1, "l": [1, "a", null, 0.5], "m": [], "o": {"x": [1]}, "items": [{"x": 1}, {"x": 2}, {}],
            "deep": {"a": {"b": [{"c": 1}]}}, "max": i64::MAX, "min": i64::MIN, "t": "caf\u{e9}",
        })),
    };
    for text in CHOSEN {
        compare(text, &case).unwrap_or_else(|error| panic!("{error}"));
    }
}
