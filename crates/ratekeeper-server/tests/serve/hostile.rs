//! Clients that mean no good, or mean nothing: bounded memory, a correct 4xx, no panic.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use ratekeeper_server::serve::{
    BATCH_BYTES_MAX, BODY_BYTES_MAX, CALLS, HEAD_BYTES_MAX, HEAD_LINES_MAX, Method,
};
use serde_json::json;

use crate::client::{Client, PATIENCE};
use crate::rig::{Rig, Setup};

const CALL: &str = r#"{"charges":[{"key":"k","quota":"1000000/s"}]}"#;

/// Whoever is after them is served as ever.
#[track_caller]
fn is_well(rig: &Rig) {
    let reply = rig.client().post("/v1/limit", CALL);
    assert_eq!(reply.status, 200, "{}", reply.text());
}

fn rig() -> Rig {
    const POLICY: &str =
        "service = \"s\"\n[[rules]]\nname = \"deep\"\nkeys = \"{body.a}\"\nquota = \"5/s\"\n";
    Setup::policy(POLICY).in_memory().0
}

#[test]
fn what_is_no_json_is_refused() {
    let rig = rig();
    let mut client = rig.client();
    let deep = |open: &str, close: &str, depth: usize| open.repeat(depth) + "1" + &close.repeat(depth);
    let malformed = [
        String::new(),
        " ".to_owned(),
        "{".to_owned(),
        "{\"charges\":[{\"key\":\"k\"".to_owned(),
        "\u{feff}{}".to_owned(),
        "nul".to_owned(),
        "{\"charges\":[{\"key\":\"\u{1}\"}]}".to_owned(),
        r#"{"charges":[{"key":"\ud800","quota":"1/s"}]}"#.to_owned(),
        "{} {}".to_owned(),
        "{\"body\":1e999}".to_owned(),
        format!("{{\"body\":{}}}", deep("[", "]", 100_000)),
        format!("{{\"body\":{}}}", deep("{\"a\":", "}", 20_000)),
        deep("[", "]", 100_000),
    ];
    for text in &malformed {
        for path in ["/v1/limit", "/v1/check", "/v1/limit/batch", "/v1/settle"] {
            let reply = client.post(path, text);
            let shown: String = text.chars().take(60).collect();
            if path == "/v1/check" && text.starts_with("{\"body\"") {
                assert_eq!(reply.status, 200, "a body that cannot be read is judged: {shown}");
                continue;
            }
            assert!(matches!(reply.status, 400 | 422), "{path} {shown}: {}", reply.text());
            assert_eq!(reply.header("content-type"), Some("application/problem+json"));
            assert!(reply.body.len() < 1_000, "what was sent is not sent back: {}", reply.text());
        }
    }
    for bytes in [&b"{\"charges\":[{\"key\":\"\xff\xfe\"}]}"[..], b"\x00\x01\x02", b"\xff"] {
        assert_eq!(client.ask("POST", "/v1/limit", &[], bytes).status, 400);
    }
    for text in ["null", "1", "\"x\"", "[]", "[1,2]", "true", r#"{"charges":{}}"#, r#"{"charges":null}"#] {
        assert_eq!(client.post("/v1/limit", text).status, 422, "{text}");
    }
    is_well(&rig);
}

#[test]
fn what_was_sent_is_not_sent_back() {
    let rig = rig();
    let mut client = rig.client();
    let long = "\u{e9}".repeat(50_000);
    let calls = [
        json!({ "cost": long }),
        json!({ long.clone(): 1 }),
        json!({ "headers": { long.clone(): 1 } }),
        json!({ "service": long }),
    ];
    for call in calls {
        let reply = client.call("/v1/check", &call);
        assert_eq!(reply.status, 422);
        assert!(reply.body.len() < 4_000, "{} bytes", reply.body.len());
    }
}

