//! Several middlewares around one handler, routes, and what handlers hand up.

use actix_web::error::ErrorUnauthorized;
use actix_web::http::StatusCode;
use actix_web::middleware::from_fn;
use actix_web::test::{TestRequest, call_service, init_service, try_call_service};
use actix_web::{App, web};
use ratekeeper_web::HttpOptions;
use ratekeeper_web::actix::RateLimit;

use crate::support::{ONE_AT_A_TIME, field, fields, gate};

fn rule(name: &str, limit: u32) -> String {
    format!("[[rules]]\nname = '{name}'\nkeys = 'all'\nquota = '{limit}/60s fixed_window'\n")
}

#[actix_web::test]
async fn nested_middlewares_tell_everything_once_in_the_words_of_the_outermost() {
    let inner = RateLimit::new(gate(&rule("inner", 1)).options(HttpOptions::without_fields()));
    let app = App::new()
        .wrap(RateLimit::new(gate(&rule("outer", 9))))
        .service(web::scope("/in").wrap(inner).route("", web::get().to(|| async { "ok" })))
        .route("/out", web::get().to(|| async { "ok" }));
    let app = init_service(app).await;
    let ask = |path: &str| call_service(&app, TestRequest::get().uri(path).to_request());

    let allowed = ask("/in").await;
    assert_eq!(field(&allowed, "ratelimit-policy"), Some(r#""outer";q=9;w=60, "inner";q=1;w=60"#));
    assert_eq!(field(&allowed, "ratelimit"), Some(r#""outer";r=8;t=60, "inner";r=0;t=60"#));
    let denied = ask("/in").await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&denied, "ratelimit"), Some(r#""outer";r=7;t=60, "inner";r=0;t=60"#));
    assert_eq!(denied.headers().get_all("ratelimit").count(), 1);
    assert_eq!(field(&ask("/out").await, "ratelimit"), Some(r#""outer";r=6;t=60"#));
}

#[actix_web::test]
async fn what_the_outer_one_denies_the_inner_one_does_not_count() {
    let inner = std::sync::Arc::new(gate(&rule("inner", 9)));
    let app = App::new().wrap(RateLimit::new(std::sync::Arc::clone(&inner)));
    let app = app.wrap(RateLimit::new(gate(&rule("outer", 1)))).route("/", web::get().to(|| async { "ok" }));
    let app = init_service(app).await;
    for _ in 0..3 {
        call_service(&app, TestRequest::get().uri("/").to_request()).await;
    }
    assert_eq!(inner.counts().allowed, 1);
}

/// The route is known around an app, a scope and a resource, whatever the path is.
#[actix_web::test]
async fn the_matched_route_is_the_endpoint_wherever_the_middleware_is() {
    let rules = "[[rules]]\nname = 'per-route'\nwhen = \"route == '/api/users/{id}'\"\nkeys = 'r:{route}'\n\
                 quota = '9/60s fixed_window'\n";
    let user = || web::resource("/users/{id}").route(web::get().to(|| async { "ok" }));
    let limit = || RateLimit::new(gate(rules));
    let around_app = init_service(App::new().wrap(limit()).service(web::scope("/api").service(user()))).await;
    let around_scope =
        init_service(App::new().service(web::scope("/api").wrap(limit()).service(user()))).await;
    let around_resource =
        init_service(App::new().service(web::scope("/api").service(user().wrap(limit())))).await;
    for (id, left) in [(1, 8), (2, 7)] {
        let request = || TestRequest::get().uri(&format!("/api/users/{id}?a=b")).to_request();
        let told = format!(r#""per-route";r={left};t=60"#);
        let responses = [
            call_service(&around_app, request()).await.map_into_boxed_body(),
            call_service(&around_scope, request()).await.map_into_boxed_body(),
            call_service(&around_resource, request()).await.map_into_boxed_body(),
        ];
        for response in responses {
            assert_eq!(field(&response, "ratelimit"), Some(told.as_str()));
        }
    }
    let missing = call_service(&around_app, TestRequest::get().uri("/api/nobody").to_request()).await;
    assert_eq!((missing.status(), fields(&missing)), (StatusCode::NOT_FOUND, 0));
}

#[actix_web::test]
async fn errors_that_are_handed_up_go_up_as_they_are_and_hold_nothing() {
    let app = App::new()
        .wrap(from_fn(
            async |request: actix_web::dev::ServiceRequest, next: actix_web::middleware::Next<_>| {
                match request.path() {
                    "/wrong" => Err(ErrorUnauthorized("who are you")),
                    _ => next.call(request).await,
                }
            },
        ))
        .wrap(RateLimit::new(gate(ONE_AT_A_TIME)))
        .route("/", web::get().to(|| async { "ok" }))
        .route("/fails", web::get().to(|| async { Err::<&str, _>(ErrorUnauthorized("not you")) }));
    let app = init_service(app).await;
    for _ in 0..2 {
        let error =
            try_call_service(&app, TestRequest::get().uri("/wrong").to_request()).await.err().unwrap();
        assert_eq!(error.to_string(), "who are you");
    }
    // What a handler returns is a response by the time it comes by.
    let failed = call_service(&app, TestRequest::get().uri("/fails").to_request()).await;
    assert_eq!((failed.status(), fields(&failed)), (StatusCode::UNAUTHORIZED, 2));
}
