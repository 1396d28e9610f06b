//! The three limits that are ready-made.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get as on_get;
use http::{Request, StatusCode};
use ratekeeper::{Mode, Override, OverrideScope, Store};
use ratekeeper_web::axum::rate_limit;
use ratekeeper_web::ready::{CustomLimit, OnMissingIdentity, PathLimit, ProjectLimit};
use ratekeeper_web::{Gate, Identity};
use tower::ServiceExt as _;

use super::{Traces, field, fields, get, store, text};

const ROUTE: &str = "/datasets/{id}/search";
const MINUTE: Duration = Duration::from_secs(60);

fn app(gate: impl Into<Arc<Gate>>) -> Router {
    Router::new().route(ROUTE, on_get(|| async { "ok" })).layer(rate_limit(gate))
}

fn of(org: &'static str, project: &'static str) -> Request<Body> {
    let mut request = get("/datasets/7/search");
    request.extensions_mut().insert(Identity::new().org(org).project(project));
    request
}

/// What is left for whoever asks; nothing if it is denied.
async fn left(app: &Router, request: Request<Body>) -> Option<u32> {
    let response = app.clone().oneshot(request).await.unwrap();
    let told = field(&response, "ratelimit").unwrap();
    let left = told.split(";r=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    (response.status() == StatusCode::OK).then_some(left)
}

#[tokio::test]
async fn every_project_has_its_own_counter_on_every_route() {
    let app = app(ProjectLimit::new(2).expiry(MINUTE).gate(store().0).unwrap());
    assert_eq!(left(&app, of("1", "2")).await, Some(1));
    let mut other = of("1", "2");
    *other.uri_mut() = "/datasets/8/search".parse().unwrap();
    assert_eq!(left(&app, other).await, Some(0), "the same route");
    assert_eq!(left(&app, of("1", "2")).await, None);
    assert_eq!(left(&app, of("1", "3")).await, Some(1), "another project");
    assert_eq!(left(&app, of("2", "2")).await, Some(1), "another organisation");
}

#[tokio::test]
async fn overrides_of_a_project_come_before_those_of_its_organisation() {
    let (store, _) = store();
    let app = app(ProjectLimit::new(2).expiry(MINUTE).gate(store.clone()).unwrap());
    let overrides = store.overrides();
    overrides.set(OverrideScope::organisation(ROUTE, "1").unwrap(), Override::limit(50)).await.unwrap();
    overrides.set(OverrideScope::project(ROUTE, "1", "2").unwrap(), Override::limit(100)).await.unwrap();
    assert_eq!(left(&app, of("1", "2")).await, Some(99));
    assert_eq!(left(&app, of("1", "3")).await, Some(49));
    assert_eq!(left(&app, of("1", "4")).await, Some(49), "a limit for each, not one for all");
    assert_eq!(left(&app, of("2", "2")).await, Some(1));
    overrides.delete(OverrideScope::project(ROUTE, "1", "2").unwrap()).await.unwrap();
    assert_eq!(left(&app, of("1", "2")).await, Some(48), "what was used stays used");
}

#[tokio::test]
async fn watching_counts_and_tells_and_denies_nobody() {
    let limits: [Gate; 3] = [
        ProjectLimit::new(2).mode(Mode::Monitor).gate(store().0).unwrap(),
        PathLimit::new(2).mode(Mode::Monitor).gate(store().0).unwrap(),
        CustomLimit::new(2, |_| Some("all".into())).mode(Mode::Monitor).gate(store().0).unwrap(),
    ];
    for gate in limits {
        let gate = Arc::new(gate);
        let app = app(gate.clone());
        for expected in [Some(1), Some(0), Some(0), Some(0)] {
            assert_eq!(left(&app, of("1", "2")).await, expected);
        }
        assert_eq!((gate.counts().allowed, gate.counts().over_limit, gate.counts().denied), (4, 2, 0));
    }
}

#[tokio::test]
async fn a_request_of_nobody_is_not_limited_or_refused_and_that_is_logged_once() {
    let (traces, _guard) = Traces::start();
    let limit = ProjectLimit::new(1).expiry(MINUTE);
    let nobody = || {
        let [mut no_project, mut unnamed, mut odd] = [(); 3].map(|()| get("/datasets/7/search"));
        no_project.extensions_mut().insert(Identity::new().org("1"));
        unnamed.extensions_mut().insert(Identity::new().org("").project("2"));
        odd.extensions_mut().insert(Identity::new().org(true).project("2"));
        [get("/datasets/7/search"), no_project, unnamed, odd]
    };
    let gate = Arc::new(limit.gate(store().0).unwrap());
    for request in nobody() {
        let response = app(gate.clone()).oneshot(request).await.unwrap();
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]));
    }
    assert_eq!(gate.counts().anonymous, 4);
    assert_eq!(traces.with("requests come without an identity").len(), 1);
    assert!(traces.with("they are not limited")[0].contains("org"));

    let refusing = limit.on_missing_identity(OnMissingIdentity::Refuse).gate(store().0).unwrap();
    let refusing = Arc::new(refusing);
    for request in nobody() {
        let response = app(refusing.clone()).oneshot(request).await.unwrap();
        assert_eq!((response.status(), fields(&response)), (StatusCode::INTERNAL_SERVER_ERROR, vec![]));
        assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
        assert!(text(response).await.contains("who is calling"));
    }
    assert_eq!(traces.with("they are refused").len(), 1);
    assert_eq!(left(&app(refusing), of("1", "2")).await, Some(0));
}

