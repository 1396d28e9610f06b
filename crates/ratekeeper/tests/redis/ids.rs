//! Ids on a server, under rules that change.

use std::time::Duration;

use ratekeeper::{Limiter, Origin, RedisStore, Rule};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::setup::store;

fn limiter(store: &RedisStore, quotas: &str) -> Limiter<str> {
    let rule = Rule::new("per-user", |user: &str| Some(user.into())).quotas(quotas);
    Limiter::builder(store.clone()).rule(rule).build().unwrap()
}

/// Whatever was changed about a limit, the answer is the one that was given then.
#[tokio::test]
async fn an_id_stands_for_its_request_also_when_limits_have_changed() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let hold = Duration::from_secs(60);
    let changes = [
        ("{rps=5, rpm=50}", "{rps=6, rpm=40}"),
        ("5/min", "6/min fixed_window"),
        ("5/min fixed_window", "5/min sliding_log"),
        ("5/min sliding_log", "1/h"),
        ("5/min burst 9", "5/min leaky_bucket queue 3"),
        ("5/h concurrency", "7/h concurrency"),
    ];
    for (number, (before, after)) in changes.into_iter().enumerate() {
        let (id, user) = (format!("order-{number}"), format!("user-{number}"));
        let first = limiter(&store, before).reserve(&user, 1, &id, hold).await.unwrap();
        let again = limiter(&store, after).reserve(&user, 1, &id, hold).await.unwrap();
        assert_eq!(again.origin(), Origin::Repeat, "{before}, then {after}");
        assert_eq!(again.verdicts(), first.verdicts(), "{before}, then {after}");
        let other = limiter(&store, after).reserve(&user, 2, &id, hold).await.unwrap_err().to_string();
        assert!(other.contains("for another check"), "{other}");
    }
}
