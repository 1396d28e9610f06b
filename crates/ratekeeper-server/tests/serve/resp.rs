//! The Redis protocol: what `CL.THROTTLE` answers, and every other command.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::prop;
use proptest::test_runner::{Config, TestRunner};
use ratekeeper_server::serve::{Keyring, Listener, Resp, serve_all};
use serde_json::json;

use crate::client::PATIENCE;
use crate::rig::{RUNTIME, Rig, Setup};

/// What is answered to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Number(i64),
    Text(String),
    Null,
    List(Vec<Reply>),
    Map(Vec<Reply>),
}

/// A client that sends exactly what it is told to.
pub(crate) struct RespClient(BufReader<TcpStream>);

impl RespClient {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// Sends a command of these words and reads the reply.
    pub(crate) fn call(&mut self, words: &str) -> Reply {
        self.send(&frame(words));
        self.reply().expect("a reply")
    }

    /// The next reply; nothing if the connection is over.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.strip_suffix("\r\n").unwrap_or(&line);
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().unwrap();
        Some(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(number()),
            "_" => Reply::Null,
            "$" if number() < 0 => Reply::Null,
            "$" => {
                let mut bytes = vec![0; usize::try_from(number()).unwrap() + 2];
                self.0.read_exact(&mut bytes).ok()?;
                bytes.truncate(bytes.len() - 2);
                Reply::Text(String::from_utf8(bytes).unwrap())
            }
            "*" => Reply::List((0..number()).map(|_| self.reply()).collect::<Option<_>>()?),
            "%" => Reply::Map((0..2 * number()).map(|_| self.reply()).collect::<Option<_>>()?),
            _ => panic!("no reply: {line}"),
        })
    }

    /// Whether the server has closed the connection, and everything was read.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }
}

/// A command of these words as it is sent.
pub(crate) fn frame(words: &str) -> Vec<u8> {
    let words: Vec<&str> = words.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes.into_bytes()
}

/// What `CL.THROTTLE` answers.
pub(crate) fn told(numbers: [i64; 5]) -> Reply {
    Reply::List(numbers.map(Reply::Number).to_vec())
}

pub(crate) fn ok() -> Reply {
    Reply::Status("OK".to_owned())
}

pub(crate) fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

/// A listener for the Redis protocol beside the rig's.
pub(crate) fn listen(rig: &Rig, change: impl FnOnce(Resp) -> Resp) -> SocketAddr {
    listen_with(rig, None, change)
}

pub(crate) fn listen_with(
    rig: &Rig,
    password: Option<&str>,
    change: impl FnOnce(Resp) -> Resp,
) -> SocketAddr {
    let _within = RUNTIME.enter();
    let password = password.map(|password| Arc::new(Keyring::with_password(password).unwrap()));
    let resp = change(Resp::new(Arc::clone(&rig.api), password));
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None, Arc::new(resp)).unwrap();
    let (address, stop) = (listener.address(), rig.stop.clone());
    RUNTIME.spawn(async move { serve_all(vec![listener], &stop, 1_000, PATIENCE).await });
    address
}

