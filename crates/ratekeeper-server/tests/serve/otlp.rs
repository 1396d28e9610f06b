//! Traces and metrics arrive at a collector, and a collector that is away disturbs nobody.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use ratekeeper_testkit::servers::{Flavour, Server};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
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
            let (mut reader, path, document) = receive(stream, false);
            let status = answers(&path);
            // Kept before it is answered: when the server has ended, everything is there.
            if keep.send((path, document)).is_err() {
                return;
            }
            write!(reader.get_mut(), "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}").unwrap();
        }
    });
    (address, kept)
}

fn receive<S: Read>(stream: S, is_compressed: bool) -> (BufReader<S>, String, Json) {
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
    assert_eq!(lines.iter().any(|line| line == "content-encoding: gzip"), is_compressed, "{lines:?}");
    if is_compressed {
        let (compressed, mut text) = (body.len(), Vec::new());
        GzDecoder::new(&body[..]).read_to_end(&mut text).unwrap();
        assert!(compressed < text.len() / 2, "{compressed} of {} bytes", text.len());
        body = text;
    }
    (reader, path, serde_json::from_slice(&body).unwrap())
}

/// All spans in what was sent, in their order.
fn spans_of(documents: &[(String, Json)]) -> Vec<Json> {
    let of_traces = documents.iter().filter(|(path, _)| path.ends_with("/v1/traces"));
    let spans = of_traces.flat_map(|(_, document)| {
        document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    });
    spans.collect()
}

/// The last document that was sent to a path.
fn last<'d>(documents: &'d [(String, Json)], path: &str) -> &'d Json {
    let found = documents.iter().rev().find(|(known, _)| known == path);
    &found.unwrap_or_else(|| panic!("{path}: {documents:?}")).1
}

/// An attribute of what sent a document.
fn of_resource(document: &Json, name: &str) -> Option<String> {
    let resource = &document["resourceMetrics"][0]["resource"];
    let found = resource["attributes"].as_array().unwrap().iter().find(|known| known["key"] == name);
    found.map(|known| known["value"]["stringValue"].as_str().unwrap().to_owned())
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

    let all: Vec<(String, Json)> = kept.try_iter().collect();
    let spans = spans_of(&all);
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
    let metrics = last(&all, "/collector/v1/metrics");
    assert_eq!(of_resource(metrics, "service.name").as_deref(), Some("ratekeeper"));
    let metrics = metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let metric =
        |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap_or_else(|| panic!("{name}"));
    let requests = metric("ratekeeper_requests")["sum"]["dataPoints"].as_array().unwrap();
    assert!(requests.iter().any(|point| point["asInt"] == "2"), "{requests:?}");
    assert_eq!(metric("ratekeeper_request_seconds")["unit"], "s");
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
    for path in ["/v1/metrics", "/v1/traces"] {
        let lines =
            logged.lines().filter(|line| line.contains("the collector does not take what it is sent"));
        assert_eq!(lines.filter(|line| line.contains(path)).count(), 1, "{path}: {logged}");
    }
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
    assert!(logged.contains("/v1/traces") && !logged.contains("/v1/metrics"), "{logged}");
    let told = next_spans();
    assert_eq!(told["scope"]["attributes"][0]["value"]["intValue"], lost.to_string(), "{told}");
}

/// Many collectors are for traces alone.
#[test]
fn a_collector_that_takes_no_metrics_gets_the_traces() {
    let (address, kept) =
        collector_that(|path| if path == "/v1/traces" { "200 OK" } else { "404 Not Found" });
    let url = format!("http://{address}");
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0", "--otlp", &url]));
    server.client().get("/healthz");
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");
    let names: Vec<Json> =
        spans_of(&kept.try_iter().collect::<Vec<_>>()).iter().map(|span| span["name"].clone()).collect();
    assert_eq!(names, ["GET /healthz"]);
    assert_eq!(logged.matches("the collector does not take what it is sent").count(), 1, "{logged}");
    assert!(logged.contains("404"), "{logged}");
}

