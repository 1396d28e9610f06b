//! `/readyz` and `/metrics` tell the truth about store, policies and the server itself.

use std::sync::Arc;

use ratekeeper::policy::{Format, PolicySpec};
use ratekeeper::store::open;
use ratekeeper::{OpenOptions, RedisStore, StoreUrl};
use ratekeeper_testkit::servers::{Cluster, Flavour, Server};
use ratekeeper_testkit::wait::until;
use serde_json::{Value as Json, json};

use crate::binary::{Running, command};
use crate::client::{Client, PATIENCE};
use crate::rig::{RUNTIME, Rig, Setup};

const POLICY: &str = r#"
    service = "shop"

    [[rules]]
    name = "per-user"
    keys = "user:{identity.user}"
    quota = "2/min"

    [rules.plans]
    paid = "5/min"

    [[rules]]
    name = "watched"
    mode = "monitor"
    keys = "all"
    quota = "1/min"

    [[rules]]
    name = "guarded"
    when = "path == '/guarded'"
    keys = "all"
    on_outage = "deny"
    quota = "100/min"
"#;

fn ready(client: &mut Client) -> (u16, Json) {
    let reply = client.get("/readyz");
    (reply.status, reply.json())
}

fn takes_charges(client: &mut Client) -> bool {
    let reply = client.get("/readyz/store");
    let told = reply.json();
    assert_eq!(told["ready"] == true, reply.status == 200, "{told}");
    assert_eq!(
        (told["store"]["answers"] == true, reply.status != 503),
        (reply.status == 200, reply.status == 200)
    );
    reply.status == 200
}

/// The value of a metric, by its name and labels as they are written.
fn metric(rig: &Rig, series: &str) -> Option<u64> {
    let reply = rig.client().get("/metrics");
    let line =
        reply.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned));
    line.map(|value| value.parse().unwrap_or_else(|_| panic!("{series}: {value}")))
}

fn on(server: &Server) -> Rig {
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder(&server.url()).deadline(PATIENCE).build().unwrap()
    };
    Setup::policy(POLICY).start(Arc::new(store))
}

#[test]
fn a_store_that_is_away_is_told_and_so_is_its_return() {
    let mut server = Server::start(Flavour::Valkey9);
    let rig = on(&server);
    let mut client = rig.client();
    until("the store answers", || takes_charges(&mut client));
    assert_eq!(metric(&rig, "ratekeeper_store_breaker_state"), Some(0));
    let charged = client.call("/v1/check", &json!({ "identity": { "user": "eve" } })).json();
    server.kill();
    until("the breaker is open", || {
        metric(&rig, "ratekeeper_store_breaker_state") == Some(2) || {
            client.call("/v1/check", &json!({ "identity": { "user": "ann" } }));
            false
        }
    });
    let (status, told) = ready(&mut client);
    assert_eq!((status, &told["store"]["answers"]), (200, &json!(false)), "{told}");
    assert_eq!((&told["ready"], &told["status"]), (&json!(true), &json!("degraded")), "{told}");
    assert_eq!(told["policies"]["denying"], json!(["shop/guarded"]), "{told}");
    assert!(!takes_charges(&mut client));
    assert_eq!(metric(&rig, "ratekeeper_ready"), Some(1));
    assert_eq!(metric(&rig, "ratekeeper_store_ready"), Some(0));
    assert_eq!(client.get("/healthz").status, 200, "the process is alive");
    // Rules decide without it, and so do charges, each as it says.
    let open = client.call("/v1/check", &json!({ "identity": { "user": "ann" } }));
    assert_eq!((open.status, &open.json()["origin"]), (200, &json!("outage")));
    let shut = client.call("/v1/check", &json!({ "path": "/guarded", "identity": { "user": "ann" } }));
    assert_eq!(shut.status, 503);
    assert!(shut.json()["type"].as_str().unwrap().ends_with("temporary-reduced-capacity"));
    let charge =
        |on_outage: &str| json!({ "charges": [{ "key": "k", "quota": "1/s" }], "on_outage": on_outage });
    assert_eq!(client.call("/v1/limit", &charge("allow")).status, 200);
    let shut = client.call("/v1/limit", &charge("deny"));
    assert_eq!((shut.status, shut.header("retry-after")), (503, Some("1")));
    // This server's own memory: the second is one too many.
    let local = [client.call("/v1/limit", &charge("local")), client.call("/v1/limit", &charge("local"))];
    assert_eq!(local.each_ref().map(|reply| reply.status), [200, 429]);
    assert_eq!(local[0].json()["origin"], "outage");
    let watching =
        json!({ "charges": [{ "key": "k", "quota": "1/s", "shadow": true }], "on_outage": "deny" });
    assert_eq!(client.call("/v1/limit", &watching).status, 200, "what only watches denies nobody");
    for (outcome, least) in [("allowed", 2), ("denied", 2)] {
        let series = format!("ratekeeper_outage_decisions_total{{outcome=\"{outcome}\"}}");
        assert!(metric(&rig, &series).unwrap() >= least, "{outcome}");
    }
    // What is not given back is not said to be.
    let refund = json!({ "identity": { "user": "eve" }, "decision": charged });
    assert_eq!(client.call("/v1/refund", &refund).status, 503);
    let refund = json!({ "identity": { "user": "ann" }, "decision": open.json() });
    assert_eq!(client.call("/v1/refund", &refund).json(), json!({ "refunded": false, "units": 0 }));
    // Who only looks is not let through.
    let failed_open = "ratekeeper_outage_decisions_total{outcome=\"allowed\"}";
    let before = metric(&rig, failed_open);
    for path in ["/v1/peek", "/v1/explain"] {
        let told = client.call(path, &charge("allow"));
        assert_eq!((told.status, &told.json()["origin"]), (200, &json!("outage")));
        client.call(path, &json!({ "identity": { "user": "ann" } }));
    }
    assert_eq!(metric(&rig, failed_open), before);
    assert!(metric(&rig, "ratekeeper_store_failures_total").unwrap() >= 4);
    assert_eq!(client.call("/v1/settle", &json!({ "id": "i", "actual": 1 })).status, 503);
    server.restart();
    until("the store answers again", || takes_charges(&mut client));
    let (status, told) = ready(&mut client);
    assert_eq!((status, &told["status"], &told["policies"]["denying"]), (200, &json!("ready"), &json!([])));
    assert_eq!(metric(&rig, "ratekeeper_store_breaker_opened_total"), Some(1));
}

