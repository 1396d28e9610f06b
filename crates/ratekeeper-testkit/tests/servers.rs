//! The servers that other tests run are what they say, and leave nothing behind.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, mem};

use ratekeeper_testkit::servers::{BlackHole, Flavour, SERVICE, Server, SlowWay, Trio};
use ratekeeper_testkit::wait::{PATIENCE, until};

/// Long enough that a server which can answer would have.
const SILENCE: Duration = Duration::from_millis(200);

fn connect(port: u16) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect")
}

fn says_nothing(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SILENCE)).expect("set a timeout");
    stream.write_all(b"PING\r\n").expect("send");
    let nothing = stream.read(&mut [0; 1]).expect_err("no answer, and the connection stays open");
    matches!(nothing.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Whether a process runs; a dead one that nobody asked about does not.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn each_is_the_version_it_claims() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let (name, version, series) = match flavour {
            Flavour::Redis7 => (None, "redis_version", "7."),
            Flavour::Redis62 => (None, "redis_version", "6.2."),
            Flavour::Valkey9 => (Some("valkey"), "valkey_version", "9."),
        };
        assert_eq!(server.cli(&["PING"]), "PONG", "{flavour}");
        assert_eq!(server.info("process_id"), Some(server.pid().to_string()), "{flavour}");
        assert_eq!(server.info("server_name").as_deref(), name, "{flavour}");
        let version = server.info(version).unwrap();
        assert!(version.starts_with(series), "{flavour} says it is {version}");
    }
}

#[test]
fn sentinels_replace_a_primary() {
    let trio = Trio::start(Flavour::Redis7);
    assert_eq!(trio.primary(), Some(0));
    assert!(trio.url().ends_with(&format!(",127.0.0.1:{}/{SERVICE}", trio.sentinels[2].port())));
    trio.fail_over();
    until("a demoted primary", || trio.server(0, &["ROLE"]).starts_with("slave"));
    assert!(trio.server(1, &["ROLE"]).starts_with("master"));
    let ids: Vec<u32> = trio.servers.iter().chain(&trio.sentinels).map(Server::pid).collect();
    drop(trio);
    assert!(!ids.into_iter().any(runs));
}

#[test]
fn directives_are_taken_as_in_a_configuration_file() {
    for flavour in Flavour::ALL {
        let user = ("user", "alice on >secret ~* +@all");
        let server = Server::start_with(flavour, &[("maxmemory", "64mb"), user, ("requirepass", "pass")]);
        let limit = server.cli(&["-a", "pass", "CONFIG", "GET", "maxmemory"]);
        assert_eq!(limit, "maxmemory\n67108864", "{flavour}");
        let name = server.cli(&["--user", "alice", "--pass", "secret", "ACL", "WHOAMI"]);
        assert_eq!(name, "alice", "{flavour}");
    }
}

#[test]
fn a_paused_server_is_silent_until_it_is_resumed() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        server.pause();
        let mut stream = connect(server.port());
        assert!(says_nothing(&mut stream), "{flavour}");
        server.resume();
        let mut answer = [0; 5];
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+PONG", "{flavour}");
    }
}

#[test]
fn a_killed_server_refuses_and_comes_back_empty_on_the_same_port() {
    for flavour in Flavour::ALL {
        let mut server = Server::start(flavour);
        let (pid, port) = (server.pid(), server.port());
        assert_eq!(server.cli(&["SET", "key", "value"]), "OK", "{flavour}");
        server.kill();
        let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{flavour}");
        assert!(!runs(pid), "{flavour}");
        server.restart();
        assert_eq!(server.port(), port, "{flavour}");
        assert_eq!(server.cli(&["DBSIZE"]), "0", "{flavour}");
        server.restart();
        assert_eq!(server.cli(&["PING"]), "PONG", "{flavour}");
    }
}

#[test]
fn the_clock_of_a_server_is_stepped_both_ways() {
    // The allocator of Debian's Redis looks at the clock before libfaketime is ready.
    for flavour in [Flavour::Redis62, Flavour::Valkey9] {
        let server = Server::start_stepped(flavour, &[]);
        let seconds = || -> i64 {
            let of_ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let of_its = server.cli(&["TIME"]);
            of_its.lines().next().unwrap().parse::<i64>().unwrap() - i64::try_from(of_ours).unwrap()
        };
        for step in [0, 3_600, -3_600, 0] {
            server.step_clock(step);
            assert!((step - 60..step + 60).contains(&seconds()), "{flavour}: {} for {step}", seconds());
        }
    }
}

