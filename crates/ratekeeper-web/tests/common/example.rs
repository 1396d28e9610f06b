//! An example, started as anybody would start it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// An example that runs until it is dropped.
pub(crate) struct Example {
    process: Child,
    pub(crate) address: String,
    /// What it says that one should try.
    pub(crate) tries: Vec<String>,
}

impl Example {
    pub(crate) fn start(name: &str, variables: &[(&str, &str)], tries: usize) -> Self {
        let mut command = Command::new(executable(name));
        command.arg("127.0.0.1:0").envs(variables.iter().copied()).env_remove("RATE_LIMIT_MODE");
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().unwrap_or_else(|| panic!("{name} says nothing"));
        let address = first.strip_prefix("listening on http://").unwrap().to_owned();
        Self { process, address, tries: lines.take(tries).collect() }
    }

    /// The number of its process.
    #[allow(dead_code, reason = "not every file of tests sends signals")]
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it has ended; says whether it ended as it should.
    #[allow(dead_code, reason = "not every file of tests waits for an end")]
    pub(crate) fn ended_well(&mut self) -> bool {
        self.process.wait().unwrap().success()
    }

    /// The answer to a request with these fields, each with the end of its line, and this body.
    #[allow(dead_code, reason = "some tests have a client")]
    pub(crate) fn ask(&self, request: &str, fields: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{request} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n{fields}\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answer(text)
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// All of an answer.
#[allow(dead_code, reason = "some tests have a client")]
pub(crate) struct Answer(pub(crate) String);

#[allow(dead_code, reason = "some tests have a client")]
impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.0.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().take_while(|line| !line.is_empty());
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Cargo puts examples beside the folder of the tests.
fn executable(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.is_file(), "there is no {}: cargo test makes it unless it is given --test", path.display());
    path
}
