//! What people do to documents, and what becomes of the policies.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use ratekeeper::policy::source::mongodb::MongoSourceError;
use ratekeeper_testkit::cpu;

use crate::setup::{DEADLINE, Setup, document, wait_until};

/// As services keep it.
fn seed(service: &str) -> Document {
    doc! {
        "_id": service,
        "last_updated": "2025-10-10T14:23:00Z",
        "general_rate_limit": { "rps": 20, "rpm": 1000, "rph": 50000, "rpd": 100000 },
        "custom_rate_limits": {
            "user:1234": { "rps": 10, "rpm": 500, "rpd": 50000 },
            "apiKey:premium-tier": { "rps": 100, "rpm": 5000, "rpd": 500_000_i64 },
            "tenant:client-corp:lang:en": { "rpm": 500.0, "rph": 20000, "rpd": 250000 },
        },
    }
}

#[tokio::test]
async fn documents_are_in_force_when_the_start_is_over() {
    let setup = Setup::new();
    setup.put(seed("sentiment-service")).await;
    let mut translation = seed("translation-service");
    let rule = doc! { "name": "per-ip", "keys": "ip:{client.ip}", "quota": "100/s" };
    translation.insert("rules", vec![rule]);
    setup.put(translation).await;
    let _watch = setup.start().await;
    assert_eq!(setup.limits("sentiment-service", "user:99").await, [20, 1_000, 50_000, 100_000]);
    assert_eq!(setup.limits("sentiment-service", "user:1234").await, [10, 500, 50_000]);
    assert_eq!(setup.limits("sentiment-service", "tenant:client-corp:lang:en").await, [500, 20_000, 250_000]);
    let rules: Vec<&str> = setup.policy("translation-service").unwrap().rules().collect();
    assert_eq!(rules, ["general", "per-ip"]);
    let status = setup.policies.status_of("sentiment-service").unwrap();
    assert_eq!(status.source.as_deref(), Some("mongodb:sentiment-service"));
    assert_eq!(setup.failure(), None);
}

#[tokio::test]
async fn an_update_of_one_service_leaves_the_others_untouched() {
    let setup = Setup::new();
    setup.put(document("a", 1.to_string(), 10)).await;
    setup.put(document("b", 1.to_string(), 10)).await;
    let watch = setup.start().await;
    let (a, b) = (setup.policy("a").unwrap(), setup.policy("b").unwrap());
    watch.refresh().await.unwrap();
    assert!(Arc::ptr_eq(&a, &setup.policy("a").unwrap()), "nothing changed, nothing is replaced");
    setup.put(document("a", 2.to_string(), 20)).await;
    watch.refresh().await.unwrap();
    assert_eq!(setup.limits("a", "x").await, [20]);
    assert!(!Arc::ptr_eq(&a, &setup.policy("a").unwrap()));
    assert!(Arc::ptr_eq(&b, &setup.policy("b").unwrap()));
}

#[tokio::test]
async fn a_wrong_document_is_refused_once_and_the_good_policy_stays() {
    let setup = Setup::new();
    setup.put(document("a", "1", 10)).await;
    setup.put(document("b", "1", 10)).await;
    let watch = setup.start().await;
    let good = setup.policy("a").unwrap();
    setup.put(document("a", "2", -5)).await;
    setup.put(document("b", "2", 30)).await;
    for _ in 0..3 {
        watch.refresh().await.unwrap();
    }
    let refusal = "mongodb:a: general_rate_limit.rps: got -5; expected a whole number from 0 to 1000000000";
    assert_eq!(setup.refusal("a").as_deref(), Some(refusal));
    assert_eq!(setup.refused("a"), 1, "it is not read again until it changes");
    assert!(Arc::ptr_eq(&good, &setup.policy("a").unwrap()));
    assert_eq!(setup.limits("b", "x").await, [30], "that of the other is in force");
    assert_eq!(setup.failure(), None, "the source is well");
    // Taken back: the policy in force is right already, but the refusal is over.
    setup.put(document("a", "3", 10)).await;
    watch.refresh().await.unwrap();
    assert_eq!((setup.refusal("a"), setup.limits("a", "x").await), (None, vec![10]));
    setup.put(document("a", "4", 40)).await;
    watch.refresh().await.unwrap();
    assert_eq!(setup.limits("a", "x").await, [40]);
}

#[tokio::test]
async fn a_deleted_document_is_a_withdrawn_policy() {
    let setup = Setup::new();
    setup.put(document("a", "1", 10)).await;
    setup.put(document("b", "1", 10)).await;
    let watch = setup.start().await;
    let b = setup.policy("b").unwrap();
    setup.delete("a").await;
    watch.refresh().await.unwrap();
    assert!(setup.policy("a").is_none());
    assert!(Arc::ptr_eq(&b, &setup.policy("b").unwrap()));
    setup.put(document("a", "1", 10)).await;
    watch.refresh().await.unwrap();
    assert_eq!(setup.limits("a", "x").await, [10], "it is new, whatever its date");
}

