//! The Redis protocol through the clients that people use, and the examples of `docs/resp.md`.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ratekeeper_server::serve::{ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, COMMAND_BYTES_MAX, REPLIES_BYTES_MAX};
use ratekeeper_testkit::servers::executable;

use crate::binary::{Running, command};
use crate::client::Client;
use crate::resp::{RespClient, error, frame, listen, ok, told};
use crate::rig::Setup;

const DOCS: &str = include_str!("../../../../docs/resp.md");
const REDIS_PY: &str = include_str!("clients/redis_py.py");
const NODE: &str = include_str!("clients/node_redis.js");

/// Runs a program of `target/servers` to its end.
fn run(program: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(executable(program));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        shown(&output.stdout),
        shown(&output.stderr)
    );
    output
}

fn said(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn port(address: SocketAddr) -> String {
    address.port().to_string()
}

#[test]
fn redis_cli_works() {
    let (rig, _) = Setup::default().in_memory();
    let port = port(listen(&rig, |resp| resp));
    for version in ["-2", "-3"] {
        let key = format!("k{version}");
        let output = run("redis-cli", &[version, "-p", &port, "CL.THROTTLE", &key, "4", "1", "1"], "");
        assert_eq!(said(&output), "0\n5\n4\n-1\n1\n");
    }
    let output =
        run("redis-cli", &["-p", &port], "PING\nCL.THROTTLE a 0 1 1\nCL.THROTTLE a 0 1 1\nGET x\nINFO\n");
    assert!(
        said(&output).starts_with("PONG\n0\n1\n0\n-1\n1\n1\n1\n0\n1\n1\nERR unknown command 'GET'"),
        "{}",
        said(&output)
    );
    // As many commands as it can send at once.
    let many = String::from_utf8(frame("CL.THROTTLE piped 99999 1 60").repeat(5_000)).unwrap();
    let output = run("redis-cli", &["-p", &port, "--pipe"], &many);
    assert!(said(&output).contains("errors: 0, replies: 5000"), "{}", said(&output));
}

#[test]
fn redis_benchmark_works() {
    let (rig, _) = Setup::default().in_memory();
    let port = port(listen(&rig, |resp| resp));
    let mut sum = 0;
    for pipeline in ["1", "16", "64"] {
        let load = ["-p", &port, "-c", "20", "-n", "6400", "-P", pipeline, "-r", "100", "-q"];
        let call = ["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"];
        let output = run("redis-benchmark", &[&load[..], &call].concat(), "");
        assert!(said(&output).contains("requests per second"), "{}", said(&output));
        sum += 6_400;
        let metrics = rig.client().get("/metrics");
        let line =
            format!("ratekeeper_resp_commands_total{{command=\"cl.throttle\",outcome=\"answered\"}} {sum}\n");
        assert!(metrics.text().contains(&line), "{line}\n{}", metrics.text());
    }
}

#[test]
fn redis_py_works() {
    let (rig, _) = Setup::default().in_memory();
    run("redis-py", &["-", &port(listen(&rig, |resp| resp))], REDIS_PY);
}

#[test]
fn clients_of_node_work() {
    let (rig, _) = Setup::default().in_memory();
    run("node-redis", &["-", &port(listen(&rig, |resp| resp))], NODE);
}

/// The fenced blocks of a kind in the documentation.
fn blocks(kind: &str) -> Vec<&'static str> {
    let fence = format!("```{kind}\n");
    DOCS.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn examples_work_as_they_stand() {
    let (rig, _) = Setup::default().in_memory();
    let port = port(listen(&rig, |resp| resp));
    let here = |text: &str| text.replace("6380", &port);
    for block in blocks("console") {
        let (call, answer) = block.split_once('\n').unwrap();
        let call = here(call);
        let words: Vec<&str> = call.strip_prefix("$ redis-cli ").unwrap().split(' ').collect();
        assert_eq!(said(&run("redis-cli", &words, "")), answer);
    }
    for block in blocks("python") {
        run("redis-py", &["-"], &here(block));
    }
    for block in blocks("js") {
        run("node-redis", &["-"], &here(block));
    }
    let counts = ["console", "python", "js"].map(|kind| blocks(kind).len());
    assert_eq!(counts, [1, 1, 1]);
    for bound in [
        format!("at most {ARGUMENTS_MAX} arguments of at most {} KiB", ARGUMENT_BYTES_MAX >> 10),
        format!("and {} KiB in all", COMMAND_BYTES_MAX >> 10),
        format!("{} KiB of replies", REPLIES_BYTES_MAX >> 10),
    ] {
        assert!(DOCS.contains(&bound), "{bound}");
    }
}

/// Where a server says that it speaks RESP.
fn resp_of(server: &Running) -> (String, SocketAddr) {
    let line = server.said.iter().find_map(|line| line.trim().strip_prefix("RESP ")).expect("a line");
    let (scheme, address) = line.trim().split_once("://").unwrap();
    (scheme.to_owned(), address.parse().unwrap())
}

#[test]
fn the_binary_speaks_it_where_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "correct-horse-battery\n").unwrap();
    let password = ["--resp-password-file", file.to_str().unwrap()];
    let listens = ["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"];
    let server = Running::start(&mut command(&[&listens[..], &password].concat()));
    let (scheme, address) = resp_of(&server);
    assert_eq!(scheme, "redis");
    let mut client = RespClient::connect(address);
    assert_eq!(client.call("CL.THROTTLE k 0 1 60"), error("NOAUTH Authentication required."));
    assert_eq!(client.call("AUTH correct-horse-battery"), ok());
    assert_eq!(client.call("CL.THROTTLE k 0 1 60"), told([0, 1, 0, -1, 60]));
    // The password changes, and connections that have sent the one before go on.
    std::fs::write(&file, "another-horse-battery").unwrap();
    server.signal("HUP");
    let start = std::time::Instant::now();
    while RespClient::connect(address).call("AUTH another-horse-battery") != ok() {
        assert!(start.elapsed() < crate::client::PATIENCE, "it is not read again");
    }
    assert_eq!(client.call("PING"), crate::resp::Reply::Status("PONG".to_owned()));
    server.signal("TERM");
    assert!(client.is_over());
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");
    assert!(!logged.contains("horse"), "{logged}");
}

#[test]
fn it_is_spoken_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(folder.path());
    let listens =
        ["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--tls-cert", &certificate, "--tls-key", &key];
    let server = Running::start(&mut command(&listens));
    let (scheme, address) = resp_of(&server);
    assert_eq!(scheme, "rediss");
    let port = port(address);
    let call = ["--tls", "--cacert", &certificate, "-p", &port, "CL.THROTTLE", "k", "4", "1", "1"];
    assert_eq!(said(&run("redis-cli", &call, "")), "0\n5\n4\n-1\n1\n");
    // Who speaks without it hears nothing of use, and nothing breaks.
    let mut plain = Client::connect(address);
    plain.send(&frame("PING"));
    let _ = plain.rest();
    assert_eq!(said(&run("redis-cli", &call, "")), "0\n5\n3\n-1\n2\n");
}

/// A certificate for this machine that signs itself.
fn certificate(folder: &Path) -> (String, String) {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("cert.pem"), path("key.pem"));
    let made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"];
    let names =
        ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", &certificate, "-keyout", &key];
    run("openssl", &[&made[..], &names].concat(), "");
    (certificate, key)
}