#[test]
fn of_several_servers_it_is_told_how_many_take_charges() {
    let mut servers = [Flavour::Redis7, Flavour::Valkey9].map(Server::start);
    let url: StoreUrl = servers.each_ref().map(Server::url).join(",").parse().unwrap();
    let store = {
        let _within = RUNTIME.enter();
        open(&url, &OpenOptions::new().redis(|redis| redis.deadline(PATIENCE))).unwrap().store()
    };
    let rig = Setup::policy(POLICY).start(store);
    let mut client = rig.client();
    until("the store answers", || takes_charges(&mut client));
    let (status, told) = ready(&mut client);
    assert_eq!((status, &told["status"]), (200, &json!("ready")), "{told}");
    assert_eq!(told["store"]["nodes"], json!({ "all": 2, "take_charges": 2, "away": [] }), "{told}");
    servers[1].kill();
    until("the server is away", || !takes_charges(&mut client));
    let (status, told) = ready(&mut client);
    assert_eq!((status, &told["status"]), (200, &json!("degraded")), "{told}");
    let one = json!({ "all": 2, "take_charges": 1, "away": [servers[1].url()] });
    assert_eq!(told["store"]["nodes"], one, "{told}");
    let counted =
        ["taking", "away"].map(|state| metric(&rig, &format!("ratekeeper_store_nodes{{state=\"{state}\"}}")));
    assert_eq!(counted, [Some(1), Some(1)]);
    servers[0].kill();
    until("both are away", || ready(&mut client).1["store"]["nodes"]["take_charges"] == 0);
    servers.iter_mut().for_each(Server::restart);
    until("the store answers again", || takes_charges(&mut client));
    assert_eq!(metric(&rig, "ratekeeper_store_spanning_checks_total"), Some(0));
}

