//! `ratekeeper serve` as a process, for as long as a test needs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(30);
/// For servers whose store must have answered, however busy the machine is: milliseconds.
pub(crate) const STORE_DEADLINE: (&str, &str) = ("RATEKEEPER_STORE_DEADLINE", "20000");

pub(crate) struct Served {
    child: Child,
    port: u16,
    /// What was said up to where it listens.
    pub(crate) said: Vec<String>,
}

impl Served {
    /// Starts it and waits until it says where it listens.
    pub(crate) fn start(command: &mut Command) -> Self {
        // The default port of gRPC is there once, and tests run beside one another.
        let command = command.env("RATEKEEPER_GRPC", "off");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        // From here on, whatever fails ends it.
        let mut served = Self { child: child.expect("the binary runs"), port: 0, said: Vec::new() };
        let lines = BufReader::new(served.child.stdout.take().expect("a pipe")).lines();
        for line in lines.map(|line| line.expect("text")) {
            let listens = line.trim_start().starts_with("HTTP");
            served.said.push(line);
            if listens {
                break;
            }
        }
        let line = served.said.last().expect("it says where it listens");
        let (_, address) = line.split_once("http://127.0.0.1:").expect("an address");
        served.port = address.split_whitespace().next().and_then(|port| port.parse().ok()).expect("a port");
        served
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The status of the answer, and its body.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.ask_with("", method, path, body)
    }

    /// The same with the token of an operator.
    pub(crate) fn ask_as(&self, token: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        self.ask_with(&format!("authorization: Bearer {token}\r\n"), method, path, body)
    }

    fn ask_with(&self, fields: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\n{fields}connection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, body.to_owned())
    }

    /// Tells it to stop, as a service manager does, and waits until it has.
    pub(crate) fn stop(mut self, within: Duration) -> ExitStatus {
        let pid = self.child.id().to_string();
        let told =
            Command::new("sh").args(["-c", "kill -TERM \"$1\"", "sh", &pid]).status().expect("a shell");
        assert!(told.success());
        let end = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                return status;
            }
            assert!(Instant::now() < end, "it does not stop within {within:?}");
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
