//! Replies, as bytes. Both versions of the protocol are the same but for maps and null.

/// The version of the protocol that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Two,
    Three,
}

impl Version {
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

/// Replies that have not been sent yet.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) bytes: Vec<u8>,
    pub(super) version: Version,
}

impl Replies {
    /// A word that is no data, such as `OK`.
    pub(super) fn status(&mut self, word: &str) {
        self.line(b'+', word.as_bytes());
    }

    /// What went wrong, with its kind before it. It is one line, whatever is in it.
    pub(super) fn error(&mut self, text: &str) {
        self.bytes.push(b'-');
        let one_line = text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte });
        self.bytes.extend(one_line);
        self.bytes.extend_from_slice(b"\r\n");
    }

    #[inline]
    pub(super) fn integer(&mut self, value: i64) {
        self.bytes.push(b':');
        self.bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    pub(super) fn null(&mut self) {
        let null: &[u8] = match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        };
        self.bytes.extend_from_slice(null);
    }

    /// So many elements follow.
    pub(super) fn array(&mut self, length: usize) {
        self.header(b'*', length);
    }

    /// So many pairs of a key and a value follow.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Two => self.header(b'*', 2 * pairs),
            Version::Three => self.header(b'%', pairs),
        }
    }

    fn header(&mut self, kind: u8, length: usize) {
        let mut number = itoa::Buffer::new();
        self.line(kind, number.format(length).as_bytes());
    }

    fn line(&mut self, kind: u8, bytes: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_is_in_it() {
        let mut replies = Replies::default();
        replies.error("ERR a\r\nb\0c");
        assert_eq!(replies.bytes, b"-ERR a  b c\r\n");
    }

    #[test]
    fn the_versions_differ_in_maps_and_null() {
        let told = |version| {
            let mut replies = Replies { version, ..Replies::default() };
            replies.map(1);
            replies.text("a");
            replies.null();
            String::from_utf8(replies.bytes).unwrap()
        };
        assert_eq!(told(Version::Two), "*2\r\n$1\r\na\r\n$-1\r\n");
        assert_eq!(told(Version::Three), "%1\r\n$1\r\na\r\n_\r\n");
    }
}
