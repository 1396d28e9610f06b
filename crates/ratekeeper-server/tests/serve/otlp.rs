//! Traces and metrics arrive at a collector, and a collector that is away disturbs nobody.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value as Json, json};

use crate::binary::{Running, command};
use crate::client::PATIENCE;

/// A collector that keeps what it is sent, by path.
fn collector() -> (SocketAddr, Receiver<(String, Json)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (keep, kept) = channel();
    // It ends with the test, which nobody waits for any more then.
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if keep.send(receive(stream)).is_err() {
                return;
            }
        }
    });
    (address, kept)
}

fn receive(stream: TcpStream) -> (String, Json) {
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
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    let path = lines[0].split(' ').nth(1).unwrap().to_owned();
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
    assert_eq!(spans.len(), 2, "what is not sampled is not told: {spans:?}");
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
    assert_eq!((ends.len() + 1, &latency["count"]), (counts.len(), &json!("3")));
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
