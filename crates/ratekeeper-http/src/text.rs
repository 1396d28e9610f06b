//! Values are written into a buffer that the thread keeps, and copied once: by header types
//! that copy anyway, or into a string that has no byte to spare.

use std::cell::Cell;

/// What a buffer is made with: a problem document, or the fields of half a dozen policies.
const BUFFER_BYTES: usize = 512;
/// A buffer that has grown larger is not kept.
const BUFFER_BYTES_MAX: usize = 16 << 10;

thread_local! {
    /// Lent to one value at a time; a second one at the same time makes its own.
    static BUFFER: Cell<String> = const { Cell::new(String::new()) };
}

/// A value that is being written.
#[derive(Debug)]
pub(crate) struct Text(String);

impl Default for Text {
    #[inline]
    fn default() -> Self {
        // A thread that ends has no buffer any more.
        let buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
        Self(if buffer.capacity() == 0 { String::with_capacity(BUFFER_BYTES) } else { buffer })
    }
}

impl Drop for Text {
    #[inline]
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        if buffer.capacity() <= BUFFER_BYTES_MAX {
            buffer.clear();
            let _ = BUFFER.try_with(|kept| kept.set(buffer));
        }
    }
}

impl Text {
    #[inline]
    pub(crate) fn push(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// The value.
    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Makes room for the next value.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.0.clear();
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
        self.0.push('"');
        self.escaped(text);
        self.0.push('"');
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
                self.0.push(if is_padding { '=' } else { ALPHABET[sextet as usize].into() });
            }
        }
        self.push(":");
    }

    /// The value, percent-encoded as gRPC wants its messages: everything but
    /// printable ASCII, and the percent sign itself.
    pub(crate) fn percent_encoded(&self) -> Self {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let mut encoded = Self::default();
        for byte in self.0.bytes() {
            if matches!(byte, b' '..=b'~') && byte != b'%' {
                encoded.0.push(byte.into());
            } else {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]];
                encoded.0.push('%');
                encoded.0.extend(digits.map(char::from));
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
        for len in [BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1, 2 * BUFFER_BYTES_MAX] {
            let expected = "0123456789".repeat(len / 10) + &"x".repeat(len % 10);
            let mut text = Text::default();
            expected.split_inclusive('4').for_each(|part| text.push(part));
            assert_eq!(text.finish(), expected);
        }
    }

    #[test]
    fn two_values_can_be_written_at_a_time_and_none_is_left_for_the_next() {
        let mut one = Text::default();
        one.push("one");
        let mut other = Text::default();
        other.push("other");
        assert_eq!((one.as_str(), other.as_str()), ("one", "other"));
        drop((other, one));
        assert_eq!(written(|text| text.push("next")), "next");
    }

    #[test]
    fn a_buffer_that_has_grown_large_is_not_kept() {
        drop(written(|text| text.push(&"x".repeat(2 * BUFFER_BYTES_MAX))));
        assert!(Text::default().0.capacity() <= BUFFER_BYTES_MAX);
    }

    #[test]
    fn messages_are_percent_encoded() {
        let mut text = Text::default();
        text.push("50 % of caf\u{e9}\n~");
        assert_eq!(text.percent_encoded().finish(), "50 %25 of caf%C3%A9%0A~");
    }
}
