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

/// A second host may stand in a path or in a query, and is none.
#[test]
fn the_host_is_the_gateways_whatever_stands_in_the_uri() {
    let policy =
        "service = \"shop\"\n[[rules]]\nname = \"per-host\"\nkeys = \"{header.host}\"\nquota = \"9/h\"\n";
    let (rig, _) = Setup::policy(policy).in_memory();
    let mut client = rig.client();
    let uris = [
        "/search?deep=yes&u=http://evil/",
        "/?http://evil/",
        "/a://b",
        "/a://b/c?d=e://f",
        "http://shop.example/search?u=http://evil/",
        "http://somebody@shop.example/",
    ];
    for (index, uri) in uris.into_iter().enumerate() {
        let told = tell(&mut client, CALL, &of("GET", uri, "192.0.2.1"));
        assert_eq!(told.status, 200, "{uri}: {told:?}");
        let left = format!("r={}", 8 - index);
        assert!(told.header("ratelimit").unwrap().contains(&left), "{uri}: {told:?}");
    }
    let path = "service = \"shop\"\n[[rules]]\nname = \"odd\"\nwhen = \"path == '/a://b'\"\nkeys = \"all\"\nquota = \"9/h\"\n";
    let (rig, _) = Setup::policy(path).in_memory();
    let told = tell(&mut rig.client(), CALL, &of("GET", "/a://b?x://y/z", "192.0.2.1"));
    assert!(told.header("ratelimit").unwrap().contains("r=8"), "{told:?}");
}

/// A gateway may set one name for the URI and hand on what a client has sent under the other.
#[test]
fn a_client_does_not_choose_its_path_by_the_other_name() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let call = "/v1/forward-auth?service=shop&fields=original";
    let (url, uri) = ("https://shop.example/%73earch?deep=yes", "/search?deep=yes");
    let ask = |client: &mut Client, uris: &[(&str, &str)], chain| {
        let rest = [("X-Original-Method", "GET"), ("X-Forwarded-Host", "evil"), ("X-Forwarded-For", chain)];
        tell(client, call, &[uris, &rest].concat())
    };
    for made_up in
        ["/free", "/search", "/search?deep=no", "http://shop.example/?deep=yes", "/search?deep=yes&"]
    {
        for uris in [
            [("X-Original-URL", url), ("X-Original-URI", made_up)],
            [("X-Original-URI", made_up), ("X-Original-URL", url)],
        ] {
            let refused = ask(&mut client, &uris, "192.0.2.1");
            assert_eq!(refused.status, 400, "{made_up}: {refused:?}");
            let detail = refused.json()["detail"].to_string();
            assert!(detail.contains("expected the path and the query of x-original-url"), "{detail}");
        }
    }
    // Of a gateway that sets both, and of one whose client has guessed right. The host is the URL's in any case.
    let both = [("X-Original-URI", uri), ("X-Original-URL", url)];
    assert_eq!(ask(&mut client, &both, "192.0.2.1").status, 200);
    assert_eq!(ask(&mut client, &both[1..], "192.0.2.2").status, 429);
    assert_eq!(ask(&mut client, &both, "192.0.2.3").status, 429);
    assert_eq!(ask(&mut client, &both[..1], "192.0.2.4").status, 200, "nobody has told the host");
}

/// Whatever the method is: handlers read what is there.
#[test]
fn a_body_that_is_told_of_is_no_absence() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let told: [(&str, &str, &[u8]); 5] = [
        ("Content-Length", "2", b"{}"),
        ("Transfer-Encoding", "chunked", b"2\r\n{}\r\n0\r\n\r\n"),
        ("X-Forwarded-Content-Length", "2", b""),
        ("X-Forwarded-Transfer-Encoding", "chunked", b""),
        ("X-Forwarded-Content-Length", "0", b""),
    ];
    for (index, (name, value, body)) in told.into_iter().enumerate() {
        let address = format!("192.0.2.{index}");
        let fields = [&of("GET", "/", &address)[..], &[(name, value)]].concat();
        let reply = client.ask("GET", CALL, &fields, body);
        let expected = if index == 0 || value == "0" { 200 } else { 429 };
        assert_eq!(reply.status, expected, "{name}: {value}: {reply:?}");
    }
}

#[test]
fn a_request_beyond_its_budget_is_denied_to_a_gateway() {
    let policy = "service = \"shop\"\n[[rules]]\nname = \"odd\"\nwhen = \"header['x-a'].matches('[01]*1[01]{200}')\"\n\
                  keys = \"all\"\nquota = \"9/h\"\n";
    let (rig, _) = Setup::policy(policy).in_memory();
    let long = "0".repeat(12_000);
    let fields = [&of("GET", "/", "192.0.2.1")[..], &[("X-A", &long)]].concat();
    let denied = tell(&mut rig.client(), CALL, &fields);
    assert_eq!((denied.status, denied.header("x-ratekeeper-status")), (429, Some("429")), "{denied:?}");
    assert_eq!((&denied.json()["reason"], denied.header("retry-after")), (&"condition_budget".into(), None));
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
