//! Commands in the bytes that a client has sent: where each argument is, without copying any.
//!
//! A command is an array of bulk strings, or a line of words ("inline") as people type it. What a command may be is
//! bounded before any of it is kept; errors are said in the words of Redis.

use std::ops::Range;

/// The most arguments of a command, its name among them.
pub const ARGUMENTS_MAX: usize = 64;
/// The longest argument, in bytes.
pub const ARGUMENT_BYTES_MAX: usize = 8 << 10;
/// The longest command, in bytes as they are sent.
pub const COMMAND_BYTES_MAX: usize = 16 << 10;
/// The longest number in a frame, in bytes.
const NUMBER_BYTES_MAX: usize = 20;

/// What is at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A command, and how many bytes it takes.
    Command(usize),
    /// Nothing that is to be answered, and how many bytes that takes.
    Nothing(usize),
    /// The rest has not come yet.
    Incomplete,
}

/// Bytes that are no command. The client may mean anything by what follows, so the connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProtocolError(pub(super) String);

/// The arguments of a command, in the bytes it was read from.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    places: Vec<Range<usize>>,
    /// The words of a line, whose quotes and escapes are undone.
    words: Vec<u8>,
    is_inline: bool,
}

/// The arguments of a command with the bytes they are in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command<'b> {
    places: &'b [Range<usize>],
    bytes: &'b [u8],
}

impl<'b> Command<'b> {
    /// How many there are, the name among them. Never 0.
    pub(super) fn len(self) -> usize {
        self.places.len()
    }

    /// The argument at an index; nothing if there is none.
    pub(super) fn get(self, index: usize) -> Option<&'b [u8]> {
        self.bytes.get(self.places.get(index)?.clone())
    }

    /// The name.
    pub(super) fn name(self) -> &'b [u8] {
        self.get(0).unwrap_or_default()
    }

    /// All that stands behind the name.
    pub(super) fn rest(self) -> impl Iterator<Item = &'b [u8]> {
        self.places.iter().skip(1).filter_map(move |place| self.bytes.get(place.clone()))
    }
}

impl Arguments {
    /// The command that was read last, from these bytes.
    pub(super) fn command<'b>(&'b self, bytes: &'b [u8]) -> Command<'b> {
        Command { places: &self.places, bytes: if self.is_inline { &self.words } else { bytes } }
    }

    /// Reads the command at the beginning of `bytes`.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Parsed, ProtocolError> {
        self.places.clear();
        self.is_inline = false;
        let parsed = match bytes.first() {
            None => Parsed::Incomplete,
            Some(b'*') => self.array(bytes)?,
            Some(_) => self.inline(bytes)?,
        };
        if parsed == Parsed::Incomplete && bytes.len() >= COMMAND_BYTES_MAX {
            return Err(too_long());
        }
        Ok(parsed)
    }

    fn array(&mut self, bytes: &[u8]) -> Result<Parsed, ProtocolError> {
        let Some((count, mut at)) = number(bytes, 1).map_err(|()| wrong("invalid multibulk length"))? else {
            return Ok(Parsed::Incomplete);
        };
        if count <= 0 {
            return Ok(Parsed::Nothing(at));
        }
        let count = usize::try_from(count).ok().filter(|count| *count <= ARGUMENTS_MAX);
        let count = count.ok_or_else(|| wrong("invalid multibulk length"))?;
        for _ in 0..count {
            match bytes.get(at) {
                None => return Ok(Parsed::Incomplete),
                Some(b'$') => {}
                Some(other) => {
                    return Err(ProtocolError(format!(
                        "Protocol error: expected '$', got '{}'",
                        other.escape_ascii()
                    )));
                }
            }
            let Some((length, begin)) = number(bytes, at + 1).map_err(|()| wrong("invalid bulk length"))?
            else {
                return Ok(Parsed::Incomplete);
            };
            let length = usize::try_from(length).ok().filter(|length| *length <= ARGUMENT_BYTES_MAX);
            let end = begin + length.ok_or_else(|| wrong("invalid bulk length"))?;
            at = end + 2;
            if at > COMMAND_BYTES_MAX {
                return Err(too_long());
            }
            match bytes.get(end..at) {
                None => return Ok(Parsed::Incomplete),
                Some(b"\r\n") => self.places.push(begin..end),
                Some(_) => return Err(wrong("expected CRLF behind a bulk string")),
            }
        }
        Ok(Parsed::Command(at))
    }

    /// A line of words, as it is typed into a terminal.
    fn inline(&mut self, bytes: &[u8]) -> Result<Parsed, ProtocolError> {
        let Some(end) = bytes.iter().take(COMMAND_BYTES_MAX).position(|byte| *byte == b'\n') else {
            let is_too_long = bytes.len() >= COMMAND_BYTES_MAX;
            return if is_too_long { Err(wrong("too big inline request")) } else { Ok(Parsed::Incomplete) };
        };
        let line = bytes.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.words.clear();
        self.is_inline = true;
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                break;
            }
            if self.places.len() == ARGUMENTS_MAX {
                return Err(wrong("too many words in an inline request"));
            }
            let begin = self.words.len();
            rest = word(rest, &mut self.words).ok_or_else(|| wrong("unbalanced quotes in request"))?;
            self.places.push(begin..self.words.len());
        }
        Ok(if self.places.is_empty() { Parsed::Nothing(end + 1) } else { Parsed::Command(end + 1) })
    }
}

