//! Heads that say the length of their body twice.
//!
//! Whoever passes requests on may go by the other one of the two, and then takes for a body what is a request to us:
//! so a request is smuggled past it. hyper takes the better one and leaves the other out of the head, so the lines
//! are looked at as they come.

use std::io::BufRead as _;

/// Bytes of a line that tell which field it is.
const NAME_BYTES: usize = LENGTH.len();
const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";
/// As many as the longer name has.
const KEPT: usize = CODING.len();

/// The lines of a connection, as far as they are needed. Bodies are looked at as well: a line of JSON never
/// begins like one of the fields.
#[derive(Debug, Default)]
pub(super) struct Framing {
    /// How the line begins of which the end has not come.
    begun: [u8; KEPT],
    kept: usize,
    /// Whether the lines since the last empty one said a length.
    is_said: bool,
}

impl Framing {
    /// Looks at what has come. Returns whether a head says a length twice.
    #[inline]
    pub(super) fn is_ambiguous(&mut self, mut bytes: &[u8]) -> bool {
        let mut is_ambiguous = false;
        while !bytes.is_empty() {
            let mut rest = bytes;
            // It cannot fail in memory, and finds the end of a line faster than a loop.
            let length = rest.skip_until(b'\n').unwrap_or(bytes.len());
            let (line, is_whole) = match bytes[..length].strip_suffix(b"\n") {
                Some(line) => (line, true),
                None => (bytes, false),
            };
            if self.kept > 0 || !is_whole {
                self.keep(line);
                if is_whole {
                    let (begun, kept) = (self.begun, std::mem::take(&mut self.kept));
                    is_ambiguous |= self.line(&begun[..kept]);
                }
            } else {
                is_ambiguous |= self.line(line);
            }
            bytes = rest;
        }
        is_ambiguous
    }

    fn keep(&mut self, more: &[u8]) {
        let room = &mut self.begun[self.kept..];
        let taken = room.len().min(more.len());
        room[..taken].copy_from_slice(&more[..taken]);
        self.kept += taken;
    }

    /// A line, or as much of it as is kept.
    #[inline]
    fn line(&mut self, line: &[u8]) -> bool {
        match line.first() {
            None | Some(b'\r') => self.is_said = false,
            Some(b'c' | b'C' | b't' | b'T') if is_length(line) => {
                return std::mem::replace(&mut self.is_said, true);
            }
            Some(_) => {}
        }
        false
    }
}

fn is_length(line: &[u8]) -> bool {
    let begins = |name: &[u8]| line.get(..name.len()).is_some_and(|begun| begun.eq_ignore_ascii_case(name));
    line.len() >= NAME_BYTES && (begins(LENGTH) || begins(CODING))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "POST / HTTP/1.1\r\nhost: x\r\n";

    /// The same in whatever pieces it comes.
    #[track_caller]
    fn is_ambiguous(text: &str) -> bool {
        let in_pieces = |size: usize| {
            let mut framing = Framing::default();
            // All of them are looked at, as on a connection.
            text.as_bytes().chunks(size).filter(|piece| framing.is_ambiguous(piece)).count() > 0
        };
        let whole = in_pieces(text.len());
        for size in 1..text.len() {
            assert_eq!(in_pieces(size), whole, "{text:?} in pieces of {size}");
        }
        whole
    }

    #[test]
    fn a_length_that_is_said_twice_is_found() {
        let twice = [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "transfer-encoding:chunked\ncontent-length:5\n\n",
            "content-length: 5\r\naccept: */*\r\ncontent-length: 5\r\n\r\n",
            "transfer-encoding: chunked\r\nTRANSFER-ENCODING: chunked\r\n\r\n",
        ];
        for lines in twice {
            assert!(is_ambiguous(&format!("{HEAD}{lines}")), "{lines:?}");
            let second = format!("{HEAD}content-length: 2\r\n\r\n{{}}{HEAD}{lines}");
            assert!(is_ambiguous(&second), "{second:?}");
        }
    }

    #[test]
    fn what_says_it_once_passes() {
        let once = [
            "\r\n",
            "content-length: 5\r\n\r\nhello",
            "content-length: 5\r\nx-content-length: 6\r\ncontent-lengths: 7\r\nte: x\r\n\r\nhello",
            "content-length: 40\r\n\r\n{\n  \"content-length\": 5,\n\"transfer-encoding\": true\n}",
            "transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\ncontent-length: 5\r\n\r\n",
        ];
        for lines in once {
            assert!(!is_ambiguous(&format!("{HEAD}{lines}")), "{lines:?}");
            assert!(!is_ambiguous(&format!("{HEAD}{lines}{HEAD}content-length: 5\r\n\r\n")), "{lines:?}");
        }
        assert!(!is_ambiguous(&format!("{HEAD}content-length: 0\r\n\r\n").repeat(3)));
    }
}
