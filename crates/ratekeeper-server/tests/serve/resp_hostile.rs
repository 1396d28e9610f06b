//! The Redis protocol, spoken by those who mean no good, and its end.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper::{ManualClock, MemoryStore, OnOutage, RedisStore, Store};
use ratekeeper_server::serve::{COMMAND_BYTES_MAX, Http, Listener, Resp, Stop, serve_all};
use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::json;

use crate::calls::remaining;
use crate::client::{Client, PATIENCE};
use crate::resp::{Reply, RespClient, error, frame, listen, ok, told};
use crate::rig::{RUNTIME, START, Setup};

#[test]
fn what_is_no_command_is_named_and_ends_the_connection() {
    let (rig, _) = Setup::default().in_memory();
    let address = listen(&rig, |resp| resp);
    let endless = vec![b'x'; 4 * COMMAND_BYTES_MAX];
    let cases: [(&[u8], &str); 8] = [
        (b"*1000000\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n$4\r\nPING\r\n", "invalid multibulk length"),
        (b"*1\r\n$536870912\r\n", "invalid bulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n:4\r\n", "expected '$', got ':'"),
        (b"GET / HTTP/1.1 \"x\r\n\r\n", "unbalanced quotes in request"),
        (b"\x16\x03\x01\x02\x00\x01\n\"", "unbalanced"),
        (&endless, "too big inline request"),
    ];
    for (bytes, expected) in cases {
        let mut client = RespClient::connect(address);
        client.send(&frame("CL.THROTTLE k 9999 1 60"));
        client.send(bytes);
        let Some(Reply::List(_)) = client.reply() else { panic!("what came before is answered") };
        let mut last = client.reply();
        if let Some(Reply::Error(unknown)) = &last
            && unknown.starts_with("ERR unknown command")
        {
            let _ = client.stream().shutdown(std::net::Shutdown::Write);
            last = client.reply();
            assert!(last.is_none(), "{last:?}");
            continue;
        }
        assert!(
            matches!(&last, Some(Reply::Error(told)) if told.starts_with("ERR Protocol error: ") && told.contains(expected)),
            "{}: {last:?}",
            bytes[..20.min(bytes.len())].escape_ascii()
        );
        assert!(client.is_over());
    }
}

#[test]
fn half_a_command_is_waited_for_and_no_longer() {
    let (rig, _) = Setup::default().in_memory();
    let wait = Duration::from_millis(300);
    let address = listen(&rig, |resp| resp.patience(PATIENCE, wait));
    let start = Instant::now();
    let mut half = RespClient::connect(address);
    half.send(b"*5\r\n$11\r\nCL.THROTTLE\r\n$100\r\nabc");
    let mut idle = RespClient::connect(address);
    assert_eq!(half.reply(), Some(error("ERR Protocol error: the rest of a command did not come in time")));
    assert!(half.is_over() && start.elapsed() >= wait, "{:?}", start.elapsed());
    assert_eq!(idle.call("PING"), Reply::Status("PONG".to_owned()), "who says nothing may stay");
}

#[test]
fn who_says_nothing_is_let_go_after_a_while() {
    let (rig, _) = Setup::default().in_memory();
    let address = listen(&rig, |resp| resp.patience(Duration::from_millis(300), PATIENCE));
    let mut idle = RespClient::connect(address);
    assert_eq!(idle.call("PING"), Reply::Status("PONG".to_owned()));
    assert!(idle.is_over());
}

#[test]
fn who_takes_no_replies_is_not_read_from_and_let_go() {
    let (rig, _) = Setup::default().in_memory();
    let address = listen(&rig, |resp| resp.patience(PATIENCE, Duration::from_millis(500)));
    let greedy = RespClient::connect(address);
    let mut stream = greedy.stream().try_clone().unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let echo = frame(&format!("ECHO {}", "x".repeat(8_000)));
    // More than all buffers of two sockets hold: the server has to stop reading, and then gives up.
    let failed = (0..100_000).find_map(|_| stream.write_all(&echo).err());
    let kind = failed.expect("it does not read for ever").kind();
    assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind}");
}