#[test]
fn members_that_stand_twice_are_refused() {
    let rig = rig();
    let mut client = rig.client();
    for text in [
        r#"{"charges":[{"key":"a","key":"b","quota":"1/s"}]}"#,
        r#"{"charges":[{"key":"a","quota":"1/s"}],"charges":[]}"#,
    ] {
        assert_eq!(client.post("/v1/limit", text).status, 422, "{text}");
    }
    assert_eq!(client.post("/v1/check", r#"{"identity":{"user":"a","user":"b"}}"#).status, 422);
}

#[test]
fn bodies_that_are_too_long_are_refused_before_they_are_read() {
    let rig = rig();
    for (path, max) in [("/v1/limit", BODY_BYTES_MAX), ("/v1/check/batch", BATCH_BYTES_MAX)] {
        // Announced: nothing of it needs to come.
        let mut client = rig.client();
        client.send(
            format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", max + 1).as_bytes(),
        );
        let reply = client.reply().unwrap();
        assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
        assert!(client.is_over());
        // In pieces, without an end.
        let mut client = rig.client();
        client.send(
            format!("POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes(),
        );
        let chunk = [&b"10000\r\n"[..], &[b' '; 65_536], b"\r\n"].concat();
        (0..=max / 65_536).for_each(|_| client.send(&chunk));
        assert_eq!(client.reply().expect("an answer").status, 413);
        assert!(client.is_over());
        // Exactly as long as it may be.
        let mut client = rig.client();
        assert!(matches!(client.post(path, &" ".repeat(max)).status, 400 | 422));
    }
    is_well(&rig);
}

/// Bodies are bounded all together: who holds on to much of one leaves room for short calls.
#[test]
fn bodies_are_bounded_together() {
    const LONG: usize = 1 << 20;
    let (rig, _) = Setup { bodies_max: LONG + (256 << 10), ..Setup::default() }.in_memory();
    let head = |path: &str, length: usize| {
        format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n")
    };
    let hold = || {
        let client = rig.client();
        let mut stream: &TcpStream = client.stream();
        let _ = stream.write_all(head("/v1/limit/batch", LONG).as_bytes());
        let _ = stream.write_all(&[b' '; LONG - 1]);
        client
    };
    // A long body that is no JSON: what is answered tells whether it was read.
    let ask = || {
        let mut client = rig.client();
        client.send(head("/v1/check/batch", 600 << 10).as_bytes());
        let mut stream: &TcpStream = client.stream();
        // It may be answered, and cut off, before all of it is sent.
        let _ = stream.write_all(&[b' '; 600 << 10]);
        client.reply()
    };
    let until = |status: u16, meanwhile: &mut dyn FnMut()| {
        let start = Instant::now();
        loop {
            meanwhile();
            match ask() {
                Some(reply) if reply.status == status => return reply,
                _ => assert!(start.elapsed() < PATIENCE, "not in time: {status}"),
            }
        }
    };
    // Whoever is read while the other is there may be the one without room.
    let mut holding = Vec::new();
    let reply = until(503, &mut || holding.push(hold()));
    assert_eq!((reply.header("connection"), reply.header("retry-after")), (Some("close"), Some("1")));
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    is_well(&rig);
    // Also if it does not come with its head.
    let mut short = rig.client();
    short
        .send(head("/v1/limit", CALL.len()).replace("host: x", "host: x\r\nexpect: 100-continue").as_bytes());
    assert_eq!(short.reply().unwrap().status, 100);
    short.send(CALL.as_bytes());
    assert_eq!(short.reply().unwrap().status, 200);
    drop(holding);
    until(400, &mut || ());
}

#[test]
fn heads_are_bounded() {
    let rig = rig();
    let heads = [
        (format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(HEAD_BYTES_MAX)), vec![414, 431]),
        (format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX)), vec![431]),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEAD_LINES_MAX + 1)), vec![431]),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), vec![400, 505]),
        ("hello\r\n\r\n".to_owned(), vec![400]),
        ("GET / HTTP/1.1\r\nbad header\r\n\r\n".to_owned(), vec![400]),
        ("POST /v1/limit HTTP/1.1\r\ncontent-length: -1\r\n\r\n".to_owned(), vec![400]),
        (
            "POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: 18446744073709551615\r\n\r\n".to_owned(),
            vec![400],
        ),
        (
            "POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: 18446744073709551616\r\n\r\n".to_owned(),
            vec![400],
        ),
        ("POST /v1/limit HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n".to_owned(), vec![400]),
        ("POST /v1/limit HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx".to_owned(), vec![400]),
        ("POST /v1/limit HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(), vec![400]),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".to_owned(), vec![400]),
    ];
    for (head, statuses) in heads {
        let mut client = rig.client();
        client.send(head.as_bytes());
        let shown: String = head.chars().take(60).collect();
        let reply = client.reply().unwrap_or_else(|| panic!("{shown}: no answer"));
        assert!(statuses.contains(&reply.status), "{shown}: {}", reply.status);
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{shown}");
        assert_eq!(
            (&reply.json()["status"], reply.header("connection")),
            (&json!(reply.status), Some("close"))
        );
        assert!(client.is_over(), "{shown}");
    }
    let metrics = rig.client().get("/metrics");
    for (status, count) in [(400, 9), (431, 3)] {
        let line = format!("ratekeeper_requests_total{{endpoint=\"unknown\",status=\"{status}\"}} {count}\n");
        assert!(metrics.text().contains(&line), "{line}{}", metrics.text());
    }
    is_well(&rig);
}