#[test]
fn a_way_holds_what_is_sent_and_severs_connections() {
    let server = Server::start(Flavour::Redis7);
    let way = SlowWay::to(server.port(), Duration::ZERO);
    let mut stream = connect(way.port());
    for (calls, answers) in [(true, false), (false, true)] {
        way.hold(calls, answers);
        assert!(says_nothing(&mut stream));
        way.hold(false, false);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_exact(&mut [0; 7]).expect("what was held arrives");
    }
    way.sever();
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert!(matches!(connect(way.port()).read(&mut [0; 1]), Ok(0) | Err(_)), "a new one ends at once");
    way.mend();
    stream = connect(way.port());
    stream.write_all(b"PING\r\n").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; 7]).expect("an answer");
}

#[test]
fn the_socket_of_the_url_answers() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let url = server.unix_url();
        let socket = url.strip_prefix("redis+unix://").unwrap();
        assert_eq!(server.cli(&["-s", socket, "PING"]), "PONG", "{flavour}");
        assert_eq!(Path::new(socket).parent(), Some(server.dir()), "{flavour}");
    }
}

#[test]
fn work_shows_in_processor_time_and_data_in_memory() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let (time, memory) = (server.cpu_time(), server.memory_used());
        let busy = "for i = 1, 30000000 do end return redis.call('SETRANGE', KEYS[1], 1000000, 'x')";
        assert_eq!(server.cli(&["EVAL", busy, "1", "key"]), "1000001", "{flavour}");
        assert!(server.cpu_time() > time, "{flavour}");
        assert!(server.memory_used() > memory + 1_000_000, "{flavour}");
    }
}

#[test]
fn tls_is_spoken_with_a_certificate_for_localhost() {
    for flavour in Flavour::ALL.into_iter().filter(|flavour| flavour.has_tls()) {
        let (server, stranger) = (Server::start_tls(flavour), Server::start_tls(flavour));
        let ping = |authority: PathBuf| {
            let port = server.tls_port().to_string();
            let authority = authority.to_str().unwrap();
            server.cli(&["-h", "localhost", "-p", &port, "--tls", "--cacert", authority, "PING"])
        };
        assert_eq!(ping(server.ca_file()), "PONG", "{flavour}");
        assert!(catch_unwind(|| ping(stranger.ca_file())).is_err(), "{flavour}: not signed by that one");
        assert!(server.ca_pem().starts_with("-----BEGIN CERTIFICATE-----"), "{flavour}");
        assert_eq!(server.tls_url(), format!("rediss://localhost:{}", server.tls_port()), "{flavour}");
        assert_eq!(server.cli(&["PING"]), "PONG", "{flavour}: the plain port is there as well");
    }
}

#[test]
fn a_black_hole_accepts_and_says_nothing() {
    let hole = BlackHole::start();
    assert_eq!(hole.url(), format!("redis://127.0.0.1:{}", hole.port()));
    let mut streams = [connect(hole.port()), connect(hole.port())];
    assert!(streams.iter_mut().all(says_nothing));
    let port = hole.port();
    drop(hole);
    assert_eq!(
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
}

#[test]
fn nothing_is_left_of_a_dropped_server_nor_of_a_panicking_test() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let (pid, dir) = (server.pid(), server.dir().to_owned());
        assert!(runs(pid) && dir.exists(), "{flavour}");
        server.pause();
        // What it unwinds through is dropped, as at the end of a scope.
        let panicked = catch_unwind(move || {
            assert_eq!(server.flavour().to_string(), "", "this panic is part of the test");
        });
        assert!(panicked.is_err() && !runs(pid) && !dir.exists(), "{flavour}");
    }
}

#[test]
fn a_server_ends_with_the_process_that_forgot_it() {
    const SELF: &str = "a_server_ends_with_the_process_that_forgot_it";
    const REPORT: &str = "RATEKEEPER_TEST_REPORT";
    if let Some(report) = env::var_os(REPORT) {
        let server = Server::start(Flavour::Redis7);
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