/// The sequence in redis-cell's own tests: a burst of 4 and one more, one a second.
#[test]
fn replies_are_those_of_redis_cell() {
    let (rig, clock) = Setup::default().in_memory();
    let mut client = RespClient::connect(listen(&rig, |resp| resp));
    // Milliseconds since the beginning, the quantity, the reply.
    #[rustfmt::skip]
    let cases: [(u64, &str, [i64; 5]); 15] = [
        // More than there can ever be is never allowed.
        (0, "6", [1, 5, 5, -1, 0]),
        (0, "1", [0, 5, 4, -1, 1]),
        (0, "1", [0, 5, 3, -1, 2]),
        (0, "1", [0, 5, 2, -1, 3]),
        (0, "1", [0, 5, 1, -1, 4]),
        (0, "1", [0, 5, 0, -1, 5]),
        (0, "1", [1, 5, 0, 1, 5]),
        (3_000, "1", [0, 5, 2, -1, 3]),
        // 3.9 s, rounded up.
        (3_100, "1", [0, 5, 1, -1, 4]),
        (4_000, "1", [0, 5, 1, -1, 4]),
        (8_000, "1", [0, 5, 4, -1, 1]),
        (9_500, "1", [0, 5, 4, -1, 1]),
        // Nothing is charged: a look.
        (9_500, "0", [0, 5, 4, -1, 1]),
        (9_500, "2", [0, 5, 2, -1, 3]),
        (9_500, "5", [1, 5, 2, 3, 3]),
    ];
    let start = crate::rig::START;
    for (millis, quantity, expected) in cases {
        clock.set(start.after(Duration::from_millis(millis)));
        let reply = client.call(&format!("CL.THROTTLE user123 4 1 1 {quantity}"));
        assert_eq!(reply, told(expected), "{quantity} after {millis} ms");
    }
    // Without a quantity, one; a name in any case; no burst at all.
    assert_eq!(client.call("cl.throttle other 15 30 60"), told([0, 16, 15, -1, 2]));
    assert_eq!(client.call("Cl.Throttle user 0 1 2 1"), told([0, 1, 0, -1, 2]));
    assert_eq!(client.call("Cl.Throttle user 0 1 2 1"), told([1, 1, 0, 2, 2]));
    clock.advance(Duration::from_secs(2));
    assert_eq!(client.call("Cl.Throttle user 0 1 2 1"), told([0, 1, 0, -1, 2]));
}

/// The arithmetic that redis-cell documents, a second time: the instant at which the next unit is due, in nanoseconds.
#[derive(Default)]
struct Documented(Option<i128>);

impl Documented {
    fn throttle(&mut self, now: i128, [max_burst, count, period, quantity]: [i128; 4]) -> [i128; 5] {
        let interval = period * 1_000_000_000 / count;
        let (room, asked) = (interval * (max_burst + 1), interval * quantity);
        let due = self.0.map_or(now, |due| due.max(now));
        let wait = due + asked - room - now;
        let is_limited = wait > 0;
        let used = if is_limited { due - now } else { due + asked - now };
        if !is_limited {
            self.0 = Some(due + asked);
        }
        let seconds = |nanos: i128| (nanos + 999_999_999) / 1_000_000_000;
        let retry_after = if is_limited && asked <= room { seconds(wait) } else { -1 };
        [i128::from(is_limited), max_burst + 1, (room - used) / interval, retry_after, seconds(used)]
    }
}

