//! Rules that look into bodies, and bodies that reach the handler whole.

use std::time::Duration;

use actix_web::error::PayloadError;
use actix_web::http::StatusCode;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, HttpMessage as _, web};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use ratekeeper_web::Gate;
use ratekeeper_web::actix::RateLimit;

use crate::remote::Remote;
use crate::support::{field, fields, gate, gate_on, text};

const ITEMS: &str = "[[rules]]\nname = 'items'\nwhen = \"route == '/sum'\"\nkeys = 'tenant:{body.tenant}'\n\
                     quota = '5/60s fixed_window'\ncost = 'size(body.items)'\n";
const BODY: &str = r#"{"tenant":"a","items":[1,2,3]}"#;

/// An app whose handlers say what they were sent.
macro_rules! echo {
    ($gate:expr) => {
        init_service(
            App::new()
                .app_data(web::PayloadConfig::new(10 << 20))
                .wrap(RateLimit::new($gate))
                .route("/sum", web::post().to(|body: Bytes| async move { body }))
                .route("/other", web::post().to(|body: Bytes| async move { body })),
        )
        .await
    };
}

fn post(path: &str, content_type: &'static str, body: impl Into<Bytes>) -> TestRequest {
    TestRequest::post().uri(path).insert_header(("content-type", content_type)).set_payload(body)
}

fn stores() -> [Gate; 2] {
    [gate(ITEMS), gate_on(Remote::new(), ITEMS)]
}

