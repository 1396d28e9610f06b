//! What is read again while it runs: certificates and policies, at the latest on SIGHUP.

use std::fs;
use std::path::Path;
use std::time::Instant;

use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::json;

use crate::binary::{Running, command, trusting};
use crate::client::{Client, PATIENCE};

fn put(folder: &Path, with: &Server, files: &[&str]) {
    for file in files {
        fs::copy(with.dir().join(file), folder.join("new")).unwrap();
        fs::rename(folder.join("new"), folder.join(file)).unwrap();
    }
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
    }
}

/// Whether the server shows a certificate that the authority of `whom` has signed.
fn shows(server: &Running, whom: &Server) -> bool {
    let mut client = Client::over(trusting(server.address, &whom.ca_file()));
    client.try_get("/healthz").is_some_and(|reply| reply.status == 200)
}

#[test]
fn a_certificate_that_was_renewed_is_shown_without_a_restart() {
    let (one, other) = (Server::start_tls(Flavour::Redis7), Server::start_tls(Flavour::Redis7));
    let folder = tempfile::tempdir().unwrap();
    let (pem, key) = ("server.pem", "server.key");
    put(folder.path(), &one, &[pem, key]);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let server = Running::start(&mut command(&[
        "--http",
        "127.0.0.1:0",
        "--tls-cert",
        &at(pem),
        "--tls-key",
        &at(key),
    ]));
    let mut kept = Client::over(trusting(server.address, &one.ca_file()));
    let expires = |kept: &mut Client<_>| {
        let metrics = kept.get("/metrics");
        let name = "ratekeeper_tls_certificate_expires_timestamp_seconds ";
        metrics.text().lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok()).expect("a time")
    };
    let days = expires(&mut kept).saturating_sub(now()) / 86_400;
    assert!((28..=30).contains(&days), "{days}");
    put(folder.path(), &other, &[pem, key]);
    server.signal("HUP");
    until("the new one is shown", || shows(&server, &other));
    assert!(!shows(&server, &one));
    assert_eq!(kept.get("/healthz").status, 200, "what is open stays open");
    // A key that does not fit.
    put(folder.path(), &one, &[key]);
    server.signal("HUP");
    put(folder.path(), &one, &[pem, key]);
    server.signal("HUP");
    until("the first one is shown again", || shows(&server, &one));
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");
    assert!(logged.contains("renewed: from now on the new one counts what=\"certificate\""), "{logged}");
    assert!(
        logged.contains("told to read everything again policies=\"read\" certificate=\"renewed\""),
        "{logged}"
    );
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn a_hangup_ends_nothing_and_has_policies_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    let policy = |quota: &str| {
        format!("service = \"s\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"{quota}\"\n")
    };
    fs::write(&path, policy("7/min")).unwrap();
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0", "--policy", path.to_str().unwrap()]));
    let mut client = server.client();
    assert_eq!(client.call("/v1/check", &json!({})).status, 200);
    for _ in 0..3 {
        server.signal("HUP");
    }
    fs::write(&path, policy("70/min")).unwrap();
    server.signal("HUP");
    until("the new policy is in force", || {
        client.call("/v1/peek", &json!({})).json()["limits"][0]["quota"] == "70/min"
    });
    fs::write(&path, "rules = 1\n").unwrap();
    server.signal("HUP");
    until("the wrong one is refused", || {
        !client.get("/readyz").json()["policies"]["refused"].as_array().unwrap().is_empty()
    });
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");
    assert!(
        logged.contains("told to read everything again policies=\"read\" certificate=\"none\""),
        "{logged}"
    );
}

#[test]
fn a_token_that_was_changed_counts_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, "the-first-token-of-all").unwrap();
    let arguments = ["--http", "127.0.0.1:0", "--admin-token-file", path.to_str().unwrap()];
    let server = Running::start(&mut command(&arguments));
    let asked = |token: &str| {
        let bearer = format!("Bearer {token}");
        server.client().ask("GET", "/v1/hot-keys", &[("authorization", &bearer)], b"").status
    };
    assert_eq!((asked("the-first-token-of-all"), asked("the-second-token-of-all")), (200, 401));
    fs::write(&path, "the-second-token-of-all").unwrap();
    server.signal("HUP");
    until("the new token counts", || asked("the-second-token-of-all") == 200);
    assert_eq!(asked("the-first-token-of-all"), 401);
    server.signal("TERM");
    let (_, logged) = server.end();
    assert!(logged.contains("token=\"renewed\"") && !logged.contains("-token-of-all"), "{logged}");
}