/// A store that answers questions but takes no charges is not ready, whatever the reason.
#[test]
fn a_store_that_does_not_write_is_told_and_so_is_its_return() {
    let server = Server::start(Flavour::Redis7);
    let rig = on(&server);
    let mut client = rig.client();
    until("the store answers", || takes_charges(&mut client));
    let cases: [(&[&str], &[&str]); 3] = [
        (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]),
        (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]),
        (&["ACL", "SETUSER", "default", "-@write"], &["ACL", "SETUSER", "default", "+@write"]),
    ];
    for (ill, well) in cases {
        let _ = server.cli(ill);
        let (status, told) = ready(&mut client);
        assert_eq!((status, &told["store"]["answers"]), (200, &json!(false)), "{ill:?}: {told}");
        assert!(!takes_charges(&mut client), "{ill:?}");
        assert_eq!(metric(&rig, "ratekeeper_store_ready"), Some(0), "{ill:?}");
        let _ = server.cli(well);
        assert_eq!(metric(&rig, "ratekeeper_store_ready"), Some(1), "{well:?}");
        assert!(takes_charges(&mut client), "{well:?}");
    }
}

/// Ready means useful: a server that fails open or counts by itself is, one that would deny everything is not.
#[test]
fn without_its_store_a_server_is_ready_unless_every_rule_denies() {
    let rule = |name: &str, lines: &str| {
        format!("[[rules]]\nname = \"{name}\"\nkeys = \"all\"\nquota = \"9/min\"\n{lines}\n")
    };
    let (open, local) = (rule("open", ""), rule("local", "on_outage = \"local\""));
    let (shut, watching) =
        (rule("shut", "on_outage = \"deny\""), rule("watching", "on_outage = \"deny\"\nmode = \"monitor\""));
    let (off, own) =
        (rule("off", "mode = \"off\""), rule("own", "on_outage = \"deny\"\nscope = \"process\""));
    let cases = [
        (vec![&open], 200, vec![]),
        (vec![&local], 200, vec![]),
        (vec![&watching], 200, vec![]),
        (vec![&own], 200, vec![]),
        (vec![&shut], 503, vec!["s/shut"]),
        (vec![&shut, &off], 503, vec!["s/shut"]),
        (vec![&shut, &open], 200, vec!["s/shut"]),
        (vec![&shut, &watching], 200, vec!["s/shut"]),
    ];
    for (rules, expected, denying) in cases {
        let policy: String = rules.into_iter().fold("service = \"s\"\n".to_owned(), |text, rule| text + rule);
        // Nobody listens there.
        let store = {
            let _within = RUNTIME.enter();
            RedisStore::builder("redis://127.0.0.1:1").build().unwrap()
        };
        let rig = Setup::policy(policy.clone().leak()).start(Arc::new(store));
        let (status, told) = ready(&mut rig.client());
        assert_eq!((status, &told["policies"]["denying"]), (expected, &json!(denying)), "{policy}");
        let word = if status == 200 { "degraded" } else { "unready" };
        assert_eq!((&told["status"], &told["ready"]), (&json!(word), &json!(status == 200)), "{policy}");
        assert!(!takes_charges(&mut rig.client()));
        assert_eq!(metric(&rig, "ratekeeper_ready"), Some((status == 200).into()), "{policy}");
    }
}

/// What operators have set holds without the store, and `/readyz` knows of it.
#[test]
fn a_rule_that_is_lifted_denies_nobody_without_the_store() {
    let policy = "service = \"s\"\n[[rules]]\nname = \"shut\"\nkeys = \"all\"\nquota = \"9/min\"\non_outage = \"deny\"\n";
    let mut server = Server::start(Flavour::Redis7);
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder(&server.url()).deadline(PATIENCE).build().unwrap()
    };
    let rig = Setup::policy(policy).start(Arc::new(store));
    let mut client = rig.client();
    until("the store answers", || takes_charges(&mut client));
    let set = |client: &mut Client, emergency: &str| {
        let call = json!({ "rule": "s/shut", "emergency": emergency, "for": "1h" });
        let reply = client.call("/v1/emergencies/set", &call);
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    set(&mut client, "lift");
    let request = json!({ "service": "s" });
    until("it is lifted", || client.call("/v1/check", &request).json()["limits"][0]["level"] == "emergency");
    server.kill();
    until("the store is away", || client.call("/v1/check", &request).json()["origin"] == "outage");
    assert_eq!(client.call("/v1/check", &request).status, 200);
    let (status, told) = ready(&mut client);
    assert_eq!(
        (status, &told["status"], &told["policies"]["denying"]),
        (200, &json!("degraded"), &json!([])),
        "{told}"
    );
    assert_eq!(metric(&rig, "ratekeeper_ready"), Some(1));
    server.restart();
    until("the store answers again", || takes_charges(&mut client));
    // Back with nothing set: the server has no memory of its own.
    until("it is not lifted", || {
        client.call("/v1/check", &request).json()["limits"][0]["level"] != "emergency"
    });
    server.kill();
    until("the store is away again", || client.call("/v1/check", &request).status == 503);
    let (status, told) = ready(&mut client);
    assert_eq!((status, &told["policies"]["denying"]), (503, &json!(["s/shut"])), "{told}");
}

