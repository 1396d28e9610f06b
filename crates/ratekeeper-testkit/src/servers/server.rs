//! A server for a test: Redis or its successor.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::client::Client;
use super::process::Process;
use super::{Flavour, POLL, certificates, executable, faketime, free_port};

/// A server is ready in milliseconds; a busy machine may take its time.
pub(super) const START_DEADLINE: Duration = Duration::from_secs(30);
/// How often a port may be lost to somebody else between choosing and using it.
pub(super) const PORT_TRIES: u32 = 10;
const SOCKET: &str = "redis.sock";
const CONFIG: &str = "redis.conf";
const LOG: &str = "server.log";

/// A server on a loopback port and a unix socket, in a folder of its own, that keeps
/// nothing on disk. Dropping it ends it and removes the folder.
#[derive(Debug)]
pub struct Server {
    flavour: Flavour,
    port: u16,
    tls_port: Option<u16>,
    /// Where a node of a cluster talks to the others.
    bus_port: Option<u16>,
    kind: Kind,
    // Ends before its folder goes: fields are dropped in this order.
    process: Option<Process>,
    dir: TempDir,
}

/// What the executable is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Server,
    Sentinel,
    /// A server whose clock the test sets.
    Stepped,
    /// A node of a cluster.
    Node,
}

/// Whose certificate a node of a cluster shows.
#[derive(Debug, Clone, Copy)]
pub(super) enum NodeTls<'s> {
    None,
    Own,
    As(&'s Server),
}

/// Whose certificate a server shows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tls<'d> {
    None,
    Own,
    /// The one in the folder of another server.
    Of(&'d Path),
}

/// Why a server did not start: the end of its log.
pub(super) struct NotStarted(pub(super) String);

