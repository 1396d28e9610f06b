//! Limits in one line, in front of axum and of any service.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get as on_get;
use http::{Request, StatusCode};
use ratekeeper::MemoryStore;
use ratekeeper_web::axum::{global, per_header, per_identity, per_ip, rate_limit};
use ratekeeper_web::tower::{Axum, Peer};
use ratekeeper_web::{Gate, Identity, Limited, OnMissingAddress};
use tower::{Layer as _, ServiceExt as _};

use super::{Traces, field, get, store, text};

fn app(limits: Limited<Axum>) -> Router {
    Router::new().route("/", on_get(|| async { "ok" })).layer(limits)
}

fn from(last: u8) -> Request<Body> {
    let mut request = get("/");
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, last], 4_000))));
    request
}

fn with(request: Request<Body>, name: &'static str, value: &'static str) -> Request<Body> {
    let mut request = request;
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

async fn status(app: &Router, request: Request<Body>) -> u16 {
    app.clone().oneshot(request).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn one_line_limits_each_address() {
    let app = app(per_ip("2/min fixed_window").unwrap());
    for address in [1, 2] {
        assert_eq!(status(&app, from(address)).await, 200);
        let response = app.clone().oneshot(from(address)).await.unwrap();
        assert_eq!(field(&response, "ratelimit-policy"), Some("\"per-ip\";q=2;w=60"));
        assert_eq!(status(&app, from(address)).await, 429, "address {address}");
    }
}

#[tokio::test]
async fn without_an_address_requests_are_refused_and_the_log_says_what_to_do() {
    let (traces, _guard) = Traces::start();
    let limits = per_ip("2/min").unwrap();
    let strict = app(limits.clone());
    for _ in 0..3 {
        let response = strict.clone().oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = text(response).await;
        assert!(body.contains("need the client's address"), "{body}");
        assert!(body.contains("into_make_service_with_connect_info::<SocketAddr>()"), "{body}");
    }
    let told = traces.with("into_make_service_with_connect_info::<SocketAddr>()");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(status(&strict, from(1)).await, 200, "with an address all is well");
    let lax = app(limits.on_missing_address(OnMissingAddress::Pass).unwrap());
    for _ in 0..5 {
        assert_eq!(status(&lax, get("/")).await, 200);
    }
}

#[tokio::test]
async fn a_policy_refuses_requests_without_an_address_unless_they_may_pass() {
    let rules = "service = 'test'\n[[rules]]\nname = 'clients'\nwhen = \"path == '/'\"\nkeys = 'ip:{client.ip}'\nquota = '9/s'\n";
    let app = |gate: Gate| {
        let ok = on_get(|| async { "ok" });
        Router::new().route("/", ok.clone()).route("/health", ok).layer(rate_limit(gate))
    };
    let gate = |rules: &str| Gate::from_toml(store().0, rules).unwrap();
    let refuses = app(gate(rules));
    assert_eq!((status(&refuses, get("/")).await, status(&refuses, from(1)).await), (500, 200));
    let passes = app(gate(rules).on_missing_address(OnMissingAddress::Pass));
    assert_eq!(status(&passes, get("/")).await, 200);
    // Rules that do not ask for it, or do not apply, do not miss it.
    assert_eq!(status(&app(gate(&rules.replace("ip:{client.ip}", "all"))), get("/")).await, 200);
    assert_eq!(status(&refuses, get("/health")).await, 200);
}

/// A route has limits of its own beside those of the application, and its responses tell of both.
#[tokio::test]
async fn a_route_has_limits_of_its_own_beside_those_of_the_application() {
    let app = Router::new()
        .route("/login", on_get(|| async { "ok" }).layer(per_ip("2/min fixed_window").unwrap()))
        .route("/", on_get(|| async { "ok" }))
        .layer(global("5/min fixed_window").unwrap());
    let login = || {
        let mut request = from(1);
        *request.uri_mut() = "/login".parse().unwrap();
        request
    };
    let response = app.clone().oneshot(login()).await.unwrap();
    let policies = r#""global";q=5;w=60, "per-ip";q=2;w=60"#;
    assert_eq!(field(&response, "ratelimit-policy"), Some(policies));
    assert_eq!(field(&response, "ratelimit"), Some(r#""global";r=4;t=60, "per-ip";r=1;t=60"#));
    assert_eq!((status(&app, login()).await, status(&app, login()).await), (200, 429));
    let elsewhere = app.clone().oneshot(from(1)).await.unwrap();
    assert_eq!(elsewhere.status(), StatusCode::OK, "the limit of the route is the route's");
    assert_eq!(field(&elsewhere, "ratelimit-policy"), Some(r#""global";q=5;w=60"#));
}

/// Any algorithm, in any words that a quota has.
#[tokio::test]
async fn every_algorithm_fits_into_the_line() {
    for quota in [
        "2/min",
        "1/min burst 2",
        "2/min fixed_window",
        "2/min sliding_window",
        "2/min sliding_log",
        "2 per calendar day",
        "1/min leaky_bucket queue 1",
    ] {
        let app = app(per_ip(quota).unwrap());
        let statuses =
            [status(&app, from(1)).await, status(&app, from(1)).await, status(&app, from(1)).await];
        assert_eq!(statuses, [200, 200, 429], "{quota}");
    }
}

#[tokio::test]
async fn several_limits_are_one_decision() {
    let both = per_ip("3/min fixed_window").unwrap().and(global("4/min fixed_window").unwrap()).unwrap();
    let app = app(both);
    for _ in 0..3 {
        assert_eq!(status(&app, from(1)).await, 200);
    }
    // Denied by its address, so nothing of what all share is charged ...
    for _ in 0..5 {
        assert_eq!(status(&app, from(1)).await, 429);
    }
    // ... and one more is left for others, and then none.
    let response = app.clone().oneshot(from(2)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(field(&response, "ratelimit"), Some("\"per-ip\";r=2;t=60, \"global\";r=0;t=60"));
    assert_eq!(status(&app, from(3)).await, 429);
}

#[tokio::test]
async fn limits_of_one_kind_have_names_of_their_own() {
    let limits = per_ip("9/s fixed_window").unwrap().and(per_ip("9/min fixed_window").unwrap()).unwrap();
    let three = limits.and(per_ip("9/h fixed_window").unwrap()).unwrap();
    let response = app(three).oneshot(from(1)).await.unwrap();
    let told = field(&response, "ratelimit-policy").unwrap();
    assert_eq!(told, "\"per-ip\";q=9;w=1, \"per-ip-2\";q=9;w=60, \"per-ip-3\";q=9;w=3600");
}

#[tokio::test]
async fn headers_and_identities_have_a_quota_for_each_value_and_one_for_all_without() {
    let keys = app(per_header("X-Api-Key", "1/min fixed_window").unwrap());
    for key in ["a", "b"] {
        assert_eq!(status(&keys, with(get("/"), "x-api-key", key)).await, 200);
        assert_eq!(status(&keys, with(get("/"), "x-api-key", key)).await, 429);
    }
    assert_eq!(status(&keys, get("/")).await, 200);
    assert_eq!(status(&keys, get("/")).await, 429, "leaving the header out gains nothing");

    let users = app(per_identity("user", "1/min fixed_window").unwrap());
    let of = |user: &'static str| {
        let mut request = get("/");
        request.extensions_mut().insert(Identity::new().user(user));
        request
    };
    for user in ["ann", "bob"] {
        assert_eq!(status(&users, of(user)).await, 200);
        assert_eq!(status(&users, of(user)).await, 429);
    }
    assert_eq!((status(&users, get("/")).await, status(&users, get("/")).await), (200, 429));
}

#[tokio::test]
async fn a_store_is_shared_and_there_is_one() {
    let shared: Arc<MemoryStore> = store().0;
    let limit = |quota: &str| per_ip(quota).unwrap().store(shared.clone()).unwrap();
    let (first, second, other) = (app(limit("2/min")), app(limit("2/min")), app(limit("5/min")));
    assert_eq!((status(&first, from(1)).await, status(&second, from(1)).await), (200, 200));
    assert_eq!((status(&first, from(1)).await, status(&second, from(1)).await), (429, 429));
    assert_eq!(status(&other, from(1)).await, 200, "other numbers are another counter");
    let apart = app(limit("2/min").service("search").unwrap());
    assert_eq!(status(&apart, from(1)).await, 200, "another service, too");
    // Together they take the only store there is; of two they take none.
    let joined = global("9/s").unwrap().and(limit("2/min")).unwrap();
    assert_eq!(status(&app(joined), from(1)).await, 429);
    let error = limit("2/min").and(global("9/s").unwrap().store(store().0).unwrap()).unwrap_err();
    assert!(error.to_string().contains("two stores for one decision"), "{error}");
}

#[tokio::test]
async fn proxies_are_believed_if_they_are_named() {
    let limits = per_ip("1/min").unwrap().trusted_proxies(["192.0.2.0/24"]).unwrap();
    let app = app(limits);
    let through = |client| with(from(1), "x-forwarded-for", client);
    assert_eq!(status(&app, through("203.0.113.1")).await, 200);
    assert_eq!(status(&app, through("203.0.113.2")).await, 200);
    assert_eq!(status(&app, through("203.0.113.1")).await, 429);
}

#[tokio::test]
async fn any_tower_service_takes_them() {
    let limits = ratekeeper_web::tower::per_ip("1/min").unwrap();
    let service = tower::service_fn(|_: Request<ratekeeper_web::tower::RequestBody<Body>>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()))
    });
    let service = limits.layer(service);
    let ask = || {
        let mut request = get("/");
        request.extensions_mut().insert(Peer([192, 0, 2, 1].into()));
        service.clone().oneshot(request)
    };
    assert_eq!(ask().await.unwrap().status(), 200);
    assert_eq!(ask().await.unwrap().status(), 429);
}

#[test]
fn mistakes_are_errors_that_say_what_would_be_right() {
    let told = |made: Result<Limited<Axum>, ratekeeper::InvalidInput>| made.unwrap_err().to_string();
    for (error, part) in [
        (told(per_ip("10 a second")), "quota"),
        (told(per_header("not a name", "1/s")), "header"),
        (told(per_identity("", "1/s")), "identity"),
        (told(per_ip("1/s").unwrap().trusted_proxies(["10.0.0.0/99"])), "10.0.0.0/99"),
        (told(per_ip("1/s").unwrap().service("a/b")), "service"),
    ] {
        assert!(error.contains(part) && error.contains("expected"), "{part}: {error}");
    }
    let error = Gate::from_toml(store().0, "service = 'a'\n[[rules]]\nname = 'r'\nqouta = '1/s'\n");
    let error = error.unwrap_err().to_string();
    assert!(error.contains("qouta") && error.contains(":4:"), "{error}");
}