/// Who writes all before it reads sees the answer, whyever the body was not read. The rest is read and forgotten.
#[test]
fn who_writes_all_of_it_first_sees_the_answer() {
    const LONG: usize = 8 << 20;
    let rig = rig();
    let cases = [
        ("POST /v1/limit HTTP/1.1\r\nhost: x\r\n", 413),
        ("POST /v1/limit/batch HTTP/1.1\r\nhost: x\r\n", 413),
        ("POST /v1/limit HTTP/1.1\r\n", 400),
        ("POST /v1/limit HTTP/1.1\r\nhost: x\r\norigin: http://evil\r\n", 403),
        ("POST /v1/reset HTTP/1.1\r\nhost: evil\r\n", 403),
        ("POST /nowhere HTTP/1.1\r\nhost: x\r\n", 404),
        ("PUT /v1/limit HTTP/1.1\r\nhost: x\r\n", 405),
        ("POST /healthz HTTP/1.1\r\nhost: x\r\n", 405),
        ("GET /healthz HTTP/1.1\r\nhost: x\r\n", 200),
    ];
    for (head, status) in cases {
        let mut client = rig.client();
        client.send(format!("{head}content-length: {LONG}\r\n\r\n").as_bytes());
        // Far more than the buffers of both ends take.
        client.send(&vec![b' '; LONG]);
        assert_eq!(client.reply().unwrap_or_else(|| panic!("{head}: no answer")).status, status, "{head}");
        assert!(client.is_over(), "{head}");
    }
    // The same of a head, which is no request yet.
    let mut client = rig.client();
    client.send(&[&b"GET / HTTP/1.1\r\nx: "[..], &vec![b'x'; LONG], b"\r\n\r\n"].concat());
    assert_eq!(client.reply().expect("an answer").status, 431);
    assert!(client.is_over());
    is_well(&rig);
}

/// Long enough for clients that are not slow on purpose, on a busy machine.
const IDLE: Duration = Duration::from_secs(3);

