//! Limits in one line, in front of actix-web.

use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, web};
use ratekeeper_web::OnMissingAddress;
use ratekeeper_web::actix::{global, per_header, per_ip};

/// The status of a request from an address, or from nowhere, with a header if there is one.
macro_rules! status {
    ($app:expr, $address:expr, $key:expr) => {{
        let (address, key): (Option<&str>, Option<&str>) = ($address, $key);
        let mut request = TestRequest::get().uri("/");
        if let Some(address) = address {
            request = request.peer_addr(address.parse().unwrap());
        }
        if let Some(key) = key {
            request = request.insert_header(("x-api-key", key));
        }
        call_service(&$app, request.to_request()).await.status().as_u16()
    }};
}

macro_rules! app {
    ($limits:expr) => {
        init_service(App::new().wrap($limits).route("/", web::get().to(|| async { "ok" }))).await
    };
}

#[actix_web::test]
async fn one_line_limits_each_address() {
    let app = app!(per_ip("1/min").unwrap());
    assert_eq!(status!(app, Some("192.0.2.1:4000"), None), 200);
    assert_eq!(status!(app, Some("192.0.2.1:4001"), None), 429);
    assert_eq!(status!(app, Some("192.0.2.2:4000"), None), 200);
}

#[actix_web::test]
async fn without_an_address_requests_are_refused_unless_they_may_pass() {
    let limits = per_ip("1/min").unwrap();
    let strict = app!(limits.clone());
    assert_eq!(status!(strict, None, None), 500);
    let lax = app!(limits.on_missing_address(OnMissingAddress::Pass).unwrap());
    assert_eq!((status!(lax, None, None), status!(lax, None, None)), (200, 200));
}

#[actix_web::test]
async fn several_limits_are_one_decision() {
    let both = per_header("x-api-key", "1/min").unwrap().and(global("2/min fixed_window").unwrap()).unwrap();
    let app = app!(both);
    assert_eq!(status!(app, None, Some("a")), 200);
    for _ in 0..3 {
        assert_eq!(status!(app, None, Some("a")), 429, "nothing of what all share is charged");
    }
    assert_eq!(status!(app, None, Some("b")), 200);
    assert_eq!(status!(app, None, Some("c")), 429);
}
