//! Batches: as large as they may be, decided in their order, and others are answered meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use ratekeeper::policy::{Policies, PolicyLimiter};
use ratekeeper::{MemoryStore, RedisStore, Store};
use ratekeeper_server::serve::api::Api;
use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::{Value as Json, json};

use crate::client::PATIENCE;
use crate::rig::{RUNTIME, Rig, Setup};

const POLICY: &str = r#"
    service = "shop"

    [[rules]]
    name = "per-user"
    keys = "user:{identity.user}"
    quota = "1000000/h fixed_window"
"#;
/// As long as the machine may keep a server that is well from answering.
const DEADLINE: Duration = Duration::from_secs(3);

fn on(server: &Server) -> Rig {
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder(&server.url()).deadline(DEADLINE).total(PATIENCE).build().unwrap()
    };
    let rig = Setup::policy(POLICY).start(Arc::new(store));
    let start = Instant::now();
    while rig.client().get("/readyz/store").status != 200 {
        assert!(start.elapsed() < PATIENCE, "the store does not answer");
    }
    rig
}

fn decisions(rig: &Rig, path: &str, checks: &[Json]) -> Vec<Json> {
    let reply = rig.client().call(path, &json!({ "checks": checks }));
    assert_eq!(reply.status, 200);
    let Json::Array(decisions) = reply.json()["decisions"].take() else { panic!("no list") };
    decisions
}

/// A thousand checks of forty charges, one of which is the same in all and has room for one.
#[test]
fn the_largest_batch_is_decided_by_the_store_and_lets_others_be() {
    let server = Server::start(Flavour::Redis7);
    let rig = on(&server);
    let over = AtomicBool::new(false);
    let check = |number: usize| {
        let others = (1..40).map(|charge| json!({ "key": format!("{number}-{charge}"), "quota": "1000/h" }));
        let charges: Vec<Json> =
            std::iter::once(json!({ "key": "one", "quota": "1/h" })).chain(others).collect();
        json!({ "charges": charges })
    };
    let checks: Vec<Json> = (0..1_000).map(check).collect();
    let bystanders = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut client, mut origins) = (rig.client(), Vec::new());
            while !over.load(Ordering::Relaxed) {
                let call = json!({ "charges": [{ "key": "bystander", "quota": "1000000/h" }] });
                origins.push(client.call("/v1/limit", &call).json()["origin"].clone());
            }
            origins
        });
        let decided = decisions(&rig, "/v1/limit/batch", &checks);
        over.store(true, Ordering::Relaxed);
        assert_eq!(decided.len(), 1_000);
        assert!(decided.iter().all(|decision| decision["origin"] == "store"), "decided by the store");
        let allowed: Vec<bool> = decided.iter().map(|decision| decision["allowed"] == true).collect();
        assert_eq!(allowed.iter().filter(|allowed| **allowed).count(), 1);
        assert!(allowed[0], "the first of them");
        asking.join().unwrap()
    });
    assert!(bystanders.len() > 10, "{}", bystanders.len());
    assert!(bystanders.iter().all(|origin| origin == "store"));
    assert_eq!(rig.store.health().failures, 0);
}

#[test]
fn batches_are_decided_in_their_order() {
    let server = Server::start(Flavour::Redis7);
    let rig = on(&server);
    let limit = json!({ "charges": [{ "key": "all", "quota": "1000000/h fixed_window" }] });
    let request = json!({ "identity": { "user": "ann" } });
    for (path, check) in [("/v1/limit/batch", limit), ("/v1/check/batch", request)] {
        for size in [2, 3, 65, 600].into_iter().cycle().take(60) {
            let decided = decisions(&rig, path, &vec![check.clone(); size]);
            let left = decided.iter().map(|decision| decision["limits"][0]["remaining"].as_u64().unwrap());
            let left: Vec<u64> = left.collect();
            assert!(left.is_sorted_by(|one, next| one == &(next + 1)), "{path}, {size}: {left:?}");
        }
    }
}

/// In memory nothing is waited for. A batch gives way all the same, so others are answered while it is under way.
#[test]
fn a_batch_in_memory_lets_others_be_answered() {
    let store = Arc::new(MemoryStore::new());
    let policies = Policies::builder().mode(None).build().unwrap();
    let api = Api::new(PolicyLimiter::on(Arc::clone(&store) as Arc<dyn Store>, policies));
    let check = |number: usize| {
        // None of them is over, and so forgotten, before the test is.
        let quota = "1000/h fixed_window";
        let charges = (0..50).map(|charge| json!({ "key": format!("{number}-{charge}"), "quota": quota }));
        json!({ "charges": charges.collect::<Vec<Json>>() })
    };
    let batch = json!({ "checks": (0..1_000).map(check).collect::<Vec<Json>>() }).to_string();
    let other = json!({ "charges": [{ "key": "bystander", "quota": "1000000/h" }] }).to_string();

    let (mut batch, mut context) =
        (pin!(api.limit_batch(batch.as_bytes())), Context::from_waker(Waker::noop()));
    let (mut kept, mut turns) = (store.len(), 0);
    let answer = loop {
        if let Poll::Ready(answer) = batch.as_mut().poll(&mut context) {
            break answer;
        }
        assert!(store.len() - kept <= 64, "{} charges without a turn of others", store.len() - kept);
        assert_eq!(api.limit(other.as_bytes()).now_or_never().expect("at once").status, 200);
        (kept, turns) = (store.len(), turns + 1);
    };
    let decided: Json = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(decided["decisions"].as_array().unwrap().len(), 1_000);
    assert!(turns > 1_000, "a turn for each check, and some while the answer is written: {turns}");
}

/// A store in memory that has no room for others' ids takes the charge of `/readyz` itself.
#[test]
fn a_full_memory_is_told() {
    let store = MemoryStore::builder().max_keys(256).max_ids(16).build();
    let rig = Setup::policy(POLICY).start(Arc::new(store));
    let mut client = rig.client();
    assert_eq!(client.get("/readyz").status, 200);
    let checks: Vec<Json> = (0..200)
        .map(|id| json!({ "id": id.to_string(), "charges": [{ "key": "ids", "quota": "1000/h" }] }))
        .collect();
    let decided = decisions(&rig, "/v1/limit/batch", &checks);
    let full = decided.iter().filter(|decision| decision["origin"] == "outage").count();
    assert_eq!(full, 200 - 16);
    let told = client.get("/readyz");
    assert_eq!((told.status, &told.json()["status"]), (200, &json!("degraded")));
    let told = client.get("/readyz/store");
    assert_eq!((told.status, &told.json()["store"]["failure"]), (503, &json!("it has no room left")));
    let metrics = client.get("/metrics");
    for series in
        ["ratekeeper_store_failures_total 184", "ratekeeper_store_full_total 184", "ratekeeper_store_ready 0"]
    {
        assert!(metrics.text().lines().any(|line| line == series), "{series}");
    }
    let denied =
        json!({ "id": "new", "on_outage": "deny", "charges": [{ "key": "ids", "quota": "1000/h" }] });
    let denied = client.call("/v1/limit", &denied);
    assert_eq!((denied.status, &denied.json()["retry_after_us"]), (503, &json!(1_000_000)));
}
