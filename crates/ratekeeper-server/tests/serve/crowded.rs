//! More connections than there may be: others are told so, but the server does not look dead.

use ratekeeper_testkit::servers::{Flavour, Server};

use crate::binary::{Running, command, trusting};
use crate::client::Client;
use crate::rig::Setup;

const CALL: &str = r#"{"charges":[{"key":"k","quota":"1000000/s"}]}"#;
const POLICY: &str = "service = \"s\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"5/s\"\n";

#[test]
fn who_looks_after_a_crowded_server_is_answered() {
    let (rig, _) = Setup { connections_max: 3, ..Setup::policy(POLICY) }.in_memory();
    let mut clients: Vec<Client> = (0..3).map(|_| rig.client()).collect();
    for client in &mut clients {
        assert_eq!(client.post("/v1/limit", CALL).status, 200);
    }
    for _ in 0..20 {
        for path in ["/healthz", "/readyz", "/readyz/store", "/metrics"] {
            let mut client = rig.client();
            let reply = client.get(path);
            assert_eq!((reply.status, reply.header("connection")), (200, Some("close")), "{path}");
            assert!(client.is_over());
        }
    }
    let mut other = rig.client();
    let reply = other.post("/v1/limit", CALL);
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert!(reply.text().contains("too many connections") && other.is_over());
    let metrics = rig.client().get("/metrics");
    assert!(metrics.text().contains("ratekeeper_connections_refused_total 1\n"), "{}", metrics.text());
    for client in &mut clients {
        assert_eq!(client.post("/v1/limit", CALL).status, 200, "those who were there stay");
    }
}

#[test]
fn with_tls_those_beyond_are_answered_as_well() {
    let redis = Server::start_tls(Flavour::Redis7);
    let (certificate, key) = (redis.dir().join("server.pem"), redis.dir().join("server.key"));
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let arguments =
        ["--http", "127.0.0.1:0", "--connections-max", "1", "--tls-cert", certificate, "--tls-key", key];
    let server = Running::start(&mut command(&arguments));
    let client = || Client::over(trusting(server.address, &redis.ca_file()));
    let mut only = client();
    assert_eq!(only.get("/healthz").status, 200);
    assert_eq!(client().get("/healthz").status, 200);
    let reply = client().post("/v1/limit", CALL);
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
}

/// A server in a process of its own, with all of its ordinary places taken.
fn crowded() -> (Running, Vec<Client>) {
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0", "--connections-max", "2"]));
    let mut clients: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.post("/v1/limit", CALL).status, 200);
    }
    (server, clients)
}

#[test]
fn connections_that_say_nothing_do_not_keep_monitoring_out() {
    let (server, mut clients) = crowded();
    let mut silent = Vec::new();
    for round in 0..10 {
        // More than there are places beyond the bound, and sooner than any of them is given up.
        silent.extend((0..20).map(|_| server.client()));
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(server.client().get(path).status, 200, "{path}, round {round}");
        }
    }
    assert_eq!(silent[0].reply().expect("an answer").status, 503, "it is told why");
    for client in &mut clients {
        assert_eq!(client.post("/v1/limit", CALL).status, 200, "those who were there stay");
    }
    server.signal("TERM");
    let (_, logged) = server.end();
    assert_eq!(logged.matches("as many connections are open as there may be").count(), 1, "{logged}");
    assert!(logged.contains("connections_max=2"), "{logged}");
}

#[test]
fn what_is_being_answered_beyond_the_bound_is_not_pushed_out() {
    let (server, _clients) = crowded();
    let mut asking: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut asking {
        client.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
    }
    let _silent: Vec<Client> = (0..40).map(|_| server.client()).collect();
    for client in &mut asking {
        assert_eq!(client.reply().expect("an answer").status, 200);
    }
}
