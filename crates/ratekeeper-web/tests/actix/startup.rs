//! Mistakes in how a service is set up: one warning each. What is looked at is the same for
//! all frameworks; this is about what actix-web's requests tell.

use std::net::SocketAddr;

use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, web};
use ratekeeper_web::Gate;
use ratekeeper_web::actix::RateLimit;

use crate::support::gate;
use crate::traces::Traces;

const BY_CLIENT: &str = "[[rules]]\nname = 'clients'\nkeys = 'ip:{client.ip}'\nquota = '1000000/s'\n";

async fn ask(gate: Gate, requests: impl Iterator<Item = TestRequest>) {
    let app = App::new().wrap(RateLimit::new(gate)).route("/", web::get().to(|| async { "ok" }));
    let app = init_service(app).await;
    for request in requests {
        call_service(&app, request.uri("/").to_request()).await;
    }
}

fn from(last: u8) -> TestRequest {
    TestRequest::get().peer_addr(SocketAddr::from(([192, 0, 2, last], 4_000)))
}

#[actix_web::test]
async fn proxies_that_nobody_trusts_are_told_once() {
    let (traces, _guard) = Traces::start();
    let through_a_proxy = (0..20).map(|last| from(last).insert_header(("x-forwarded-for", "203.0.113.7")));
    ask(gate(BY_CLIENT), through_a_proxy).await;
    let told = traces.with("`trusted_proxies` names none");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("WARN") && told[0].contains("x-forwarded-for"));
}

#[actix_web::test]
async fn one_address_for_everybody_is_told_once_and_several_are_nothing_to_tell() {
    let (traces, _guard) = Traces::start();
    ask(gate(BY_CLIENT), (0..1_100).map(|number| from((number % 2) as u8))).await;
    assert!(traces.with("WARN").is_empty(), "{:?}", traces.with("WARN"));
    ask(gate(BY_CLIENT), (0..2_000).map(|_| from(1))).await;
    assert_eq!(traces.with("from one address").len(), 1);
}

#[actix_web::test]
async fn requests_without_an_address_are_told_once() {
    let (traces, _guard) = Traces::start();
    ask(gate(BY_CLIENT), (0..20).map(|_| TestRequest::get())).await;
    assert_eq!(traces.with("requests come without one").len(), 1);
}
