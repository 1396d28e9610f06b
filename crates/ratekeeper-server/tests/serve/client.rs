//! A client that sends exactly what it is told to, byte for byte.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value as Json;

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub(crate) struct Client<S = TcpStream>(BufReader<S>);

/// What was answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("a server that listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("a server that reads");
    }

    /// Sends to a server that may hang up before it has read all of it; says whether it has not.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.0.get_mut().write_all(bytes).is_ok()
    }

    /// Asks a server that may hang up before it has read anything.
    pub(crate) fn try_get(&mut self, path: &str) -> Option<Reply> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.0.get_mut().write_all(head.as_bytes()).ok()?;
        self.reply()
    }

    /// Asks and reads the answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if method != "GET" {
            head += &format!("content-length: {}\r\n", body.len());
        }
        head += "\r\n";
        self.send(&[head.as_bytes(), body].concat());
        self.reply().expect("an answer")
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Reply {
        self.ask("POST", path, &[], body.as_bytes())
    }

    /// Posts JSON.
    pub(crate) fn call(&mut self, path: &str, body: &Json) -> Reply {
        self.post(path, &body.to_string())
    }

    /// Reads an answer; `None` if the connection is over.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).expect("a status line").parse().expect("a status");
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(0, |(_, length)| length.parse().expect("a length"));
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        Some(Reply { status, headers, body })
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
        }
    }

    /// What comes until the connection is over.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest
    }

    /// Whether the server has closed the connection, and everything was read.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}
