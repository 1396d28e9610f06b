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

/// Whatever it says it is, a body is looked into, and one that cannot be read is no absence: its cost fails, and is
/// all there is. The handler gets all of it.
#[actix_web::test]
async fn bodies_that_cannot_be_read_are_no_absence() {
    let long = format!(r#"{{"tenant":"a","items":[],"x":"{}"}}"#, "x".repeat(2_000));
    let deep = "[".repeat(900);
    let (read, unreadable) = (Some(r#""items";r=2;t=60"#), Some(r#""items";r=0;t=60"#));
    let odd: [(&str, &str, &[u8], Option<&str>); 12] = [
        ("/sum", "application/json", b"{", unreadable),
        ("/sum", "application/json", b"\xff\xfe\x00", unreadable),
        ("/sum", "application/json", br#"{"tenant":"a","items":[1e999]}"#, unreadable),
        ("/sum", "application/json", br#"{"tenant":"\ud800","items":[]}"#, unreadable),
        ("/sum", "application/json", deep.as_bytes(), unreadable),
        ("/sum", "application/json", long.as_bytes(), unreadable),
        ("/sum", "image/png", BODY.as_bytes(), unreadable),
        ("/sum", "application/json", b"", None),
        ("/sum", "text/plain", BODY.as_bytes(), read),
        ("/sum", "\u{1f980}", BODY.as_bytes(), read),
        ("/sum", "", BODY.as_bytes(), read),
        ("/other", "application/json", BODY.as_bytes(), None),
    ];
    for (path, content_type, body, expected) in odd {
        let app = echo!(gate(ITEMS).body_bytes_max(1_000));
        let mut request = TestRequest::post().uri(path).set_payload(Bytes::copy_from_slice(body));
        if !content_type.is_empty() {
            let value = actix_web::http::header::HeaderValue::from_bytes(content_type.as_bytes()).unwrap();
            request = request.insert_header((actix_web::http::header::CONTENT_TYPE, value));
        }
        let response = call_service(&app, request.to_request()).await;
        assert_eq!(
            (response.status(), field(&response, "ratelimit")),
            (StatusCode::OK, expected),
            "{content_type}"
        );
        assert_eq!(actix_web::test::read_body(response).await, body);
    }
}

/// More work than one request may be is denied whole, with a reason of its own; a rule that only watches denies nothing.
#[actix_web::test]
async fn a_request_beyond_its_budget_is_denied_whole() {
    let rules = "[[rules]]\nname = 'tags'\nwhen = \"has(body.tags) && body.tags.exists(t, t == 'x')\"\nkeys = 'all'\n\
                 quota = '9/60s'\n[[rules]]\nname = 'all'\nkeys = 'all'\nquota = '9/60s fixed_window'\n";
    let zeros = format!("{{\"tags\":[{}0]}}", "0,".repeat(30_000));
    for gate in [gate(rules), gate_on(Remote::new(), rules)] {
        let app = echo!(gate);
        let denied = call_service(&app, post("/sum", "application/json", zeros.clone()).to_request()).await;
        assert_eq!((denied.status(), fields(&denied)), (StatusCode::TOO_MANY_REQUESTS, 0));
        let told = text(denied).await;
        assert!(told.contains(r#""reason":"condition_budget""#) && told.contains("abnormal-usage"), "{told}");
        let next = call_service(&app, post("/sum", "application/json", "{}").to_request()).await;
        assert_eq!(field(&next, "ratelimit"), Some(r#""all";r=8;t=60"#), "nothing was charged");
    }
    let watching = echo!(gate(&rules.replacen("keys", "mode = 'monitor'\nkeys", 1)));
    let passed = call_service(&watching, post("/sum", "application/json", zeros).to_request()).await;
    assert_eq!(field(&passed, "ratelimit"), Some(r#""all";r=8;t=60"#));
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
    assert_eq!((body.unwrap(), told), (Bytes::from(BODY), 2), "it counts as one that cannot be read");
    let (body, told) = streamed(gate(ANY).body_wait(Duration::from_secs(20)), parts()).await;
    assert_eq!((body.unwrap(), told), (Bytes::from(BODY), 2));
}

/// The rule is about bodies without a tenant, or none that can be read: what is told says how much was read.
#[actix_web::test]
async fn of_a_long_body_no_more_is_read_than_allowed() {
    let padding = (0..20).map(|_| Some(Ok(Bytes::from_static(&[b' '; 1_000]))));
    let parts = || padding.clone().chain([Some(Ok(BODY.into()))]).collect();
    let rule = format!("{ANY}when = \"!has(body.tenant)\"\n");
    for (max, told) in [(20_000, 2), (20_000 + BODY.len(), 0)] {
        let (body, found) = streamed(gate(&rule).body_bytes_max(max), chunks(parts())).await;
        assert_eq!((body.unwrap().len(), found), (20_000 + BODY.len(), told), "at most {max}");
    }
}

#[actix_web::test]
async fn an_error_in_a_body_is_the_handlers_to_see() {
    let parts = chunks(vec![Some(Ok("{".into())), Some(Err(PayloadError::Overflow))]);
    let (body, told) = streamed(gate(ANY), parts).await;
    assert_eq!((body.unwrap_err(), told), (PayloadError::Overflow.to_string(), 2));
}
