use super::*;
use crate::policy::address::Addresses;
use crate::policy::request::RequestFacts;
use crate::policy::spec::{ORGANISATION_DEFAULT, PLAN_DEFAULT, PROJECT_DEFAULT};

fn facts() -> RequestFacts {
    RequestFacts::new("POST", "/v1/search?page=2&empty=&odd=a%3Ab")
        .route("/v1/{kind}")
        .header("X-Api-Key", "abc")
        .header("X-Bad", b"\xff\xfe".to_vec())
        .header("Cookie", "session=s1")
        .peer([203, 0, 113, 7])
        .claim("org", "acme")
        .claim("user", 42_i64)
        .claim("admin", true)
        .claim("a:b", "colon")
        .descriptor(
            [("user", "ann"), ("user", "b:b"), ("path", "/x/"), ("a.b", "dot"), ("c", "")]
                .into_iter()
                .collect(),
        )
        .body(
            br#"{"tenant_id": "t:1", "language": "en", "n": 42.0, "half": 0.5, "big": 18446744073709551615,
                  "none": null, "list": [{"id": 7}], "deep": {"er": "x"}, "empty": ""}"#,
        )
}

fn resolve(template: &Template, facts: &RequestFacts) -> Option<String> {
    template.resolve(&Request::new(facts, &Addresses::default())).map(String::from)
}

fn check(template: &str, expected: Option<&str>) {
    let parsed = Template::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
    assert_eq!(resolve(&parsed, &facts()).as_deref(), expected, "{template}");
}

#[test]
fn templates_are_filled_from_the_request() {
    check("apiKey:{header.x-api-key}", Some("apiKey:abc"));
    check("{header.X-API-Key}", Some("abc"));
    check("tenant:{body.tenant_id}:lang:{body.language}", Some("tenant:t%3A1:lang:en"));
    check("ip:{client.ip}", Some("ip:203.0.113.7"));
    check("{method} {route}", Some("POST /v1/%7Bkind%7D"));
    check("{path}", Some("/v1/search"));
    check("{query.page}|{query.odd}", Some("2|a%3Ab"));
    check("{cookie.session}", Some("s1"));
    check("{identity.org}/{identity.user}/{identity.admin}", Some("acme/42/true"));
    check("{identity.a:b}", Some("colon"));
    check("{body.n}:{body.half}:{body.big}", Some("42:0.5:18446744073709551615"));
    check("{body.list.0.id}:{body.deep.er}", Some("7:x"));
    check("everyone", Some("everyone"));
    check("{{literally}} {identity.org}", Some("{literally} acme"));
    check("caf\u{e9}:{identity.org}", Some("caf\u{e9}:acme"));
    check("{descriptor.user}|{descriptor.user#2}|{descriptor.path}", Some("ann|b%3Ab|/x/"));
    check("{descriptor['a.b']}|{descriptor[\"c\"]}|{descriptor.a.b}", Some("dot|%|dot"));
    check("{descriptor_keys}", Some("user%2Cuser%2Cpath%2Ca.b%2Cc"));
    check("{header['x-api-key']}", Some("abc"));
}

#[test]
fn what_is_missing_empty_or_no_scalar_does_not_resolve() {
    for template in [
        "{header.missing}",
        "{header.x-bad}",
        "{query.empty}",
        "{query.missing}",
        "{cookie.missing}",
        "{descriptor.missing}",
        "{descriptor.user#3}",
        "{body.none}",
        "{body.list}",
        "{body.list.1.id}",
        "{body.list.-1}",
        "{body.deep}",
        "{body.deep.er.est}",
        "{body.empty}",
        "{identity.missing}",
        "org:{identity.org}:{body.missing}",
    ] {
        check(template, None);
    }
    let unread = RequestFacts::new("GET", "/");
    for template in ["{body.n}", "{client.ip}", "{route}"] {
        assert_eq!(resolve(&Template::parse(template).unwrap(), &unread), None);
    }
    for body in ["", "{", "[1,2", "null", "42", "\"text\"", "\u{0}"] {
        let facts = unread.clone().body(body.as_bytes());
        assert_eq!(resolve(&Template::parse("{body.n}").unwrap(), &facts), None, "{body}");
    }
}

