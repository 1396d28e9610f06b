//! How it ends: what is under way is finished, and nothing else is waited for.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ratekeeper_testkit::servers::{Flavour, Server};

use crate::binary::{Running, command, trusting};
use crate::client::{Client, PATIENCE};
use crate::rig::{RUNTIME, Rig, Setup};

/// Less than any wait that would be cut short here, and longer than ending takes.
const SOON: Duration = Duration::from_secs(4);

/// Tells it to finish; says whether it was all over soon.
fn ends_soon(rig: &mut Rig) -> bool {
    rig.stop.finish();
    let served = rig.served.take().unwrap();
    let ended = RUNTIME.block_on(async { tokio::time::timeout(SOON, served).await });
    ended.is_ok_and(|all_finished| all_finished.unwrap())
}

fn metric<S: Read + Write>(client: &mut Client<S>, series: &str) -> u64 {
    let metrics = client.get("/metrics");
    let found = metrics.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.map_or(0, |value| value.parse().unwrap())
}

#[test]
fn half_a_head_is_not_waited_for() {
    let (mut rig, _) = Setup::default().in_memory();
    let mut half = rig.client();
    half.send(b"GET /healthz HTT");
    let mut again = rig.client();
    assert_eq!(again.get("/healthz").status, 200);
    again.send(b"GET /healthz HTT");
    assert_eq!(rig.client().get("/healthz").status, 200);
    assert!(ends_soon(&mut rig));
    assert!(half.is_over() && again.is_over());
}

#[test]
fn an_answer_that_is_read_slowly_is_sent_to_its_end() {
    // More than the buffers hold answers to, and no more than is read at once: a connection
    // that is closed with something unread is reset.
    const ASKED: u64 = 150;
    let (rig, _) = Setup::default().in_memory();
    let mut slow = rig.client();
    slow.send("GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(ASKED as usize).as_bytes());
    // Until the buffers between the two are full, and the server waits for the reader.
    let series = "ratekeeper_requests_total{endpoint=\"/openapi.json\",status=\"200\"}";
    let mut client = rig.client();
    let (mut answered, mut unchanged) = (0, 0);
    while answered == 0 || unchanged < 200 {
        let now = metric(&mut client, series);
        unchanged = if now == answered { unchanged + 1 } else { 0 };
        answered = now;
    }
    assert!(answered < ASKED, "all answers fit into the buffers: ask for more");
    rig.stop.finish();
    assert!(client.is_over());
    let whole = std::iter::from_fn(|| slow.reply()).filter(|reply| reply.json()["openapi"].is_string());
    // It may have gone on for a while: what was blocked may only have been slow.
    let whole = whole.count() as u64;
    assert!((answered..=ASKED).contains(&whole), "{whole} of {answered}: the last one was cut");
}

#[test]
fn a_handshake_that_does_not_begin_is_not_waited_for() {
    let redis = Server::start_tls(Flavour::Redis7);
    let (certificate, key) = (redis.dir().join("server.pem"), redis.dir().join("server.key"));
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let mut command = command(&["--http", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key]);
    let server = Running::start(&mut command);
    let silent = TcpStream::connect(server.address).unwrap();
    let mut client = Client::over(trusting(server.address, &redis.ca_file()));
    let start = Instant::now();
    while metric(&mut client, "ratekeeper_connections") < 2 {
        assert!(start.elapsed() < PATIENCE, "the silent one is not accepted");
    }
    let start = Instant::now();
    server.signal("TERM");
    let (status, logged) = server.end();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(status, Some(0));
    assert!(logged.contains("everything under way was finished"), "{logged}");
    drop(silent);
}

#[test]
fn a_second_signal_ends_it_whatever_a_collector_does() {
    // It takes connections, and never says anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0", "--otlp", &url]));
    server.signal("TERM");
    let start = Instant::now();
    while TcpStream::connect(server.address).is_ok() {
        assert!(start.elapsed() < PATIENCE, "it still listens");
    }
    let start = Instant::now();
    server.signal("TERM");
    let (status, logged) = server.end();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(status, Some(0));
    assert!(logged.contains("told to stop again"), "{logged}");
}
