//! What a gateway tells about a request, and what it is told.

use crate::client::{Client, Reply};
use crate::rig::Setup;

const POLICY: &str = r#"
service = "shop"

[[rules]]
name = "per-ip"
keys = "ip:{client.ip}"
quota = "3/h"

[[rules]]
name = "search"
when = "path == '/search' && query.deep == 'yes' && method == 'GET' && header['host'] == 'shop.example'"
keys = "all"
quota = "1/h"

[[rules]]
name = "bulk"
when = "body.bulk == true"
keys = "all"
quota = "1/h"
"#;

fn tell(client: &mut Client, path: &str, fields: &[(&str, &str)]) -> Reply {
    client.ask("GET", path, fields, b"")
}

/// What a gateway says of a request from an address.
fn of<'f>(method: &'f str, uri: &'f str, chain: &'f str) -> [(&'f str, &'f str); 4] {
    [
        ("X-Forwarded-Method", method),
        ("X-Forwarded-Uri", uri),
        ("X-Forwarded-Host", "shop.example"),
        ("X-Forwarded-For", chain),
    ]
}

const CALL: &str = "/v1/forward-auth?service=shop";

#[test]
fn a_gateway_is_told_what_it_hands_on() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    for left in [2, 1, 0] {
        let passes = tell(&mut client, CALL, &of("GET", "/", "192.0.2.7"));
        assert_eq!((passes.status, passes.body.len()), (200, 0), "{passes:?}");
        assert!(passes.header("ratelimit").unwrap().contains(&format!("r={left}")), "{passes:?}");
        assert!(passes.header("ratelimit-policy").is_some(), "{passes:?}");
    }
    let denied = tell(&mut client, CALL, &of("GET", "/", "192.0.2.7"));
    assert_eq!((denied.status, denied.header("x-ratekeeper-status")), (429, Some("429")));
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert!(denied.header("retry-after").is_some() && denied.json()["status"] == 429, "{denied:?}");
    // For gateways that understand nothing else.
    let forbidden = tell(&mut client, "/v1/forward-auth?service=shop&deny=403", &of("GET", "/", "192.0.2.7"));
    assert_eq!((forbidden.status, forbidden.header("x-ratekeeper-status")), (403, Some("429")));
    assert!(forbidden.header("retry-after").is_some() && forbidden.header("ratelimit").is_some());
    // The client is the one that the gateway has seen, whatever stands before it.
    let other = tell(&mut client, CALL, &of("GET", "/", "192.0.2.7, 192.0.2.8"));
    assert_eq!(other.status, 200);
    let same = tell(&mut client, CALL, &of("GET", "/", "192.0.2.99, 192.0.2.7"));
    assert_eq!(same.status, 429);
}

#[test]
fn rules_see_the_request_and_not_the_call() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let deep = "/%73earch?deep=yes";
    assert_eq!(tell(&mut client, CALL, &of("GET", deep, "192.0.2.1")).status, 200);
    assert_eq!(tell(&mut client, CALL, &of("GET", deep, "192.0.2.2")).status, 429);
    assert_eq!(tell(&mut client, CALL, &of("GET", "/search?deep=no", "192.0.2.3")).status, 200);
    assert_eq!(
        tell(&mut client, CALL, &of("GET", "http://shop.example/search?deep=yes", "192.0.2.4")).status,
        429
    );
    // What others call them, where the gateway says so. Then nothing that a client sends as X-Forwarded-Uri counts.
    let original = [
        ("X-Original-Method", "GET"),
        ("X-Original-URL", "https://shop.example/search?deep=yes"),
        ("X-Forwarded-Uri", "/"),
        ("X-Forwarded-For", "192.0.2.5"),
    ];
    assert_eq!(tell(&mut client, "/v1/forward-auth?service=shop&fields=original", &original).status, 429);
    let made_up =
        [&of("GET", deep, "192.0.2.6")[..], &[("X-Original-URI", "/"), ("X-Original-Method", "PUT")]]
            .concat();
    assert_eq!(tell(&mut client, CALL, &made_up).status, 429);
    // A body that the gateway keeps to itself is no absence: what is about it applies.
    assert_eq!(tell(&mut client, CALL, &of("POST", "/", "192.0.2.11")).status, 200);
    assert_eq!(tell(&mut client, CALL, &of("POST", "/", "192.0.2.12")).status, 429);
}

#[test]
fn what_a_gateway_has_to_say_is_asked_for() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let good = of("GET", "/", "192.0.2.1");
    for (index, name) in [(0, "x-forwarded-method"), (1, "x-forwarded-uri"), (3, "x-forwarded-for")] {
        let mut fields = good.to_vec();
        fields.remove(index);
        let reply = tell(&mut client, CALL, &fields);
        assert_eq!(reply.status, 400);
        assert!(reply.json()["detail"].as_str().unwrap().starts_with(name), "{}", reply.text());
    }
    let twice = [&good[..], &[("X-Forwarded-Uri", "/free")]].concat();
    let cases = [
        (CALL, twice, "x-forwarded-uri: got it more than once"),
        (CALL, of("GET", "search", "192.0.2.1").to_vec(), "the URI of the request: expected a path"),
        (CALL, of("GET", "/", "192.0.2.1, unknown").to_vec(), "x-forwarded-for: expected the address"),
        (CALL, of("GET", "/", "").to_vec(), "x-forwarded-for: expected the address"),
        (CALL, of("GET", "/\u{fc}", "192.0.2.1").to_vec(), "x-forwarded-uri: expected printable ASCII"),
        ("/v1/forward-auth", good.to_vec(), "service: expected it in the query"),
        ("/v1/forward-auth?service=shop&service=free", good.to_vec(), "got `service=free` in the query"),
        ("/v1/forward-auth?deny=404", good.to_vec(), "got `deny=404` in the query; expected service=NAME"),
        ("/v1/forward-auth?x", good.to_vec(), "got `x` in the query"),
    ];
    for (path, fields, expected) in cases {
        let reply = tell(&mut client, path, &fields);
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.json()["detail"].as_str().unwrap().starts_with(expected), "{}", reply.text());
    }
    let unknown = tell(&mut client, "/v1/forward-auth?service=nowhere", &good);
    assert_eq!((unknown.status, &unknown.json()["field"]), (422, &"service".into()));
    assert_eq!(client.post(CALL, "{}").status, 405);
}

#[test]
fn who_is_no_gateway_is_not_believed() {
    for gateways in [vec![], vec!["10.0.0.0/8", "::1"]] {
        let (rig, _) = Setup { gateways, ..Setup::policy(POLICY) }.in_memory();
        let mut client = rig.client();
        for fields in
            [&of("GET", "/", "192.0.2.1")[..], &[("X-Original-URI", "/"), ("X-Original-Method", "GET")]]
        {
            let refused = tell(&mut client, CALL, fields);
            assert_eq!((refused.status, refused.header("ratelimit")), (403, None));
            assert!(refused.text().contains("this address is no gateway's"), "{}", refused.text());
        }
    }
}
