//! Traces and metrics arrive at a collector, and a collector that is away disturbs nobody.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value as Json, json};

use crate::binary::{Running, command};
use crate::client::PATIENCE;

/// A collector that keeps what it is sent, by path.
fn collector() -> (SocketAddr, Receiver<(String, Json)>) {
    collector_that(|_| "200 OK")
}

/// One that answers as it is told, by path.
fn collector_that(
    mut answers: impl FnMut(&str) -> &'static str + Send + 'static,
) -> (SocketAddr, Receiver<(String, Json)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (keep, kept) = channel();
    // It ends with the test, which nobody waits for any more then.
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if keep.send(receive(stream, &mut answers)).is_err() {
                return;
            }
        }
    });
    (address, kept)
}

fn receive(stream: TcpStream, answers: &mut impl FnMut(&str) -> &'static str) -> (String, Json) {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_ascii_lowercase());
    }
    assert!(lines.iter().any(|line| line == "content-type: application/json"), "{lines:?}");
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let path = lines[0].split(' ').nth(1).unwrap().to_owned();
    let status = answers(&path);
    write!(reader.get_mut(), "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}").unwrap();
    (path, serde_json::from_slice(&body).unwrap())
}

#[test]
fn traces_and_metrics_arrive() {
    let (address, kept) = collector();
    let url = format!("http://{address}/collector/");
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0", "--otlp", &url]));
    let mut client = server.client();
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let call = br#"{"charges":[{"key":"a-key-of-somebody","quota":"1/min"}]}"#;
    let sampled = format!("00-{trace}-{parent}-01");
    assert_eq!(client.ask("POST", "/v1/limit", &[("traceparent", &sampled)], call).status, 200);
    assert_eq!(client.ask("POST", "/v1/limit", &[], call).status, 429);
    let unsampled = format!("00-{trace}-{parent}-00");
    client.ask("POST", "/v1/limit", &[("traceparent", &unsampled)], call);
    client.get("/nope");
    let mut head = server.client();
    head.send(b"HEAD /v1/hot-keys HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    head.rest();
    client.ask("BREW", "/v1/limit", &[], b"");
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");

    let mut all: Vec<(String, Json)> = Vec::new();
    while let Ok(next) = kept.recv_timeout(PATIENCE) {
        let is_last = next.0.ends_with("/v1/traces");
        all.push(next);
        if is_last {
            break;
        }
    }
    let of = |path: &str| {
        &all.iter().rev().find(|(known, _)| known == path).unwrap_or_else(|| panic!("{all:?}")).1
    };
    let spans = &of("/collector/v1/traces")["resourceSpans"][0]["scopeSpans"][0]["spans"];
    let spans = spans.as_array().unwrap();
    assert_eq!(spans.len(), 5, "what is not sampled is not told: {spans:?}");
    let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names[2..], ["GET", "HEAD /v1/hot-keys", "HTTP /v1/limit"]);
    let attributes = |span: &Json| span["attributes"].to_string();
    assert!(attributes(&spans[3]).contains("\"HEAD\"") && attributes(&spans[4]).contains("\"_OTHER\""));
    assert!(!attributes(&spans[2]).contains("http.route") && !attributes(&spans[4]).contains("BREW"));
    assert_eq!((&spans[0]["traceId"], &spans[0]["parentSpanId"]), (&json!(trace), &json!(parent)));
    assert_eq!((&spans[0]["name"], &spans[0]["kind"]), (&json!("POST /v1/limit"), &json!(2)));
    assert!(spans[1]["parentSpanId"].is_null() && spans[1]["traceId"] != spans[0]["traceId"]);
    assert!(spans[1]["attributes"].to_string().contains("429"));
    let metrics = of("/collector/v1/metrics");
    assert_eq!(
        metrics["resourceMetrics"][0]["resource"]["attributes"][0]["value"]["stringValue"],
        "ratekeeper"
    );
    let metrics = metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let metric =
        |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap_or_else(|| panic!("{name}"));
    let requests = metric("ratekeeper_requests")["sum"]["dataPoints"].as_array().unwrap();
    assert!(requests.iter().any(|point| point["asInt"] == "2"), "{requests:?}");
    let latency = &metric("ratekeeper_request_seconds")["histogram"]["dataPoints"][0];
    let (ends, counts) =
        (latency["explicitBounds"].as_array().unwrap(), latency["bucketCounts"].as_array().unwrap());
    assert_eq!((ends.len() + 1, &latency["count"]), (counts.len(), &json!("4")));
    assert!(!all.iter().any(|(_, document)| document.to_string().contains("a-key-of-somebody")));
}

#[test]
fn a_collector_that_is_away_costs_a_line_in_the_log() {
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server =
        Running::start(&mut command(&["--http", "127.0.0.1:0", "--otlp", &format!("http://{nowhere}")]));
    assert_eq!(server.client().get("/healthz").status, 200);
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0));
    assert_eq!(logged.matches("nothing can be sent to the collector").count(), 1, "{logged}");
}

#[test]
fn spans_that_a_collector_does_not_take_are_counted_and_told_with_the_next() {
    let mut is_first = true;
    let (address, kept) = collector_that(move |path| {
        let is_refused = path.ends_with("/v1/traces") && std::mem::take(&mut is_first);
        if is_refused { "500 Internal Server Error" } else { "200 OK" }
    });
    let url = format!("http://{address}");
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0", "--otlp", &url]));
    let next_spans = || loop {
        let (path, document) = kept.recv_timeout(PATIENCE).unwrap();
        if path == "/v1/traces" {
            return document["resourceSpans"][0]["scopeSpans"][0].clone();
        }
    };
    let mut client = server.client();
    client.get("/healthz");
    client.get("/healthz");
    let refused = next_spans();
    let lost = refused["spans"].as_array().unwrap().len();
    client.get("/healthz");
    server.signal("TERM");
    let (_, logged) = server.end();
    assert!(logged.contains(&format!("{lost} spans are lost")), "{logged}");
    let told = next_spans();
    assert_eq!(told["scope"]["attributes"][0]["value"]["intValue"], lost.to_string(), "{told}");
}
