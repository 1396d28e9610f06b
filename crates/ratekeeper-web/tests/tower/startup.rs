//! Mistakes in how a service is set up: one warning each.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get as on_get;
use http::Request;
use ratekeeper_web::Gate;
use ratekeeper_web::tower::{Peer, RateLimitLayer, Route};
use tower::{Layer as _, ServiceExt as _};

use super::{Traces, gate, get};

const BY_CLIENT: &str = "[[rules]]\nname = 'clients'\nkeys = 'ip:{client.ip}'\nquota = '1000000/s'\n";

async fn ask(gate: Gate, requests: impl Iterator<Item = Request<Body>>) {
    let app = Router::new().route("/", on_get(|| async { "ok" }));
    let limited =
        RateLimitLayer::new(gate).layer(app.into_service::<ratekeeper_web::tower::RequestBody<Body>>());
    for request in requests {
        limited.clone().oneshot(request).await.unwrap();
    }
}

fn from(last: u8) -> Request<Body> {
    let mut request = get("/");
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, last], 4_000))));
    request
}

#[tokio::test]
async fn proxies_that_nobody_trusts_are_told_once() {
    for header in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        let (traces, _guard) = Traces::start();
        let through_a_proxy = (0..20).map(|last| {
            let mut request = from(last);
            request.headers_mut().insert(header, "203.0.113.7".parse().unwrap());
            request
        });
        ask(gate(BY_CLIENT).0, through_a_proxy).await;
        let told = traces.with("`trusted_proxies` names none");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("WARN") && told[0].contains(header));
    }
}

#[tokio::test]
async fn trusted_proxies_and_clients_without_one_are_nothing_to_tell() {
    let (traces, _guard) = Traces::start();
    let trusting = format!("trusted_proxies = ['192.0.2.0/24']\n{BY_CLIENT}");
    let through_a_proxy = (0..100).map(|last| {
        let mut request = from(1);
        request.headers_mut().insert("x-forwarded-for", format!("203.0.113.{last}").parse().unwrap());
        request
    });
    ask(gate(&trusting).0, through_a_proxy.chain((0..1_000).map(|_| from(1)))).await;
    ask(gate(BY_CLIENT).0, (0..1_100).map(|number| from((number % 2) as u8))).await;
    assert!(traces.with("WARN").is_empty(), "{:?}", traces.with("WARN"));
}

#[tokio::test]
async fn one_address_for_everybody_is_told_once() {
    let (traces, _guard) = Traces::start();
    ask(gate(BY_CLIENT).0, (0..999).map(|_| from(1))).await;
    assert!(traces.with("from one address").is_empty(), "it may be a quiet morning");
    ask(gate(BY_CLIENT).0, (0..3_000).map(|_| from(1))).await;
    let told = traces.with("from one address");
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("192.0.2.1"));
}

#[tokio::test]
async fn requests_without_an_address_are_told_once() {
    let (traces, _guard) = Traces::start();
    ask(gate(BY_CLIENT).0, (0..20).map(|_| get("/"))).await;
    assert_eq!(traces.with("requests come without one").len(), 1);
}

#[tokio::test]
async fn rules_about_routes_that_nobody_names_are_told_once() {
    let rules = "[[rules]]\nname = 'r'\nwhen = \"route == '/'\"\nkeys = 'all'\nquota = '1000000/s'\n";
    let (traces, _guard) = Traces::start();
    // The layer is around the router, so it does not know yet what matches.
    ask(gate(rules).0, (0..2_000).map(|_| get("/"))).await;
    assert_eq!(traces.with("rules ask for the route").len(), 1);
    let routed = (0..2_000).map(|_| {
        let mut request = get("/");
        request.extensions_mut().insert(Route("/".to_owned()));
        request
    });
    ask(gate(rules).0, routed).await;
    assert_eq!(traces.with("rules ask for the route").len(), 1);
}

#[tokio::test]
async fn rules_that_can_never_match_are_told_when_the_policy_is_installed() {
    let (traces, _guard) = Traces::start();
    let never = "[[rules]]\nname = 'never'\nwhen = \"method == 'GET' && method == 'POST'\"\nkeys = 'all'\nquota = '1/s'\n";
    ask(gate(never).0, (0..20).map(|_| get("/"))).await;
    let told = traces.with("a condition that no request meets");
    assert_eq!(told.len(), 1, "{told:?}");
}

/// Any of the ways in which servers tell who is at the other end.
#[tokio::test]
async fn the_peer_is_found_however_the_server_tells_it() {
    let rules = "[[rules]]\nname = 'clients'\nkeys = 'ip:{client.ip}'\nquota = '1/60s fixed_window'\n";
    let app = Router::new().route("/", on_get(|| async { "ok" })).layer(RateLimitLayer::new(gate(rules).0));
    let socket = SocketAddr::from(([192, 0, 2, 9], 4_000));
    let [mut plain, mut named] = [get("/"), get("/")];
    plain.extensions_mut().insert(socket);
    named.extensions_mut().insert(Peer(socket.ip()));
    let asks = [(from(9), 200), (plain, 429), (named, 429), (from(8), 200), (get("/"), 500)];
    for (request, status) in asks {
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status);
    }
}
