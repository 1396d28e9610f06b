use serde_json::json;

use super::*;
use crate::policy::address::Addresses;
use crate::policy::request::RequestFacts;

fn facts() -> RequestFacts {
    RequestFacts::new("POST", "/api/v1/matrix?page=12&empty=")
        .route("/api/{version}/matrix")
        .header("Host", "example.com")
        .header("X-Api-Key", "abc")
        .header("X-Bad", b"\xff".to_vec())
        .header("Cookie", "session=s1")
        .peer("2001:db8::7".parse::<std::net::IpAddr>().unwrap())
        .claim("plan", "free")
        .claim("seats", 5_i64)
        .claim("admin", true)
        .descriptor([("user", "ann"), ("user", "bob"), ("a.b", "7"), ("empty", "")].into_iter().collect())
        .json(json!({
            "origins": [1, 2, 3], "destinations": [1, 2, 3, 4], "n": 3.0, "half": 0.5, "none": null,
            "text": "caf\u{e9}", "max": i64::MAX, "huge": u64::MAX, "items": [{"kind": "a", "size": 1}, {"kind": "b"}],
            "nested": {"a": {"b": 1}},
        }))
}

fn evaluate(text: &str, facts: &RequestFacts) -> Result<bool, EvaluationError> {
    let condition = Condition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    condition.evaluate(&Request::new(facts, &Addresses::default()))
}

fn cost(text: &str) -> Result<u32, EvaluationError> {
    let cost = Cost::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    cost.evaluate(&Request::new(&facts(), &Addresses::default()))
}

#[test]
fn conditions_see_every_fact() {
    for text in [
        r#"method == "POST" && path.startsWith("/api/") && identity.plan != "gold""#,
        r#"route == "/api/{version}/matrix""#,
        r#"query.page == "12" && int(query.page) > 10 && query["page"].size() == 2"#,
        r#"query.empty == """#,
        r#"header.host.endsWith(".com") && header["x-api-key"] == "abc" && header["X-Api-Key"] == "abc""#,
        "header.`x-api-key` == 'abc' && has(header.`x-api-key`)",
        r#""x-api-key" in header && !("x-other" in header) && !has(header.missing) && !("x-bad" in header)"#,
        r#"cookie.session == "s1""#,
        r#"client.ip == "2001:db8::/64" && client.address == "2001:db8::7""#,
        "identity.seats >= 5 && identity.admin && identity.seats < 5.5",
        "descriptor_keys == 'user,user,a.b,empty' && descriptor.user == 'ann' && descriptor['user#2'] == 'bob'",
        "int(descriptor['a.b']) == 7 && descriptor.empty == '' && has(descriptor.empty) && 'user#2' in descriptor",
        "!has(descriptor.missing) && descriptor['user#3'] == null && !('user#4' in descriptor)",
        "size(body.origins) == 3 && size(body.text) == 4 && size(body) == 10",
        "body.n == 3 && body.n * 2 == 6 && body.half * 2.0 == 1.0 && body.huge > 1.8e19",
        "has(body.none) && body.none == null && !has(body.missing) && has(body.nested.a.b)",
        "body.nested.a == body.nested['a'] && body.nested != body.origins",
        "body.items[0].kind == 'a' && body.items[1.0].kind == 'b' && 2 in body.origins",
        "'origins' in body && !(7 in body) && method in ['GET', 'POST'] && !(method in ['GET', 5, null])",
        "body.items.exists(i, i.kind == 'b') && !body.items.all(i, i.kind == 'b')",
        "body.items.exists_one(i, i.kind == 'b') && size(body.items.filter(i, has(i.size))) == 1",
        "body.origins.map(o, o * 2) == [2, 4, 6] && body.origins.map(o, o > 1, o) == [2, 3]",
        "body.origins.all(o, body.destinations.exists(d, d == o))",
        "body.nested.all(name, name == 'a') && [1] + body.origins == [1, 1, 2, 3]",
        "path.matches('^/api/v[0-9]+/') && matches(path, 'matrix$') && path.contains('v1')",
        "method == 'POST' ? 7 % 4 == 3 : false",
        "-body.n == -3 && 'a' + 'b' == 'ab' && 'a' < 'b' && false < true",
    ] {
        assert_eq!(evaluate(text, &facts()), Ok(true), "{text}");
    }
}