#[test]
fn replies_are_those_of_the_documented_arithmetic() {
    let (rig, clock) = Setup::default().in_memory();
    let mut client = RespClient::connect(listen(&rig, |resp| resp));
    let step = (0_u64..5_000, 0_i128..6);
    // Intervals of whole microseconds: redis-cell drops what is below a nanosecond, and we drop nothing.
    let rate = prop::sample::select(vec![
        (1, 1),
        (1, 2),
        (2, 1),
        (30, 60),
        (1_000, 1),
        (5, 60),
        (8, 3_600),
        (125, 2),
    ]);
    let cases = (0_i128..12, rate, prop::collection::vec(step, 1..40));
    let mut number = 0;
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    let client = std::cell::RefCell::new(&mut client);
    let number = std::cell::RefCell::new(&mut number);
    TestRunner::new(config)
        .run(&cases, |(max_burst, (count, period), steps)| {
            **number.borrow_mut() += 1;
            let (key, mut documented, mut now) = (format!("k{}", number.borrow()), Documented::default(), 0);
            for (millis, quantity) in steps {
                clock.advance(Duration::from_millis(millis));
                now += i128::from(millis) * 1_000_000;
                let expected = documented.throttle(now, [max_burst, count, period, quantity]);
                let call = format!("CL.THROTTLE {key} {max_burst} {count} {period} {quantity}");
                let reply = client.borrow_mut().call(&call);
                let expected = told(expected.map(|number| i64::try_from(number).unwrap()));
                assert_eq!(reply, expected, "{call} after {millis} ms");
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_is_wrong_is_said_as_redis_cell_says_it() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = RespClient::connect(listen(&rig, |resp| resp));
    let usage = "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
    let long = format!("{} 1 1 1", "k".repeat(1_024));
    let cases = [
        ("", usage),
        ("k 1 1", usage),
        ("k 1 1 1 1 1", usage),
        ("k x 1 1", "Couldn't parse as integer: x"),
        ("k 1 1.5 1", "Couldn't parse as integer: 1.5"),
        ("k 1 1 99999999999999999999", "Couldn't parse as integer: 99999999999999999999"),
        ("k 1 1 1 many", "Couldn't parse as integer: many"),
        ("k 1 0 1", "Zero rates are not supported"),
        ("k 1 1 0", "Zero rates are not supported"),
        // These are bounds of ours.
        ("k -1 1 1", "max_burst: got -1; expected 0 to 999999999"),
        ("k 1 -1 1", "count per period: got -1; expected 1 to 1000000000"),
        ("k 1 1 -1", "period: got -1; expected at least 1"),
        ("k 1 1 1 -1", "quantity: got -1; expected at least 0"),
        ("k 1 1 99999999", "period: got 99999999; expected "),
        (
            "k 999999999 1 60",
            "max_burst: got 1000000000 at 1 per 60s; expected a burst or queue that refills within",
        ),
        (&long, "key: expected 1 to 1023 bytes of UTF-8"),
    ];
    for (arguments, expected) in cases {
        let words = format!("CL.THROTTLE {arguments}");
        let Reply::Error(told) = client.call(words.trim_end()) else { panic!("{arguments}") };
        let expected = format!("Cell error: Store error: {expected}");
        assert!(told.starts_with(&expected), "{arguments}: {told}");
    }
    client.send(b"*5\r\n$11\r\nCL.THROTTLE\r\n$2\r\n\xff\xfe\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n");
    assert!(matches!(client.reply(), Some(Reply::Error(told)) if told.contains("key: expected")));
    assert_eq!(client.call("CL.THROTTLE k 1 1 1"), told([0, 2, 1, -1, 1]), "the connection goes on");
}

#[test]
fn commands_of_clients_are_answered_as_redis_answers_them() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = RespClient::connect(listen(&rig, |resp| resp));
    let text = |text: &str| Reply::Text(text.to_owned());
    let Reply::Number(id) = client.call("CLIENT ID") else { panic!() };
    #[rustfmt::skip]
    let cases = [
        ("PING", Reply::Status("PONG".to_owned())),
        ("ping hello", text("hello")),
        ("PING a b", error("ERR wrong number of arguments for 'ping' command")),
        ("ECHO x", text("x")),
        ("ECHO", error("ERR wrong number of arguments for 'echo' command")),
        ("SELECT 0", ok()),
        ("SELECT 1", error("ERR DB index is out of range")),
        ("SELECT x", error("ERR value is not an integer or out of range")),
        ("CLIENT SETINFO LIB-NAME redis-py", ok()),
        ("CLIENT SETINFO lib-ver 7.0", ok()),
        ("CLIENT SETINFO lib-x 7.0", error("ERR Unrecognized option 'lib-x'")),
        ("CLIENT GETNAME", Reply::Null),
        ("CLIENT SETNAME app-1", ok()),
        ("CLIENT GETNAME", text("app-1")),
        ("CLIENT ID", Reply::Number(id)),
        ("COMMAND COUNT", Reply::Number(11)),
        ("AUTH secret", error("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")),
        ("AUTH default secret", ok()),
        ("HELLO 4", error("NOPROTO unsupported protocol version")),
        ("HELLO x", error("ERR Protocol version is not an integer or out of range")),
        ("HELLO 3 WHAT", error("ERR Syntax error in HELLO option 'WHAT'")),
        ("GET k", error("ERR unknown command 'GET', with args beginning with: 'k' ")),
        ("RESET", Reply::Status("RESET".to_owned())),
        ("CLIENT GETNAME", Reply::Null),
    ];
    for (words, expected) in cases {
        assert_eq!(client.call(words), expected, "{words}");
    }
    assert!(
        matches!(client.call("CLIENT KILL x"), Reply::Error(told) if told.contains("expected ID, SETNAME"))
    );
    assert!(
        matches!(client.call("INFO"), Reply::Text(told) if told.contains("redis_version:7.") && told.contains("loading:0"))
    );
    assert!(matches!(client.call("INFO server"), Reply::Text(_)));
    let Reply::List(all) = client.call("COMMAND") else { panic!() };
    let Reply::List(throttle) = &all[0] else { panic!() };
    assert_eq!((all.len(), &throttle[0], &throttle[3]), (11, &text("cl.throttle"), &Reply::Number(1)));
    assert!(matches!(client.call("COMMAND DOCS cl.throttle"), Reply::List(told) if told.len() == 2));
    assert!(matches!(client.call("COMMAND INFO get ping"), Reply::List(told) if told[0] == Reply::Null));
    assert_eq!(client.call("QUIT"), ok());
    assert!(client.is_over());
}

#[test]
fn clients_choose_the_version_of_the_protocol() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = RespClient::connect(listen(&rig, |resp| resp));
    let text = |text: &str| Reply::Text(text.to_owned());
    let Reply::Number(id) = client.call("CLIENT ID") else { panic!() };
    let hello = |proto: i64, id: i64| {
        vec![
            text("server"),
            text("redis"),
            text("version"),
            text("7.2.0"),
            text("proto"),
            Reply::Number(proto),
            text("id"),
            Reply::Number(id),
            text("mode"),
            text("standalone"),
            text("role"),
            text("master"),
            text("modules"),
            Reply::List(Vec::new()),
        ]
    };
    assert_eq!(client.call("HELLO"), Reply::List(hello(2, id)));
    assert_eq!(client.call("HELLO 3 SETNAME app-2"), Reply::Map(hello(3, id)));
    assert_eq!(client.call("CLIENT GETNAME"), text("app-2"));
    assert_eq!(client.call("CL.THROTTLE k 0 1 1"), told([0, 1, 0, -1, 1]), "the same in both");
    assert_eq!(client.call("HELLO 2"), Reply::List(hello(2, id)));
    assert_eq!(client.call("QUIT"), ok());
    assert!(client.is_over());
}

#[test]
fn people_may_type_lines() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = RespClient::connect(listen(&rig, |resp| resp));
    client.send(b"PING\r\n\r\ncl.throttle \"my key\" 0 1 1\nCL.THROTTLE 'my key' 0 1 1\r\n");
    assert_eq!(client.reply(), Some(Reply::Status("PONG".to_owned())));
    assert_eq!(client.reply(), Some(told([0, 1, 0, -1, 1])));
    assert_eq!(client.reply(), Some(told([1, 1, 0, 1, 1])));
}

