//! The dashboard: pages without data, where operators' calls are served, and one call with what they show.
//! What they do in a browser is tested by `scripts/browser_tests.py`.

use ratekeeper_server::serve::{Access, Admin, CALLS, NEAR_KEYS_MAX, Token};
use ratekeeper_testkit::wait;
use serde_json::{Value as Json, json};

use crate::binary::{Running, command};
use crate::rig::{Rig, Setup};

const TOKEN: &str = "a-token-of-operators";
const POLICY: &str =
    "service = 's'\n[[rules]]\nname = 'each'\nkeys = 'user:{identity.user}'\nquota = '4/h fixed_window'\n";

fn rig() -> Rig {
    Setup { admin: Admin::from(Token::new(TOKEN).unwrap()), ..Setup::policy(POLICY) }.in_memory().0
}

fn snapshot(rig: &Rig) -> Json {
    let bearer = format!("Bearer {TOKEN}");
    let reply = rig.client().ask("GET", "/v1/dashboard", &[("authorization", &bearer)], b"");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn pages() -> impl Iterator<Item = &'static str> {
    CALLS.iter().filter(|call| call.access == Access::Page).map(|call| call.path)
}

#[test]
fn pages_take_no_token_and_may_do_next_to_nothing() {
    let rig = rig();
    let html = rig.client().get("/dashboard");
    for path in pages() {
        let reply = rig.client().get(path);
        assert_eq!((reply.status, reply.header("x-content-type-options")), (200, Some("nosniff")), "{path}");
        let policy = reply.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"]
        {
            assert!(policy.contains(part) && !policy.contains("unsafe"), "{path}: {policy}");
        }
        let name = path.rsplit('/').next().unwrap();
        let expected = match name.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(reply.header("content-type"), Some(expected), "{path}");
        let text = reply.text();
        assert!(!text.is_empty() && !text.contains("innerHTML") && !text.contains(" style="), "{path}");
        for elsewhere in ["src=\"http", "href=\"http", "import(\"http", "from \"http", "url(http"] {
            assert!(!text.contains(elsewhere), "{path}: {elsewhere}");
        }
    }
    assert!(html.text().contains("dashboard/main.js") && !html.text().contains("<script>"));
    assert_eq!(rig.client().get("/v1/dashboard").status, 401, "data takes a token");
}

#[test]
fn pages_are_served_where_the_calls_of_operators_are() {
    let off = Setup { admin: Admin::Off, ..Setup::default() }.in_memory().0;
    assert!(pages().all(|path| off.client().get(path).status == 403));
    let mut apart = command(&["--http", "127.0.0.1:0", "--admin-http", "127.0.0.1:0"]);
    let server = Running::start(apart.env("RATEKEEPER_ADMIN_TOKEN", TOKEN));
    let line = server.said.iter().find(|line| line.trim().starts_with("dashboard")).unwrap();
    let url = line.split_whitespace().nth(1).unwrap().trim_start_matches("http://");
    let address = url.trim_end_matches("/dashboard").parse().unwrap();
    for path in pages() {
        assert_eq!(server.client().get(path).status, 404, "{path}");
        assert_eq!(crate::client::Client::connect(address).get(path).status, 200, "{path}");
    }
}

