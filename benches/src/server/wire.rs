//! As much HTTP/1.1 as it takes to ask and to be answered on a connection that stays open.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Where a key's number goes in a body, and how many digits it has.
pub const NUMBER: &str = "########";
/// The most bytes of an answer: some times what a batch is answered with.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Room for an answer to begin with.
const ANSWER_BYTES: usize = 4 << 10;

/// A request to send again and again, each time about another key.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
    numbers: Vec<usize>,
}

impl Request {
    /// A POST of JSON in which every [`NUMBER`] stands for a key's.
    #[must_use]
    pub fn post(path: &str, body: &str) -> Self {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let numbers = body.match_indices(NUMBER).map(|(at, _)| head.len() + at).collect();
        Self { bytes: (head + body).into_bytes(), numbers }
    }

    /// It with these numbers, as many as it has places for.
    pub fn about(&mut self, keys: impl IntoIterator<Item = u32>) -> &[u8] {
        for (at, key) in self.numbers.iter().zip(keys) {
            let mut rest = key;
            for digit in self.bytes[*at..*at + NUMBER.len()].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        &self.bytes
    }
}

/// A connection on which one request is under way at a time.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    answer: Vec<u8>,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: &'a [u8],
}

impl Connection {
    /// Opens it.
    ///
    /// # Errors
    /// If nobody listens.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { address, stream, answer: vec![0; ANSWER_BYTES] })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// If the connection breaks or what comes is not HTTP as we read it.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        let mut filled = 0;
        let (status, body) = loop {
            if filled == self.answer.len() {
                if filled >= ANSWER_BYTES_MAX {
                    return Err(io::Error::other("an answer without end"));
                }
                self.answer.resize(2 * filled, 0);
            }
            let length = self.stream.read(&mut self.answer[filled..]).await?;
            if length == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            filled += length;
            if let Some((status, body)) = head(&self.answer[..filled])?
                && body.end <= filled
            {
                break (status, body);
            }
        };
        Ok(Answer { status, body: &self.answer[body] })
    }

    /// Begins anew after something went wrong.
    ///
    /// # Errors
    /// If nobody listens any more.
    pub async fn reopen(&mut self) -> io::Result<()> {
        self.stream = TcpStream::connect(self.address).await?;
        self.stream.set_nodelay(true)
    }
}

/// The status and where the body is, once the head is complete.
fn head(bytes: &[u8]) -> io::Result<Option<(u16, Range<usize>)>> {
    let wrong = || io::Error::other(format!("no answer: {}", String::from_utf8_lossy(bytes)));
    let (mut status, mut length, mut at) = (None, None, 0);
    while let Some(end) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        let line = bytes[at..at + end].trim_ascii();
        at += end + 1;
        if status.is_none() {
            status = Some(line.get(9..12).and_then(number).ok_or_else(wrong)?);
        } else if line.is_empty() {
            let (status, length) = status.zip(length).ok_or_else(wrong)?;
            return Ok(Some((status as u16, at..at + length)));
        } else if let Some((b"content-length:", value)) = line.split_at_checked(15) {
            length = Some(number(value.trim_ascii()).ok_or_else(wrong)?);
        }
    }
    Ok(None)
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_place() {
        let mut request = Request::post("/x", r#"["a:########","b:########"]"#);
        let text = String::from_utf8(request.about([7, 12_345_678]).to_vec()).unwrap();
        assert!(
            text.starts_with("POST /x HTTP/1.1\r\n") && text.contains("content-length: 27\r\n"),
            "{text}"
        );
        assert!(text.ends_with("\r\n\r\n[\"a:00000007\",\"b:12345678\"]"), "{text}");
    }

    #[test]
    fn heads_are_read_when_they_are_complete() {
        let text = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\ndate: x\r\n\r\n{}";
        assert_eq!(head(text).unwrap(), Some((429, text.len() - 2..text.len())));
        assert_eq!(head(&text[..text.len() - 4]).unwrap(), None);
        assert!(head(b"HTTP/1.1 200 OK\r\ndate: x\r\n\r\n").is_err());
        assert!(head(b"nonsense\r\n").is_err());
    }
}