#[test]
fn without_the_password_nothing_is_charged() {
    const PASSWORD: &str = "correct-horse-battery";
    let (rig, clock) = Setup::default().in_memory();
    let address = listen_with(&rig, Some(PASSWORD), |resp| resp);
    let mut client = RespClient::connect(address);
    let refused = || error("NOAUTH Authentication required.");
    for words in ["PING", "CL.THROTTLE k 0 1 1", "CL.THROTTLE", "INFO", "COMMAND", "GET x", "SELECT 0"] {
        assert_eq!(client.call(words), refused(), "{words}");
    }
    assert!(
        matches!(client.call("HELLO 3"), Reply::Error(told) if told.starts_with("NOAUTH HELLO must be called"))
    );
    let wrong = error("WRONGPASS invalid username-password pair or user is disabled.");
    assert_eq!(client.call("AUTH wrong-horse-battery"), wrong);
    assert_eq!(client.call(&format!("AUTH somebody {PASSWORD}")), wrong);
    assert_eq!(client.call("HELLO 3 AUTH default x"), wrong);
    assert_eq!(client.call("AUTH"), error("ERR wrong number of arguments for 'auth' command"));
    assert_eq!(client.call("PING"), refused());
    assert_eq!(client.call(&format!("AUTH {PASSWORD}")), ok());
    assert_eq!(client.call("CL.THROTTLE k 0 1 1"), told([0, 1, 0, -1, 1]), "it was not charged before");
    assert_eq!(client.call("RESET"), Reply::Status("RESET".to_owned()));
    assert_eq!(client.call("PING"), refused());
    assert!(matches!(client.call(&format!("HELLO 3 AUTH default {PASSWORD}")), Reply::Map(_)));
    assert_eq!(client.call("PING"), Reply::Status("PONG".to_owned()));
    assert_eq!(client.call("QUIT"), ok());
    drop(clock);

    // Guesses are limited by the address they come from, and then no password is looked at.
    let mut client = RespClient::connect(address);
    let guess = |client: &mut RespClient| client.call("AUTH guess-guess-guess-guess");
    let tries = (0..20).take_while(|_| guess(&mut client) == wrong).count();
    assert!(tries < 20, "{tries}");
    let right = client.call(&format!("AUTH {PASSWORD}"));
    assert!(matches!(right, Reply::Error(told) if told.contains("too many wrong passwords")));
}

