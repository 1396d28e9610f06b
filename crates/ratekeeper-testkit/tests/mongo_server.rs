//! The server that speaks MongoDB's protocol is there when a test wants it, and gone after.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs, mem};

use ratekeeper_testkit::servers::MongoServer;
use ratekeeper_testkit::wait::{PATIENCE, until};

/// Long enough that a server which can answer would have.
const SILENCE: Duration = Duration::from_millis(200);
const MESSAGE: i32 = 2_013;

/// Sends a command, the fields of a document in BSON, and returns the answer as bytes.
fn ask(stream: &mut TcpStream, fields: &[u8]) -> std::io::Result<Vec<u8>> {
    let number = |number: usize| i32::try_from(number).unwrap().to_le_bytes();
    let document = [&number(fields.len() + 5)[..], fields, b"\0"].concat();
    let head = [number(21 + document.len()), number(1), number(0), MESSAGE.to_le_bytes()].concat();
    stream.write_all(&[&head[..], &[0; 5], &document].concat())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(i32::from_le_bytes(length)).unwrap() - 4];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn text(name: &str, value: &str) -> Vec<u8> {
    let length = i32::try_from(value.len() + 1).unwrap().to_le_bytes();
    [b"\x02", name.as_bytes(), b"\0", &length, value.as_bytes(), b"\0"].concat()
}

fn connect(server: &MongoServer) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What `listCollections` answers, somewhere in which the names are.
fn collections(server: &MongoServer) -> String {
    let fields = [&b"\x10listCollections\0\x01\0\0\0"[..], &text("$db", server.database())].concat();
    String::from_utf8_lossy(&ask(&mut connect(server), &fields).unwrap()).into_owned()
}

fn create_collection(server: &MongoServer, name: &str) {
    let fields = [text("create", name), text("$db", server.database())].concat();
    ask(&mut connect(server), &fields).unwrap();
}

/// Whether a process runs; a dead one that nobody asked about does not.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn it_keeps_what_it_is_told_through_a_crash() {
    let mut server = MongoServer::start_own();
    assert!(server.url().starts_with(&format!("mongodb://127.0.0.1:{}/", server.port())));
    create_collection(&server, "some_collection");
    let (pid, port) = (server.pid(), server.port());
    server.kill();
    let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap_err();
    assert!(refused.kind() == ErrorKind::ConnectionRefused && !runs(pid));
    server.restart();
    assert_eq!(server.port(), port);
    assert!(collections(&server).contains("some_collection"), "{:?}", collections(&server));
    server.restart();
    assert!(collections(&server).contains("some_collection"));
}

#[test]
fn a_paused_server_is_silent_until_it_is_resumed() {
    let server = MongoServer::start_own();
    server.pause();
    let mut stream = connect(&server);
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let fields = [&b"\x10ping\0\x01\0\0\0"[..], &text("$db", "admin")].concat();
    let nothing = ask(&mut stream, &fields).unwrap_err();
    assert!(matches!(nothing.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{nothing}");
    server.resume();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(stream.read(&mut [0; 1]).unwrap() == 1, "the answer to the ping");
}

#[test]
fn two_tests_share_nothing() {
    let (one, other) = (MongoServer::start(), MongoServer::start());
    assert_ne!(one.database(), other.database());
}

#[test]
fn nothing_is_left_of_a_dropped_server_nor_of_a_panicking_test() {
    let server = MongoServer::start_own();
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    assert!(runs(pid) && dir.exists());
    server.pause();
    let panicked = catch_unwind(move || {
        assert_eq!(server.database(), "", "this panic is part of the test");
    });
    assert!(panicked.is_err() && !runs(pid) && !dir.exists());
}

#[test]
fn a_server_ends_with_the_process_that_forgot_it() {
    const SELF: &str = "a_server_ends_with_the_process_that_forgot_it";
    const REPORT: &str = "RATEKEEPER_TEST_REPORT";
    if let Some(report) = env::var_os(REPORT) {
        let server = MongoServer::start_own();
        fs::write(report, format!("{} {}", server.pid(), server.dir().display())).unwrap();
        return mem::forget(server);
    }
    let report = tempfile::NamedTempFile::new().unwrap();
    let mut forgetful = Command::new(env::current_exe().unwrap());
    let output = forgetful.args([SELF, "--exact"]).env(REPORT, report.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let written = fs::read_to_string(report.path()).unwrap();
    let (pid, dir) = written.split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    until("the forgotten server is gone", || !runs(pid) && !Path::new(dir).exists());
}