#[test]
fn what_cannot_be_told_is_an_error_that_names_it() {
    let cases = [
        ("identity.missing.startsWith('x')", "`identity.missing` is missing"),
        ("header['x-bad'].matches('x')", "`header[\"x-bad\"]` is missing"),
        ("body.missing", "`body.missing` is missing"),
        ("!body.missing.deeper", "`body.missing` is missing"),
        ("body.missing.exists(x, x == 1)", "`body.missing` is missing"),
        ("1 in body.missing", "`body.missing` is missing"),
        ("body.none.all(x, x == 1)", "`all` cannot take null"),
        ("body.items[2].kind.contains('a')", "`body.items[2]` is missing"),
        ("body.items[-1] ? true : false", "`body.items[-1]` is missing"),
        ("size(body.origins) + size(body.missing) > 5", "`body.missing` is missing"),
        ("size(body.missing) * size(body.origins) > 5", "`body.missing` is missing"),
        ("body.text.kind != 1", "`.` cannot take text"),
        ("body.text.kind == 1", "`.` cannot take text"),
        ("body.text > 5", "`>` cannot take a whole number"),
        ("body.max + 1 > 0", "`+` overflows"),
        ("body.n / 0 == 1", "`/` by zero"),
        ("body.n % 0 == 1", "`%` by zero"),
        ("body.half % body.half == 1", "`%` cannot take a number with decimals"),
        ("body.text + 1 == 2", "`+` cannot take a whole number"),
        ("int(body.text) == 1", "`int` cannot read the text as a number"),
        ("int(body.huge) == 1", "`int` overflows"),
        ("body.n && true", "`&&` cannot take a whole number"),
        ("body.n", "`when` cannot take a whole number"),
        ("size(body.n) == 1", "`size` cannot take a whole number"),
        ("body.n in body.n", "`in` cannot take a whole number"),
        ("body[body.none] == 1", "`[]` cannot take null"),
    ];
    for (text, expected) in cases {
        let error = evaluate(text, &facts()).unwrap_err().to_string();
        assert_eq!(error, expected, "{text}");
    }
}

#[test]
fn what_is_absent_is_null() {
    for (text, expected) in [
        ("header['x-internal'] != 'yes'", true),
        ("header['x-internal'] == 'yes'", false),
        ("header['x-internal'] == null && null == header['x-internal'] && header['x-bad'] == null", true),
        ("identity.missing == identity.other && body.missing == body.none && body.none != 0", true),
        ("body.missing < 1 || body.missing <= 1 || body.missing > 1 || body.missing >= 1", false),
        ("1 < body.missing || 'a' >= header.missing || body.none < 5 || 5 > body.none", false),
        ("!(body.missing < 1)", true),
        ("body.missing.deeper.still == null && body.none.deeper == null && body.missing[7].x == null", true),
        ("has(body.missing.deeper) || has(body.none.deeper)", false),
        ("body.items[2].kind == 'a' || body.items[-1] == 1", false),
        ("body.items.exists(i, i.size > 1)", false),
        ("body.items.all(i, i.size != 7)", true),
        (
            "size(body.missing) > 3 || int(header.missing) > 3 || -body.missing > 3 || double(body.none) < 3.0",
            false,
        ),
        (
            "body.missing * 2 + 1 > 0 || size(body.missing) * size(body.gone) > 0 || 'a' + header.missing == 'a'",
            false,
        ),
        ("header.missing in ['a', null]", true),
        ("header.missing in ['a', 'b']", false),
        ("header.missing in [method, 'b']", false),
    ] {
        assert_eq!(evaluate(text, &facts()), Ok(expected), "{text}");
    }
}

#[test]
fn an_absent_cost_is_one() {
    for text in [
        "body.missing",
        "body.none",
        "size(body.missing)",
        "size(body.missing) * 3 + 1",
        "int(header.missing)",
        "size(body.missing) * size(body.gone)",
    ] {
        assert_eq!(cost(text), Ok(1), "{text}");
    }
    for text in [
        "size(body.origins) * size(body.missing)",
        "size(body.n)",
        "body.missing.size() + body.n",
        "body.text",
    ] {
        assert!(cost(text).is_err(), "{text}");
    }
}

#[test]
fn and_and_or_need_not_know_everything() {
    for (text, expected) in [
        ("identity.missing.contains('a') && method == 'GET'", false),
        ("method == 'GET' && identity.missing", false),
        ("body.text > 5 || method == 'POST'", true),
        ("method == 'POST' || identity.missing == 1", true),
        ("identity.missing == 1 && (method == 'GET' && body.missing == 1)", false),
        ("[identity.admin].exists(x, x) || body.missing", true),
        ("body.items.exists(i, i.size == 1)", true),
    ] {
        assert_eq!(evaluate(text, &facts()), Ok(expected), "{text}");
    }
    for text in ["identity.missing && method == 'POST'", "identity.missing.contains('a') || method == 'GET'"]
    {
        assert!(evaluate(text, &facts()).is_err(), "{text}");
    }
}