#[test]
fn a_pipeline_is_answered_in_order_however_it_is_cut() {
    let (rig, _) = Setup::default().in_memory();
    let address = listen(&rig, |resp| resp);
    let mut bytes = Vec::new();
    for index in 0..1_000 {
        bytes.extend(frame(&format!("CL.THROTTLE shared 1998 1 60 {}", index % 3)));
        bytes.extend(frame(&format!("ECHO {index}")));
    }
    let expected: Vec<i64> = (0..1_000)
        .scan(1_999, |left, index| {
            *left -= index % 3;
            Some(*left)
        })
        .collect();
    for pieces in [bytes.len(), 1, 7, 4_096] {
        let mut client = RespClient::connect(address);
        let (stream, copy) = (client.stream().try_clone().unwrap(), bytes.clone());
        let key = format!("key{pieces:03}").replace("key", "k");
        let copy =
            String::from_utf8(copy).unwrap().replace("$6\r\nshared", &format!("${}\r\n{key}", key.len()));
        let sender = std::thread::spawn(move || {
            let mut stream = stream;
            copy.as_bytes().chunks(pieces).for_each(|piece| stream.write_all(piece).unwrap());
        });
        for (index, left) in expected.iter().enumerate() {
            let Some(Reply::List(numbers)) = client.reply() else { panic!("{index}") };
            assert_eq!(numbers[2], Reply::Number(*left), "{index}");
            assert_eq!(client.reply(), Some(Reply::Text(index.to_string())));
        }
        sender.join().unwrap();
    }
}

#[test]
fn counters_are_those_of_charges_without_a_policy() {
    let (rig, _) = Setup::default().in_memory();
    let mut client = RespClient::connect(listen(&rig, |resp| resp));
    assert_eq!(client.call("CL.THROTTLE ann 9 10 60 4"), told([0, 10, 6, -1, 24]));
    let charge = json!({ "charges": [{ "name": "cl.throttle", "key": "ann", "quota": "10/min" }] });
    let mut http = rig.client();
    let peeked = http.call("/v1/peek", &charge).json();
    assert_eq!(peeked["limits"][0]["remaining"], 6, "{peeked}");
    assert_eq!(http.call("/v1/reset", &charge).json()["forgotten"], 1);
    assert_eq!(client.call("CL.THROTTLE ann 9 10 60"), told([0, 10, 9, -1, 6]));
    assert_eq!(client.call("CL.THROTTLE ann 9 10 60 11"), told([1, 10, 9, -1, 6]));

    // What operators set for everything holds here too.
    let set = |http: &mut crate::client::Client, to: &str| {
        let call = json!({ "rule": "*", "emergency": to, "for": "1h" });
        let reply = http.call("/v1/emergencies/set", &call);
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    set(&mut http, "block");
    assert_eq!(client.call("CL.THROTTLE bob 9 10 60"), told([1, 10, 10, -1, 0]));
    set(&mut http, "lift");
    assert_eq!(client.call("CL.THROTTLE bob 9 10 60 11"), told([0, 10, 10, -1, 0]));

    let metrics = http.get("/metrics");
    for line in [
        "ratekeeper_resp_commands_total{command=\"cl.throttle\",outcome=\"answered\"} 5",
        "ratekeeper_limit_decisions_total{name=\"cl.throttle\",outcome=\"allowed\"} 3",
        "ratekeeper_limit_decisions_total{name=\"cl.throttle\",outcome=\"denied\"} 2",
    ] {
        assert!(metrics.text().contains(line), "{line}\n{}", metrics.text());
    }
}