#[test]
fn what_is_shown_is_what_metrics_have() {
    let rig = rig();
    for _ in 0..6 {
        rig.client().call("/v1/check", &json!({ "identity": { "user": "ann" } }));
    }
    rig.client().call("/v1/check", &json!({ "identity": { "user": "bob" } }));
    let (told, metrics) = (snapshot(&rig), rig.client().get("/metrics").text().to_owned());
    let series = &told["decisions"]["series"][0];
    assert_eq!((&series["counts"]["allowed"], &series["counts"]["denied"]), (&json!(5), &json!(2)));
    assert_eq!(told["decisions"]["totals"]["allowed"], 5);
    assert!(metrics.contains(r#"plan="default",outcome="allowed"} 5"#), "{metrics}");
    assert!(metrics.contains(r#"ratekeeper_rule_headroom_percent{service="s",rule="each"} 0"#), "{metrics}");
    assert_eq!(told["headroom"][0]["value"], 0);
    let near = told["near_keys"]["list"].as_array().unwrap();
    assert_eq!(near.len(), 1, "bob has three of four left: {near:?}");
    assert_eq!(
        (&near[0]["key"], &near[0]["remaining"], &near[0]["limit"]),
        (&json!("user:ann"), &json!(0), &json!(4))
    );
    let service = &told["policies"]["services"][0];
    assert_eq!((&service["limits"][0]["rule"], service["digest"].is_string()), (&json!("each"), true));
    assert!(!metrics.contains("user:ann"), "keys are in no metric");
}

/// What was decided before the page was opened is there when it is.
#[test]
fn the_last_minutes_are_kept() {
    let server = Running::start(command(&["--http", "127.0.0.1:0"]).env("RATEKEEPER_ADMIN_TOKEN", TOKEN));
    for _ in 0..3 {
        let charges = json!([{ "key": "ann", "name": "reports", "quota": "2/h" }]);
        server.client().call("/v1/limit", &json!({ "charges": charges }));
    }
    let bearer = format!("Bearer {TOKEN}");
    let kept = || {
        let told = server.client().ask("GET", "/v1/dashboard/history", &[("authorization", &bearer)], b"");
        told.json()["points"].as_array().unwrap().clone()
    };
    let totals = |point: &Json| point["limit_decisions"]["totals"].clone();
    wait::until("a moment with them", || totals(kept().last().unwrap())["denied"] == 1);
    let points = kept();
    assert_eq!(totals(&points[0])["allowed"].as_u64().unwrap_or_default(), 0, "the first is of the start");
    let last = points.last().unwrap();
    assert!(last["at_us"].as_u64() > points[0]["at_us"].as_u64());
    let series = last["limit_decisions"]["series"].as_array().unwrap();
    let reports = series.iter().find(|series| series["labels"]["name"] == "reports").unwrap();
    assert_eq!((&reports["counts"]["allowed"], &reports["counts"]["denied"]), (&json!(2), &json!(1)));
    assert_eq!(server.client().get("/v1/dashboard/history").status, 401);
}

#[test]
fn lists_are_bounded() {
    let rig = rig();
    for key in 0..NEAR_KEYS_MAX + 44 {
        let charges = json!([{ "key": format!("k{key}"), "name": format!("n{key}"), "quota": "1/h" }]);
        rig.client().call("/v1/limit", &json!({ "charges": charges }));
    }
    let told = snapshot(&rig);
    assert_eq!((&told["near_keys"]["count"], &told["hot_keys"]["count"]), (&json!(NEAR_KEYS_MAX), &json!(0)));
    assert_eq!(told["near_keys"]["list"].as_array().unwrap().len(), 20);
    let by_name = &told["limit_decisions"];
    assert_eq!(by_name["series"].as_array().unwrap().len(), 200);
    let metrics = rig.client().get("/metrics").text().to_owned();
    let allowed = metrics.lines().filter(|line| {
        line.starts_with("ratekeeper_limit_decisions_total{") && line.contains("outcome=\"allowed\"")
    });
    assert_eq!(by_name["left_out"], json!(allowed.count() - 200));
    assert_eq!(by_name["totals"]["allowed"], json!(NEAR_KEYS_MAX + 44));
}

#[test]
fn changes_of_operators_are_shown_at_once() {
    let rig = rig();
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(snapshot(&rig)["overrides"]["count"], 0);
    let set = json!({ "endpoint": "s/each", "organisation": "7", "limit": 9, "for": "1h" });
    let fields = [("authorization", bearer.as_str())];
    let reply = rig.client().ask("POST", "/v1/overrides/set", &fields, set.to_string().as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(snapshot(&rig)["overrides"]["list"][0]["limit"], 9);
}