#[test]
fn a_request_without_a_json_body_has_an_empty_one() {
    let without = RequestFacts::new("GET", "/").body(b"");
    assert_eq!(evaluate("has(body.x) || size(body) > 0 || body.x == 1", &without), Ok(false));
    let unreadable = RequestFacts::new("GET", "/").body(b"<xml/>");
    for text in ["has(body.x)", "size(body) > 0", "body.x == 1", "body.x != 1", "body == null", "'a' in body"]
    {
        assert_eq!(evaluate(text, &unreadable), Err(EvaluationError::BodyUnreadable), "{text}");
    }
    assert_eq!(evaluate("has(body.x) || true", &unreadable), Ok(true));
    assert_eq!(evaluate("body.x == 1 && method == 'POST'", &unreadable), Ok(false));
    let unread = RequestFacts::new("GET", "/");
    assert_eq!(evaluate("has(body.x)", &unread), Err(EvaluationError::BodyUnread));
    assert_eq!(
        evaluate("has(body.x) || true", &unread),
        Err(EvaluationError::BodyUnread),
        "nothing hides it"
    );
    assert!(Condition::parse("method == 'GET' || has(body.x)").unwrap().needs().body);
    assert_eq!(Condition::parse("header.host == 'x'").unwrap().needs(), Needs::default());
    assert!(Condition::parse("client.ip == identity.ip && route == ''").unwrap().needs().client);
}

#[test]
fn costs_are_whole_numbers() {
    assert_eq!(cost("size(body.origins) * size(body.destinations)"), Ok(12));
    assert_eq!(cost("5"), Ok(5));
    assert_eq!(Cost::parse("5").unwrap().fixed(), Some(5));
    assert_eq!(cost("identity.plan == 'free' ? 2 : 1"), Ok(2));
    assert_eq!(cost("body.n - 3"), Ok(0));
    assert_eq!(cost("body.n * 1000000000 / 3"), Ok(1_000_000_000));
    for (text, found) in [("body.n - 4", -1), ("body.n * 1000000000", 3_000_000_000)] {
        let error = EvaluationError::CostOutOfRange { found };
        assert_eq!(
            error.to_string(),
            format!("the cost is {found}, not a whole number from 0 to 1000000000")
        );
        assert_eq!(cost(text), Err(error), "{text}");
    }
    for (text, found) in [("body.half", "a number with decimals"), ("body.text", "text")] {
        assert_eq!(cost(text), Err(EvaluationError::Cost { found }), "{text}");
    }
    for text in ["-1", "1000000001", "1.5", "'x'", "true", "size(body.x) > 1", "[1]", "null"] {
        assert!(Cost::parse(text).unwrap_err().expected.starts_with("a cost: a whole number"), "{text}");
    }
}

