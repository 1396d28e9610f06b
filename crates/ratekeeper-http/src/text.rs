//! Values are written on the stack and copied once: by header types that copy
//! anyway, or into a string that has no byte to spare.

/// Bytes that are written without allocating: a problem document, or the fields
/// of a dozen policies.
const INLINE: usize = 512;

/// A value that is being written. Like a `SmallVec`, but short pieces, of which
/// values are made, cost half as much.
#[derive(Debug)]
pub(crate) struct Text {
    inline: [u8; INLINE],
    len: usize,
    /// All of it, once it is longer than what fits inline.
    spilled: Vec<u8>,
}

impl Default for Text {
    #[inline]
    fn default() -> Self {
        Self { inline: [0; INLINE], len: 0, spilled: Vec::new() }
    }
}

impl Text {
    #[inline]
    pub(crate) fn push(&mut self, text: &str) {
        self.extend(text.as_bytes());
    }

    #[inline]
    fn extend(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        match self.inline.get_mut(self.len..end) {
            Some(room) if self.spilled.is_empty() => {
                room.copy_from_slice(bytes);
                self.len = end;
            }
            _ => self.spill(bytes),
        }
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(&self.inline[..self.len]);
        }
        self.spilled.extend_from_slice(bytes);
    }

    fn bytes(&self) -> &[u8] {
        if self.spilled.is_empty() { &self.inline[..self.len] } else { &self.spilled }
    }

    /// The value. Everything written was text, so it is text.
    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(self.bytes()).unwrap_or_default()
    }

    /// Makes room for the next value.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.spilled.clear();
    }

    pub(crate) fn integer(&mut self, value: u64) {
        self.push(itoa::Buffer::new().format(value));
    }

    /// Writes `key` and a whole number: `;q=10`.
    pub(crate) fn parameter(&mut self, key: &str, value: u64) {
        self.push(key);
        self.integer(value);
    }

    /// Writes `text` as it stands between double quotes. Names are printable
    /// ASCII, so structured fields (RFC 9651, 4.1.6) and JSON escape the same two.
    pub(crate) fn escaped(&mut self, text: &str) {
        let mut rest = text;
        let is_plain = !text.bytes().any(|byte| byte == b'"' || byte == b'\\');
        if is_plain {
            return self.push(text);
        }
        while let Some(at) = rest.find(['"', '\\']) {
            self.push(&rest[..at]);
            self.push("\\");
            self.push(&rest[at..=at]);
            rest = &rest[at + 1..];
        }
        self.push(rest);
    }

    /// Writes `text` in double quotes.
    pub(crate) fn quoted(&mut self, text: &str) {
        self.push("\"");
        self.escaped(text);
        self.push("\"");
    }

    /// Writes a byte sequence (RFC 9651, 4.1.8): base64 with padding, in colons.
    pub(crate) fn byte_sequence(&mut self, bytes: &[u8]) {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        self.push(":");
        for chunk in bytes.chunks(3) {
            let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for at in 0..4 {
                let sextet = bits >> (18 - 6 * at) & 0x3f;
                let is_padding = at > chunk.len();
                self.extend(&[if is_padding { b'=' } else { ALPHABET[sextet as usize] }]);
            }
        }
        self.push(":");
    }

    /// The value, percent-encoded as gRPC wants its messages: everything but
    /// printable ASCII, and the percent sign itself.
    pub(crate) fn percent_encoded(&self) -> Self {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let mut encoded = Self::default();
        for byte in self.bytes() {
            if matches!(byte, b' '..=b'~') && *byte != b'%' {
                encoded.extend(&[*byte]);
            } else {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 0xf));
                encoded.extend(&[b'%', HEX[high], HEX[low]]);
            }
        }
        encoded
    }

    /// The value, in a string that has no byte to spare.
    pub(crate) fn finish(&self) -> String {
        self.as_str().to_owned()
    }
}

/// A whole number as a value.
pub(crate) fn whole(value: u64) -> String {
    itoa::Buffer::new().format(value).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Text)) -> String {
        let mut text = Text::default();
        write(&mut text);
        text.finish()
    }

    #[test]
    fn numbers_are_written_whole() {
        for value in [0, 9, 10, 1_000_000_000, u64::MAX] {
            assert_eq!(written(|text| text.integer(value)), value.to_string());
            assert_eq!(whole(value), value.to_string());
        }
    }

    #[test]
    fn what_would_end_a_string_is_escaped() {
        assert_eq!(written(|text| text.quoted(r#"a"b\c"#)), r#""a\"b\\c""#);
        assert_eq!(written(|text| text.quoted(r#"""#)), r#""\"""#);
        assert_eq!(written(|text| text.quoted("")), r#""""#);
    }

    #[test]
    fn byte_sequences_are_padded() {
        // The vectors of RFC 4648, section 10.
        let vectors =
            [("", "::"), ("f", ":Zg==:"), ("fo", ":Zm8=:"), ("foo", ":Zm9v:"), ("foobar", ":Zm9vYmFy:")];
        for (bytes, value) in vectors {
            assert_eq!(written(|text| text.byte_sequence(bytes.as_bytes())), value);
        }
        assert_eq!(written(|text| text.byte_sequence(&[0xff, 0xfe, 0xfd])), "://79:");
    }

    #[test]
    fn what_is_long_is_whole() {
        for len in [INLINE - 1, INLINE, INLINE + 1, 10 * INLINE] {
            let expected = "0123456789".repeat(len / 10) + &"x".repeat(len % 10);
            let mut text = Text::default();
            expected.split_inclusive('4').for_each(|part| text.push(part));
            assert_eq!(text.finish(), expected);
        }
        let mut text = Text::default();
        text.push(&"x".repeat(INLINE));
        text.push("");
        text.push("y");
        assert!(text.finish().ends_with("xy"));
    }

    #[test]
    fn messages_are_percent_encoded() {
        let mut text = Text::default();
        text.push("50 % of caf\u{e9}\n~");
        assert_eq!(text.percent_encoded().finish(), "50 %25 of caf%C3%A9%0A~");
    }
}