#[test]
fn mistakes_are_told_with_their_column() {
    let cases = [
        ("", "column 1: got 0 bytes; expected 1 to 512 bytes"),
        ("user:{identity.user", "column 6: got `{` without `}`; expected `}` behind the name"),
        ("user:}", "column 6: got `}` without `{`; expected `}}` for a brace"),
        ("user:{heder.x}", "column 7: got \"heder\"; expected method, path, route"),
        ("user:{heder.x}", "did you mean `header`?"),
        ("{}", "column 2: got \"\"; expected method, path"),
        ("{header}", "column 2: got `header` without a name; expected `header.x-api-key`"),
        ("{body.}", "got `body` without a name; expected `body.tenant_id`"),
        ("{body.a..b}", "got `body` without a name"),
        ("{method.x}", "got `method.x`; expected `method`, which has no parts"),
        ("{client.ipp}", "column 9: got \"ipp\"; expected ip or address; did you mean `ip`?"),
        ("{client.address}", "expected `client.ip`: IPv6 counts by network"),
        ("{ identity.user }", "expected `identity.user`, without spaces"),
        ("{header.x y}", "column 10: got `x y`; expected the name of a header"),
        ("\u{e9}:{header.caf\u{e9}}", "column 14: got `caf\u{e9}`"),
        ("{method}{path}", "column 9: got two values side by side; expected something that separates"),
        ("{method}x{path}", "column 9: got \"x\"; expected something that separates two values"),
        ("{method}\u{e9}{path}", "expected something that separates two values"),
        ("a#{path}", "column 2: got `#`; expected another character"),
        ("a\n{path}", "expected no control characters"),
    ];
    for (template, expected) in cases {
        let error = Template::parse(template).unwrap_err().to_string();
        assert!(error.contains(expected), "{template}: {error}");
    }
    assert!(Template::parse(&"x".repeat(TEMPLATE_BYTES_MAX + 1)).is_err());
}

#[test]
fn hostile_values_look_like_nothing_else() {
    let cases = [
        ("a:b", "user:a%3Ab"),
        ("{identity.org}", "user:%7Bidentity.org%7D"),
        ("100%", "user:100%25"),
        ("%3A", "user:%253A"),
        ("a\nb\u{0}", "user:a%0Ab%00"),
        ("#abc", "user:%23abc"),
        ("a b", "user:a%20b"),
        ("ann@example.com", "user:ann@example.com"),
        ("\u{202e}evil", "user:%E2%80%AEevil"),
        ("M\u{fc}ller\u{5c0f}", "user:M\u{fc}ller\u{5c0f}"),
    ];
    let template = Template::parse("user:{header.x}").unwrap();
    for (value, expected) in cases {
        let facts = RequestFacts::new("GET", "/").header("x", value);
        assert_eq!(resolve(&template, &facts).as_deref(), Some(expected), "{value:?}");
    }
}

#[test]
fn long_subjects_become_digests() {
    let template = Template::parse("user:{header.x}").unwrap();
    let of = |value: String| resolve(&template, &RequestFacts::new("GET", "/").header("x", value)).unwrap();
    assert_eq!(of("x".repeat(195)), format!("user:{}", "x".repeat(195)));
    let long = of("x".repeat(196));
    assert!(long.starts_with("user:#") && long.len() == 70, "{long}");
    assert_ne!(long, of("x".repeat(197)));
    assert_ne!(of("x".repeat(1 << 20)), of("y".repeat(1 << 20)));
    assert!(of(":".repeat(100)).starts_with("user:#"), "by its length when escaped");
    let wordy = Template::parse(&format!("{}{{header.x}}", "\u{e9}".repeat(150))).unwrap();
    let facts = RequestFacts::new("GET", "/").header("x", "x");
    let subject = resolve(&wordy, &facts).unwrap();
    assert_eq!(subject.split_once('#').map(|(words, _)| words), Some("\u{e9}".repeat(32).as_str()));
}

#[test]
fn hashed_values_are_out_of_sight() {
    let template = Template::parse("key:{header.x-api-key}:{client.ip}").unwrap();
    let open = template.clone().hash_values(&KeyHashing::open());
    let subject = resolve(&open, &facts()).unwrap();
    // printf %s abc | b3sum
    let abc = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
    assert!(subject.starts_with(&format!("key:#{abc}:#")), "{subject}");
    assert!(!subject.contains("203.0.113.7"));
    let secret = |secret: &[u8]| {
        resolve(&template.clone().hash_values(&KeyHashing::secret(secret).unwrap()), &facts()).unwrap()
    };
    assert!(!secret(b"0123456789abcdef").contains(abc));
    assert_ne!(secret(b"0123456789abcdef"), secret(b"0123456789abcdeg"));
    assert!(KeyHashing::secret(b"short").is_err());
    assert_eq!(
        format!("{:?}", KeyHashing::secret(b"0123456789abcdef").unwrap()),
        "KeyHashing { has_secret: true }"
    );
    let three = Template::parse("{method}:{path}:{identity.org}").unwrap().hash_values(&KeyHashing::open());
    assert_eq!(resolve(&three, &facts()).unwrap().len(), 197);
}