/// Counters of two servers under one identity would be one counter that jumps.
#[test]
fn every_server_is_a_resource_of_its_own() {
    let resource = |name: &str, attributes: &str| {
        let (address, kept) = collector();
        let url = format!("http://{address}");
        let mut command = command(&["--http", "127.0.0.1:0", "--otlp", &url]);
        command.env("OTEL_SERVICE_NAME", name).env("OTEL_RESOURCE_ATTRIBUTES", attributes);
        let server = Running::start(&mut command);
        server.signal("TERM");
        let (_, logged) = server.end();
        (last(&kept.try_iter().collect::<Vec<_>>(), "/v1/metrics").clone(), logged)
    };
    let ((one, _), (other, logged)) = (resource("", ""), resource("limits", "service.name=x,team=a%20b"));
    let of = |name: &str| [of_resource(&one, name), of_resource(&other, name)];
    let [first, second] = of("service.instance.id");
    assert!(first.is_some() && first != second, "{first:?} {second:?}");
    assert!(of("host.name")[0].as_ref().is_some_and(|host| !host.is_empty()), "{one}");
    assert_eq!(of("service.name"), [Some("ratekeeper".to_owned()), Some("limits".to_owned())]);
    assert_eq!(of("team"), [None, Some("a b".to_owned())]);
    assert!(!logged.contains("OTEL_RESOURCE_ATTRIBUTES"), "{logged}");
    let (wrong, logged) = resource("", "team");
    assert_eq!(of_resource(&wrong, "service.name").as_deref(), Some("ratekeeper"));
    assert!(logged.contains("OTEL_RESOURCE_ATTRIBUTES is not used"), "{logged}");
}

/// What is under way when a server is told to stop is finished, and told as well.
#[test]
fn what_finishes_while_stopping_is_told() {
    let (address, kept) = collector();
    let url = format!("http://{address}");
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0", "--otlp", &url]));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let call = r#"{"charges":[{"key":"k","quota":"1/min"}]}"#;
    let mut under_way = server.client();
    let head = format!(
        "POST /v1/limit HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\ncontent-length: {}\r\n\r\n",
        call.len()
    );
    under_way.send(head.as_bytes());
    assert_eq!(under_way.reply().unwrap().status, 100, "it is under way: its body is waited for");
    server.signal("TERM");
    let start = Instant::now();
    while TcpStream::connect(server.address).is_ok() {
        assert!(start.elapsed() < PATIENCE, "it does not finish");
        std::thread::sleep(Duration::from_millis(1));
    }
    under_way.send(call.as_bytes());
    assert_eq!(under_way.reply().unwrap().status, 200);
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");
    let all: Vec<(String, Json)> = kept.try_iter().collect();
    assert!(spans_of(&all).iter().any(|span| span["traceId"] == trace), "{all:?}");
    let metrics = last(&all, "/v1/metrics").to_string();
    assert!(metrics.contains("/v1/limit"), "what it counted is there too: {metrics}");
}

/// A collector that speaks TLS with the certificate of a test server, and takes what is compressed.
fn encrypted_collector(certified: &Server) -> (SocketAddr, Receiver<(String, Json)>) {
    let at = |name: &str| certified.dir().join(name);
    let certificate = CertificateDer::from_pem_file(at("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(at("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (keep, kept) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            // One that does not trust the certificate goes away.
            if stream.conn.complete_io(&mut stream.sock).is_err() {
                continue;
            }
            let (mut reader, path, document) = receive(stream, true);
            if keep.send((path, document)).is_err() {
                return;
            }
            let _ = write!(reader.get_mut(), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{{}}");
        }
    });
    (address, kept)
}

#[test]
fn a_collector_is_spoken_to_over_tls_and_compressed() {
    let certified = Server::start_tls(Flavour::Redis7);
    let (address, kept) = encrypted_collector(&certified);
    let (url, authority) = (format!("https://{address}"), certified.ca_file());
    let settings = ["--http", "127.0.0.1:0", "--otlp", &url, "--otlp-compression", "gzip"];
    let trusted = ["--otlp-ca", authority.to_str().unwrap()];
    let server = Running::start(&mut command(&[&settings[..], &trusted].concat()));
    server.client().get("/healthz");
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");
    assert!(!logged.contains("the collector does not take"), "{logged}");
    let all: Vec<(String, Json)> = kept.try_iter().collect();
    assert_eq!(spans_of(&all)[0]["name"], "GET /healthz");
    assert_eq!(of_resource(last(&all, "/v1/metrics"), "service.name").as_deref(), Some("ratekeeper"));

    // Of another authority, the certificate is as good as none.
    let other = Server::start_tls(Flavour::Redis7);
    let authority = other.ca_file();
    let trusted = ["--otlp-ca", authority.to_str().unwrap()];
    let server = Running::start(&mut command(&[&settings[..], &trusted].concat()));
    server.client().get("/healthz");
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");
    assert!(logged.contains("cannot agree on TLS"), "{logged}");
    assert_eq!(kept.try_iter().count(), 0);
}
