//! Who may call: tokens, roles, guesses, addresses with tokens in them, keys that would be headers.

use ratekeeper_server::serve::{Access, Admin, CALLS, Call, Method, Role, Tenant, Token};
use serde_json::{Value as Json, json};

use crate::client::Reply;
use crate::rig::{Rig, Setup};

const POLICY: &str = "service = 'search'\n\
     [[rules]]\nname = 'per-project'\nkeys = 'project:{identity.project}'\noverrides = true\nquota = '5/min fixed_window'\n\
     [[rules]]\nname = 'per-org'\nkeys = 'org:{identity.org}'\nquota = '9/min fixed_window'\n";

fn text(role: &str) -> String {
    format!("rk_{}", role.repeat(8))
}

fn tenant(project: Option<&str>) -> Tenant {
    Tenant { organisation: "7".to_owned(), project: project.map(str::to_owned) }
}

/// A server with a token of each role.
fn rig() -> Rig {
    let roles = [
        ("usage", Role::Usage(tenant(Some("42")))),
        ("whole", Role::Usage(tenant(None))),
        ("reads", Role::Read),
        ("works", Role::Operate),
    ];
    let tokens = roles.map(|(name, role)| Token::named(name, role, &text(name)).unwrap());
    Setup { admin: Admin::of_tokens(tokens), ..Setup::policy(POLICY) }.in_memory().0
}

fn ask(rig: &Rig, token: &str, call: &Call, body: &Json) -> Reply {
    let method = if call.method == Method::Get { "GET" } else { "POST" };
    let bearer = format!("Bearer {}", text(token));
    rig.client().ask(method, call.path, &[("authorization", &bearer)], body.to_string().as_bytes())
}

fn call(path: &str) -> &'static Call {
    CALLS.iter().find(|call| call.path == path).unwrap()
}

#[test]
fn each_call_takes_the_role_that_the_table_says() {
    let rig = rig();
    for call in CALLS.iter().filter(|call| call.access.takes_token()) {
        let admitted = |token: &str| !matches!(ask(&rig, token, call, &json!({})).status, 401 | 403 | 429);
        let expected = match call.access {
            Access::Usage => (true, true, true),
            Access::Read => (false, true, true),
            _ => (false, false, true),
        };
        assert_eq!((admitted("whole"), admitted("reads"), admitted("works")), expected, "{}", call.path);
    }
    let refusal = ask(&rig, "reads", call("/v1/reset"), &json!({}));
    assert!(refusal.text().contains("the token of reads has the role read; expected operate"));
}

#[test]
fn a_tenant_sees_what_it_has_used_and_nothing_of_others() {
    let rig = rig();
    let request = json!({ "identity": { "org": "7", "project": "42" } });
    for _ in 0..3 {
        assert_eq!(rig.client().call("/v1/check", &request).status, 200);
    }
    let usage = |token: &str, body: Json| ask(&rig, token, call("/v1/usage"), &body);
    let own = usage("usage", json!({}));
    assert_eq!(own.status, 200, "{}", own.text());
    let rules = own.json()["rules"].clone();
    let of = |name: &str| {
        let rule = rules.as_array().unwrap().iter().find(|rule| rule["rule"] == name).unwrap();
        (rule["limits"][0]["used"].clone(), rule["limits"][0]["remaining"].clone())
    };
    assert_eq!(of("search/per-project"), (json!(3), json!(2)));
    assert_eq!(of("search/per-org"), (json!(3), json!(6)));
    assert!(rules[0]["limits"][0].get("override").is_none(), "authors are for operators");
    assert_eq!(usage("usage", json!({ "organisation": "7", "project": "42" })).status, 200);
    assert_eq!(usage("whole", json!({ "project": "43" })).status, 200, "a project of its organisation");
    let others = [
        ("usage", json!({ "organisation": "8" })),
        ("usage", json!({ "project": "43" })),
        ("usage", json!({ "key": "project:43" })),
        ("whole", json!({ "organisation": "8", "project": "42" })),
        ("whole", json!({ "key": "project:42" })),
    ];
    for (token, body) in others {
        assert_eq!(usage(token, body.clone()).status, 403, "{token} {body}");
    }
    assert_eq!(usage("reads", json!({ "key": "project:42" })).json()["rules"][0]["limits"][0]["used"], 3);
    assert_eq!(usage("reads", json!({})).status, 422);
    // Nothing was charged by any of that.
    assert_eq!(rig.client().call("/v1/check", &request).json()["limits"][0]["remaining"], 1);
}