#[test]
fn keys_written_by_hand_are_found() {
    let hashed = |text: &str| Template::parse(text).unwrap().hash_values(&KeyHashing::open());
    let plain = |text: &str| Template::parse(text).unwrap();
    let pair = "tenant:{body.tenant_id}:lang:{body.language}";
    for template in [plain(pair), hashed(pair)] {
        let subject = template.subject_of("tenant:t%3A1:lang:en").map(String::from);
        assert_eq!(subject, resolve(&template, &facts()), "{}", template.as_str());
        for never in
            ["tenant:t1", "tenant::lang:en", "tenant:x:lang:", "tenant", "", "x:y", "tenant:%FF:lang:en"]
        {
            assert_eq!(template.subject_of(never), None, "{never}");
        }
    }
    let of = |template: &str, key: &str| plain(template).subject_of(key).map(String::from);
    assert_eq!(of("user:{identity.user}", "user:a:b c").as_deref(), Some("user:a%3Ab%20c"));
    assert_eq!(of("user:{identity.user}!", "user:ann!").as_deref(), Some("user:ann!"));
    assert_eq!(of("user:{identity.user}!", "user:!"), None);
    assert_eq!(of("ip:{client.ip}", "ip:2001:DB8:0::/64").as_deref(), Some("ip:2001:db8::/64"));
    assert_eq!(of("ip:{client.ip}", "ip:::ffff:1.2.3.4").as_deref(), Some("ip:1.2.3.4"));
    assert_eq!(of("ip:{client.ip}", "ip:localhost"), None);
    assert_eq!(of("everyone", "everyone").as_deref(), Some("everyone"));
    assert_eq!(of("everyone", "anyone"), None);
}

#[test]
fn templates_that_could_meet_are_told() {
    let overlaps = |a: &str, b: &str| {
        let (a, b) = (Template::parse(a).unwrap(), Template::parse(b).unwrap());
        assert_eq!(a.overlaps(&b), b.overlaps(&a));
        a.overlaps(&b)
    };
    for (a, b) in [
        ("{header.a}", "{header.b}"),
        ("{header.a}", "{client.ip}"),
        ("user:{header.a}", "user:{header.b}"),
        ("{header.a}", "everyone"),
        ("anon-{client.ip}", "{header.a}"),
        ("{header.a}:{header.b}", "x:{header.a}"),
        ("a{header.a}", "{header.a}b"),
    ] {
        assert!(overlaps(a, b), "{a} and {b}");
    }
    for (a, b) in [
        ("apiKey:{header.x-api-key}", "tenant:{body.tenant_id}:lang:{body.language}"),
        ("apiKey:{header.x-api-key}", "ip:{client.ip}"),
        ("user:{header.a}", "{header.a}"),
        ("{header.a}:{header.b}", "{header.a}"),
        ("user:{header.a}", "everyone"),
        ("{header.a}:x", "{header.a}:y"),
        ("user:", "user:{header.a}"),
    ] {
        assert!(!overlaps(a, b), "{a} and {b}");
    }
    let long = "x".repeat(TEMPLATE_BYTES_MAX);
    assert!(overlaps(&long, "{header.a}"));
}

#[test]
fn what_a_template_needs_is_known() {
    let needs = |text: &str| Template::parse(text).unwrap().needs();
    assert_eq!(needs("{header.a}"), Needs::default());
    assert!(needs("{header.a}:{body.x}").body);
    assert!(needs("{client.ip} {route}").client && needs("{client.ip} {route}").route);
    assert!(needs("{identity.user}").identity);
}

#[test]
fn the_template_of_a_claim_is_what_its_text_says() {
    for (claim, text) in [("plan", PLAN_DEFAULT), ("org", ORGANISATION_DEFAULT), ("project", PROJECT_DEFAULT)]
    {
        assert_eq!(
            format!("{:?}", Template::of_claim(claim)),
            format!("{:?}", Template::parse(text).unwrap())
        );
    }
}
