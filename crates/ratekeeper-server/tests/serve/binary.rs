//! The binary itself: what it says, what it refuses, how it stops.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use ratekeeper_testkit::servers::{Flavour, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::client::{Client, PATIENCE};

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
    // Nothing of whoever runs the tests.
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("RATEKEEPER_") || name == "RATE_LIMIT_MODE")
    {
        command.env_remove(name);
    }
    // Its default port is there once, and tests run beside one another.
    command.env("RATEKEEPER_GRPC", "off");
    // What is tested is what a store answers, not how soon.
    command.env("RATEKEEPER_STORE_DEADLINE", PATIENCE.as_millis().to_string());
    command.arg("serve").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server that is gone with the test.
pub(crate) struct Running {
    process: Child,
    pub(crate) said: Vec<String>,
    pub(crate) address: SocketAddr,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.spawn().unwrap();
        let mut said = Vec::new();
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            said.push(line.unwrap());
            if said.last().unwrap().contains("curl ") {
                break;
            }
        }
        let listens = said.iter().find_map(|line| line.trim().strip_prefix("HTTP ")).unwrap_or_else(|| {
            let mut error = String::new();
            process.stderr.take().unwrap().read_to_string(&mut error).unwrap();
            panic!("it did not start: {error}")
        });
        let url = listens.trim().split(' ').next().unwrap();
        let address = url.split("//").nth(1).unwrap().parse().unwrap();
        Self { process, said, address }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Where it speaks the Redis protocol.
    pub(crate) fn resp_address(&self) -> SocketAddr {
        let line = self.said.iter().find_map(|line| line.trim().strip_prefix("RESP ")).unwrap();
        line.trim().split("//").nth(1).unwrap().parse().unwrap()
    }

    /// The most memory that it has had, in bytes.
    pub(crate) fn memory_max(&self) -> u64 {
        memory_of(&self.process, "VmHWM:")
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Waits for its end; says its exit status and what it logged.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::yield_now();
        }
        let mut logged = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut logged).unwrap();
        (self.process.wait().unwrap().code(), logged)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What it says when it refuses to start.
pub(crate) fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn it_starts_with_nothing_and_says_what_to_try() {
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0"]));
    let said = server.said.join("\n");
    assert!(server.address.port() != 0 && server.said.len() <= 8, "{said}");
    assert!(
        said.contains("starter policy") && said.contains("memory") && !said.contains("dashboard"),
        "{said}"
    );
    // Every address that is said is there.
    for path in said.split_whitespace().map(|word| word.trim_matches(['(', ')', ','])) {
        if path.starts_with('/') {
            assert_eq!(server.client().get(path).status, 200, "{path}");
        }
    }
    // The line to try, as it stands there.
    let line = server.said.iter().find(|line| line.contains("curl ")).unwrap();
    let output = Command::new("sh").arg("-c").arg(line).output().unwrap();
    let answer = String::from_utf8(output.stdout).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("ratelimit: \"limit\";r=2"), "{answer}");
    let starter = server.client().call("/v1/check", &json!({ "client": "192.0.2.1" }));
    assert_eq!(starter.json()["limits"][0]["name"], "per-caller");
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0));
    assert!(
        logged.contains("told to stop") && logged.contains("everything under way was finished"),
        "{logged}"
    );
}