#[test]
fn mistakes_are_told_with_their_place() {
    let cases = [
        ("", "column 1: got the end; expected an expression in CEL"),
        ("method = 'POST'", "column 8: got \"=\"; expected an expression in CEL (to compare, write `==`)"),
        ("method == 'a' & true", "column 15: got \"&\"; expected an expression in CEL (to join"),
        ("method ==\n  ~", "line 2, column 3: got \"~\""),
        ("methud == 'POST'", "column 1: got \"methud\"; expected method, path"),
        ("true && methud == 'POST'", "column 9: got \"methud\""),
        ("'\u{e9}' == methud", "column 8: got \"methud\""),
        ("methud == 'POST'", "did you mean `method`?"),
        ("header == 'x'", "got `header` without a name; expected `header.x-api-key`"),
        ("header['a b'] == 'x'", "got `a b`; expected the name of a header"),
        ("header[method] == 'x'", "column 8: got an unknown name in `header`; expected a name in quotes"),
        ("method.x == 'x'", "got `method.x`; expected `method`, which has no parts"),
        (
            "descriptor_keys.x == 'x'",
            "got `descriptor_keys.x`; expected `descriptor_keys`, which has no parts",
        ),
        ("descriptor == 'x'", "got `descriptor` without a name; expected `descriptor.user`"),
        ("client.port == 'x'", "got \"port\"; expected ip or address"),
        ("identity.org.name == 'x'", "got a field of `identity.org`; expected a single value"),
        (
            "query.page > 10",
            "column 12: got text `>` a whole number; expected two values of one kind; a text is",
        ),
        ("query.page == 10", "a text is read as a number by int() or double()"),
        ("size(body.x) * 1.5 > 3.0", "a number is made a double by double()"),
        ("'a' - 'b' == 'c'", "got `-` with text; expected numbers"),
        ("5.0 % 2.0 == 1.0", "got `%` with a number; expected whole numbers"),
        ("body.x + true > 1", "got `+` with true or false; expected numbers"),
        ("!method", "got text; expected true or false for `!`"),
        ("method && true", "got text; expected true or false for `&&`"),
        ("method", "got text; expected a condition, such as"),
        ("size(body)", "got a whole number; expected a condition"),
        ("'a' in method", "got text; expected a list for `in`"),
        ("method in header", "column 1: got an unknown name in `header`; expected a name in quotes"),
        ("has(body)", "expected has() of a field, such as `has(body.tenant_id)`"),
        ("has(body['x'])", "expected has() of a field"),
        (
            "body.x.lower() == 'a'",
            "got `lower()` with these arguments, which is not supported; expected numbers, text",
        ),
        ("timestamp('x') == 1", "got `timestamp()` with these arguments, which is not supported"),
        ("{'a': 1}['a'] == 1", "got a map, which is not supported"),
        ("body.x == 5u", "got 5u; expected a number without `u`"),
        ("b'x' == b'x'", "got bytes, which is not supported"),
        ("path.matches('(')", "got \"(\"; expected a regular expression; unclosed group"),
        ("path.matches('\\\\w{9999}')", "expected a smaller regular expression"),
        ("path.matches(method)", "got a pattern that is not fixed; expected a regular expression in quotes"),
        ("body.x.all(1, true)", "expected the name of a variable for `all`"),
        ("body.x.all(i, i.y) && i.z", "got \"i\"; expected method"),
        ("body.?x == 1", "an expression in CEL"),
        (
            "header.x-internal != 'yes'",
            "got `header.x-internal`, which is a subtraction; expected `header['x-internal']`",
        ),
        ("cookie.a-b-path == 'x'", "expected `cookie['a-b-path']`"),
        ("body.tenant-id == 7", "expected `body['tenant-id']`"),
    ];
    for (text, expected) in cases {
        let error = Condition::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn size_depth_and_work_are_bounded() {
    assert!(Condition::parse(&"x".repeat(EXPRESSION_BYTES_MAX + 1)).is_err());
    let chain = |links: usize| format!("1{} > 0", "+1".repeat(links));
    assert!(Condition::parse(&chain(EXPRESSION_DEPTH_MAX - 2)).is_ok());
    for deep in [chain(2_000), format!("{}true{}", "(".repeat(2_000), ")".repeat(2_000)), "!(".repeat(2_000)]
    {
        let error = Condition::parse(&deep).unwrap_err().to_string();
        assert!(error.contains("levels"), "{error}");
    }
    let wide = vec!["method == 'x'"; 200].join(" || ");
    assert_eq!(evaluate(&wide, &facts()), Ok(false));

    let list: Vec<u32> = (0..1_000).collect();
    let facts = RequestFacts::new("GET", "/")
        .json(json!({"l": list, "t": "x".repeat(1 << 20), "s": "y".repeat(9_000)}));
    let too_much = Err(EvaluationError::TooMuch);
    let too_large = |what| Err(EvaluationError::TooLarge { what });
    assert_eq!(evaluate("body.l.all(a, body.l.all(b, a + b >= 0))", &facts), too_much);
    assert_eq!(evaluate("body.l.all(a, body.l.all(b, a + b >= 0)) || true", &facts), too_much);
    assert_eq!(evaluate("body.t + body.t == ''", &facts), too_large("a text"));
    assert_eq!(evaluate("body.t + body.t == '' || true", &facts), Ok(true));
    assert_eq!(evaluate("body.l.map(x, body.s + body.s) == []", &facts), too_much);
    assert_eq!(evaluate("body.t.matches('[01]*1[01]{200}')", &facts), too_much);
    assert_eq!(evaluate("body.l.all(x, !body.t.contains('y'))", &facts), too_much);
    assert_eq!(
        evaluate("size(body.t) == 7 || body.s.matches('z') || body.s.matches('[01]*1[01]{20}')", &facts),
        Ok(false)
    );
    assert_eq!(evaluate("body.t.contains('y')", &facts), too_much);
    let deep = (0..1_000).fold(json!(1), |inner, _| json!([inner]));
    let facts = RequestFacts::new("GET", "/").json(json!({"a": deep.clone(), "b": deep}));
    assert_eq!(evaluate("body.a == body.b", &facts), too_large("a nesting"));
}

#[test]
fn all_expressions_share_the_budget_of_their_request() {
    let facts = RequestFacts::new("GET", "/").json(json!({ "l": vec![0; 100] }));
    let addresses = Addresses::default();
    let (condition, cost) =
        (Condition::parse("body.l.all(x, x == 0)").unwrap(), Cost::parse("size(body.l)").unwrap());
    let request = Request::new(&facts, &addresses).steps(1_000);
    assert_eq!(condition.evaluate(&request), Ok(true));
    assert_eq!(cost.evaluate(&request), Ok(100));
    assert_eq!(condition.evaluate(&request), Err(EvaluationError::TooMuch));
    assert_eq!(
        cost.evaluate(&request),
        Err(EvaluationError::TooMuch),
        "beyond it, nothing more is looked at"
    );
    let query = RequestFacts::new("GET", &format!("/?{}", "%61=1&".repeat(10_000)));
    let request = Request::new(&query, &addresses).steps(1_000);
    assert_eq!(Condition::parse("query.b == '1'").unwrap().evaluate(&request), Err(EvaluationError::TooMuch));
}

#[test]
fn what_a_condition_requires_is_known() {
    let requires = |text: &str| {
        let requires = Condition::parse(text).unwrap().requires().clone();
        let words = |list: Option<Vec<Box<str>>>| list.map_or("any".to_owned(), |list| list.join(","));
        let paths = requires.paths.map_or("any".to_owned(), |paths| {
            let shown = |paths: &Paths| match paths {
                Paths::Is(path) => path.to_string(),
                Paths::StartsWith(path) => format!("{path}*"),
            };
            paths.iter().map(shown).collect::<Vec<_>>().join(",")
        });
        let keys = requires.descriptor_keys.map_or(String::new(), |keys| format!(" [{}]", keys.join(";")));
        format!("{} {} {paths}{keys}", words(requires.methods), words(requires.routes))
    };
    for (text, expected) in [
        ("method == 'POST'", "POST any any"),
        ("'POST' == method && path == '/x' && body.x == 1", "POST any /x"),
        ("method in ['GET', 'HEAD', 5] && route == '/r'", "GET,HEAD /r any"),
        ("path.startsWith('/api/') && identity.plan != 'free'", "any any /api/*"),
        ("path.startsWith('/') && path == '/x'", "any any /x"),
        ("method == 'A' || method == 'B' && path == '/x'", "A,B any any"),
        ("method == 'A' || path == '/x'", "any any any"),
        ("method != 'A'", "any any any"),
        ("!(method == 'A')", "any any any"),
        ("method == 'A' ? true : false", "any any any"),
        ("method in ['A', 'B'] && method == 'B'", "B any any"),
        ("true", "any any any"),
        ("descriptor_keys == 'a,b' && descriptor.a == 'x'", "any any any [a,b]"),
        ("descriptor_keys in ['a', 'b'] || descriptor_keys == 'c'", "any any any [a;b;c]"),
        ("descriptor_keys == 'a' && descriptor_keys == 'b'", "any any any []"),
    ] {
        assert_eq!(requires(text), expected, "{text}");
    }
    let condition =
        Condition::parse("method == 'POST' && route == '/r' && path.startsWith('/api/')").unwrap();
    let rules_out = |facts: RequestFacts| condition.requires().rules_out(&facts);
    assert!(!rules_out(RequestFacts::new("POST", "/api/x").route("/r")));
    assert!(
        !rules_out(RequestFacts::new("POST", "/api/x")),
        "without a route it is an error, which must be seen"
    );
    assert!(rules_out(RequestFacts::new("GET", "/api/x").route("/r")));
    assert!(rules_out(RequestFacts::new("POST", "/x").route("/r")));
    assert!(rules_out(RequestFacts::new("POST", "/api/x").route("/q")));
    let condition = Condition::parse("descriptor_keys == 'a' && descriptor.a == 'x'").unwrap();
    let of_keys = |keys: &[&'static str]| {
        RequestFacts::default().descriptor(keys.iter().map(|key| (*key, "y")).collect())
    };
    assert!(!condition.requires().rules_out(&of_keys(&["a"])));
    assert!(condition.requires().rules_out(&of_keys(&["a", "a"])));
    assert!(!condition.requires().rules_out(&RequestFacts::default()), "the condition says it");
    assert_eq!(
        evaluate("descriptor_keys == 'a' || descriptor.a == 'x'", &RequestFacts::default()),
        Ok(false)
    );
    assert_eq!(evaluate("descriptor_keys == null", &RequestFacts::default()), Ok(true));
}
