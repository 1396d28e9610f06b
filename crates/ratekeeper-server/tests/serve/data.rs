//! The binary with a data directory: what it keeps through restarts, crashes and a full disk.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use ratekeeper_testkit::wait;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::binary::{Running, command, refused};
use crate::client::Client;

fn kept_in(directory: &Path) -> Running {
    let directory = directory.to_str().unwrap();
    Running::start(&mut command(&["--http", "127.0.0.1:0", "--admin-without-token", "--data", directory]))
}

/// Charges a key that takes a day to be full again; what is left.
fn charge(client: &mut Client, key: &str) -> u64 {
    let call = json!({ "charges": [{ "key": key, "quota": "100000/d" }] });
    let answer = client.call("/v1/limit", &call);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["limits"][0]["remaining"].as_u64().unwrap()
}

fn override_of(number: usize) -> Json {
    json!({ "endpoint": "kept", "organisation": "acme", "project": number.to_string() })
}

fn set(client: &mut Client, number: usize, reason: &str) -> u16 {
    let mut call = override_of(number);
    call["limit"] = json!(number);
    call["reason"] = json!(reason);
    client.call("/v1/overrides/set", &call).status
}

#[test]
fn everything_is_there_after_a_stop() {
    let folder = TempDir::new().unwrap();
    let server = kept_in(folder.path());
    assert!(server.said.join("\n").contains("kept in"), "{:?}", server.said);
    let mut client = server.client();
    for left in (99_990..100_000).rev() {
        assert_eq!(charge(&mut client, "ann"), left);
    }
    assert_eq!(set(&mut client, 7, "an incident"), 200);
    let mut refund = json!({ "charges": [{ "key": "ben", "quota": "100/d", "cost": 9 }] });
    refund["decision"] = client.call("/v1/limit", &refund).json();
    refund["units"] = json!(4);
    assert_eq!(client.call("/v1/refund", &refund).json()["units"], 4);
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));

    let server = kept_in(folder.path());
    let mut client = server.client();
    assert_eq!(charge(&mut client, "ann"), 99_989);
    let found = client.call("/v1/overrides/get", &override_of(7)).json();
    assert_eq!((&found["limit"], &found["reason"]), (&json!(7), &json!("an incident")));
    refund["units"] = json!(9);
    let back = client.call("/v1/refund", &refund);
    assert_eq!(back.json()["units"], 5, "a receipt of before is good for the rest: {}", back.text());
    let answer = client.get("/metrics");
    let metrics = answer.text();
    for name in ["ratekeeper_data_bytes ", "ratekeeper_data_age_seconds ", "ratekeeper_data_failures_total 0"]
    {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
}

#[test]
fn a_second_server_refuses_to_start() {
    let folder = TempDir::new().unwrap();
    let server = kept_in(folder.path());
    let error = refused(&mut command(&["--http", "127.0.0.1:0", "--data", folder.path().to_str().unwrap()]));
    assert!(error.contains("uses already") && error.contains("let all ask one ratekeeper server"), "{error}");
    drop(server);
    kept_in(folder.path());
}

/// Killed again and again in the middle of writing: what was acknowledged is there.
#[test]
fn a_crash_loses_no_override_and_no_switch_that_was_acknowledged() {
    const ROUNDS: usize = 10;
    let folder = TempDir::new().unwrap();
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let server = kept_in(folder.path());
        let mut client = server.client();
        for number in 0..acknowledged {
            let found = client.call("/v1/overrides/get", &override_of(number));
            assert_eq!(found.json()["limit"], number, "round {round}: {}", found.text());
        }
        let enough = 3 + round * 2;
        let is_killed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut set_here = 0;
                // Until it is gone: an answer that is not read was not acknowledged.
                while let Some(status) = try_set(server.address, acknowledged) {
                    assert_eq!(status, 200);
                    acknowledged += 1;
                    set_here += 1;
                    if set_here == enough {
                        is_killed.store(true, Ordering::Release);
                    }
                }
            });
            wait::until("some overrides are set", || is_killed.load(Ordering::Acquire));
            server.signal("KILL");
        });
        assert_eq!(server.end().0, None);
    }
    let server = kept_in(folder.path());
    let mut client = server.client();
    for number in 0..acknowledged {
        assert_eq!(client.call("/v1/overrides/get", &override_of(number)).json()["limit"], number);
    }
    assert!(acknowledged >= ROUNDS * 3);
    let answer = client.get("/metrics");
    let metrics = answer.text();
    assert!(metrics.contains("ratekeeper_data_damaged 0"), "{metrics}");
}