/// A byte now and then does not keep a connection open.
#[track_caller]
fn dribbles_until_cut_off(client: &Client) {
    let mut stream: &TcpStream = client.stream();
    let start = Instant::now();
    while stream.write_all(b"x").is_ok() {
        assert!(start.elapsed() < PATIENCE, "it is read on and on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// It is read on within bounds, of which the time is that of an idle connection here.
#[test]
fn who_never_ends_is_cut_off() {
    let (rig, _) = Setup { idle: IDLE, ..Setup::default() }.in_memory();
    let mut client = rig.client();
    client.send(b"POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n");
    assert_eq!(client.reply().expect("an answer").status, 413);
    dribbles_until_cut_off(&client);
    // Nor does haste.
    let mut client = rig.client();
    client.send(b"POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n");
    let (piece, mut stream): (_, &TcpStream) = (vec![b' '; 1 << 20], client.stream());
    let sent = (0..1_000).take_while(|_| stream.write_all(&piece).is_ok()).count();
    assert!(sent < 100, "{sent} MiB were read");
    is_well(&rig);
}

/// Bodies whose length others may understand otherwise: what is a body to them would be a request to us.
#[test]
fn nothing_is_smuggled_behind_a_body() {
    let rig = rig();
    let smuggled = "GET /v1/hot-keys HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let chunked = format!("{:x}\r\n{CALL}\r\n0\r\n\r\n", CALL.len());
    let length = CALL.len();
    let cases = [
        (format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n{chunked}"), 400),
        (format!("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n{chunked}"), 400),
        (format!("content-length: {length}\r\ncontent-length: {length}\r\n\r\n{CALL}"), 400),
        (format!("content-length: {length}\r\ncontent-length: 4\r\n\r\n{CALL}"), 400),
        (format!("content-length: {length}, {length}\r\n\r\n{CALL}"), 400),
        (format!("content-length : {length}\r\n\r\n{CALL}"), 400),
        (format!("content-length: +{length}\r\n\r\n{CALL}"), 400),
        (format!("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n{chunked}"), 400),
        (format!("transfer-encoding: gzip, chunked\r\n\r\n{chunked}"), 501),
        (format!("transfer-encoding: chunked, chunked\r\n\r\n{chunked}"), 501),
        (format!("transfer-encoding: xchunked\r\n\r\n{chunked}"), 400),
        (format!("transfer-encoding: chunked, identity\r\n\r\n{chunked}"), 400),
    ];
    for (lines, status) in cases {
        let mut client = rig.client();
        client.send(format!("POST /v1/limit HTTP/1.1\r\nhost: x\r\n{lines}{smuggled}").as_bytes());
        let reply = client.reply().unwrap_or_else(|| panic!("{lines}: no answer"));
        assert_eq!((reply.status, reply.header("connection")), (status, Some("close")), "{lines}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{lines}");
        assert!(client.is_over(), "{lines}: what came behind it was answered");
    }
    // One that says it once is answered, and what comes behind it.
    for lines in [
        format!("transfer-encoding: chunked\r\n\r\n{chunked}"),
        format!("Transfer-Encoding: Chunked\r\n\r\n{chunked}"),
        format!("content-length: {length}\r\n\r\n{CALL}"),
    ] {
        let mut client = rig.client();
        client.send(format!("POST /v1/limit HTTP/1.1\r\nhost: x\r\n{lines}{smuggled}").as_bytes());
        assert_eq!(client.reply().expect("an answer").status, 200, "{lines}");
        assert_eq!(client.reply().expect("an answer").status, 200, "{lines}");
    }
    is_well(&rig);
}

/// A proxy sends the calls of many on one connection: a body that looks like a head is the business of its sender alone.
#[test]
fn a_body_that_looks_like_a_head_harms_nobody_else() {
    let rig = rig();
    let mut client = rig.client();
    let body = format!("{CALL}\ncontent-length: 1\ncontent-length: 2\n");
    let length = body.len();
    client.send(
        format!(
            "POST /v1/limit HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        )
        .as_bytes(),
    );
    assert_eq!(client.reply().unwrap().status, 100, "the call is being read");
    client.send(body.as_bytes());
    let reply = client.reply().expect("an answer");
    assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{}", reply.text());
    assert!(client.is_over(), "so nobody else sends anything on it");
    is_well(&rig);
}

#[test]
fn there_is_no_other_call_and_no_other_method() {
    let rig = rig();
    let mut client = rig.client();
    for path in
        ["/", "/v1", "/v1/limit/", "//v1/limit", "/v1/limit%00", "/v1/../v1/limit", "/dashboard/", "*"]
    {
        assert_eq!(client.ask("POST", path, &[], b"{}").status, 404, "{path}");
    }
    for call in &CALLS {
        let (allow, wrong) = match call.method {
            Method::Get => ("GET, HEAD", ["POST", "PUT", "DELETE"]),
            Method::Post => ("POST", ["GET", "PUT", "PATCH"]),
        };
        for method in wrong {
            let reply = rig.client().ask(method, call.path, &[], b"");
            assert_eq!((reply.status, reply.header("allow")), (405, Some(allow)), "{method} {}", call.path);
        }
    }
    is_well(&rig);
}

#[test]
fn who_dribbles_a_head_is_cut_off() {
    let (rig, _) = Setup { idle: IDLE, ..Setup::default() }.in_memory();
    let mut client = rig.client();
    client.send(b"POST /v1/limit HTTP/1.1\r\n");
    dribbles_until_cut_off(&client);
    let mut late = rig.client();
    late.send(b"POST /v1/limit HTTP/1.1\r\nhost:");
    let reply = late.reply().expect("who begins is told so");
    assert_eq!((reply.status, reply.header("connection")), (408, Some("close")));
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.json()["status"], 408);
    assert!(late.is_over());
    let late = "ratekeeper_requests_total{endpoint=\"unknown\",status=\"408\"} ";
    assert!(rig.client().get("/metrics").text().contains(late));
    let mut idle = rig.client();
    assert!(idle.is_over(), "who says nothing is cut off without a word");
    is_well(&rig);
}

#[test]
fn who_dribbles_a_body_is_told_so_and_cut_off() {
    let (rig, _) = Setup { body_wait: Duration::from_millis(200), ..Setup::default() }.in_memory();
    let mut client = rig.client();
    client.send(b"POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{");
    let reply = client.reply().unwrap();
    assert_eq!((reply.status, reply.header("connection")), (408, Some("close")));
    assert!(client.is_over());
    is_well(&rig);
}

#[test]
fn who_asks_again_and_again_is_not_idle() {
    let (rig, _) = Setup { idle: IDLE, ..Setup::default() }.in_memory();
    let mut client = rig.client();
    let start = Instant::now();
    while start.elapsed() < IDLE * 3 / 2 {
        assert_eq!(client.post("/v1/limit", CALL).status, 200);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn half_a_connection_gets_its_answer() {
    let rig = rig();
    let mut client = rig.client();
    client.send(
        format!("POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{CALL}", CALL.len())
            .as_bytes(),
    );
    client.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.reply().unwrap().status, 200);
    assert!(client.is_over());
    // Half a request is none.
    let mut client = rig.client();
    client.send(b"POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"char");
    client.stream().shutdown(Shutdown::Write).unwrap();
    let reply = client.reply();
    assert!(reply.is_none_or(|reply| reply.status == 400));
    is_well(&rig);
}

#[test]
fn who_hangs_up_in_the_middle_harms_nobody() {
    let rig = rig();
    for _ in 0..50 {
        let mut client = rig.client();
        client.send(b"POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: 45\r\n\r\n{\"charges\"");
        drop(client);
        let mut client = rig.client();
        client.send(
            format!("POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{CALL}", CALL.len())
                .as_bytes(),
        );
        drop(client);
    }
    is_well(&rig);
}

#[test]
fn requests_that_come_together_are_answered_in_order() {
    let rig = rig();
    let mut client = rig.client();
    let one = format!("POST /v1/limit HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{CALL}", CALL.len());
    client.send(one.repeat(50).as_bytes());
    let left: Vec<u64> =
        (0..50).map(|_| client.reply().unwrap().json()["limits"][0]["remaining"].as_u64().unwrap()).collect();
    assert!(left.windows(2).all(|pair| pair[0] > pair[1]), "{left:?}");
}

#[test]
fn connections_beyond_the_bound_are_told_so() {
    let (rig, _) = Setup { connections_max: 3, ..Setup::default() }.in_memory();
    let mut clients: Vec<Client> = (0..3).map(|_| rig.client()).collect();
    for client in &mut clients {
        assert_eq!(client.post("/v1/limit", CALL).status, 200);
    }
    let mut one_too_many = rig.client();
    let reply = one_too_many.reply().expect("an answer without a question");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert_eq!(reply.json()["detail"], json!("too many connections"));
    drop(clients.pop());
    let start = Instant::now();
    // The place is free as soon as the server has noticed.
    while rig.client().post("/v1/limit", CALL).status != 200 {
        assert!(start.elapsed() < PATIENCE);
    }
}