/// The charge that asks is gone soon, and nobody's quota is less for it.
#[test]
fn asking_leaves_nothing_behind() {
    let server = Server::start(Flavour::Redis7);
    let rig = on(&server);
    let mut client = rig.client();
    until("the store answers", || takes_charges(&mut client));
    until("nothing is left", || server.cli(&["--scan"]).lines().all(|key| key.contains("control")));
}

#[test]
fn policies_that_are_refused_are_told() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let (status, told) = ready(&mut client);
    assert_eq!(
        (status, &told["policies"]),
        (200, &json!({ "denying": [], "in_force": 1, "refused": [], "unreadable_sources": 0 }))
    );
    let policies = rig.api.limiter().policies().clone();
    let wrong = PolicySpec::read("test", Format::Toml, b"service = \"shop\"\nrules = 1\n");
    policies.install("test", wrong, Some("shop")).unwrap_err();
    let (status, told) = ready(&mut client);
    assert_eq!(
        (status, &told["policies"]["refused"]),
        (200, &json!(["shop"])),
        "the last good one is in force"
    );
    assert_eq!(metric(&rig, "ratekeeper_policy_refused{service=\"shop\"}"), Some(1));
    for (result, count) in [("accepted", 1), ("refused", 1)] {
        let series = format!("ratekeeper_policy_reloads_total{{service=\"shop\",result=\"{result}\"}}");
        assert_eq!(metric(&rig, &series), Some(count), "{result}");
    }
    policies.withdraw("test", "shop");
    let (status, told) = ready(&mut client);
    assert_eq!((status, &told["policies"]["in_force"]), (503, &json!(0)));
}