#[test]
fn the_bound_on_connections_is_that_of_all_listeners() {
    let (rig, _) = Setup::default().in_memory();
    let stop = Stop::default();
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let (http, resp) = {
        let _within = RUNTIME.enter();
        let http = Http::new(Arc::clone(&rig.api), ratekeeper_server::serve::Admin::Off, stop.clone());
        let resp = Resp::new(Arc::clone(&rig.api), None);
        (
            Listener::bind(anywhere, None, Arc::new(http)).unwrap(),
            Listener::bind(anywhere, None, Arc::new(resp)).unwrap(),
        )
    };
    let (http_at, resp_at) = (http.address(), resp.address());
    let stopping = stop.clone();
    let served = RUNTIME.spawn(async move { serve_all(vec![http, resp], &stopping, 2, PATIENCE).await });
    let mut one = RespClient::connect(resp_at);
    assert_eq!(one.call("PING"), Reply::Status("PONG".to_owned()));
    let mut two = Client::connect(http_at);
    assert_eq!(two.get("/healthz").status, 200);
    let mut three = RespClient::connect(resp_at);
    assert_eq!(three.reply(), Some(error("ERR max number of clients reached")));
    assert!(three.is_over());
    drop(two);
    // The place is free as soon as the server has noticed.
    let start = Instant::now();
    loop {
        let mut next = RespClient::connect(resp_at);
        next.send(&frame("PING"));
        if next.reply() == Some(Reply::Status("PONG".to_owned())) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "the place is never free");
    }
    stop.finish();
    assert!(one.is_over());
    assert!(RUNTIME.block_on(served).unwrap(), "all connections ended");
}

#[test]
fn what_was_sent_before_the_end_is_answered() {
    let (rig, _) = Setup::default().in_memory();
    let address = listen(&rig, |resp| resp);
    let mut clients: Vec<RespClient> = (0..20).map(|_| RespClient::connect(address)).collect();
    for client in &mut clients {
        assert_eq!(client.call("PING"), Reply::Status("PONG".to_owned()));
    }
    let mut silent = RespClient::connect(address);
    assert_eq!(silent.call("PING"), Reply::Status("PONG".to_owned()));
    for client in &mut clients {
        client.send(&frame("CL.THROTTLE k 999 1 60").repeat(10));
    }
    rig.stop.finish();
    let answered: usize =
        clients.iter_mut().map(|client| std::iter::from_fn(|| client.reply()).count()).sum();
    assert_eq!(answered, 200);
    assert!(silent.is_over());
}

#[test]
fn a_server_that_drains_serves_on_and_lets_those_go_who_say_nothing() {
    let (rig, _) = Setup::default().in_memory();
    let address = listen(&rig, |resp| resp);
    let (mut busy, mut silent) = (RespClient::connect(address), RespClient::connect(address));
    assert_eq!(silent.call("PING"), Reply::Status("PONG".to_owned()));
    rig.stop.drain(Duration::from_secs(2));
    assert_eq!(busy.call("CL.THROTTLE k 0 1 60"), told([0, 1, 0, -1, 60]));
    assert!(silent.is_over());
}

#[test]
fn a_pipeline_on_a_server_is_judged_together_and_in_order() {
    let server = Server::start(Flavour::Redis7);
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder(&server.url()).deadline(PATIENCE).build().unwrap()
    };
    let rig = Setup::default().start(Arc::new(store));
    let mut client = RespClient::connect(listen(&rig, |resp| resp));
    assert!(matches!(client.call("CL.THROTTLE warm 0 1 60"), Reply::List(_)));
    let calls = || -> u64 {
        let told = server.cli(&["INFO", "commandstats"]);
        let line = told.lines().filter(|line| line.starts_with("cmdstat_eval"));
        let count = |line: &str| {
            line.split_once("calls=").unwrap().1.split(',').next().unwrap().parse::<u64>().unwrap()
        };
        line.map(count).sum()
    };
    let before = calls();
    let mut bytes = frame("CL.THROTTLE k 299 1 60").repeat(300);
    bytes.extend(frame("PING"));
    client.send(&bytes);
    for left in (0..300).rev() {
        let Some(Reply::List(numbers)) = client.reply() else { panic!("{left}") };
        assert_eq!((&numbers[0], &numbers[2]), (&Reply::Number(0), &Reply::Number(left)));
    }
    assert_eq!(client.reply(), Some(Reply::Status("PONG".to_owned())));
    let batches = calls() - before;
    assert!(batches <= 60, "{batches} calls for 300 charges");
    assert!(
        matches!(client.call("CL.THROTTLE k 299 1 60"), Reply::List(told) if told[0] == Reply::Number(1))
    );
}