#[actix_web::test]
async fn rules_look_into_bodies_and_the_handler_gets_them_whole() {
    for gate in stores() {
        let app = echo!(gate.body_bytes_max(1_000));
        let ask = |body: &str| post("/sum", "application/json; charset=utf-8", body.to_owned()).to_request();
        let response = call_service(&app, ask(BODY)).await;
        assert_eq!(field(&response, "ratelimit"), Some(r#""items";r=2;t=60"#));
        assert_eq!(text(response).await, BODY);
        assert_eq!(call_service(&app, ask(BODY)).await.status(), StatusCode::TOO_MANY_REQUESTS);
        let fits = r#"{"tenant":"a","items":[1]}"#;
        assert_eq!(text(call_service(&app, ask(fits)).await).await, fits);
    }
}

/// Neither JSON nor short enough: no key, so no limit, and the handler gets all of it.
#[actix_web::test]
async fn bodies_that_cannot_be_looked_into_are_no_key() {
    let app = echo!(gate(ITEMS).body_bytes_max(1_000));
    let long = format!(r#"{{"tenant":"a","items":[],"x":"{}"}}"#, "x".repeat(2_000));
    let odd: [(&str, &str, &[u8]); 7] = [
        ("/sum", "application/json", b"{"),
        ("/sum", "application/json", b"\xff\xfe\x00"),
        ("/sum", "application/json", b""),
        ("/sum", "application/json", long.as_bytes()),
        ("/sum", "text/plain", BODY.as_bytes()),
        ("/sum", "\u{1f980}", BODY.as_bytes()),
        ("/other", "application/json", BODY.as_bytes()),
    ];
    for (path, content_type, body) in odd {
        let request = TestRequest::post().uri(path).set_payload(Bytes::copy_from_slice(body));
        let value = actix_web::http::header::HeaderValue::from_bytes(content_type.as_bytes()).unwrap();
        let request = request.insert_header((actix_web::http::header::CONTENT_TYPE, value));
        let response = call_service(&app, request.to_request()).await;
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, 0), "{content_type}");
        assert_eq!(actix_web::test::read_body(response).await, body);
    }
}

/// JSON that is nested deeper than anybody reads is as good as none.
#[actix_web::test]
async fn deep_json_is_no_key_and_no_trouble() {
    let app = echo!(gate(ITEMS));
    let deep = "[".repeat(100_000);
    let response = call_service(&app, post("/sum", "application/json", deep.clone()).to_request()).await;
    assert_eq!((response.status(), fields(&response)), (StatusCode::OK, 0));
    assert_eq!(text(response).await, deep);
}

/// A body in chunks of unknown number: `None` is where it stops for a while.
fn chunks(parts: Vec<Option<Result<Bytes, PayloadError>>>) -> actix_web::dev::Payload {
    let parts = stream::iter(parts).then(async |part| match part {
        Some(part) => Some(part),
        None => {
            tokio::time::sleep(Duration::from_millis(200)).await;
            None
        }
    });
    actix_web::dev::Payload::Stream { payload: Box::pin(parts.filter_map(std::future::ready)) }
}

/// What the handler gets of a streamed body, and what is told about limits.
async fn streamed(gate: Gate, body: actix_web::dev::Payload) -> (Result<Bytes, String>, usize) {
    use actix_web::dev::{Service as _, ServiceRequest, Transform as _, fn_service};
    let handler = fn_service(async |mut request: ServiceRequest| {
        let mut body = request.take_payload();
        let mut all: Vec<u8> = Vec::new();
        while let Some(part) = body.next().await {
            match part {
                Ok(part) => all.extend_from_slice(&part),
                Err(error) => {
                    let said = actix_web::HttpResponse::BadRequest().body(error.to_string());
                    return Ok::<_, actix_web::Error>(request.into_response(said));
                }
            }
        }
        Ok(request.into_response(actix_web::HttpResponse::Ok().body(all)))
    });
    let service = RateLimit::new(gate).new_transform(handler).await.unwrap();
    let mut request = TestRequest::post().uri("/sum").insert_header(("content-type", "application/json"));
    request = request.insert_header(("transfer-encoding", "chunked"));
    let mut request = request.to_srv_request();
    request.set_payload(body);
    let response = service.call(request).await.unwrap();
    let (status, told) = (response.status(), fields(&response));
    let body = actix_web::test::read_body(response).await;
    (if status == 200 { Ok(body) } else { Err(String::from_utf8(body.to_vec()).unwrap()) }, told)
}

const ANY: &str = "[[rules]]\nname = 'tenants'\nkeys = 'tenant:{body.tenant}'\nquota = '5/60s'\n";

#[actix_web::test]
async fn nobody_waits_for_a_slow_body_longer_than_allowed() {
    // Then the shorter wait always ends first, however busy the machine is.
    tokio::time::pause();
    let parts = || {
        let (first, last) = BODY.split_at(10);
        chunks(vec![Some(Ok(first.into())), None, Some(Ok(last.into()))])
    };
    let (body, told) = streamed(gate(ANY).body_wait(Duration::from_millis(20)), parts()).await;
    assert_eq!((body.unwrap(), told), (Bytes::from(BODY), 0));
    let (body, told) = streamed(gate(ANY).body_wait(Duration::from_secs(20)), parts()).await;
    assert_eq!((body.unwrap(), told), (Bytes::from(BODY), 2));
}

/// Of JSON that would be a key, were it read to its end: what is told says how much was read.
#[actix_web::test]
async fn of_a_long_body_no_more_is_read_than_allowed() {
    let padding = (0..20).map(|_| Some(Ok(Bytes::from_static(&[b' '; 1_000]))));
    let parts = || padding.clone().chain([Some(Ok(BODY.into()))]).collect();
    for (max, told) in [(20_000, 0), (20_000 + BODY.len(), 2)] {
        let (body, found) = streamed(gate(ANY).body_bytes_max(max), chunks(parts())).await;
        assert_eq!((body.unwrap().len(), found), (20_000 + BODY.len(), told), "at most {max}");
    }
}

#[actix_web::test]
async fn an_error_in_a_body_is_the_handlers_to_see() {
    let parts = chunks(vec![Some(Ok("{".into())), Some(Err(PayloadError::Overflow))]);
    let (body, told) = streamed(gate(ANY), parts).await;
    assert_eq!((body.unwrap_err(), told), (PayloadError::Overflow.to_string(), 0));
}
