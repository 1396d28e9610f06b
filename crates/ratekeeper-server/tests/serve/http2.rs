//! HTTP/2 on the listeners of the API: with prior knowledge, and as TLS agrees on it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratekeeper_server::serve::Stop;
use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::{Value as Json, json};
use tokio::net::TcpStream;

use crate::binary::{Running, command};
use crate::client::{Client, PATIENCE};
use crate::rig::{RUNTIME, Rig, Setup};

const POLICY: &str = r#"
service = "shop"
[[rules]]
name = "per-user"
keys = "user:{header.x-user}"
quota = "100/h"
"#;

type Sender = SendRequest<Full<Bytes>>;

async fn connect(address: SocketAddr) -> Sender {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(sender: &Sender, method: &str, path: &str, body: &[u8]) -> (http::response::Parts, Bytes) {
    try_ask(sender, method, path, body).await.unwrap()
}

async fn try_ask(
    sender: &Sender,
    method: &str,
    path: &str,
    body: &[u8],
) -> hyper::Result<(http::response::Parts, Bytes)> {
    let request = http::Request::builder().method(method).uri(format!("http://localhost{path}"));
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
    let answer = async { sender.clone().send_request(request).await };
    let (head, body) = tokio::time::timeout(PATIENCE, answer).await.expect("an answer in time")?.into_parts();
    Ok((head, body.collect().await?.to_bytes()))
}

/// Whether the server has not looked at a call, and said so: the client may send it elsewhere (RFC 9113, section 6.8).
fn is_sent_elsewhere(error: &hyper::Error) -> bool {
    format!("{error:?}").contains("GoAway(b\"\", NO_ERROR, Remote)")
}

fn rig() -> Rig {
    Setup::policy(POLICY).in_memory().0
}

#[test]
fn every_call_is_answered_as_over_http1() {
    let rig = rig();
    let check = json!({ "headers": { "x-user": "ann" } }).to_string();
    let batch = json!({ "checks": vec![json!({ "headers": { "x-user": "bob" } }); 64] }).to_string();
    let calls = [
        ("GET", "/healthz", String::new()),
        ("GET", "/readyz", String::new()),
        ("GET", "/openapi.json", String::new()),
        ("GET", "/metrics", String::new()),
        ("GET", "/dashboard", String::new()),
        ("POST", "/v1/check", check),
        ("POST", "/v1/batch", batch),
        ("POST", "/v1/check", "x".repeat(100_000)),
        ("POST", "/v1/check", "x".repeat(1 << 20)),
        ("GET", "/nowhere", String::new()),
        ("GET", "/v1/check", String::new()),
    ];
    RUNTIME.block_on(async {
        let sender = connect(rig.address).await;
        for (method, path, body) in &calls {
            let (head, told) = ask(&sender, method, path, body.as_bytes()).await;
            let first = tokio::task::block_in_place(|| rig.client().ask(method, path, &[], body.as_bytes()));
            assert_eq!(head.status.as_u16(), first.status, "{method} {path}");
            let kind = head.headers.get("content-type").map(|kind| kind.to_str().unwrap());
            assert_eq!(kind, first.header("content-type"), "{method} {path}");
            assert!(head.headers.get("connection").is_none(), "{method} {path}");
            assert!(!told.is_empty(), "{method} {path}");
        }
        let (head, told) = ask(&sender, "POST", "/v1/check", br#"{"headers":{"x-user":"ann"}}"#).await;
        let told: Json = serde_json::from_slice(&told).unwrap();
        assert_eq!((head.status.as_u16(), &told["allowed"]), (200, &json!(true)));
        assert!(head.headers["ratelimit"].to_str().unwrap().contains("r="), "{head:?}");
    });
}

/// Some proxies add no field to what they pass on over HTTP/2, and name this machine.
#[test]
fn nobody_is_local_over_http2() {
    let rig = rig();
    assert_eq!(rig.client().post("/v1/audit", "{}").status, 200, "over HTTP/1.1, whoever is on this machine");
    RUNTIME.block_on(async {
        let sender = connect(rig.address).await;
        assert!(matches!(ask(&sender, "POST", "/v1/audit", b"{}").await.0.status.as_u16(), 401 | 403));
    });
}

#[test]
fn many_streams_are_judged_exactly() {
    let rig = rig();
    let allowed = RUNTIME.block_on(async {
        let sender = connect(rig.address).await;
        let calls = (0..500).map(|_| ask(&sender, "POST", "/v1/check", br#"{"headers":{"x-user":"ann"}}"#));
        join_all(calls).await.into_iter().filter(|(head, _)| head.status == 200).count()
    });
    assert_eq!(allowed, 100);
}

/// It comes in one piece, mostly.
#[test]
fn the_preface_is_known_in_whatever_pieces_it_comes() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let rig = rig();
    for cut in [1, 2, 3, 14, 16, 18, 23] {
        let mut client = Client::connect(rig.address);
        client.send(&PREFACE[..cut]);
        read_by_itself(&rig);
        client.send(&[&PREFACE[cut..], b"\0\0\0\x04\0\0\0\0\0"].concat());
        let mut settings = [0; 9];
        std::io::Read::read_exact(&mut client.stream(), &mut settings).unwrap();
        assert_eq!(settings[3], 4, "{cut}: its settings");
    }
    // What only begins like it is a request of HTTP/1.1.
    let mut client = Client::connect(rig.address);
    client.send(b"P");
    read_by_itself(&rig);
    client.send(b"OST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}");
    assert_eq!(client.reply().unwrap().status, 200);
    let mut client = Client::connect(rig.address);
    client.send(b"PRI");
    client.stream().flush().unwrap();
    read_by_itself(&rig);
    client.send(b"NT / HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(client.reply().unwrap().status, 404);
}

/// By the time that others have been answered, what was sent has been read.
fn read_by_itself(rig: &Rig) {
    (0..3).for_each(|_| assert_eq!(rig.client().get("/healthz").status, 200));
}

#[test]
fn an_idle_connection_is_told_to_go() {
    let (rig, _) = Setup { idle: Duration::from_millis(200), ..Setup::policy(POLICY) }.in_memory();
    RUNTIME.block_on(async {
        let sender = connect(rig.address).await;
        assert_eq!(ask(&sender, "GET", "/healthz", b"").await.0.status, 200);
        closed(&sender).await;
    });
}

#[test]
fn a_drain_sends_clients_elsewhere_and_loses_no_call() {
    let mut rig = rig();
    RUNTIME.block_on(async {
        let (one, silent) = (connect(rig.address).await, connect(rig.address).await);
        assert_eq!(ask(&one, "GET", "/healthz", b"").await.0.status, 200);
        rig.stop.drain(Duration::from_secs(600));
        assert_eq!(ask(&one, "GET", "/healthz", b"").await.0.status, 200);
        closed(&one).await;
        assert_eq!(ask(&connect(rig.address).await, "GET", "/healthz", b"").await.0.status, 200);
        let calls = (0..50).map(|_| try_ask(&silent, "POST", "/v1/check", b"{}"));
        let (answers, ()) = tokio::join!(join_all(calls), finish(&rig.stop));
        for answer in answers {
            match answer {
                Ok((head, _)) => assert_eq!(head.status, 200),
                Err(error) => assert!(is_sent_elsewhere(&error), "{error:?}"),
            }
        }
        let served = rig.served.take().unwrap();
        assert!(tokio::time::timeout(PATIENCE, served).await.unwrap().unwrap(), "all were over");
    });
}

async fn finish(stop: &Stop) {
    tokio::task::yield_now().await;
    stop.finish();
}

async fn closed(sender: &Sender) {
    let start = Instant::now();
    while !sender.is_closed() {
        assert!(start.elapsed() < PATIENCE, "the connection stays open");
        tokio::task::yield_now().await;
    }
}

#[test]
fn curl_speaks_it_with_and_without_tls() {
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["-sk", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"])
            .args(arguments)
            .output()
            .expect("curl is there");
        String::from_utf8(output.stdout).unwrap()
    };
    let rig = rig();
    let url = format!("http://{}/healthz", rig.address);
    assert_eq!(curl(&["--http2-prior-knowledge", &url]), "2 200");
    assert_eq!(curl(&[&url]), "1.1 200");
    let server = Server::start_tls(Flavour::Redis7);
    let at = |name: &str| server.dir().join(name).to_str().unwrap().to_owned();
    let running = Running::start(&mut command(&[
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--tls-cert",
        &at("server.pem"),
        "--tls-key",
        &at("server.key"),
    ]));
    let url = format!("https://{}/healthz", running.address);
    assert_eq!(curl(&["--http2", &url]), "2 200");
    assert_eq!(curl(&["--http1.1", &url]), "1.1 200");
    let grpc = running.said.iter().find_map(|line| line.trim().strip_prefix("gRPC")).unwrap();
    let grpc = grpc.trim().split(' ').next().unwrap();
    let call = format!("{grpc}/grpc.health.v1.Health/Check");
    let told = curl(&["--http2", "-H", "content-type: application/grpc", "--data-binary", "", &call]);
    assert_eq!(told, "2 200");
    assert_eq!(curl(&["--http2", &call]), "2 415");
}