#[test]
fn flags_win_over_the_environment_and_that_over_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (config, policy) = (folder.path().join("ratekeeper.toml"), folder.path().join("policy.toml"));
    std::fs::write(
        &policy,
        "service = \"filed\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"7/min\"\n",
    )
    .unwrap();
    std::fs::write(
        &config,
        format!(
            "http = \"127.0.0.1:1\"\nthreads = 0\nlog_format = \"json\"\npolicy = {:?}\n",
            policy.to_str().unwrap()
        ),
    )
    .unwrap();
    let mut command = command(&["--http", "127.0.0.1:0"]);
    command
        .env("RATEKEEPER_CONFIG", &config)
        .env("RATEKEEPER_HTTP", "127.0.0.1:2")
        .env("RATEKEEPER_THREADS", "1");
    let server = Running::start(&mut command);
    assert_eq!(server.client().call("/v1/check", &json!({})).json()["limits"][0]["remaining"], 6);
    // A new policy comes into force without a restart.
    std::fs::write(
        &policy,
        "service = \"filed\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"70/min\"\n",
    )
    .unwrap();
    let start = Instant::now();
    while server.client().call("/v1/peek", &json!({})).json()["limits"][0]["quota"] != "70/min" {
        assert!(start.elapsed() < PATIENCE);
    }
    server.signal("INT");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0));
    for line in logged.lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("ratekeeper.toml");
    std::fs::write(&config, "http = \"127.0.0.1:0\"\nstoer = \"memory\"\n").unwrap();
    let config = config.to_str().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let cases: [(&[&str], &str); 11] = [
        (&["--resp", "0.0.0.0:0"], "can be reached from outside"),
        (&["--http", "0.0.0.0:0"], "can be reached from outside"),
        (&["--http", "nowhere"], "expected an address and a port"),
        (&["--http", &taken], "cannot listen on"),
        (&["--grpc", "8081"], "grpc: got `8081`; expected an address"),
        (&["--config", config], "ratekeeper.toml:2: unknown field `stoer`"),
        (&["--policy", "/nowhere/policy.toml"], "/nowhere/policy.toml"),
        (&["--store", "carrier-pigeon://loft"], "store: "),
        (
            &["--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.pem", "--http", "127.0.0.1:0"],
            "tls-cert: /nowhere.pem",
        ),
        (&["--log", "info,=,"], "log: "),
        (&["--admin-token-file", "/nowhere"], "admin-token-file: /nowhere"),
    ];
    for (arguments, reason) in cases {
        let error = refused(&mut command(arguments));
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
    let error = refused(command(&["--http", "127.0.0.1:0"]).env("RATEKEEPER_ADMIN_TOKEN", "short"));
    assert!(error.contains("RATEKEEPER_ADMIN_TOKEN") && !error.contains("short"), "{error}");
}

#[test]
fn a_policy_that_is_wrong_is_refused_at_the_start_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.toml");
    std::fs::write(&policy, "service = \"s\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nqouta = \"7/min\"\n")
        .unwrap();
    let error = refused(&mut command(&["--http", "127.0.0.1:0", "--policy", policy.to_str().unwrap()]));
    assert!(error.contains("policy.toml:") && error.contains("qouta"), "{error}");
}

#[test]
fn secrets_are_in_no_log() {
    let server = Server::start(Flavour::Redis7);
    let url = server.url().replace("redis://", "redis://:hunter2@");
    let mut command = command(&["--http", "127.0.0.1:0", "--log", "debug"]);
    command.env("RATEKEEPER_STORE", url).env("RATEKEEPER_ADMIN_TOKEN", "token-of-operators");
    let running = Running::start(&mut command);
    let mut client = running.client();
    client.call("/v1/limit", &json!({ "charges": [{ "key": "a-key-of-somebody", "quota": "1/s" }] }));
    client.ask("GET", "/v1/hot-keys", &[("authorization", "Bearer token-of-operators")], b"");
    let guess = client.ask("GET", "/v1/hot-keys", &[("authorization", "Bearer a-guess-of-somebody")], b"");
    let with_query = client.ask("GET", "/v1/hot-keys?token=a-token-in-a-query", &[], b"");
    let scope = json!({ "endpoint": "e", "organisation": "7", "limit": 5, "reason": "a\r\nx-forged: 1" });
    let bearer = [("authorization", "Bearer token-of-operators")];
    let set = client.ask("POST", "/v1/overrides/set", &bearer, scope.to_string().as_bytes());
    for reply in [&guess, &with_query, &set] {
        assert!(reply.header("x-forged").is_none() && !reply.text().contains("a-guess"), "{}", reply.text());
        assert!(
            !reply.text().contains("a-token-in") && !reply.text().contains("token-of-op"),
            "{}",
            reply.text()
        );
    }
    client.get("/readyz");
    running.signal("TERM");
    let (_, logged) = running.end();
    for secret in
        ["hunter2", "token-of-operators", "a-key-of-somebody", "a-guess-of-somebody", "a-token-in-a-query"]
    {
        assert!(!logged.contains(secret), "{secret}: {logged}");
    }
    assert!(logged.contains("a wrong token was sent"), "{logged}");
    assert!(!logged.lines().any(|line| line.starts_with("x-forged")), "{logged}");
}