/// Reads a word and returns what stands behind it. A closing quote ends a word, and a blank has to follow.
fn word<'l>(mut rest: &'l [u8], into: &mut Vec<u8>) -> Option<&'l [u8]> {
    let ends = |rest: &[u8]| rest.first().is_none_or(u8::is_ascii_whitespace);
    while let [byte, behind @ ..] = rest {
        if byte.is_ascii_whitespace() {
            break;
        }
        rest = match byte {
            b'"' => return quoted(behind, into).filter(|behind| ends(behind)),
            b'\'' => return plainly_quoted(behind, into).filter(|behind| ends(behind)),
            byte => {
                into.push(*byte);
                behind
            }
        };
    }
    Some(rest)
}

/// What stands in double quotes: with escapes.
fn quoted<'l>(mut rest: &'l [u8], into: &mut Vec<u8>) -> Option<&'l [u8]> {
    loop {
        let (byte, behind) = match rest {
            [] => return None,
            [b'"', behind @ ..] => return Some(behind),
            [b'\\', b'x', high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |digit: &u8| char::from(*digit).to_digit(16).unwrap_or_default();
                ((digit(high) << 4 | digit(low)) as u8, behind)
            }
            [b'\\', escaped, behind @ ..] => {
                let byte = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                };
                (byte, behind)
            }
            [byte, behind @ ..] => (*byte, behind),
        };
        into.push(byte);
        rest = behind;
    }
}

/// What stands in single quotes: as it is.
fn plainly_quoted<'l>(mut rest: &'l [u8], into: &mut Vec<u8>) -> Option<&'l [u8]> {
    loop {
        let (byte, behind) = match rest {
            [] => return None,
            [b'\'', behind @ ..] => return Some(behind),
            [b'\\', b'\'', behind @ ..] => (b'\'', behind),
            [byte, behind @ ..] => (*byte, behind),
        };
        into.push(byte);
        rest = behind;
    }
}

/// The number at `at`, and where what stands behind its line begins; nothing if the line is not complete.
#[inline]
fn number(bytes: &[u8], at: usize) -> Result<Option<(i64, usize)>, ()> {
    let (mut value, mut is_negative) = (0_i64, false);
    for (index, byte) in bytes.get(at..).unwrap_or_default().iter().enumerate() {
        match byte {
            _ if index > NUMBER_BYTES_MAX => return Err(()),
            b'0'..=b'9' => value = value.saturating_mul(10).saturating_add((byte - b'0').into()),
            b'-' if index == 0 => is_negative = true,
            b'\r' if index > usize::from(is_negative) => {
                let end = at + index + 1;
                return match bytes.get(end) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((if is_negative { -value } else { value }, end + 1))),
                    Some(_) => Err(()),
                };
            }
            _ => return Err(()),
        }
    }
    Ok(None)
}

