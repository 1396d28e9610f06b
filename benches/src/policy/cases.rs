//! The policies that are measured, and requests for them.

use std::collections::HashMap;

use limitador::limit::Limit;
use ratekeeper::policy::{Facts, RequestFacts};
use serde_json::{Value, json};

/// How many different requests there are.
const REQUESTS: usize = 1_000;
/// So much that nobody is denied.
const PLENTY: &str = "1000000000/s";

type Values = fn(&RequestFacts) -> HashMap<String, String>;

/// A policy, requests for it, and the same limits for limitador.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) policy: String,
    pub(super) requests: Vec<RequestFacts>,
    pub(super) limits: Option<Box<dyn Fn() -> Vec<Limit>>>,
    pub(super) values: Option<Values>,
}

pub(super) fn all() -> Vec<Case> {
    let mut cases = vec![typical()];
    let names = ["1 rule by route, header key", "10 rules by route, header key", "100 rules by route, header key"];
    cases.extend(names.into_iter().zip([1, 10, 100]).map(|(name, rules)| by_route(name, rules)));
    let names = ["1 rule by header", "10 rules by header", "100 rules by header"];
    cases.extend(names.into_iter().zip([1, 10, 100]).map(|(name, rules)| by_header(name, rules)));
    let names = ["1 rule, body key", "10 rules by route, body key", "100 rules by route, body key"];
    cases.extend(names.into_iter().zip([1, 10, 100]).map(|(name, rules)| by_body(name, rules)));
    cases.push(custom());
    cases
}

fn policy(rules: Vec<Value>) -> String {
    json!({ "service": "bench", "rules": rules }).to_string()
}

fn requests(make: impl Fn(usize) -> RequestFacts) -> Vec<RequestFacts> {
    (0..REQUESTS).map(make).collect()
}

fn text_of(request: &RequestFacts, header: &str) -> String {
    String::from_utf8_lossy(request.header(header).unwrap_or_default()).into_owned()
}

fn limit(conditions: &[String], variable: &str) -> Limit {
    let predicate = |text: &String| text.as_str().try_into().expect("a condition");
    let variables = [variable.try_into().expect("a variable")];
    Limit::new("bench", 1_000_000_000, 1, conditions.iter().map(predicate).collect::<Vec<_>>(), variables)
}

/// What most services have: clients, users, and something expensive.
fn typical() -> Case {
    Case {
        name: "three rules: IP, user, expensive endpoint",
        policy: policy(vec![
            json!({ "name": "per-ip", "keys": "ip:{client.ip}", "quota": PLENTY }),
            json!({ "name": "per-user", "keys": "user:{header.x-user}", "quota": PLENTY }),
            json!({ "name": "expensive", "when": "method == 'POST' && path == '/expensive'",
                    "keys": "user:{header.x-user}", "quota": PLENTY }),
        ]),
        requests: requests(|n| {
            let (method, path) = if n % 2 == 0 { ("POST", "/expensive") } else { ("GET", "/cheap") };
            let facts = RequestFacts::new(method, path).peer([10, 0, (n / 250) as u8, (n % 250) as u8]);
            browser(facts).header("x-user", format!("user-{n}"))
        }),
        limits: Some(Box::new(|| {
            let expensive = ["method == 'POST'".to_owned(), "path == '/expensive'".to_owned()];
            vec![limit(&[], "ip"), limit(&[], "user"), limit(&expensive, "user")]
        })),
        values: Some(|request| {
            HashMap::from([
                ("ip".to_owned(), request.peer().map(|peer| peer.to_string()).unwrap_or_default()),
                ("user".to_owned(), text_of(request, "x-user")),
                ("method".to_owned(), request.method().unwrap_or_default().to_owned()),
                ("path".to_owned(), request.path().unwrap_or_default().to_owned()),
            ])
        }),
    }
}