#[test]
fn a_server_that_stops_says_so_first_and_finishes_what_is_under_way() {
    let (mut rig, _) = Setup::policy(POLICY).in_memory();
    let (mut client, mut under_way) = (rig.client(), rig.client());
    assert_eq!(ready(&mut client).0, 200);
    rig.stop.drain(PATIENCE);
    let (status, told) = ready(&mut client);
    assert_eq!((status, &told["stopping"]), (503, &json!(true)));
    assert_eq!(rig.client().post("/v1/limit", r#"{"charges":[{"key":"k","quota":"1/s"}]}"#).status, 200);
    let call = r#"{"charges":[{"key":"k2","quota":"1/s"}]}"#;
    let head = format!(
        "POST /v1/limit HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        call.len()
    );
    under_way.send(head.as_bytes());
    assert_eq!(under_way.reply().unwrap().status, 100, "it is under way: its body is waited for");
    rig.stop.finish();
    assert!(client.is_over(), "a connection without a request is closed");
    under_way.send(call.as_bytes());
    assert_eq!(under_way.reply().expect("what is under way is finished").status, 200);
    assert!(under_way.is_over());
    let served = rig.served.take().unwrap();
    assert!(RUNTIME.block_on(served).unwrap(), "all were over in time");
    assert!(std::net::TcpStream::connect(rig.address).is_err(), "nobody listens any more");
}

#[test]
fn decisions_are_counted_by_rule_plan_and_outcome() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let ask = |client: &mut Client, identity: Json| {
        client.call("/v1/check", &json!({ "identity": identity })).status
    };
    let statuses: Vec<u16> = (0..3).map(|_| ask(&mut client, json!({ "user": "ann" }))).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(ask(&mut client, json!({ "user": "bob", "plan": "paid" })), 200);
    assert_eq!(ask(&mut client, json!({})), 200, "nobody is known, so only the watching rule counts");
    let of_rule = |rule: &str, plan: &str, outcome: &str| {
        let labels = format!("service=\"shop\",rule=\"{rule}\",plan=\"{plan}\",outcome=\"{outcome}\"");
        metric(&rig, &format!("ratekeeper_decisions_total{{{labels}}}"))
    };
    assert_eq!(of_rule("per-user", "default", "allowed"), Some(2));
    assert_eq!(of_rule("per-user", "default", "denied"), Some(1));
    assert_eq!(of_rule("per-user", "paid", "allowed"), Some(1));
    assert_eq!(of_rule("watched", "default", "allowed"), Some(1));
    assert_eq!(of_rule("watched", "default", "over_limit"), Some(4));
    let of_shop =
        |name: &str, rule: &str| metric(&rig, &format!("{name}{{service=\"shop\",rule=\"{rule}\"}}"));
    assert_eq!(of_shop("ratekeeper_rule_over_limit_total", "watched"), Some(4));
    assert_eq!(of_shop("ratekeeper_rule_unresolved_total", "per-user"), Some(1));
    client.call(
        "/v1/limit/batch",
        &json!({ "checks": [{ "charges": [{ "key": "k", "quota": "1/s", "name": "n" }] }, {}] }),
    );
    assert_eq!(metric(&rig, "ratekeeper_batch_checks_count"), Some(1));
    assert_eq!(metric(&rig, "ratekeeper_limit_decisions_total{name=\"n\",outcome=\"allowed\"}"), Some(1));
    assert_eq!(metric(&rig, "ratekeeper_requests_total{endpoint=\"/v1/check\",status=\"429\"}"), Some(1));
    assert_eq!(metric(&rig, "ratekeeper_request_seconds_count{endpoint=\"/v1/check\"}"), Some(5));
}

#[test]
fn no_metric_has_anything_of_a_request_in_it() {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let mut client = rig.client();
    let secret = "s3cr3t-of-somebody";
    for _ in 0..3 {
        client.call(
            "/v1/check",
            &json!({ "identity": { "user": secret, "plan": secret }, "path": format!("/{secret}") }),
        );
        client.call("/v1/limit", &json!({ "charges": [{ "key": secret, "quota": "1/min" }] }));
        client.call("/v1/limit", &json!({ "charges": [{ "key": "", "quota": secret }] }));
        client.call("/v1/check", &json!({ "service": secret }));
    }
    client.get(&format!("/{secret}"));
    let metrics = client.get("/metrics");
    assert_eq!(
        metrics.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(!metrics.text().contains(secret));
    assert!(metrics.text().ends_with("# EOF\n"));
}

/// Charges without a policy need none of one's own: there is a starter policy, and it fails open.
#[test]
fn a_server_for_raw_charges_alone_stays_ready_without_its_store() {
    // Nobody listens there.
    let arguments = ["--http", "127.0.0.1:0", "--store", "redis://127.0.0.1:1"];
    let server = Running::start(&mut command(&arguments));
    let mut client = server.client();
    let (status, told) = ready(&mut client);
    assert_eq!((status, &told["status"]), (200, &json!("degraded")), "{told}");
    assert!(!takes_charges(&mut client));
    let charged = client.post("/v1/limit", r#"{"charges":[{"key":"k","quota":"1/s"}]}"#);
    assert_eq!((charged.status, &charged.json()["origin"]), (200, &json!("outage")));
}

/// Policies that are configured and of which none is in force: callers would not be limited at all.
#[test]
fn a_folder_without_policies_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.toml");
    std::fs::write(&policy, POLICY).unwrap();
    let arguments = ["--http", "127.0.0.1:0", "--policy", folder.path().to_str().unwrap()];
    let server = Running::start(&mut command(&arguments));
    let mut client = server.client();
    assert_eq!(ready(&mut client).0, 200);
    std::fs::remove_file(&policy).unwrap();
    until("the policy is gone", || ready(&mut client).0 == 503);
    assert_eq!(ready(&mut client).1["status"], "unready");
}

#[test]
fn nodes_of_a_cluster_that_take_charges_are_counted() {
    let mut cluster = Cluster::start(Flavour::Redis7);
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder(&cluster.url()).build().unwrap()
    };
    let rig = Setup::policy(POLICY).start(Arc::new(store));
    let mut client = rig.client();
    let nodes = |client: &mut Client| ready(client).1["store"]["nodes"].clone();
    until("three nodes", || nodes(&mut client) == json!({ "all": 3, "take_charges": 3 }));
    cluster.nodes[0].kill();
    until("two nodes", || nodes(&mut client) == json!({ "all": 3, "take_charges": 2 }));
}