fn wrong(what: &str) -> ProtocolError {
    ProtocolError(format!("Protocol error: {what}"))
}

fn too_long() -> ProtocolError {
    ProtocolError(format!("Protocol error: too big command; expected at most {COMMAND_BYTES_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Result<(Vec<String>, usize), String> {
        let mut arguments = Arguments::default();
        match arguments.read(bytes) {
            Ok(Parsed::Command(length)) => {
                let command = arguments.command(bytes);
                let all = (0..command.len()).filter_map(|index| command.get(index));
                Ok((all.map(|word| word.escape_ascii().to_string()).collect(), length))
            }
            Ok(Parsed::Nothing(length)) => Ok((Vec::new(), length)),
            Ok(Parsed::Incomplete) => Err("incomplete".to_owned()),
            Err(ProtocolError(error)) => Err(error),
        }
    }

    #[test]
    fn commands_are_found_where_they_are() {
        let cases: [(&[u8], &[&str], usize); 10] = [
            (b"*1\r\n$4\r\nPING\r\n*1\r\n", &["PING"], 14),
            (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", &["ECHO", ""], 20),
            (b"*2\r\n$1\r\na\r\n$3\r\n\r\n*\r\n", &["a", r"\r\n*"], 20),
            (b"*0\r\nx", &[], 4),
            (b"*-1\r\n", &[], 5),
            (b"PING\r\n", &["PING"], 6),
            (b" ping  x \nrest", &["ping", "x"], 10),
            (b"\r\n", &[], 2),
            (b"echo \"a b\\x41\\n\\\"\" 'c\\'d'\r\n", &["echo", r#"a bA\n\""#, r"c\'d"], 27),
            (b"a'b'\r\n", &["ab"], 6),
        ];
        for (bytes, expected, length) in cases {
            let expected: Vec<String> = expected.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(words(bytes), Ok((expected, length)), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn every_part_of_a_command_is_incomplete() {
        let whole: &[u8] = b"*3\r\n$2\r\nab\r\n$0\r\n\r\n$12\r\n0123456789ab\r\n";
        for end in 0..whole.len() {
            assert_eq!(words(&whole[..end]), Err("incomplete".to_owned()), "{end}");
        }
        assert!(words(whole).is_ok());
        assert_eq!(words(b"PING"), Err("incomplete".to_owned()));
    }

    #[test]
    fn what_is_no_command_is_named() {
        let long = [b"*1\r\n".to_vec(), vec![b'1'; 40]].concat();
        let line = vec![b'x'; COMMAND_BYTES_MAX];
        let many = [b"a ".repeat(ARGUMENTS_MAX + 1), b"\r\n".to_vec()].concat();
        let bulk = format!("$8000\r\n{}\r\n", "x".repeat(8_000));
        let big = format!("*3\r\n{bulk}{bulk}{bulk}");
        let cases: [(&[u8], &str); 16] = [
            (b"*65\r\n", "invalid multibulk length"),
            (b"*99999999999999999999\r\n", "invalid multibulk length"),
            (b"*999999999999999999999999", "invalid multibulk length"),
            (b"*a\r\n", "invalid multibulk length"),
            (b"*\r\n", "invalid multibulk length"),
            (b"*-\r\n", "invalid multibulk length"),
            (b"*1\rx", "invalid multibulk length"),
            (&long, "expected '$', got '1'"),
            (b"*1\r\n\x00", "expected '$', got '\\x00'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$8193\r\n", "invalid bulk length"),
            (b"*1\r\n$1\r\nabc", "expected CRLF behind a bulk string"),
            (b"a \"b\r\n", "unbalanced quotes in request"),
            (b"a \"b\"c\r\n", "unbalanced quotes in request"),
            (&line, "too big inline request"),
            (&many, "too many words in an inline request"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(words(bytes), Err(format!("Protocol error: {expected}")), "{}", bytes.escape_ascii());
        }
        assert_eq!(words(big.as_bytes()), Err(too_long().0));
    }
}
