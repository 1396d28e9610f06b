//! Documents that nobody should write, and somebody did.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, doc};

use crate::setup::{Setup, document};

#[tokio::test]
async fn an_id_that_is_no_name_harms_nobody() {
    let setup = Setup::new();
    let long = "x".repeat(1_000_000);
    let ids: Vec<Bson> = vec![
        "".into(),
        long.into(),
        "a\nb\u{1b}[31m".into(),
        "\u{e9}".into(),
        ObjectId::from_bytes([7; 12]).into(),
        5.into(),
        Bson::Double(1.5),
    ];
    setup.put(document("good", "1", 10)).await;
    for id in ids {
        let limit = doc! { "rps": 1 };
        setup.put(doc! { "_id": id, "last_updated": "1", "general_rate_limit": limit }).await;
    }
    let watch = setup.start().await;
    watch.refresh().await.unwrap();
    assert_eq!(setup.limits("good", "x").await, [10]);
    let in_force: Vec<String> = setup
        .policies
        .status()
        .into_iter()
        .filter(|status| status.in_force)
        .map(|status| status.service)
        .collect();
    assert_eq!(in_force, ["good"]);
}

#[tokio::test]
async fn null_is_as_good_as_nothing() {
    let setup = Setup::new();
    setup
        .put(doc! {
            "_id": "a", "last_updated": Bson::Null, "mode": Bson::Null, "rules": Bson::Null,
            "general_rate_limit": { "rps": 5, "rpm": Bson::Null }, "custom_rate_limits": Bson::Null,
        })
        .await;
    let _watch = setup.start().await;
    assert_eq!(setup.limits("a", "x").await, [5]);
}

#[tokio::test]
async fn values_that_no_policy_has_are_refused_with_their_field() {
    let setup = Setup::new();
    let binary = Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 8] });
    setup.put(doc! { "_id": "a", "last_updated": "1", "general_rate_limit": { "rps": binary } }).await;
    let deep = (0..40).fold(doc! { "rps": 1 }, |inner, _| doc! { "a": inner });
    setup.put(doc! { "_id": "b", "last_updated": "1", "general_rate_limit": deep }).await;
    setup.put(doc! { "_id": "c", "last_updated": true, "general_rate_limit": "5/s" }).await;
    setup.put(doc! { "_id": "d", "last_updated": "1", "genral_rate_limit": { "rps": 1 } }).await;
    let _watch = setup.start().await;
    let refusal = |service| setup.refusal(service).unwrap();
    assert!(refusal("a").starts_with("mongodb:a: general_rate_limit.rps: got binary data; expected"));
    assert!(refusal("b").contains("got a value nested too deep"), "{}", refusal("b"));
    assert!(refusal("c").contains("last_updated: got true"), "{}", refusal("c"));
    assert!(refusal("d").contains("did you mean `general_rate_limit`?"), "{}", refusal("d"));
    assert!(["a", "b", "c", "d"].iter().all(|service| setup.policy(service).is_none()));
}

#[tokio::test]
async fn more_documents_than_can_be_watched_are_refused_together() {
    let setup = Setup::new();
    setup.put(document("a", "1", 1)).await;
    let watch = setup.start().await;
    let many = (0..10_001).map(|n| document(&format!("service-{n}"), "1", 1));
    setup.collection().await.insert_many(many).await.unwrap();
    let failure = watch.refresh().await.unwrap_err().to_string();
    assert!(failure.contains("got too many documents; expected at most 10000"), "{failure}");
    assert!(setup.failure().unwrap().contains("got too many documents"));
    assert_eq!(setup.policies.status().len(), 1, "none of them was read");
    assert_eq!(setup.limits("a", "x").await, [1]);
}
