//! Before it ends: whoever keeps a connection is told to go elsewhere, and loses nothing.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use ratekeeper_testkit::wait::until;

use crate::binary::{Running, command};
use crate::client::{Client, PATIENCE};
use crate::rig::Setup;
use crate::unread::{long_batch, narrow};

const CALL: &str = r#"{"charges":[{"key":"k","quota":"1000000/s"}]}"#;

#[test]
fn a_server_that_drains_tells_those_who_keep_connections() {
    let (rig, _) = Setup::default().in_memory();
    let (mut busy, mut silent) = (rig.client(), rig.client());
    assert_eq!(busy.post("/v1/limit", CALL).header("connection"), None);
    assert_eq!(silent.post("/v1/limit", CALL).status, 200);
    rig.stop.drain(PATIENCE / 6);
    let last = busy.post("/v1/limit", CALL);
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(busy.is_over());
    // Who asks nothing would never hear of it.
    assert!(silent.is_over());
    let late = rig.client().post("/v1/limit", CALL);
    assert_eq!((late.status, late.header("connection")), (200, Some("close")), "it is still served");
}

fn request() -> Vec<u8> {
    let head = format!("POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", CALL.len());
    [head, CALL.to_owned()].concat().into_bytes()
}

/// Asks again and again on one connection, until it is told to go elsewhere.
fn leaves_without_a_loss(mut client: Client) -> bool {
    loop {
        client.send(&request());
        let Some(reply) = client.reply() else { return false };
        assert_eq!(reply.status, 200);
        if reply.header("connection") == Some("close") {
            return true;
        }
    }
}

#[test]
fn who_asks_late_in_a_drain_is_answered() {
    const DRAIN: Duration = Duration::from_secs(15);
    let (rig, _) = Setup::default().in_memory();
    let mut rare: Vec<Client> = (0..20).map(|_| rig.client()).collect();
    for client in &mut rare {
        assert_eq!(client.post("/v1/limit", CALL).status, 200);
    }
    rig.stop.drain(DRAIN);
    // Three fifths of it: this is about time itself. The rest is for a busy machine.
    thread::sleep(DRAIN * 3 / 5);
    for client in &mut rare {
        let last = client.post("/v1/limit", CALL);
        assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    }
}

/// How long a connection is given for its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

#[test]
fn who_has_just_connected_is_answered_when_the_server_finishes() {
    until("all asked in time", || {
        // In the queue of the system as well as accepted: nobody has asked yet.
        let (rig, _) = Setup::default().in_memory();
        let start = Instant::now();
        let mut clients: Vec<Client> = (0..20).map(|_| rig.client()).collect();
        rig.stop.finish();
        // All at once: who is kept from its processor for longer than that is too late by right.
        let was_sent = clients.iter_mut().all(|client| client.stream().write_all(&request()).is_ok());
        let in_time = was_sent && start.elapsed() < FIRST_REQUEST;
        for client in clients.iter_mut().filter(|_| in_time) {
            let only = client.reply().expect("an answer");
            assert_eq!((only.status, only.header("connection")), (200, Some("close")));
        }
        in_time
    });
}

#[test]
fn nobody_who_goes_when_told_loses_a_request() {
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0", "--drain-seconds", "10"]));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let mut client = server.client();
            assert_eq!(client.get("/healthz").status, 200);
            thread::spawn(move || leaves_without_a_loss(client))
        })
        .collect();
    server.signal("TERM");
    for client in clients {
        assert!(client.join().unwrap(), "a request was lost");
    }
    // A second signal: the rest of the drain is nobody's any more.
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn an_answer_that_is_being_read_is_not_cut_by_draining() {
    let (rig, _) = Setup::default().in_memory();
    let mut slow = narrow(rig.address);
    slow.send(&long_batch());
    let mut other = rig.client();
    let start = Instant::now();
    while !other.get("/metrics").text().contains("ratekeeper_requests_total{endpoint=\"/v1/limit/batch\"") {
        assert!(start.elapsed() < PATIENCE, "it is not answered");
    }
    rig.stop.drain(Duration::from_millis(200));
    assert!(other.is_over(), "who asks nothing goes first");
    let reply = slow.reply().expect("what was being sent is sent");
    assert_eq!(reply.json()["decisions"].as_array().unwrap().len(), 1_000);
}
