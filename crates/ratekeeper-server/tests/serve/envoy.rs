//! The configuration in `deploy` in a real Envoy, in front of a real service.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use ratekeeper::policy::{CompileOptions, Format, Policy, PolicySpec};
use ratekeeper_testkit::servers::{executable, free_port};

use crate::client::{Client, PATIENCE, Reply};
use crate::rig::{RUNTIME, Rig, Setup};

const ENVOY: &str = include_str!("../../../../deploy/envoy/envoy.yaml");
const POLICY: &str = include_str!("../../../../deploy/envoy/policy.toml");
const DOCS: &str = include_str!("../../../../docs/envoy.md");

/// A service that answers everything, and uses three of what was estimated.
fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                if lines.next().is_some() {
                    let _ = lines.find(String::is_empty);
                    let _ = stream.write_all(
                        b"HTTP/1.1 200 OK\r\nx-unused: 7\r\nconnection: close\r\ncontent-length: 6\r\n\r\nserved",
                    );
                }
            });
        }
    });
    address
}

/// Envoy, which is gone with the test.
struct Envoy {
    process: Child,
    address: SocketAddr,
    rig: Rig,
    _folder: tempfile::TempDir,
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn setup(grpc_at: Option<SocketAddr>) -> Rig {
    let setup = Setup::policy(POLICY);
    Setup { grpc: |grpc| grpc.with_refunds(true), grpc_at, ..setup }.in_memory().0
}

impl Envoy {
    fn start() -> Self {
        let (rig, folder) = (setup(None), tempfile::tempdir().unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let told = [("8000", address), ("8081", rig.grpc), ("9000", service())];
        let config = told.iter().fold(ENVOY.to_owned(), |text, (written, real)| {
            let (written, real) = (format!("port_value: {written}"), format!("port_value: {}", real.port()));
            assert_eq!(text.matches(&written).count(), 1, "{written}");
            text.replace(&written, &real)
        });
        // What is tested is what becomes of a request, not how soon on a busy machine.
        let config = config.replace("timeout: 0.1s", "timeout: 20s");
        let file = folder.path().join("envoy.yaml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(executable("envoy"));
        command
            .args(["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning", "-c"])
            .arg(file);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(process.try_wait().unwrap().is_none(), "it does not start: {command:?}");
            assert!(start.elapsed() < 2 * PATIENCE, "it does not listen: {command:?}");
            thread::yield_now();
        }
        Self { process, address, rig, _folder: folder }
    }

    fn ask(&self, method: &str, fields: &[(&str, &str)]) -> Reply {
        let fields = [fields, &[("Connection", "close")]].concat();
        Client::connect(self.address).ask(method, "/", &fields, b"")
    }
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::yield_now();
    }
}

/// What stands in the documentation is a policy, and no warning is given of it or of the one that is shipped.
#[test]
fn the_policies_are_good() {
    let documented = DOCS.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    for policy in [documented, POLICY] {
        let spec = PolicySpec::read("policy.toml", Format::Toml, policy.as_bytes()).unwrap();
        let compiled = Policy::compile(&spec, "policy.toml", &CompileOptions::default()).unwrap();
        assert!(compiled.warnings().is_empty(), "{:?}", compiled.warnings());
    }
}

#[test]
fn envoy_obeys_and_hands_on_what_clients_are_told() {
    let envoy = Envoy::start();
    let ann = [("x-user", "ann")];
    for left in [2, 1, 0] {
        let allowed = envoy.ask("POST", &ann);
        assert_eq!((allowed.status, allowed.text()), (200, "served"));
        let told = allowed.header("ratelimit").unwrap();
        assert!(told.contains(&format!("\"writes\";r={left}")) && told.contains("\"per-ip\""), "{told}");
        assert!(allowed.header("ratelimit-policy").is_some());
    }
    let denied = envoy.ask("POST", &ann);
    assert_eq!((denied.status, denied.header("content-type")), (429, Some("application/problem+json")));
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["writes"]));
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(envoy.ask("POST", &[("x-user", "bob")]).status, 200);
    // Bytes that are no text are a user as any other.
    let odd = [("x-user", "\u{ff}\u{fe}")];
    let statuses: Vec<u16> = (0..4).map(|_| envoy.ask("POST", &odd).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    // Only watched.
    let watched: Vec<Reply> = (0..3).map(|_| envoy.ask("GET", &ann)).collect();
    assert!(watched.iter().all(|reply| reply.status == 200));
    assert!(watched[2].header("ratelimit").unwrap().contains("\"reads\";r=0"), "{:?}", watched[2]);
}

#[test]
fn costs_come_from_headers_and_estimates_go_back() {
    let envoy = Envoy::start();
    let tokens = |units| {
        let reply = envoy.ask("GET", &[("x-tokens-of", "ann"), ("x-tokens", units)]);
        (reply.status, reply.header("ratelimit").unwrap_or_default().to_owned())
    };
    let (status, told) = tokens("400");
    assert!(status == 200 && told.contains("\"tokens\";r=600"), "{status} {told}");
    assert_eq!(tokens("601").0, 429);
    let (status, told) = tokens("600");
    assert!(status == 200 && told.contains("\"tokens\";r=0"), "{status} {told}");
    // Ten are charged at first, and seven come back: after two, fourteen are left; without, none would be.
    let estimate = || envoy.ask("GET", &[("x-estimate-of", "ann")]);
    for left in [10, 7] {
        let reply = estimate();
        let told = reply.header("ratelimit").unwrap().to_owned();
        assert!(reply.status == 200 && told.contains(&format!("\"estimates\";r={left};")), "{told}");
        let given_back = || {
            let counters = peek(&envoy.rig);
            counters == left + 7
        };
        until("what was not used is given back", given_back);
    }
}

/// What is left of ann's estimates.
fn peek(rig: &Rig) -> u32 {
    use crate::grpc::{Connection, call, descriptor};
    let look = envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor {
        hits_addend: Some(envoy_types::pb::google::protobuf::UInt64Value { value: 0 }),
        ..descriptor(&[("estimate", "ann")])
    };
    Connection::open(rig.grpc).ask(&call(&[look])).statuses[0].limit_remaining
}

#[test]
fn requests_pass_while_the_server_is_away_and_are_limited_when_it_is_back() {
    let mut envoy = Envoy::start();
    let ann = [("x-user", "ann")];
    let statuses: Vec<u16> = (0..4).map(|_| envoy.ask("POST", &ann).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    let grpc_at = envoy.rig.grpc;
    envoy.rig.stop.finish();
    let served = envoy.rig.served.take().unwrap();
    assert!(RUNTIME.block_on(served).unwrap(), "all connections were over");
    let reply = envoy.ask("POST", &ann);
    assert_eq!((reply.status, reply.header("ratelimit")), (200, None), "nothing was decided");
    envoy.rig = setup(Some(grpc_at));
    until("it is limited again", || envoy.ask("POST", &ann).header("ratelimit").is_some());
}