/// Sets an override over a connection of its own; `None` if the server is gone.
fn try_set(address: std::net::SocketAddr, number: usize) -> Option<u16> {
    use std::io::{Read as _, Write as _};
    let mut call = override_of(number);
    call["limit"] = json!(number);
    let body = call.to_string();
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    let head = format!(
        "POST /v1/overrides/set HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// Counters are behind by what happened since the last save, which is a second at most.
#[test]
fn a_crash_loses_no_counter_that_was_saved() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ratekeeper.redb");
    let mut used = 0;
    for _ in 0..3 {
        let server = kept_in(folder.path());
        let mut client = server.client();
        for _ in 0..50 {
            used = 100_000 - charge(&mut client, "ann");
        }
        // A save may be under way that began before; the one after it has all of them.
        let changed = || std::fs::metadata(&file).unwrap().modified().unwrap();
        let (mut last, mut saves): (SystemTime, u32) = (changed(), 0);
        wait::until("two saves", || {
            charge(&mut client, "ann");
            if changed() > last + Duration::from_millis(300) {
                (last, saves) = (changed(), saves + 1);
            }
            saves == 2
        });
        server.signal("KILL");
        assert_eq!(server.end().0, None);
        let server = kept_in(folder.path());
        let kept = 100_000 - charge(&mut server.client(), "ann");
        assert!(kept > used, "{kept} of more than {used}");
        server.signal("TERM");
        assert_eq!(server.end().0, Some(0));
    }
}

/// A file that may not grow is what a full disk is.
#[test]
fn a_full_disk_refuses_overrides_and_decides_on() {
    let folder = TempDir::new().unwrap();
    // What is logged is read at the end: a line for each override would fill the pipe before.
    let inside = ["--http", "127.0.0.1:0", "--admin-without-token", "--log", "error"];
    let settings = [&inside[..], &["--data", folder.path().to_str().unwrap()]].concat();
    // The file of an empty directory, and some more.
    kept_in(folder.path()).signal("TERM");
    let binary = command(&settings);
    let mut limited = Command::new("bash");
    limited.arg("-c").arg("trap '' XFSZ; ulimit -f 4096; exec \"$@\"").arg("bash").arg(binary.get_program());
    limited.args(binary.get_args()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let server = Running::start(&mut limited);
    let mut client = server.client();
    let long = "why ".repeat(120);
    let mut statuses = (0..20_000).map(|number| (number, set(&mut client, number, &long)));
    let (refused, status) = statuses.find(|(_, status)| *status != 200).expect("a bound");
    assert_eq!(status, 503);
    let found = client.call("/v1/overrides/get", &override_of(refused));
    assert_eq!(found.status, 404, "what is refused does not count either");
    assert_eq!(client.call("/v1/overrides/get", &override_of(0)).json()["limit"], 0);
    let left = charge(&mut client, "ann");
    assert_eq!(charge(&mut client, "ann"), left - 1, "counters go on");
    let metrics = client.get("/metrics").text().to_owned();
    // What is opened again has free pages, so the next step may fit: it need not go on failing.
    assert!(!metrics.contains("ratekeeper_data_failures_total 0"), "{metrics}");
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");
    assert!(logged.contains("the data directory cannot be written"), "{logged}");

    let server = kept_in(folder.path());
    let mut client = server.client();
    for number in [0, refused / 2, refused - 1] {
        assert_eq!(client.call("/v1/overrides/get", &override_of(number)).json()["limit"], number);
    }
    assert_eq!(set(&mut client, refused, &long), 200, "there is room again");
}
