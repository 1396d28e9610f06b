//! A proxy that records what a client sends, and the batches found in that.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::Result;
use crate::redis::ours;

/// What is kept of a connection: many seconds of batches.
const RECORDED_MAX: usize = 64 << 20;
/// Batches to replay: enough that they are over most of the keys.
const BATCHES_MAX: usize = 2_000;

/// Stands between a client and a server, until the client closes its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    recorded: Arc<Mutex<Vec<Vec<u8>>>>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Proxy {
    /// Listens on a loopback port and passes on to another.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start(to: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let proxy = Self { port, recorded: Arc::default(), connections: Arc::default() };
        let (recorded, connections) = (Arc::clone(&proxy.recorded), Arc::clone(&proxy.connections));
        // Waits for one more connection until the process ends: there is one proxy per server.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let recorded = Arc::clone(&recorded);
                // A connection that breaks is the client's to notice.
                let connection = thread::spawn(move || drop(pass_on(client, to, &recorded)));
                connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
        });
        Ok(proxy)
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What each connection sent, once the client has closed them all.
    #[must_use]
    pub fn finish(self) -> Vec<Vec<u8>> {
        let connections =
            std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in connections {
            // One that panicked has recorded nothing.
            let _ = connection.join();
        }
        std::mem::take(&mut *self.recorded.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Passes on what a client sends and what it is answered, until it closes.
fn pass_on(mut client: TcpStream, to: u16, recorded: &Mutex<Vec<Vec<u8>>>) -> std::io::Result<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, to))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
    let mut sent = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = match client.read(&mut buffer) {
            // A client that goes without saying so is gone as well.
            Ok(0) => break,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            length => length?,
        };
        server.write_all(&buffer[..length])?;
        if sent.len() + length <= RECORDED_MAX {
            sent.extend_from_slice(&buffer[..length]);
        }
    }
    recorded.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
    server.shutdown(Shutdown::Both)?;
    // What was on its way back is nobody's any more.
    let _ = back.join();
    Ok(())
}

/// Batches of the size that most checks travelled in, as they were sent.
#[derive(Debug)]
pub struct Batches {
    /// Checks in each.
    pub checks: usize,
    /// Checks in a batch of any size, on average.
    pub mean: f64,
    /// The requests.
    pub requests: Vec<Vec<u8>>,
}

/// The batches among what connections sent.
///
/// # Errors
/// If there is none.
pub fn batches(recorded: &[Vec<u8>]) -> Result<Batches> {
    let mut by_checks: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
    for sent in recorded {
        let mut rest = sent.as_slice();
        while let Some((request, words, after)) = next_request(rest) {
            if let Some(checks) = checks_in(&words) {
                by_checks.entry(checks).or_default().push(request);
            }
            rest = after;
        }
    }
    let requests: usize = by_checks.values().map(Vec::len).sum();
    let checks: usize = by_checks.iter().map(|(checks, requests)| checks * requests.len()).sum();
    // By checks, not by batches: a few stragglers, each alone, are not what the server works on.
    let most = by_checks.into_iter().max_by_key(|(checks, requests)| checks * requests.len());
    let (size, most) = most.ok_or("no batch went through the proxy")?;
    Ok(Batches {
        checks: size,
        mean: checks as f64 / requests as f64,
        requests: most.into_iter().take(BATCHES_MAX).map(<[u8]>::to_vec).collect(),
    })
}

/// How many checks are in a request, if it is a batch: `EVALSHA sha keys KEY.. ARG..`.
fn checks_in(words: &[&[u8]]) -> Option<usize> {
    if !words.first()?.eq_ignore_ascii_case(b"EVALSHA") {
        return None;
    }
    let keys: usize = std::str::from_utf8(words.get(2)?).ok()?.parse().ok()?;
    ours::checks_in(words.get(3 + keys)?)
}

/// A request, its words, and what follows it.
type Request<'a> = (&'a [u8], Vec<&'a [u8]>, &'a [u8]);

/// The first request, if all of it is there: `*n`, then `$length` and a word `n` times.
fn next_request(bytes: &[u8]) -> Option<Request<'_>> {
    let (count, mut rest) = number(bytes, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, after) = number(rest, b'$')?;
        words.push(after.get(..length)?);
        rest = after.get(length + 2..)?;
    }
    Some((&bytes[..bytes.len() - rest.len()], words, rest))
}

/// The number of a line that begins with `mark`, and what follows the line.
fn number(bytes: &[u8], mark: u8) -> Option<(usize, &[u8])> {
    let line = bytes.strip_prefix(&[mark])?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    let number = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
    Some((number, &line[end + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    fn batch(checks: u8, key: &[u8]) -> Vec<u8> {
        let head = [0, 0, 0, 0, 0, 0, 0, 0, checks, 0, 9, 9];
        request(&[b"EVALSHA", b"0123", b"1", key, &head])
    }

    #[test]
    fn the_size_that_most_checks_travel_in_is_taken() {
        let sent = [
            request(&[b"HELLO", b"3"]),
            batch(1, b"a"),
            batch(3, b"b\r\n"),
            batch(1, b"c"),
            batch(3, b"d"),
            batch(1, b"e"),
            b"*5\r\n$7\r\nEVAL".to_vec(),
        ];
        let found = batches(&[sent.concat()]).unwrap();
        assert_eq!((found.checks, found.mean), (3, 9.0 / 5.0));
        assert_eq!(found.requests, [batch(3, b"b\r\n"), batch(3, b"d")]);
        assert!(batches(&[request(&[b"PING"])]).is_err());
    }

    #[test]
    fn what_is_sent_arrives_and_is_recorded() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::start(server.local_addr().unwrap().port()).unwrap();
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).unwrap();
        client.write_all(b"ask").unwrap();
        let (mut stream, _) = server.accept().unwrap();
        let mut word = [0; 3];
        stream.read_exact(&mut word).unwrap();
        stream.write_all(b"yes").unwrap();
        client.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"yes");
        drop(client);
        assert_eq!(proxy.finish(), [b"ask".to_vec()]);
    }
}