#[tokio::test]
async fn every_path_has_its_own_counter() {
    let app = app(PathLimit::new(1).expiry(MINUTE).gate(store().0).unwrap());
    assert_eq!(left(&app, get("/datasets/7/search?a=1")).await, Some(0));
    assert_eq!(left(&app, get("/datasets/7/search?a=2")).await, None);
    assert_eq!(left(&app, get("/datasets/8/search")).await, Some(0));
}

#[tokio::test]
async fn a_key_of_ones_own_counts_and_none_is_not_limited() {
    let limit = CustomLimit::new(1, |facts| {
        facts.header("x-key").and_then(|key| std::str::from_utf8(key).ok()).map(Cow::Borrowed)
    });
    let app = app(limit.expiry(MINUTE).policy_name("mine").gate(store().0).unwrap());
    let with =
        |key: &str| Request::get("/datasets/7/search").header("x-key", key).body(Body::empty()).unwrap();
    assert_eq!(left(&app, with("a")).await, Some(0));
    assert_eq!(left(&app, with("a")).await, None);
    assert_eq!(left(&app, with("b")).await, Some(0));
    for free in [get("/datasets/7/search"), with("")] {
        let response = app.clone().oneshot(free).await.unwrap();
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]));
    }
}

#[tokio::test]
async fn policies_are_called_after_the_suffix_of_their_key() {
    let cases = [
        ("", None, "requests"),
        ("/elements", None, "elements"),
        ("/a/b", Some("bulk"), "bulk"),
        // As in Python.
        ("/a/b", None, "a/b"),
        ("//x/", None, "x/"),
    ];
    for (suffix, name, called) in cases {
        let limit = PathLimit::new(9).expiry(MINUTE).key_suffix(suffix);
        let limit = match name {
            Some(name) => limit.policy_name(name),
            None => limit,
        };
        let response = app(limit.gate(store().0).unwrap()).oneshot(get("/datasets/7/search")).await.unwrap();
        assert_eq!(field(&response, "ratelimit"), Some(format!("\"{called}\";r=8;t=60").as_str()));
    }
}

