//! Envoy's rate limit service, called by those who mean no good.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use prost::Message as _;
use ratekeeper_server::serve::{CALL_BYTES_MAX, DESCRIPTORS_MAX, ENTRIES_MAX};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::{Client, PATIENCE};
use crate::grpc::{Connection, SHOULD_RATE_LIMIT, call, descriptor, framed};
use crate::rig::{Rig, Setup};

const POLICY: &str = r#"
service = "shop"
[[rules]]
name = "per-user"
when = "descriptor_keys == 'user'"
keys = "user:{descriptor.user}"
quota = "2/h"
"#;

fn rig() -> (Rig, Connection) {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let connection = Connection::open(rig.grpc);
    (rig, connection)
}

/// Clients choose values; whoever makes a call fail is not limited by it.
#[test]
fn no_value_of_a_client_makes_a_call_fail() {
    let (_rig, connection) = rig();
    let long = "x".repeat(200_000);
    for value in [&b"\xff\xfe"[..], b"", b"a\0b", long.as_bytes(), b"{user}:%25#,"] {
        let mut entry = vec![0x0a, 4];
        entry.extend(b"user");
        entry.push(0x12);
        prost::encoding::encode_varint(value.len() as u64, &mut entry);
        entry.extend(value);
        let within = |field: u8, inner: &[u8]| {
            let mut message = vec![field << 3 | 2];
            prost::encoding::encode_varint(inner.len() as u64, &mut message);
            message.extend(inner);
            message
        };
        let message = [&b"\x0a\x04shop"[..], &within(2, &within(1, &entry))].concat();
        let codes: Vec<u8> = (0..3)
            .map(|_| {
                let reply = connection.send(SHOULD_RATE_LIMIT, &[], framed(&message));
                assert_eq!(reply.code, 0, "{reply:?}");
                reply.message[6]
            })
            .collect();
        assert_eq!(codes, [1, 1, 2], "{}", value[..value.len().min(20)].escape_ascii());
    }
}

#[test]
fn what_is_no_call_is_refused_and_the_connection_stays() {
    let (rig, connection) = rig();
    let good = call(&[descriptor(&[("user", "ann")])]).encode_to_vec();
    let many = call(&vec![descriptor(&[("user", "ann")]); DESCRIPTORS_MAX + 1]).encode_to_vec();
    let wide = call(&[descriptor(&vec![("user", "ann"); ENTRIES_MAX + 1])]).encode_to_vec();
    let half = framed(&good)[..framed(&good).len() - 1].to_vec();
    let compressed = [&[1][..], &framed(&good)[1..]].concat();
    let twice = [framed(&good), framed(&good)].concat();
    let cases = [
        (framed(b"\x0a\xff\xff\xff\xff\x0f"), 3, "no RateLimitRequest"),
        (framed(b"\x12\x02\x0a\x7f"), 3, "no RateLimitRequest"),
        (framed(&[0x0b; 9_999]), 3, "no RateLimitRequest"),
        (framed(&many), 3, "descriptors: expected at most 64"),
        (framed(&wide), 3, "descriptors.entries: expected at most 64 in each"),
        (half, 13, "has not come whole"),
        (twice, 13, "expected one message"),
        (compressed, 12, "without compression"),
        (Vec::new(), 13, "no message"),
        (b"\0\xff\xff\xff\xff".to_vec(), 13, "has not come whole"),
        (vec![0; CALL_BYTES_MAX + 6], 8, "at most"),
    ];
    for (body, code, why) in cases {
        let reply = connection.send(SHOULD_RATE_LIMIT, &[], body);
        assert_eq!((reply.status, reply.code), (200, code), "{reply:?}");
        assert!(reply.why.contains(why), "{reply:?}");
    }
    let reply = connection.send("/envoy.service.ratelimit.v3.RateLimitService/Other", &[], framed(&good));
    assert_eq!(reply.code, 12, "{reply:?}");
    // Descriptors that are nothing at all take no memory before they are counted.
    let nothing = [&b"\x0a\x04shop"[..], &b"\x12\x00".repeat(400_000)].concat();
    assert_eq!(connection.send(SHOULD_RATE_LIMIT, &[], framed(&nothing)).code, 3);
    assert_eq!(connection.send(SHOULD_RATE_LIMIT, &[], framed(&good)).code, 0);
    let metrics = rig.client().get("/metrics").text().to_owned();
    assert!(metrics.contains("ratekeeper_grpc_calls_total{outcome=\"invalid\"} 8"), "{metrics}");
}

#[test]
fn a_connection_that_is_not_http2_is_closed() {
    let (rig, connection) = rig();
    for garbage in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], &[0; 500], b"*1\r\n$4\r\nPING\r\n"] {
        let mut client = Client::connect(rig.grpc);
        client.send(garbage);
        let _ = client.rest();
    }
    // A preface, and then frames of every kind with nonsense in them.
    for kind in 0..=20_u8 {
        for length in [0_u8, 4, 9] {
            let mut client = Client::connect(rig.grpc);
            client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
            let frame = [&[0, 0, length, kind, 0xff, 0, 0, 0, 1][..], &vec![0xff; length.into()]].concat();
            let mut stream = client.stream();
            let _ = stream.write_all(&frame);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = client.rest();
        }
    }
    assert_eq!(connection.ask(&call(&[descriptor(&[("user", "ann")])])).overall_code, 1);
}

#[test]
fn half_a_call_is_waited_for_and_no_longer() {
    let wait = Duration::from_millis(300);
    let setup = Setup {
        grpc: |grpc| grpc.patience(Duration::from_secs(2), Duration::from_millis(300)),
        ..Setup::policy(POLICY)
    };
    let (rig, _) = setup.in_memory();
    let start = Instant::now();
    let mut silent = Client::connect(rig.grpc);
    let mut half = Client::connect(rig.grpc);
    half.send(b"PRI * HTTP/2.0\r\n\r\nSM");
    let _ = half.rest();
    let _ = silent.rest();
    assert!(start.elapsed() >= wait && start.elapsed() < PATIENCE);
}

#[test]
fn thousands_of_connections_take_little() {
    const MANY: usize = 2_000;
    // Both ends of each are this process's.
    let allowed = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: allowed.maximum, ..allowed }).unwrap();
    let (rig, connection) = rig();
    let before = resident();
    let mut clients = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        let mut client = Client::connect(rig.grpc);
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        clients.push(client);
    }
    for client in &mut clients {
        // Its settings: it is served.
        let mut settings = [0; 9];
        client.stream().read_exact(&mut settings).unwrap();
        assert_eq!(settings[3], 4);
    }
    let taken = resident().saturating_sub(before) / MANY;
    assert!(taken < 64 << 10, "{taken} bytes for each");
    assert_eq!(connection.ask(&call(&[descriptor(&[("user", "ann")])])).overall_code, 1);
}

/// Bytes of memory that this process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().split(' ').next().unwrap().parse::<usize>().unwrap() << 10
}
