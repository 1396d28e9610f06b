//! Values that are long, deep, broken or none at all.

use std::net::IpAddr;

use ratekeeper::bounds::STEPS_MAX;
use ratekeeper::policy::{
    Addresses, Condition, Cost, EvaluationError, KeyHashing, Request, RequestFacts, Subject, Template,
};
use serde_json::json;

use super::resolve;

fn holds(condition: &str, facts: &RequestFacts) -> Result<bool, EvaluationError> {
    let condition = Condition::parse(condition).expect("a good condition");
    condition.evaluate(&Request::new(facts, &Addresses::default()))
}

#[test]
fn a_megabyte_is_a_value_like_any_other() {
    let megabyte = "0123456789abcde:".repeat(1 << 16);
    let facts = RequestFacts::new("POST", &format!("/{megabyte}?q={megabyte}"))
        .route(megabyte.clone())
        .header("h", megabyte.clone())
        .header("cookie", format!("c={}", megabyte.replace(';', "")))
        .claim("user", megabyte.clone())
        .json(json!({ "field": megabyte, "list": vec![1; 100_000] }));
    let mut subjects = std::collections::HashSet::new();
    for place in ["path", "query.q", "route", "header.h", "cookie.c", "identity.user", "body.field"] {
        for hashing in [None, Some(KeyHashing::open())] {
            let mut template = Template::parse(&format!("{place}:{{{place}}}")).expect("a good template");
            if let Some(hashing) = &hashing {
                template = template.hash_values(hashing);
            }
            let subject = resolve(&template, &facts).expect("a value");
            assert!(subject.len() < 100 && subject.starts_with(&format!("{place}:#")), "{subject}");
            assert!(subjects.insert(subject), "another one");
        }
        let condition = format!("{place}.endsWith('abcde:') && {place}.contains('e:0')");
        assert_eq!(holds(&condition, &facts), Err(EvaluationError::TooMuch), "{place}");
        let (condition, addresses) = (Condition::parse(&condition).expect("good"), Addresses::default());
        let request = Request::new(&facts, &addresses).steps(STEPS_MAX);
        assert_eq!(condition.evaluate(&request), Ok(true), "{place}");
    }
    let cost = Cost::parse("size(body.list) * 3").expect("a good cost");
    assert_eq!(cost.evaluate(&Request::new(&facts, &Addresses::default())), Ok(300_000));
    assert_eq!(holds("2 in body.list", &facts), Err(EvaluationError::TooMuch));
}

#[test]
fn bodies_that_cannot_be_read_are_errors_and_no_keys() {
    let deep = |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
    let deepest = deep(100_000);
    let bodies: [&[u8]; 10] = [
        b"{\"a\":1e999}",
        b"{",
        b"{\"a\":1",
        b"{\"a\":1}}",
        b"a=1&b=2",
        b"\xff\xfe",
        b"{\"a\":\"\xff\"}",
        b"{\"a\":\"\\ud800\"}",
        b"NaN",
        deepest.as_bytes(),
    ];
    let template = Template::parse("{body.a}").expect("a good template");
    for body in bodies {
        let facts = RequestFacts::new("POST", "/").body(body);
        assert_eq!(resolve(&template, &facts), None);
        assert_eq!(holds("has(body.a)", &facts), Err(EvaluationError::BodyUnreadable));
    }
    let none = RequestFacts::new("POST", "/").body(b"");
    assert_eq!((resolve(&template, &none), holds("has(body.a)", &none)), (None, Ok(false)));
    let facts = RequestFacts::new("POST", "/").body(deep(100).as_bytes());
    assert_eq!(resolve(&template, &facts), None, "a list is no key");
    assert_eq!(holds("body.a == body.a && has(body.a)", &facts), Ok(true));
}

#[test]
fn headers_that_are_no_text_are_not_there() {
    let facts =
        RequestFacts::new("GET", "/").header("x", b"caf\xe9".to_vec()).header("y", b"a\0b\x7f".to_vec());
    assert_eq!(resolve(&Template::parse("{header.x}").expect("good"), &facts), None);
    assert_eq!(resolve(&Template::parse("{header.y}").expect("good"), &facts).as_deref(), Some("a%00b%7F"));
    assert_eq!(holds("has(header.x) || header.x == ''", &facts), Ok(false));
}

#[test]
fn a_client_cannot_pick_the_key_of_another() {
    let addresses = Addresses::default().trust(["10.0.0.0/8".parse().expect("a network")]);
    let victim = "ip:198.51.100.1";
    let template = Template::parse("ip:{client.ip}").expect("a good template");
    let key = |peer: [u8; 4], headers: &[(&str, &str)]| {
        let facts = RequestFacts::new("GET", "/").peer(IpAddr::from(peer));
        let facts = headers.iter().fold(facts, |facts, (name, value)| facts.header(name, *value));
        let mut subject = Subject::default();
        assert!(template.resolve_into(&Request::new(&facts, &addresses), &mut subject));
        String::from(subject)
    };
    for forged in ["198.51.100.1", "198.51.100.1, 10.0.0.1", "10.0.0.1, 198.51.100.1", "::ffff:198.51.100.1"]
    {
        assert_ne!(key([203, 0, 113, 7], &[("x-forwarded-for", forged)]), victim, "sent directly");
        let through = format!("{forged}, 203.0.113.7");
        assert_ne!(key([10, 0, 0, 1], &[("x-forwarded-for", &through)]), victim, "through a proxy");
        let both = [("forwarded", "for=198.51.100.1"), ("x-forwarded-for", &through), ("x-real-ip", forged)];
        assert_ne!(key([10, 0, 0, 1], &both), victim, "by another header");
    }
    assert_eq!(key([10, 0, 0, 1], &[("x-forwarded-for", "198.51.100.1")]), victim);
}