#[test]
fn limits_that_make_no_sense_are_refused_when_they_are_made() {
    assert!(PathLimit::new(0).gate(store().0).is_ok(), "it lets nothing pass");
    assert!(PathLimit::new(u64::MAX).gate(store().0).is_err());
    assert!(PathLimit::new(1).expiry(Duration::ZERO).gate(store().0).is_err());
    assert!(PathLimit::new(1).policy_name("no\nname").gate(store().0).is_err());
    for suffix in ["/élan".to_owned(), format!("/{}", "x".repeat(200))] {
        assert!(PathLimit::new(1).key_suffix(&suffix).gate(store().0).is_err(), "{suffix}");
    }
}

/// Ten a second and five an hour, by one key: neither is the other's.
#[tokio::test]
async fn two_limits_of_one_kind_are_two_counters() {
    let (store, _) = store();
    let (traces, _guard) = Traces::start();
    let by_user = |max, expiry| {
        CustomLimit::new(max, |_| Some(Cow::Borrowed("ann"))).expiry(expiry).gate(store.clone())
    };
    let app = Router::new()
        .route("/", on_get(|| async { "ok" }))
        .layer(rate_limit(by_user(10, Duration::from_secs(1)).unwrap()))
        .layer(rate_limit(by_user(5, Duration::from_secs(3_600)).unwrap()));
    for left in (0..5).rev() {
        let response = app.clone().oneshot(get("/")).await.unwrap();
        let told = format!(r#""requests";r={left};t=3600, "requests";r={};t=1"#, left + 5);
        assert_eq!(field(&response, "ratelimit"), Some(told.as_str()));
    }
    assert_eq!(app.oneshot(get("/")).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(traces.with("two limits of this name").len() <= 1, "it is told once in a process");
}

#[tokio::test]
async fn nobody_is_called_like_two_others_together() {
    let app = app(ProjectLimit::new(1).expiry(MINUTE).gate(store().0).unwrap());
    for (org, project) in [("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("a", "b"), ("a%", "b")] {
        assert_eq!(left(&app, of(org, project)).await, Some(0), "{org} {project}");
    }
}

/// Application Kit has one counter for both: each request would count twice, and the shorter window end the longer.
#[tokio::test]
async fn limits_of_other_numbers_on_one_counter_are_refused_before_there_are_requests() {
    let (store, _) = store();
    let second = ProjectLimit::new(10);
    let first = second.gate(store.clone()).unwrap();
    let minute = ProjectLimit::new(100).expiry(MINUTE);
    let refused = minute.gate(store.clone()).unwrap_err().to_string();
    assert!(refused.contains("100/min fixed_window on {route} beside 10/s fixed_window"), "{refused}");
    assert!(refused.contains("key_suffix") && refused.contains("endpoint"), "{refused}");
    let here = minute.clone().endpoint(ROUTE);
    assert!(here.gate(store.clone()).is_err(), "the first one may count there as well");
    // The same limit for another router; another counter; another store.
    second.clone().policy_name("again").gate(store.clone()).unwrap();
    minute.clone().key_suffix("/minute").gate(store.clone()).unwrap();
    minute.gate(super::store().0).unwrap();

    drop(first);
    let _here = here.gate(store.clone()).unwrap();
    assert!(second.clone().endpoint(ROUTE).gate(store.clone()).is_err());
    second.endpoint("/elsewhere").gate(store).unwrap();
}

/// Around a router nobody knows the route.
#[tokio::test]
async fn a_limit_that_says_its_endpoint_counts_there_and_has_its_overrides() {
    let (store, _) = store();
    let gate = ProjectLimit::new(2).expiry(MINUTE).endpoint("/{search}").gate(store.clone()).unwrap();
    let routes = Router::new().route(ROUTE, on_get(|| async { "ok" }));
    let app = Router::new().fallback_service(tower::Layer::layer(&rate_limit(gate), routes));
    assert_eq!(left(&app, of("1", "2")).await, Some(1));
    let scope = OverrideScope::project("/{search}", "1", "2").unwrap();
    store.overrides().set(scope, Override::limit(50)).await.unwrap();
    assert_eq!(left(&app, of("1", "2")).await, Some(48));
}
