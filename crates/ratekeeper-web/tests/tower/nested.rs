//! Layers within layers, limits of single routes, routers within routers.

use axum::Router;
use axum::body::Body;
use axum::routing::{get as on_get, post};
use http::{Request, StatusCode};
use ratekeeper_web::axum::rate_limit;
use ratekeeper_web::ready::PathLimit;
use ratekeeper_web::{HttpOptions, Legacy};
use tower::ServiceExt as _;

use super::{Remote, field, fields, gate, gate_on, get, store, text};

fn rule(name: &str, quota: &str) -> String {
    format!("[[rules]]\nname = '{name}'\nkeys = 'all'\nquota = '{quota} fixed_window'\n")
}

#[tokio::test]
async fn nested_layers_tell_everything_once_and_in_one_order() {
    for remote in [false, true] {
        let gate_of = |rules: &str| match remote {
            true => gate_on(Remote::new(), rules),
            false => gate(rules).0,
        };
        let (inner, outer) = (gate_of(&rule("inner", "2/60s")), gate_of(&rule("outer", "9/60s")));
        let app = Router::new()
            .route("/", on_get(|| async { "ok" }))
            .layer(rate_limit(inner))
            .layer(rate_limit(outer));
        for left in [1, 0] {
            let response = app.clone().oneshot(get("/")).await.unwrap();
            assert_eq!(field(&response, "ratelimit-policy"), Some(r#""outer";q=9;w=60, "inner";q=2;w=60"#));
            let told = format!(r#""outer";r={};t=60, "inner";r={left};t=60"#, left + 7);
            assert_eq!(field(&response, "ratelimit"), Some(told.as_str()));
            assert_eq!(response.headers().get_all("ratelimit").iter().count(), 1);
        }
        let denied = app.oneshot(get("/")).await.unwrap();
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&denied, "ratelimit"), Some(r#""outer";r=6;t=60, "inner";r=0;t=60"#));
        assert_eq!(field(&denied, "retry-after"), Some("60"));
        assert!(text(denied).await.contains(r#""violated-policies":["inner"]"#));
    }
}

#[tokio::test]
async fn the_outermost_layer_says_in_which_words() {
    let options = HttpOptions::default().without_standard().legacy(Legacy::XRateLimit);
    let app = Router::new()
        .route("/", on_get(|| async { "ok" }))
        .layer(rate_limit(gate(&rule("inner", "2/60s")).0))
        .layer(rate_limit(gate(&rule("outer", "9/60s")).0.options(options)));
    let response = app.oneshot(get("/")).await.unwrap();
    assert_eq!(fields(&response), ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]);
    assert_eq!(field(&response, "x-ratelimit-limit"), Some("2"), "of the last policy");
}

#[tokio::test]
async fn what_the_outer_layer_denies_the_inner_one_does_not_count() {
    let inner = std::sync::Arc::new(gate(&rule("inner", "9/60s")).0);
    let app = Router::new()
        .route("/", on_get(|| async { "ok" }))
        .layer(rate_limit(inner.clone()))
        .layer(rate_limit(gate(&rule("outer", "1/60s")).0));
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(app.clone().oneshot(get("/")).await.unwrap().status(), status);
    }
    assert_eq!((inner.counts().allowed, inner.counts().denied), (1, 0));
}

#[tokio::test]
async fn a_route_has_limits_of_its_own_and_so_has_a_method() {
    let app = Router::new()
        .route("/dear", on_get(|| async { "ok" }))
        .route_layer(rate_limit(gate(&rule("dear", "1/60s")).0))
        .route(
            "/mixed",
            on_get(|| async { "ok" })
                .merge(post(|| async { "ok" }).layer(rate_limit(gate(&rule("writes", "1/60s")).0))),
        )
        .route("/cheap", on_get(|| async { "ok" }));
    let status = async |request: Request<Body>| app.clone().oneshot(request).await.unwrap().status();
    let post = || Request::post("/mixed").body(Body::empty()).unwrap();
    assert_eq!((status(get("/dear")).await, status(get("/dear")).await.as_u16()), (StatusCode::OK, 429));
    assert_eq!((status(post()).await, status(post()).await.as_u16()), (StatusCode::OK, 429));
    for path in ["/cheap", "/mixed"] {
        let response = app.clone().oneshot(get(path)).await.unwrap();
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]), "{path}");
    }
    assert_eq!(status(get("/nowhere")).await, StatusCode::NOT_FOUND, "no route, no limit of a route");
}

/// Where the layer stands must not change what a rule calls the endpoint.
#[tokio::test]
async fn routers_within_routers_have_the_route_and_the_path_that_were_asked_for() {
    let rules = "[[rules]]\nname = 'routes'\nkeys = 'r:{route}:{path}'\nquota = '1/60s fixed_window'\n";
    for inside in [true, false] {
        let layer = rate_limit(gate(rules).0);
        let items = Router::new().route("/items/{id}", on_get(|| async { "ok" }));
        let items = if inside { items.layer(layer.clone()) } else { items };
        let app = Router::new().nest("/a", items.clone()).nest("/b", items);
        let app = if inside { app } else { app.layer(layer) };
        let asks = [("/a/items/1", 200), ("/b/items/1", 200), ("/a/items/2", 200), ("/a/items/1", 429)];
        for (path, status) in asks {
            assert_eq!(app.clone().oneshot(get(path)).await.unwrap().status(), status, "{path}, {inside}");
        }
    }
    let exact = "[[rules]]\nname = 'exact'\nwhen = \"route == '/a/items/{id}'\"\nkeys = 'all'\n\
                 quota = '1/60s fixed_window'\n";
    let items = Router::new().route("/items/{id}", on_get(|| async { "ok" }));
    let app = Router::new().nest("/a", items.layer(rate_limit(gate(exact).0)));
    let response = app.oneshot(get("/a/items/7")).await.unwrap();
    assert_eq!(field(&response, "ratelimit"), Some(r#""exact";r=0;t=60"#));
}

#[tokio::test]
async fn one_path_in_two_routers_is_two_paths() {
    let layer = rate_limit(PathLimit::new(1).gate(store().0).unwrap());
    let hooks = Router::new().route("/hook", on_get(|| async { "ok" })).layer(layer);
    let app = Router::new().nest("/a", hooks.clone()).nest("/b", hooks);
    for (path, status) in [("/a/hook", 200), ("/b/hook", 200), ("/b/hook", 429)] {
        assert_eq!(app.clone().oneshot(get(path)).await.unwrap().status(), status, "{path}");
    }
}
