//! A server for a test that speaks MongoDB's protocol: MongoDB, or `FerretDB`.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Instant;

use tempfile::TempDir;

use super::process::Process;
use super::server::{NotStarted, PORT_TRIES, START_DEADLINE, tail};
use super::{POLL, executable, free_port};

/// The server that tests share if it is set; each works in a database of its own.
const URL_VARIABLE: &str = "MONGODB_URL";
const LOG: &str = "server.log";
const DATA: &str = "data";
/// The longest answer to a ping that is one.
const ANSWER_BYTES_MAX: usize = 4_096;

/// A server and the name of a database on it that nobody else uses.
///
/// Dropping it ends a server that was started for the test and removes its folder. On a
/// server that others started, the database stays: it is called `ratekeeper_test_...`.
#[derive(Debug)]
pub struct MongoServer {
    url: String,
    database: String,
    own: Option<Own>,
}

/// A server that was started for the test.
#[derive(Debug)]
struct Own {
    executable: PathBuf,
    port: u16,
    // Ends before its folder goes: fields are dropped in this order.
    process: Option<Process>,
    dir: TempDir,
}

impl MongoServer {
    /// The server of `MONGODB_URL`, or one that is started: `mongod` if it is on PATH,
    /// else the `FerretDB` of `make servers`.
    #[must_use]
    pub fn start() -> Self {
        match std::env::var(URL_VARIABLE) {
            Ok(url) if !url.is_empty() => Self { url, database: fresh_name(), own: None },
            _ => Self::start_own(),
        }
    }

    /// Starts one, whatever `MONGODB_URL` says: for tests that end or pause it.
    #[must_use]
    pub fn start_own() -> Self {
        Self::launch(&on_path("mongod").unwrap_or_else(|| executable("ferretdb")), free_port)
    }

    fn launch(executable: &Path, mut choose_port: impl FnMut() -> u16) -> Self {
        for _ in 0..PORT_TRIES {
            let dir = tempfile::Builder::new().prefix("ratekeeper-").tempdir().expect("make a folder");
            fs::create_dir(dir.path().join(DATA)).expect("make the folder of the data");
            let mut own = Own { executable: executable.to_owned(), port: choose_port(), process: None, dir };
            match own.run() {
                Ok(()) => {
                    // One server, wherever it thinks that others are.
                    let url = format!("mongodb://127.0.0.1:{}/?directConnection=true", own.port);
                    return Self { url, database: fresh_name(), own: Some(own) };
                }
                Err(NotStarted(log)) if log.to_lowercase().contains("address already in use") => {}
                Err(NotStarted(log)) => {
                    panic!("{} did not start; the end of its log:\n{log}", executable.display());
                }
            }
        }
        panic!("of {PORT_TRIES} free ports all were taken when {} got there", executable.display());
    }

    fn own(&self) -> &Own {
        self.own.as_ref().unwrap_or_else(|| not_ours())
    }

    fn own_mut(&mut self) -> &mut Own {
        self.own.as_mut().unwrap_or_else(|| not_ours())
    }

    /// Ends it at once, as a crash would. Clients see a refused connection.
    ///
    /// # Panics
    /// If it is not from [`Self::start_own`]; so do the methods below.
    pub fn kill(&mut self) {
        self.own_mut().process = None;
    }

    /// Starts it again, after ending it if it runs: same port, same data.
    pub fn restart(&mut self) {
        let own = self.own_mut();
        own.process = None;
        if let Err(NotStarted(log)) = own.run() {
            panic!("{} did not start again; the end of its log:\n{log}", own.executable.display());
        }
    }

    /// Stops it where it is. Clients can connect and send, and get no answer.
    pub fn pause(&self) {
        self.own().process().pause();
    }

    /// Lets it go on after a [`Self::pause`].
    pub fn resume(&self) {
        self.own().process().resume();
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.own().process().pid()
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.own().port
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        self.own().dir.path()
    }

    /// Where it is; without the database.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database of this test.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }
}

impl Own {
    /// Starts the process and waits until it answers.
    fn run(&mut self) -> Result<(), NotStarted> {
        let log = self.dir.path().join(LOG);
        let out = File::create(&log).expect("create the log");
        let err = out.try_clone().expect("share the log");
        let mut command = self.command();
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(out).stderr(err);
        let process = self.process.insert(Process::spawn(&mut command, self.dir.path()));
        let socket = self.dir.path().join(DATA).join(format!("mongodb-{}.sock", self.port));
        let end = Instant::now() + START_DEADLINE;
        // As with Redis: on the port, whoever got it first may answer.
        while !answers(&socket).unwrap_or(false) {
            if process.has_ended() || Instant::now() > end {
                self.process = None;
                return Err(NotStarted(tail(&log)));
            }
            sleep(POLL);
        }
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        if self.executable.ends_with("mongod") {
            command.args(["--bind_ip", "127.0.0.1", "--port", &self.port.to_string()]);
            command.args(["--dbpath", DATA, "--unixSocketPrefix", DATA, "--quiet"]);
        } else {
            command.args(["--listen", &format!("127.0.0.1:{}", self.port), "--dir", DATA]);
        }
        command
    }

    fn process(&self) -> &Process {
        let name = self.executable.display();
        self.process.as_ref().unwrap_or_else(|| panic!("this {name} was killed and is not running"))
    }
}

fn not_ours() -> ! {
    panic!("the server of {URL_VARIABLE} is not ours to touch: MongoServer::start_own starts one")
}

fn fresh_name() -> String {
    format!("ratekeeper_test_{:016x}", RandomState::new().hash_one(()))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Whether a server answers a ping.
fn answers(socket: &Path) -> io::Result<bool> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(START_DEADLINE))?;
    stream.write_all(&ping())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_le_bytes(length)).unwrap_or_default();
    let mut answer = vec![0; length.clamp(4, ANSWER_BYTES_MAX) - 4];
    stream.read_exact(&mut answer)?;
    // `ok: 1.0`, as BSON has it.
    let ok = [&b"\x01ok\0"[..], &1f64.to_le_bytes()].concat();
    Ok(answer.windows(ok.len()).any(|window| window == ok))
}

/// `{ping: 1, $db: "admin"}` as a message of the protocol: a head of 16 bytes with its length, a
/// number, whose answer it is and the kind (2013); no flags; one section, a document.
fn ping() -> Vec<u8> {
    let fields = b"\x10ping\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0";
    let number = |number: usize| i32::try_from(number).expect("a short message").to_le_bytes();
    let document = [&number(fields.len() + 4)[..], fields].concat();
    let head = [number(16 + 4 + 1 + document.len()), number(1), number(0), number(2013)].concat();
    [&head[..], &[0; 4], &[0], &document].concat()
}

#[cfg(test)]
mod tests {
    use super::super::listen;
    use super::*;

    #[test]
    fn a_port_lost_to_somebody_else_is_no_failure() {
        let somebody = listen();
        let taken = somebody.local_addr().unwrap().port();
        let mut ports = [taken, taken, free_port()].into_iter();
        let server = MongoServer::launch(&executable("ferretdb"), || ports.next().unwrap());
        assert_ne!(server.port(), taken);
    }

    #[test]
    #[should_panic(expected = "is not ours to touch")]
    fn a_server_of_others_is_left_alone() {
        let mut server =
            MongoServer { url: "mongodb://example".to_owned(), database: fresh_name(), own: None };
        server.kill();
    }
}