#[test]
fn without_its_store_it_answers_as_it_was_told_to() {
    let cases = [
        (OnOutage::Allow, [0, 2, 2, -1, 0], [0, 2, 2, -1, 0]),
        (OnOutage::Local, [0, 2, 1, -1, 60], [0, 2, 0, -1, 120]),
        (OnOutage::Deny, [1, 2, 0, 1, 0], [1, 2, 0, 1, 0]),
    ];
    for (on_outage, first, second) in cases {
        let store = {
            let _within = RUNTIME.enter();
            // Where nobody listens.
            RedisStore::builder("redis://127.0.0.1:9").deadline(Duration::from_millis(50)).build().unwrap()
        };
        let rig = Setup::default().start(Arc::new(store));
        let mut client = RespClient::connect(listen(&rig, |resp| resp.on_outage(on_outage)));
        assert_eq!(client.call("CL.THROTTLE k 1 1 60"), told(first), "{on_outage:?}");
        let Reply::List(numbers) = client.call("CL.THROTTLE k 1 1 60") else { panic!() };
        assert_eq!(
            Reply::List(numbers[..4].to_vec()),
            Reply::List(second[..4].iter().map(|n| Reply::Number(*n)).collect())
        );
        assert_eq!(client.call("QUIT"), ok());
    }
}

#[test]
fn thousands_of_half_commands_are_bounded() {
    let (rig, _) = Setup::default().in_memory();
    let address = listen(&rig, |resp| resp);
    let half = [b"*2\r\n$4\r\nECHO\r\n$8000\r\n".to_vec(), vec![b'x'; 7_000]].concat();
    let mut crowd: Vec<RespClient> = (0..900).map(|_| RespClient::connect(address)).collect();
    crowd.iter_mut().for_each(|client| client.send(&half));
    let mut other = RespClient::connect(address);
    assert_eq!(other.call("PING"), Reply::Status("PONG".to_owned()));
    for client in &mut crowd {
        client.send(&[vec![b'x'; 1_000], b"\r\n".to_vec()].concat());
    }
    for client in &mut crowd {
        assert!(matches!(client.reply(), Some(Reply::Text(told)) if told.len() == 8_000));
        let mut nothing = [0];
        client.stream().set_nonblocking(true).unwrap();
        assert_eq!(client.stream().read(&mut nothing).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

/// All raw charges are together one rule, by whichever protocol they come: whoever makes keys up pushes out its own.
#[test]
fn made_up_keys_push_out_no_counter_of_a_rule() {
    const POLICY: &str = "service = \"s\"\n[[rules]]\nname = \"per-user\"\nkeys = \"user:{identity.user}\"\nquota = \"100/h\"\n";
    let store = Arc::new(MemoryStore::with_clock(2_560, Arc::new(ManualClock::starting_at(START))));
    let rig = Setup::policy(POLICY).start(Arc::clone(&store) as Arc<dyn Store>);
    let mut client = rig.client();
    let check = |user: usize, cost: u64| json!({ "identity": { "user": user.to_string() }, "cost": cost });
    for user in 0..100 {
        let reply = client.call("/v1/check", &check(user, 98));
        assert_eq!((reply.status, remaining(&reply.json())), (200, vec![2]), "{}", reply.text());
    }
    let mut resp = RespClient::connect(listen(&rig, |resp| resp));
    for batch in 0..400 {
        let calls: Vec<u8> =
            (0..64).flat_map(|key| frame(&format!("CL.THROTTLE k{batch}-{key} 0 1 3600"))).collect();
        resp.send(&calls);
        for key in 0..64 {
            assert_eq!(
                resp.reply(),
                Some(told([0, 1, 0, -1, 3_600])),
                "{batch} {key}: a new key is no outage"
            );
        }
    }
    assert!(store.health().evicted > 20_000, "{:?}", store.health());
    for user in 0..100 {
        let reply = client.call("/v1/check", &check(user, 1));
        assert_eq!((reply.status, remaining(&reply.json())), (200, vec![1]), "user {user}");
    }
}
