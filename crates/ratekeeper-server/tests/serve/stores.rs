//! Settings of the store: they reach it, and what is wrong with them is said in words.

use std::sync::Arc;
use std::time::Instant;

use ratekeeper::RedisStore;
use ratekeeper_testkit::servers::{Flavour, Server};
use ratekeeper_testkit::wait::until;
use serde_json::json;

use crate::binary::{Running, command, refused};
use crate::client::PATIENCE;
use crate::rig::{RUNTIME, Setup};

const HTTP: [&str; 2] = ["--http", "127.0.0.1:0"];

#[test]
fn servers_with_different_prefixes_share_a_store_and_nothing_in_it() {
    let store = Server::start(Flavour::Redis7);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ratekeeper.toml");
    // Long enough for any machine.
    std::fs::write(&file, "store_prefix = \"file:\"\nstore_deadline = 20000\nstore_connections = 2\n")
        .unwrap();
    let serve = |more: &[&str]| {
        let mut command = command(&HTTP);
        command.args(["--config", file.to_str().unwrap(), "--store", &store.url()]).args(more);
        Running::start(&mut command)
    };
    let (live, other) = (serve(&["--store-prefix", "live:"]), serve(&[]));
    let call = json!({ "charges": [{ "key": "k", "quota": "1/d" }], "on_outage": "deny" });
    for server in [&live, &other] {
        let start = Instant::now();
        while server.client().get("/readyz/store").status != 200 {
            assert!(start.elapsed() < PATIENCE, "the store is not there");
        }
        assert_eq!(server.client().call("/v1/limit", &call).status, 200);
        assert_eq!(server.client().call("/v1/limit", &call).status, 429);
    }
    let keys = store.cli(&["--scan"]);
    for prefix in ["live:rk:d:/limit/", "file:rk:d:/limit/"] {
        assert_eq!(keys.lines().filter(|key| key.starts_with(prefix)).count(), 1, "{prefix}: {keys}");
    }
}

#[test]
fn a_store_has_as_long_as_it_is_given() {
    let store = Server::start(Flavour::Redis7);
    let serve = |deadline: &str| {
        let mut command = command(&HTTP);
        command.env("RATEKEEPER_STORE", store.url()).env("RATEKEEPER_STORE_DEADLINE", deadline);
        Running::start(&mut command)
    };
    let call = json!({ "charges": [{ "key": "k", "quota": "1000/d" }] });
    let (patient, hasty) = (serve("20000"), serve("1"));
    let start = Instant::now();
    while patient.client().get("/readyz/store").status != 200 {
        assert!(start.elapsed() < PATIENCE, "the store is not there");
    }
    // It answers nobody for three seconds, and then everybody: a busy machine asks for both within that time.
    let _ = store.cli(&["CLIENT", "PAUSE", "3000", "ALL"]);
    let origin = |server: &Running| server.client().call("/v1/limit", &call).json()["origin"].clone();
    assert_eq!(origin(&hasty), "outage");
    assert_eq!(origin(&patient), "store");
}

#[test]
fn as_many_checks_wait_for_a_connection_as_it_is_told() {
    let store = Server::start(Flavour::Redis7);
    let serve = |queue: &str| {
        let mut command = command(&HTTP);
        command.args(["--store-connections", "1"]).env("RATEKEEPER_STORE", store.url());
        let server = Running::start(command.env("RATEKEEPER_STORE_QUEUE", queue));
        let start = Instant::now();
        while server.client().get("/readyz/store").status != 200 {
            assert!(start.elapsed() < PATIENCE, "the store is not there");
        }
        server
    };
    let checks: Vec<_> =
        (0..100).map(|key| json!({ "charges": [{ "key": format!("k{key}"), "quota": "9/d" }] })).collect();
    let without_store = |server: &Running| {
        let told = server.client().call("/v1/limit/batch", &json!({ "checks": checks })).json();
        let decisions = told["decisions"].as_array().unwrap().clone();
        decisions.iter().filter(|decision| decision["origin"] != "store").count()
    };
    let overloads = |server: &Running| {
        let metrics = server.client().get("/metrics").text().to_owned();
        let line = metrics.lines().find_map(|line| line.strip_prefix("ratekeeper_store_overloads_total "));
        line.unwrap().parse::<usize>().unwrap()
    };
    let (short, long) = (serve("1"), serve("1000"));
    // Nothing leaves the queue while the store does not answer.
    let _ = store.cli(&["CLIENT", "PAUSE", "3000", "ALL"]);
    let refused = without_store(&short);
    assert!(refused > 0, "one waits, and the others are not even asked");
    // The question whether it takes charges, which metrics ask, may be one more.
    assert!(overloads(&short) >= refused);
    assert_eq!((without_store(&long), overloads(&long)), (0, 0));
}

