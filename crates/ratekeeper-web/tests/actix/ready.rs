//! The ready-made limits, and who is calling.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, HttpMessage as _, web};
use ratekeeper::policy::Facts;
use ratekeeper::{Mode, Override, OverrideScope, Store as _};
use ratekeeper_web::actix::RateLimit;
use ratekeeper_web::ready::{CustomLimit, OnMissingIdentity, PathLimit, ProjectLimit};
use ratekeeper_web::{Gate, Identity};

use crate::support::{field, fields, store, text};

const MINUTE: Duration = Duration::from_secs(60);

/// What is left of a limit after a request of somebody, or nobody.
macro_rules! left {
    ($app:expr, $path:expr, $identity:expr) => {{
        let (request, identity): (_, Option<Identity>) =
            (TestRequest::get().uri($path).to_request(), $identity);
        if let Some(identity) = identity {
            request.extensions_mut().insert(identity);
        }
        let response = call_service(&$app, request).await;
        field(&response, "ratelimit").map(|told| {
            let left = told.split(";r=").nth(1).unwrap();
            left.split(';').next().unwrap().parse::<u32>().unwrap()
        })
    }};
}

macro_rules! app {
    ($gate:expr) => {{
        let gate: Gate = $gate;
        init_service(App::new().wrap(RateLimit::new(gate)).route("/{x}", web::get().to(|| async { "ok" })))
            .await
    }};
}

fn of(org: &'static str, project: &'static str) -> Option<Identity> {
    Some(Identity::new().org(org).project(project))
}

#[actix_web::test]
async fn every_project_has_its_own_counter_on_every_route_and_overrides() {
    let store = store();
    let app = app!(ProjectLimit::new(10).expiry(MINUTE).gate(store.clone()).unwrap());
    assert_eq!(left!(app, "/1", of("a", "1")), Some(9));
    assert_eq!(left!(app, "/2", of("a", "1")), Some(8));
    assert_eq!(left!(app, "/1", of("a", "2")), Some(9));
    assert_eq!(left!(app, "/1", of("b", "1")), Some(9));
    let scope = OverrideScope::project("/{x}", "a", "2").unwrap();
    store.overrides().set(scope, Override::limit(100)).await.unwrap();
    assert_eq!(left!(app, "/1", of("a", "2")), Some(98));
}

#[actix_web::test]
async fn a_request_of_nobody_is_not_limited_or_refused() {
    for (on_missing, status) in [(OnMissingIdentity::Skip, 200), (OnMissingIdentity::Refuse, 500)] {
        let app = app!(ProjectLimit::new(1).on_missing_identity(on_missing).gate(store()).unwrap());
        for _ in 0..3 {
            let response = call_service(&app, TestRequest::get().uri("/1").to_request()).await;
            assert_eq!((response.status().as_u16(), fields(&response)), (status, 0));
            if status == 500 {
                assert!(text(response).await.contains("need to know who is calling"));
            }
        }
    }
}

#[actix_web::test]
async fn every_path_has_its_own_counter_and_watching_counts_too() {
    for mode in [Mode::On, Mode::Monitor] {
        let app = app!(PathLimit::new(2).expiry(MINUTE).mode(mode).gate(store()).unwrap());
        assert_eq!((left!(app, "/1", None), left!(app, "/1", None)), (Some(1), Some(0)));
        assert_eq!(left!(app, "/2", None), Some(1));
        let third = call_service(&app, TestRequest::get().uri("/1").to_request()).await;
        let expected = if mode == Mode::On { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
        assert_eq!((third.status(), field(&third, "ratelimit").is_some()), (expected, true));
    }
}

#[actix_web::test]
async fn a_key_of_ones_own_counts_and_none_is_not_limited() {
    fn by_address(facts: &dyn Facts) -> Option<Cow<'_, str>> {
        facts.peer().map(|peer| Cow::Owned(peer.to_string()))
    }
    let gate = CustomLimit::new(5, by_address).expiry(MINUTE).policy_name("per-address").gate(store());
    let app = app!(gate.unwrap());
    let ask = |last: Option<u8>| {
        let request = TestRequest::get().uri("/1");
        let request = match last {
            Some(last) => request.peer_addr(std::net::SocketAddr::from(([192, 0, 2, last], 5))),
            None => request,
        };
        call_service(&app, request.to_request())
    };
    for (last, left) in [(Some(1), Some(4)), (Some(1), Some(3)), (Some(2), Some(4)), (None, None)] {
        let told = left.map(|left| format!(r#""per-address";r={left};t=60"#));
        assert_eq!(field(&ask(last).await, "ratelimit"), told.as_deref());
    }
}

#[actix_web::test]
async fn limits_of_other_numbers_on_one_counter_are_refused_before_there_are_requests() {
    let store = store();
    let requests = RateLimit::new(ProjectLimit::new(10).gate(store.clone()).unwrap());
    let minute = ProjectLimit::new(100).expiry(MINUTE);
    let refused = minute.gate(store.clone()).unwrap_err().to_string();
    assert!(refused.contains("100/min fixed_window on {route} beside 10/s fixed_window"), "{refused}");
    minute.clone().key_suffix("/minute").gate(store.clone()).unwrap();
    drop(requests);
    let _search = minute.endpoint("/search").gate(store.clone()).unwrap();
    let app = app!(ProjectLimit::new(7).endpoint("/other").gate(store).unwrap());
    assert_eq!(left!(app, "/1", of("a", "1")), Some(6));
    assert_eq!(left!(app, "/2", of("a", "1")), Some(5), "the endpoint that it says");
}