/// What else a request carries.
fn browser(facts: RequestFacts) -> RequestFacts {
    let headers = [
        ("host", "api.example.com"),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
        ("accept", "application/json"),
        ("accept-language", "en-GB,en;q=0.9"),
        ("accept-encoding", "gzip, br"),
        ("authorization", "Bearer 0123456789abcdef0123456789abcdef"),
        ("cookie", "session=0123456789abcdef; theme=dark"),
    ];
    headers.into_iter().fold(facts, |facts, (name, value)| facts.header(name, value))
}

fn by_route(name: &'static str, rules: usize) -> Case {
    let rule = |n: usize| {
        json!({ "name": format!("r{n}"), "when": format!("route == '/v1/things{n}/{{id}}'"),
                "keys": "key:{header.x-api-key}", "quota": PLENTY })
    };
    Case {
        name,
        policy: policy((0..rules).map(rule).collect()),
        requests: requests(|n| {
            let facts = RequestFacts::new("GET", "/v1/things/7").route(format!("/v1/things{}/{{id}}", n % rules));
            browser(facts).header("x-api-key", format!("key-{n}"))
        }),
        limits: Some(Box::new(move || {
            (0..rules).map(|n| limit(&[format!("route == '/v1/things{n}/{{id}}'")], "key")).collect()
        })),
        values: Some(|request| {
            HashMap::from([
                ("key".to_owned(), text_of(request, "x-api-key")),
                ("route".to_owned(), request.route().unwrap_or_default().to_owned()),
            ])
        }),
    }
}

/// Conditions that no index helps with: every one has to be looked at.
fn by_header(name: &'static str, rules: usize) -> Case {
    let rule = |n: usize| {
        json!({ "name": format!("r{n}"), "when": format!("header['x-tier'] == 't{n}'"),
                "keys": "key:{header.x-api-key}", "quota": PLENTY })
    };
    Case {
        name,
        policy: policy((0..rules).map(rule).collect()),
        requests: requests(|n| {
            let facts = browser(RequestFacts::new("GET", "/v1/things/7"));
            facts.header("x-tier", format!("t{}", n % rules)).header("x-api-key", format!("key-{n}"))
        }),
        limits: Some(Box::new(move || (0..rules).map(|n| limit(&[format!("tier == 't{n}'")], "key")).collect())),
        values: Some(|request| {
            HashMap::from([
                ("key".to_owned(), text_of(request, "x-api-key")),
                ("tier".to_owned(), text_of(request, "x-tier")),
            ])
        }),
    }
}

fn by_body(name: &'static str, rules: usize) -> Case {
    let rule = |n: usize| {
        json!({ "name": format!("r{n}"), "when": format!("route == '/v1/things{n}'"),
                "keys": "tenant:{body.tenant_id}:lang:{body.language}", "quota": PLENTY,
                "cost": "size(body.items)" })
    };
    Case {
        name,
        policy: policy((0..rules).map(rule).collect()),
        requests: requests(|n| {
            let facts = RequestFacts::new("POST", "/v1/things").route(format!("/v1/things{}", n % rules));
            let body = json!({ "tenant_id": format!("tenant-{n}"), "language": "en", "items": [1, 2, 3] });
            browser(facts).json(body)
        }),
        limits: None,
        values: None,
    }
}

fn custom() -> Case {
    let limits = |n: usize| (format!("key:key-{n}"), json!({ "rps": 1_000_000_000, "rpm": 1_000_000_000 }));
    let entries: serde_json::Map<String, Value> = (0..10_000).map(limits).collect();
    Case {
        name: "1 rule, two tiers, 10,000 custom entries",
        policy: policy(vec![json!({ "name": "general", "keys": "key:{header.x-api-key}", "quota": PLENTY,
                                    "custom": entries })]),
        requests: requests(|n| {
            browser(RequestFacts::new("GET", "/")).header("x-api-key", format!("key-{}", n * 10))
        }),
        limits: None,
        values: None,
    }
}
