//! Answers that nobody reads: they take room that is bounded, and leave some for others.

use std::net::SocketAddr;
use std::time::Instant;

use tokio::net::TcpSocket;

use crate::client::{Client, PATIENCE};
use crate::rig::{RUNTIME, Rig, Setup};

const CALL: &str = r#"{"charges":[{"key":"k","quota":"1000000/s"}]}"#;

/// A batch whose answer is longer than the buffers between the two: 1,000 checks.
pub(crate) fn long_batch() -> Vec<u8> {
    let charges: Vec<String> = (0..64).map(|key| format!(r#"{{"key":"k{key}","quota":"9/s"}}"#)).collect();
    let checks = vec![format!(r#"{{"charges":[{}]}}"#, charges.join(",")); 1_000];
    let body = format!(r#"{{"checks":[{}]}}"#, checks.join(","));
    let head = format!("POST /v1/limit/batch HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    [head, body].concat().into_bytes()
}

/// A client for whom the system keeps next to nothing: what it does not read stays where
/// it is.
pub(crate) fn narrow(address: SocketAddr) -> Client {
    let stream = RUNTIME.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        socket.connect(address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client::over(stream)
}

fn charged(rig: &Rig) -> u64 {
    let metrics = rig.client().get("/metrics");
    let lines = metrics.text().lines().filter(|line| line.starts_with("ratekeeper_limit_decisions_total"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn answers_that_are_not_read_are_bounded_together() {
    // Room for one such batch, its body and its answer, but not for two.
    let (rig, _) = Setup { bodies_max: 20 << 20, ..Setup::default() }.in_memory();
    let batch = long_batch();
    let mut unread = narrow(rig.address);
    unread.send(&batch);
    let start = Instant::now();
    let answered = "ratekeeper_requests_total{endpoint=\"/v1/limit/batch\"";
    while !rig.client().get("/metrics").text().contains(answered) {
        assert!(start.elapsed() < PATIENCE, "it is not answered");
    }
    let before = charged(&rig);
    let mut refused = rig.client();
    refused.send(&batch);
    let reply = refused.reply().expect("an answer");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert_eq!(charged(&rig), before, "nothing is decided that cannot be answered");
    // What is short, and what only tells, needs no room of theirs.
    assert_eq!(rig.client().post("/v1/limit", CALL).status, 200);
    assert_eq!(rig.client().get("/openapi.json").status, 200);
    // It is there in full for whoever reads it after all, and then there is room again.
    let decided = |client: &mut Client| {
        let reply = client.reply().expect("an answer");
        (reply.status == 200).then(|| reply.json()["decisions"].as_array().unwrap().len())
    };
    assert_eq!(decided(&mut unread), Some(1_000));
    refused.send(&batch);
    assert_eq!(decided(&mut refused), Some(1_000));
    drop(unread);
}