/// People set it back, copy documents, use other types; or leave it out.
#[tokio::test]
async fn any_other_last_updated_is_a_change() {
    let setup = Setup::new();
    let date = |seconds: i64| Bson::DateTime(DateTime::from_millis(seconds * 1_000));
    setup.put(document("a", date(2_000), 1)).await;
    let watch = setup.start().await;
    let mut rps = 1;
    for updated in
        [date(1_000), date(3_000), "2025-10-10".into(), "2025-10-09".into(), Bson::Null, Bson::Null]
    {
        rps += 1;
        setup.put(document("a", updated.clone(), rps)).await;
        watch.refresh().await.unwrap();
        assert_eq!(setup.limits("a", "x").await, [u32::try_from(rps).unwrap()], "{updated}");
    }
}

#[tokio::test]
async fn without_last_updated_only_another_content_is_a_change() {
    let setup = Setup::new();
    setup.put(doc! { "_id": "a", "general_rate_limit": { "rps": 1 } }).await;
    let watch = setup.start().await;
    let first = setup.policy("a").unwrap();
    watch.refresh().await.unwrap();
    assert!(Arc::ptr_eq(&first, &setup.policy("a").unwrap()));
    setup.put(doc! { "_id": "a", "general_rate_limit": { "rps": -1 } }).await;
    for _ in 0..3 {
        watch.refresh().await.unwrap();
    }
    assert_eq!(setup.refused("a"), 1, "a wrong one that is read again is no news");
    setup.put(doc! { "_id": "a", "general_rate_limit": { "rps": 1 } }).await;
    watch.refresh().await.unwrap();
    assert_eq!(setup.refusal("a"), None, "it is as before, and nothing is wrong any more");
    setup.put(doc! { "_id": "a", "general_rate_limit": { "rps": 2 } }).await;
    watch.refresh().await.unwrap();
    assert_eq!(setup.limits("a", "x").await, [2]);
}

#[tokio::test]
async fn only_the_named_services_are_read() {
    let setup = Setup::new();
    setup.put(document("a", "1", 1)).await;
    setup.put(document("b", "1", 2)).await;
    let source = setup.source().services(["a", "absent"]).build().unwrap();
    let watch = source.start(&setup.policies).await.unwrap();
    watch.refresh().await.unwrap();
    assert_eq!(setup.limits("a", "x").await, [1]);
    assert!(setup.policy("b").is_none());
    let refusal = "mongodb:absent: got no document; expected one whose `_id` is the service's name";
    assert_eq!((setup.refusal("absent").as_deref(), setup.refused("absent")), (Some(refusal), 1));
    setup.put(document("absent", "1", 3)).await;
    watch.refresh().await.unwrap();
    assert_eq!((setup.limits("absent", "x").await, setup.refusal("absent")), (vec![3], None));
    setup.delete("absent").await;
    watch.refresh().await.unwrap();
    assert!(setup.policy("absent").is_none());
    setup.put(document("absent", "1", 4)).await;
    watch.refresh().await.unwrap();
    assert_eq!(setup.limits("absent", "x").await, [4]);
}

#[tokio::test]
async fn it_polls_by_itself_until_it_is_stopped() {
    let setup = Setup::new();
    setup.put(document("a", "1", 1)).await;
    let source = setup.source().interval(Duration::from_millis(100)).build().unwrap();
    let watch = source.start(&setup.policies).await.unwrap();
    let first = setup.policy("a").unwrap();
    setup.put(document("a", "2", 2)).await;
    wait_until("the change was found", || !Arc::ptr_eq(&first, &setup.policy("a").unwrap())).await;
    watch.stop();
    let second = setup.policy("a").unwrap();
    setup.put(document("a", "3", 3)).await;
    let watch = setup.start().await;
    assert_eq!(setup.limits("a", "x").await, [3]);
    assert!(!Arc::ptr_eq(&second, &setup.policy("a").unwrap()));
    drop(watch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refreshes_that_are_asked_for_together_all_come_back() {
    let setup = Setup::new();
    setup.put(document("a", "1", 1)).await;
    let watch = Arc::new(setup.start().await);
    let asked: Vec<_> = (0..200)
        .map(|_| {
            let watch = Arc::clone(&watch);
            tokio::spawn(async move { watch.refresh().await })
        })
        .collect();
    for answer in asked {
        assert_eq!(answer.await.unwrap(), Ok::<(), MongoSourceError>(()));
    }
}

#[test]
fn ten_thousand_entries_are_reloaded_in_well_under_a_second() {
    // All work that may take long goes to the one thread for it, which can say what it took.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(1).thread_keep_alive(DEADLINE * 10);
    runtime.build().unwrap().block_on(async {
        let setup = Setup::new();
        setup.put(large("0", 20)).await;
        let watch = setup.start().await;
        setup.put(large("1", 7)).await;
        let worked = async || tokio::task::spawn_blocking(cpu::of_this_thread).await.unwrap();
        let before = worked().await;
        watch.refresh().await.unwrap();
        let took = worked().await - before;
        assert_eq!(setup.limits("a", "user:9999").await, [7, 500, 50_000]);
        assert!(took < Duration::from_millis(750), "10,000 custom entries took {took:?}");
    });
}

/// A document with a limit of its own for each of many users.
fn large(updated: &str, rps: i32) -> Document {
    let entry = |n: i32| (format!("user:{n}"), Bson::from(doc! { "rps": rps, "rpm": 500, "rpd": 50_000 }));
    let custom: Document = (0..10_000).map(entry).collect();
    doc! {
        "_id": "a", "last_updated": updated, "general_rate_limit": { "rps": 20 },
        "custom_rate_limits": custom,
    }
}
