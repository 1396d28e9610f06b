//! The binary with a data directory: what it keeps through restarts, crashes and a full disk.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
        assert_all_there(&server, acknowledged);
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
            wait::until("some changes are made", || is_killed.load(Ordering::Acquire));
            server.signal("KILL");
        });
        assert_eq!(server.end().0, None);
    }
    assert!(acknowledged >= ROUNDS * 3);
    let server = kept_in(folder.path());
    assert_all_there(&server, acknowledged);
    let answer = server.client().get("/metrics");
    let metrics = answer.text();
    assert!(metrics.contains("ratekeeper_data_damaged 0"), "{metrics}");
}

/// Overrides, modes and emergencies by turns: the call, and what it says.
fn change_of(number: usize) -> (&'static str, Json) {
    let rule = format!("service-{number}/*");
    match number % 3 {
        0 => {
            let mut call = override_of(number);
            call["limit"] = json!(number);
            ("/v1/overrides/set", call)
        }
        1 => ("/v1/modes/set", json!({ "rule": rule, "mode": "monitor", "for": "1d" })),
        _ => ("/v1/emergencies/set", json!({ "rule": rule, "emergency": "block", "for": "1d" })),
    }
}

fn assert_all_there(server: &Running, acknowledged: usize) {
    let mut client = server.client();
    let switches = client.get("/v1/switches").json();
    let rules = |kind: &str| -> BTreeSet<&str> {
        switches[kind].as_array().unwrap().iter().filter_map(|set| set["rule"].as_str()).collect()
    };
    let (modes, emergencies) = (rules("modes"), rules("emergencies"));
    for number in 0..acknowledged {
        let (path, call) = change_of(number);
        let rule = call["rule"].as_str().unwrap_or_default();
        match path {
            "/v1/overrides/set" => {
                let found = client.call("/v1/overrides/get", &override_of(number));
                assert_eq!(found.json()["limit"], number, "of {acknowledged}: {}", found.text());
            }
            "/v1/modes/set" => assert!(modes.contains(rule), "{rule} of {acknowledged}: {modes:?}"),
            _ => assert!(emergencies.contains(rule), "{rule} of {acknowledged}: {emergencies:?}"),
        }
    }
}

/// Makes a change over a connection of its own; `None` if the server is gone.
fn try_set(address: std::net::SocketAddr, number: usize) -> Option<u16> {
    use std::io::{Read as _, Write as _};
    let (path, call) = change_of(number);
    let body = call.to_string();
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// Killed at any moment: what is lost is what the last second counted, and the time that a save takes.
#[test]
fn a_crash_loses_at_most_the_last_second_of_counters() {
    const ROUNDS: usize = 4;
    const SAVED_EVERY: Duration = Duration::from_secs(1);
    // For threads that wait for their turn on a busy machine.
    const LATE: Duration = Duration::from_millis(500);
    let folder = TempDir::new().unwrap();
    for round in 0..ROUNDS {
        let server = kept_in(folder.path());
        let mut client = server.client();
        let life = Duration::from_millis(fastrand::u64(2_500..4_000));
        let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
        let mut charged: Vec<(Instant, u64)> = Vec::new();
        while begun.elapsed() < life {
            charged.push((Instant::now(), charge_windowed(&mut client)));
            // An override is written at once, so it takes what the file takes of this machine.
            if charged.len().is_multiple_of(200) {
                let asked = Instant::now();
                assert_eq!(set(&mut client, 1, "to time it"), 200);
                slowest = slowest.max(asked.elapsed());
            }
        }
        let allowed = SAVED_EVERY + slowest * 2 + LATE;
        let safe = Instant::now() - allowed;
        server.signal("KILL");
        assert_eq!(server.end().0, None);
        let saved = charged.iter().rev().find(|(at, _)| *at <= safe);
        let must = saved.map_or(0, |(_, used)| *used);
        assert!(must > 0 || slowest > LATE, "round {round}: nothing is older than {allowed:?}");
        let server = kept_in(folder.path());
        let kept = charge_windowed(&mut server.client()) - 1;
        let all = charged.last().map_or(0, |(_, used)| *used);
        assert!(kept >= must, "round {round}: {kept} of {all} are kept, {must} were older than {allowed:?}");
        assert!(kept <= all, "round {round}: {kept} of {all}");
        server.signal("TERM");
        assert_eq!(server.end().0, Some(0));
    }
}

/// Charges a window of which nothing comes back; what is used of it.
fn charge_windowed(client: &mut Client) -> u64 {
    const LIMIT: u64 = 1_000_000_000;
    let charges = json!([{ "key": "ann", "quota": format!("{LIMIT}/365d fixed_window") }]);
    let answer = client.call("/v1/limit", &json!({ "charges": charges }));
    assert_eq!(answer.status, 200, "{}", answer.text());
    LIMIT - answer.json()["limits"][0]["remaining"].as_u64().unwrap()
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