#[test]
fn a_store_that_does_not_write_is_logged_once_and_so_is_its_return() {
    let server = Server::start(Flavour::Redis7);
    // Long enough that a busy machine adds no failure of another kind.
    let arguments = ["--http", "127.0.0.1:0", "--store-deadline", "20000", "--store", &server.url()];
    let running = Running::start(&mut command(&arguments));
    let mut client = running.client();
    let mut until = |status: u16| {
        let start = Instant::now();
        while client.get("/readyz/store").status != status {
            assert!(start.elapsed() < PATIENCE, "not in time: {status}");
        }
        client.get("/readyz");
        client.get("/metrics");
    };
    until(200);
    let _ = server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    until(503);
    let _ = server.cli(&["REPLICAOF", "NO", "ONE"]);
    until(200);
    let start = Instant::now();
    let mut fails = || {
        let metrics = client.get("/metrics");
        metrics
            .text()
            .lines()
            .any(|line| line.starts_with("ratekeeper_store_failing{") && line.ends_with(" 1"))
    };
    while fails() {
        assert!(start.elapsed() < PATIENCE, "the failure does not end");
    }
    running.signal("TERM");
    let (_, logged) = running.end();
    assert_eq!(logged.matches("READONLY").count(), 1, "{logged}");
    let of_kind = |line: &str| {
        logged.lines().filter(|logged| logged.contains(line) && logged.contains("read_only")).count()
    };
    assert_eq!(of_kind("the store fails checks"), 1, "{logged}");
    assert_eq!(of_kind("the store fails no checks of this kind any more"), 1, "{logged}");
}

#[test]
fn tls_is_spoken_with_the_certificate_it_is_given() {
    let redis = Server::start_tls(Flavour::Redis7);
    let (certificate, key) = (redis.dir().join("server.pem"), redis.dir().join("server.key"));
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let mut command = command(&["--http", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key]);
    let server = Running::start(&mut command);
    assert!(server.said.iter().any(|line| line.contains("https://127.0.0.1:")), "{:?}", server.said);
    let mut client = Client::over(trusting(server.address, &redis.ca_file()));
    assert_eq!(client.get("/healthz").status, 200);
    // Whoever does not encrypt is not answered, and disturbs nobody.
    let mut plain = server.client();
    plain.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    let answer = plain.rest();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(client.post("/v1/limit", r#"{"charges":[{"key":"k","quota":"1/s"}]}"#).status, 200);
}

pub(crate) fn trusting(
    address: SocketAddr,
    authority: &Path,
) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    rustls::StreamOwned::new(connection, stream)
}

/// Raises how many files this process may have open: the other end of each connection is here,
/// and other tests run beside this one.
pub(crate) fn allow_descriptors(count: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < count) {
        let is_raised = setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum });
        assert!(is_raised.is_ok(), "needs {count} file descriptors (ulimit -Hn), and may have {maximum:?}");
    }
}

/// Memory of a process, in bytes: what is resident, or the most of it that there was.
fn memory_of(process: &Child, which: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(which)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_harm_nobody() {
    const IDLE: usize = 10_000;
    const BYTES_EACH: u64 = 32 << 10;
    allow_descriptors(IDLE as u64 + 2_000);
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0", "--threads", "1"]));
    let before = memory_of(&server.process, "VmRSS:");
    let connections: Vec<TcpStream> =
        (0..IDLE).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let start = Instant::now();
    let open = |client: &mut Client| {
        let metrics = client.get("/metrics");
        let line = metrics.text().lines().find_map(|line| line.strip_prefix("ratekeeper_connections "));
        line.unwrap().parse::<usize>().unwrap()
    };
    let mut client = server.client();
    while open(&mut client) <= IDLE {
        assert!(start.elapsed() < PATIENCE, "{} are open", open(&mut client));
    }
    let grown = memory_of(&server.process, "VmRSS:").saturating_sub(before);
    assert!(grown < IDLE as u64 * BYTES_EACH, "{} bytes each", grown / IDLE as u64);
    let reply = client.post("/v1/limit", r#"{"charges":[{"key":"k","quota":"1/s"}]}"#);
    assert_eq!(reply.status, 200);
    drop(connections);
}

/// The allocator keeps what connections took for the next ones: the process stays as large as with the most of them.
#[test]
fn rounds_of_connections_do_not_add_up() {
    const AT_ONCE: usize = 500;
    const BYTES_EACH: u64 = 32 << 10;
    // What the process itself takes meanwhile.
    const BYTES_BESIDE: u64 = 8 << 20;
    allow_descriptors(4_000);
    let server = Running::start(&mut command(&["--http", "127.0.0.1:0"]));
    assert_eq!(server.client().get("/healthz").status, 200);
    let before = memory_of(&server.process, "VmRSS:");
    for _ in 0..12 {
        let mut clients: Vec<Client> = (0..AT_ONCE).map(|_| server.client()).collect();
        for client in &mut clients {
            let reply = client.post("/v1/limit", r#"{"charges":[{"key":"k","quota":"1000000/s"}]}"#);
            assert_eq!(reply.status, 200);
        }
    }
    let grown = memory_of(&server.process, "VmRSS:").saturating_sub(before);
    assert!(grown < AT_ONCE as u64 * BYTES_EACH + BYTES_BESIDE, "{} bytes each", grown / AT_ONCE as u64);
}