#[test]
fn memory_keeps_as_many_ids_as_it_is_told_to() {
    let mut command = command(&HTTP);
    let server = Running::start(command.args(["--memory-ids", "1000", "--memory-keys", "5000"]));
    let checks = |from: usize| -> Vec<_> {
        let call =
            |id| json!({ "id": format!("id-{id}"), "charges": [{ "key": "k", "quota": "1000000/d" }] });
        (from..from + 1_000).map(call).collect()
    };
    let without_store = |from: usize| {
        let told = server.client().call("/v1/limit/batch", &json!({ "checks": checks(from) })).json();
        let decisions = told["decisions"].as_array().unwrap().clone();
        decisions.iter().filter(|decision| decision["origin"] != "store").count()
    };
    // Ids are spread over parts of the store, some of which are full a little before others.
    assert!(without_store(0) < 400);
    assert!(without_store(1_000) > 600, "there are twice as many now");
}

#[test]
fn what_is_wrong_is_said_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ratekeeper.toml");
    std::fs::write(&file, "store_deadline = -1\n").unwrap();
    let error = refused(command(&HTTP).args(["--config", file.to_str().unwrap()]));
    assert!(error.contains("ratekeeper.toml:1: ") && !error.contains("u64"), "{error}");
    let error = refused(command(&HTTP).env("RATEKEEPER_STORE", "postgres://ann:s3cret@host/db"));
    assert!(error.contains("store: got the scheme \"postgres\"; expected memory, redis://"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
    let error = refused(command(&HTTP).env("RATEKEEPER_STORE_DEADLINE", "soon"));
    assert!(error.contains("RATEKEEPER_STORE_DEADLINE"), "{error}");
    let error = refused(command(&HTTP).args(["--store-deadline", "soon"]));
    assert!(error.contains("--store-deadline") && !error.contains("RATEKEEPER_"), "{error}");
    let error = refused(command(&HTTP).args(["--store-prefix", "a b"]));
    assert!(error.contains("store-prefix: got \"a b\"; expected"), "{error}");
}

/// Something else at the place of a counter: nobody is limited by it any more, until it is reset.
#[test]
fn a_counter_that_cannot_be_read_is_reset_by_a_call() {
    let policy = "service = \"s\"\n[[rules]]\nname = \"r\"\nkeys = \"user:{identity.user}\"\nquota = \"9/d\"\non_outage = \"deny\"\n";
    let server = Server::start(Flavour::Redis7);
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder(&server.url()).deadline(PATIENCE).build().unwrap()
    };
    let rig = Setup::policy(policy).start(Arc::new(store));
    let mut client = rig.client();
    until("the store answers", || client.get("/readyz/store").status == 200);
    let request = json!({ "identity": { "user": "ann" } });
    let charge = json!({ "charges": [{ "key": "k", "quota": "9/d" }] });
    let mut denying = charge.clone();
    denying["on_outage"] = json!("deny");
    for (path, call, reset, of) in [
        ("/v1/check", &request, "/v1/reset", &request),
        ("/v1/check", &request, "/v1/counters/reset", &json!({ "key": "user:ann" })),
        ("/v1/limit", &denying, "/v1/reset", &charge),
    ] {
        assert_eq!(client.call(path, call).status, 200);
        let keys = server.cli(&["--scan"]);
        let counters: Vec<&str> =
            keys.lines().filter(|key| key.contains("user:ann") || key.contains("/limit/")).collect();
        assert!(!counters.is_empty(), "{keys}");
        for counter in counters {
            let _ = server.cli(&["DEL", counter]);
            assert_eq!(server.cli(&["RPUSH", counter, "x"]), "1");
        }
        assert_eq!(client.call(path, call).status, 503, "{path}");
        let told = client.call(reset, of);
        assert_eq!(told.status, 200, "{reset}: {}", told.text());
        assert!(told.json()["forgotten"].as_u64().unwrap() >= 1, "{reset}: {}", told.text());
        let counted = client.call(path, call);
        assert_eq!((counted.status, &counted.json()["limits"][0]["remaining"]), (200, &json!(8)), "{path}");
    }
}