impl Server {
    #[must_use]
    pub fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, &[])
    }

    /// Starts one with more directives, name and value as they would stand in its
    /// configuration file. They come last, so they win; ports are not to be set.
    #[must_use]
    pub fn start_with(flavour: Flavour, directives: &[(&str, &str)]) -> Self {
        Self::launch(flavour, Kind::Server, directives, Tls::None, free_port)
    }

    /// Starts one that speaks TLS on a port of its own, beside the plain one, with a
    /// certificate for `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn start_tls(flavour: Flavour) -> Self {
        Self::start_as(flavour, Kind::Server, &[], Tls::Own)
    }

    /// Starts one whose clock [`Self::step_clock`] sets.
    #[must_use]
    pub fn start_stepped(flavour: Flavour, directives: &[(&str, &str)]) -> Self {
        Self::launch(flavour, Kind::Stepped, directives, Tls::None, free_port)
    }

    /// Sets its clock so many seconds ahead of the machine's, or behind it, at once. It must have been started by
    /// [`Self::start_stepped`].
    pub fn step_clock(&self, seconds: i64) {
        assert_eq!(self.kind, Kind::Stepped, "a server of start_stepped");
        faketime::set(self.dir(), seconds);
    }

    /// Starts a sentinel that watches this server as [`SERVICE`](super::SERVICE), with more directives. If the server
    /// speaks TLS, both do, with the same certificate.
    #[must_use]
    pub fn sentinel(&self, quorum: u32, directives: &[(&str, &str)]) -> Self {
        self.sentinel_at(self.tls_port.unwrap_or(self.port), quorum, directives)
    }

    /// The same for sentinels that find the server at another port, where a way to it is.
    pub(super) fn sentinel_at(&self, port: u16, quorum: u32, directives: &[(&str, &str)]) -> Self {
        let tls = if self.tls_port.is_some() { Tls::Of(self.dir()) } else { Tls::None };
        let monitor = format!("monitor {} 127.0.0.1 {port} {quorum}", super::SERVICE);
        let mut all = vec![("sentinel", &*monitor)];
        all.extend(self.tls_port.map(|_| ("tls-replication", "yes")));
        all.extend(directives);
        Self::start_as(self.flavour, Kind::Sentinel, &all, tls)
    }

    /// Starts a node of a cluster, which knows no other yet.
    pub(super) fn node(flavour: Flavour, directives: &[(&str, &str)], tls: NodeTls<'_>) -> Self {
        let mut all = vec![("cluster-enabled", "yes"), ("cluster-config-file", "nodes.conf")];
        let tls = match tls {
            NodeTls::None => Tls::None,
            NodeTls::Own => Tls::Own,
            NodeTls::As(other) => Tls::Of(other.dir()),
        };
        if !matches!(tls, Tls::None) {
            all.extend([("tls-cluster", "yes"), ("tls-replication", "yes")]);
        }
        all.extend(directives);
        Self::start_as(flavour, Kind::Node, &all, tls)
    }

    fn start_as(flavour: Flavour, kind: Kind, directives: &[(&str, &str)], tls: Tls<'_>) -> Self {
        let can = flavour.has_tls() || matches!(tls, Tls::None);
        assert!(can, "our {flavour} was built without TLS: ask Flavour::has_tls");
        Self::launch(flavour, kind, directives, tls, free_port)
    }

    fn launch(
        flavour: Flavour,
        kind: Kind,
        directives: &[(&str, &str)],
        tls: Tls<'_>,
        mut choose_port: impl FnMut() -> u16,
    ) -> Self {
        for _ in 0..PORT_TRIES {
            let dir = tempfile::Builder::new().prefix("ratekeeper-").tempdir().expect("make a folder");
            let has_tls = !matches!(tls, Tls::None);
            let (port, tls_port) = (choose_port(), has_tls.then(&mut choose_port));
            let bus_port = (kind == Kind::Node).then(&mut choose_port);
            let mut server = Self { flavour, port, tls_port, bus_port, kind, process: None, dir };
            server.configure(directives, tls);
            match server.run() {
                Ok(()) => return server,
                Err(NotStarted(log)) if log.contains("Address already in use") => {}
                Err(NotStarted(log)) => panic!("{flavour} did not start; the end of its log:\n{log}"),
            }
        }
        panic!("{flavour} did not start: of {PORT_TRIES} free ports all were taken when it got there");
    }

    /// Writes its configuration; names are relative to its folder, where it runs.
    fn configure(&self, directives: &[(&str, &str)], tls: Tls<'_>) {
        let mut lines = vec![
            format!("port {}", self.port),
            "bind 127.0.0.1".to_owned(),
            format!("unixsocket {SOCKET}"),
            "daemonize no".to_owned(),
            "save \"\"".to_owned(),
            "appendonly no".to_owned(),
        ];
        lines.extend(self.bus_port.map(|port| format!("cluster-port {port}")));
        if let Some(port) = self.tls_port {
            match tls {
                Tls::Of(other) => certificates::copy(other, self.dir()),
                _ => certificates::make(self.dir()),
            }
            lines.push(format!("tls-port {port}"));
            lines.push(certificates::DIRECTIVES.to_owned());
        }
        for (name, value) in directives {
            lines.push(format!("{name} {}", if value.is_empty() { "\"\"" } else { value }));
        }
        fs::write(self.dir().join(CONFIG), lines.join("\n") + "\n").expect("write the configuration");
    }

    /// Starts the process and waits until it answers.
    fn run(&mut self) -> Result<(), NotStarted> {
        let log = self.dir().join(LOG);
        let out = File::create(&log).expect("create the log");
        let err = out.try_clone().expect("share the log");
        let mut command = Command::new(executable(self.flavour.name()));
        command
            .arg(CONFIG)
            .args((self.kind == Kind::Sentinel).then_some("--sentinel"))
            .current_dir(self.dir())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err);
        // So that its errors are in English, and no locale that is not installed stops it.
        command.env("LC_ALL", "C");
        if self.kind == Kind::Stepped {
            faketime::preload(&mut command, self.dir());
        }
        let process = self.process.insert(Process::spawn(&mut command, self.dir.path()));
        let socket = self.dir.path().join(SOCKET);
        let end = Instant::now() + START_DEADLINE;
        // The socket is in a folder of ours. On the port, whoever got it first may answer;
        // but a server that answers on one has got them all.
        while !answers(&socket).unwrap_or(false) {
            if process.has_ended() || Instant::now() > end {
                self.process = None;
                return Err(NotStarted(tail(&log)));
            }
            sleep(POLL);
        }
        Ok(())
    }

    fn process(&self) -> &Process {
        self.process.as_ref().unwrap_or_else(|| panic!("this {} was killed and is not running", self.flavour))
    }

    /// Ends it at once, as a crash would. Clients see a refused connection.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again, after ending it if it runs: same port and
    /// folder, and the data that its directives had it write there: by default none.
    pub fn restart(&mut self) {
        self.kill();
        if let Err(NotStarted(log)) = self.run() {
            panic!("{} did not start again; the end of its log:\n{log}", self.flavour);
        }
    }

    /// Stops it where it is. Clients can connect and send, and get no answer.
    pub fn pause(&self) {
        self.process().pause();
    }

    /// Lets it go on after a [`Self::pause`].
    pub fn resume(&self) {
        self.process().resume();
    }

    /// Whether it runs and is not paused.
    #[must_use]
    pub fn can_answer(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.is_paused())
    }

    /// Runs `redis-cli` with these arguments and returns what it prints, trimmed. An
    /// error as an answer is a failure, too.
    #[must_use]
    pub fn cli(&self, arguments: &[&str]) -> String {
        self.try_cli(arguments).unwrap_or_else(|error| panic!("redis-cli {arguments:?}: {error}"))
    }

    /// The same, for what may be refused.
    ///
    /// # Errors
    /// What it printed, if the answer was an error or there was none.
    pub fn try_cli(&self, arguments: &[&str]) -> Result<String, String> {
        // A paused server would let it wait for ever.
        let mut command = Command::new("timeout");
        command.args(["--foreground", "30"]).arg(executable("redis-cli"));
        command.args(["-e", "-h", "127.0.0.1", "-p"]).arg(self.port.to_string()).args(arguments);
        let output = command.stdin(Stdio::null()).output().expect("run redis-cli");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        match output.status.success() {
            true => Ok(out.trim().to_owned()),
            false => Err(format!("{}\n{out}{err}", output.status)),
        }
    }

    /// A connection of its own, for what is no text or must be fast.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect(&self.dir().join(SOCKET))
    }

    /// A field of the answer to `INFO`, such as `redis_version`.
    #[must_use]
    pub fn info(&self, field: &str) -> Option<String> {
        let answer = self.cli(&["INFO"]);
        let value = answer.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(value.trim().to_owned())
    }

    /// The bytes of memory it says its data takes.
    #[must_use]
    pub fn memory_used(&self) -> u64 {
        let bytes = self.info("used_memory").expect("INFO has used_memory");
        bytes.parse().expect("used_memory is a number")
    }

    /// The time it has spent on a processor, in steps of about 10 ms.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.process().cpu_time()
    }

    #[must_use]
    pub const fn flavour(&self) -> Flavour {
        self.flavour
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.dir().join(SOCKET).display())
    }

    /// The port for TLS, of a server that [`Self::start_tls`] started.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("a server from start_tls")
    }

    /// Where other nodes of a cluster, and clients that they send here, find it.
    pub(super) fn node_port(&self) -> u16 {
        self.tls_port.unwrap_or(self.port)
    }

    pub(super) fn bus_port(&self) -> u16 {
        self.bus_port.expect("a node of a cluster")
    }

    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("rediss://localhost:{}", self.tls_port())
    }

    /// The file with the certificate of the authority that signed the server's.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.dir().join(certificates::AUTHORITY)
    }

    /// What is in [`Self::ca_file`].
    #[must_use]
    pub fn ca_pem(&self) -> String {
        fs::read_to_string(self.ca_file()).expect("a server from start_tls")
    }
}

/// Whether a server answers; one that wants a password first is as ready as any.
fn answers(socket: &Path) -> io::Result<bool> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(START_DEADLINE))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 64];
    let length = stream.read(&mut answer)?;
    Ok(["+PONG", "-NOAUTH"].iter().any(|ready| answer[..length].starts_with(ready.as_bytes())))
}

/// The last lines of a log.
pub(super) fn tail(log: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::listen;
    use super::*;

    #[test]
    fn a_port_lost_to_somebody_else_is_no_failure() {
        let somebody = listen();
        let taken = somebody.local_addr().unwrap().port();
        for flavour in Flavour::ALL {
            let mut ports = [taken, taken, free_port()].into_iter();
            let server = Server::launch(flavour, Kind::Server, &[], Tls::None, || ports.next().unwrap());
            assert_ne!(server.port(), taken, "{flavour}");
            assert_eq!(server.cli(&["PING"]), "PONG", "{flavour}");
        }
    }

    #[test]
    #[should_panic(expected = "Bad directive")]
    fn a_server_that_does_not_start_shows_its_log() {
        let _ = Server::start_with(Flavour::Redis7, &[("no-such-directive", "1")]);
    }
}