#[test]
fn guesses_of_tokens_are_limited_also_for_who_has_one_then() {
    let rig = rig();
    let guess = || rig.client().ask("GET", "/v1/switches", &[("authorization", "Bearer wrong")], b"");
    for _ in 0..10 {
        let reply = guess();
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
    }
    let reply = guess();
    assert_eq!(reply.status, 429, "{}", reply.text());
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=6).contains(&wait), "{wait}");
    // Whether a token is right is not told meanwhile; all other calls are served.
    assert_eq!(ask(&rig, "works", call("/v1/switches"), &json!({})).status, 429);
    assert_eq!(rig.client().get("/healthz").status, 200);
    assert_eq!(rig.client().call("/v1/check", &json!({})).status, 200);
}

#[test]
fn a_token_in_an_address_is_refused_even_if_it_is_right() {
    let rig = rig();
    let bearer = format!("Bearer {}", text("works"));
    for call in CALLS.iter().filter(|call| call.access.takes_token()) {
        let method = if call.method == Method::Get { "GET" } else { "POST" };
        let path = format!("{}?access_token={}", call.path, text("works"));
        let reply = rig.client().ask(method, &path, &[("authorization", &bearer)], b"{}");
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.text().contains("Authorization: Bearer"), "{}", reply.text());
        assert!(!reply.text().contains(&text("works")), "{}", reply.text());
    }
}

/// A page needs the token, which a browser does not send by itself; and a name that was made to resolve here does not
/// help it.
#[test]
fn pages_in_browsers_get_nowhere_without_the_token() {
    let rig = rig();
    let pages = [
        &[("origin", "http://evil"), ("content-type", "text/plain")][..],
        &[("host", "evil.example"), ("sec-fetch-site", "same-origin")],
        &[("cookie", "token=rk_worksworksworksworksworksworksworksworks")],
    ];
    for call in CALLS.iter().filter(|call| call.access.takes_token()) {
        let method = if call.method == Method::Get { "GET" } else { "POST" };
        for fields in pages {
            let host = fields.iter().any(|(name, _)| *name == "host");
            let mut head = format!("{method} {} HTTP/1.1\r\n", call.path);
            if !host {
                head.push_str("host: localhost\r\n");
            }
            fields.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
            let mut client = rig.client();
            client.send(format!("{head}content-length: 2\r\n\r\n{{}}").as_bytes());
            assert_eq!(client.reply().expect("an answer").status, 401, "{} {fields:?}", call.path);
        }
    }
}

#[test]
fn no_key_or_note_becomes_a_header() {
    let rig = rig();
    let evil = "a\r\nx-forged: 1\r\n\r\nHTTP/1.1 200 OK";
    let calls = [
        ("/v1/overrides/set", json!({ "endpoint": evil, "organisation": evil, "limit": 1, "reason": evil })),
        ("/v1/overrides/list", json!({ "organisation": evil })),
        ("/v1/usage", json!({ "organisation": evil, "project": evil })),
        ("/v1/inspect", json!({ "key": evil })),
        ("/v1/counters/list", json!({ "key": evil })),
        ("/v1/explain/rules", json!({ "identity": { "org": evil, "project": evil } })),
        ("/v1/audit", json!({ "by": evil })),
        ("/v1/modes/set", json!({ "rule": evil, "mode": "off" })),
    ];
    for (path, body) in calls {
        let reply = ask(&rig, "works", call(path), &body);
        assert!(reply.header("x-forged").is_none(), "{path}");
        assert!(matches!(reply.status, 200 | 422), "{path}: {}", reply.text());
        assert!(serde_json::from_str::<Json>(reply.text()).is_ok(), "{path}");
    }
    let charge = json!({ "charges": [{ "key": evil, "quota": "1/h" }] });
    for _ in 0..2 {
        assert!(rig.client().call("/v1/limit", &charge).header("x-forged").is_none());
    }
}
