//! Fields, denials, modes and what is held.

use std::rc::Rc;

use actix_web::dev::Service as _;
use actix_web::http::StatusCode;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, HttpResponse, web};
use ratekeeper_web::actix::RateLimit;
use ratekeeper_web::{Body, HttpOptions, Legacy};

use crate::remote::Remote;
use crate::support::{ONE_AT_A_TIME, TWO, field, fields, gate, gate_on, text};

fn get(path: &str) -> TestRequest {
    TestRequest::get().uri(path)
}

#[actix_web::test]
async fn every_response_carries_the_fields_and_a_denial_says_when_to_come_back() {
    let app = App::new().wrap(RateLimit::new(gate(TWO))).route("/", web::get().to(|| async { "ok" }));
    let app = init_service(app).await;
    for left in [1, 0] {
        let response = call_service(&app, get("/").to_request()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(field(&response, "ratelimit-policy"), Some(r#""all";q=2;w=60"#));
        assert_eq!(field(&response, "ratelimit"), Some(format!(r#""all";r={left};t=60"#).as_str()));
        assert_eq!(field(&response, "retry-after"), None);
        assert_eq!(text(response).await, "ok");
    }
    let response = call_service(&app, get("/").to_request()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&response, "retry-after"), Some("60"));
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
    assert_eq!(field(&response, "ratelimit-policy"), Some(r#""all";q=2;w=60"#));
    assert_eq!(field(&response, "ratelimit"), Some(r#""all";r=0;t=60"#));
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!((&problem["status"], &problem["violated-policies"][0]), (&429.into(), &"all".into()));
}

#[actix_web::test]
async fn legacy_fields_and_bodies_are_sent_by_switch() {
    for (legacy, prefix) in [(Legacy::RateLimit, ""), (Legacy::XRateLimit, "x-")] {
        let options = HttpOptions::without_fields().legacy(legacy).body(Body::Detail);
        let app = App::new().wrap(RateLimit::new(gate(TWO).options(options)));
        let app = init_service(app.route("/", web::get().to(|| async { "ok" }))).await;
        for (left, status) in [("1", 200), ("0", 200), ("0", 429)] {
            let response = call_service(&app, get("/").to_request()).await;
            assert_eq!(response.status(), status);
            for (name, expected) in [("limit", "2"), ("remaining", left), ("reset", "60")] {
                assert_eq!(field(&response, &format!("{prefix}ratelimit-{name}")), Some(expected));
            }
            assert_eq!(field(&response, "ratelimit"), None);
            if status == 429 {
                assert_eq!(text(response).await, r#"{"detail": "Rate limit exceeded. Try again later."}"#);
            }
        }
    }
}

#[actix_web::test]
async fn what_only_watches_is_told_and_what_is_off_is_not() {
    for (mode, told) in [("monitor", 2), ("off", 0)] {
        let rules = format!("{TWO}mode = '{mode}'\n");
        let app = App::new().wrap(RateLimit::new(gate(&rules)));
        let app = init_service(app.route("/", web::get().to(|| async { "ok" }))).await;
        for _ in 0..4 {
            let response = call_service(&app, get("/").to_request()).await;
            assert_eq!((response.status(), fields(&response)), (StatusCode::OK, told), "{mode}");
        }
    }
}

#[actix_web::test]
async fn redirections_and_what_met_no_rule_carry_no_fields() {
    let rules = "[[rules]]\nname = 'all'\nwhen = \"path != '/free'\"\nkeys = 'all'\nquota = '100/60s'\n";
    let status =
        |status: web::Path<u16>| async move { HttpResponse::new(StatusCode::from_u16(*status).unwrap()) };
    let app = App::new().wrap(RateLimit::new(gate(rules)));
    let app = app.route("/free", web::get().to(|| async { "ok" })).route("/{status}", web::get().to(status));
    let app = init_service(app).await;
    for (path, status, told) in [
        ("/204", 204, 2),
        ("/301", 301, 0),
        ("/304", 304, 0),
        ("/500", 500, 2),
        ("/free", 200, 0),
        ("/a/b", 404, 2),
    ] {
        let response = call_service(&app, get(path).to_request()).await;
        assert_eq!((response.status().as_u16(), fields(&response)), (status, told), "{path}");
    }
}

/// Places are given back however a request ends, on stores with and without I/O.
#[actix_web::test]
async fn places_come_back_when_the_response_has_been_sent_or_dropped() {
    for gate in [gate(ONE_AT_A_TIME), gate_on(Remote::new(), ONE_AT_A_TIME)] {
        async fn panics() -> &'static str {
            panic!("this panic is part of the test")
        }
        let app = App::new().wrap(RateLimit::new(gate));
        let app = app.route("/", web::get().to(|| async { "ok" })).route("/panic", web::get().to(panics));
        let app = Rc::new(init_service(app).await);
        let status = async || {
            let status = call_service(&*app, get("/").to_request()).await.status();
            // A store that takes I/O gets the place back in the background.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            status
        };
        let first = call_service(&*app, get("/").to_request()).await;
        assert_eq!((first.status(), status().await), (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS));
        // Whoever takes the bytes out at once does not let go of the place.
        let boxed = first.map_into_boxed_body();
        assert_eq!(status().await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(text(boxed).await, "ok");
        assert_eq!(status().await, StatusCode::OK);
        drop(call_service(&*app, get("/").to_request()).await);
        assert_eq!(status().await, StatusCode::OK);

        let panicking = Rc::clone(&app);
        let panicked =
            actix_web::rt::spawn(async move { panicking.call(get("/panic").to_request()).await.is_ok() })
                .await;
        assert!(panicked.unwrap_err().is_panic());
        assert_eq!(status().await, StatusCode::OK);
    }
}

#[actix_web::test]
async fn a_request_that_is_cut_off_gives_its_place_back() {
    let app = App::new().wrap(RateLimit::new(gate(ONE_AT_A_TIME)));
    let app = app
        .route("/", web::get().to(|| async { "ok" }))
        .route("/wait", web::get().to(|| async { std::future::pending::<&str>().await }));
    let app = init_service(app).await;
    let mut waiting = Box::pin(app.call(get("/wait").to_request()));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    assert_eq!(call_service(&app, get("/").to_request()).await.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(waiting);
    assert_eq!(call_service(&app, get("/").to_request()).await.status(), StatusCode::OK);
}
