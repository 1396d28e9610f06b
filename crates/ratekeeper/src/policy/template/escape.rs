//! How values are written into a subject, and what happens to long ones.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use super::SUBJECT_PLAIN_BYTES_MAX;
use super::digest::{Digest, LongDigest};

/// The ASCII characters that stand for themselves in values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain([bool; 128]);

impl Default for Plain {
    fn default() -> Self {
        let mut plain = [false; 128];
        for byte in 0..128_u8 {
            plain[usize::from(byte)] = byte.is_ascii_alphanumeric() || b"-._~@/+=$!*'()".contains(&byte);
        }
        Self(plain)
    }
}

impl Plain {
    pub(super) fn keeps(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte)).copied().unwrap_or(false)
    }

    pub(super) fn drop(&mut self, byte: u8) {
        self.0[usize::from(byte & 127)] = false;
    }
}

/// What most subjects are shorter than.
const TYPICAL_BYTES: usize = 48;

/// How much of a template's first words stands before a digest, in bytes.
const WORDS_BYTES_MAX: usize = 64;

/// Writes a subject; one that grows too long is digested instead of kept, so
/// that a value of any size takes no memory.
pub(super) struct Writer<'s> {
    subject: &'s mut String,
    long: Option<LongDigest>,
}

impl<'s> Writer<'s> {
    pub(super) fn new(subject: &'s mut String) -> Self {
        subject.clear();
        // Most subjects fit, and are written without growing it bit by bit.
        subject.reserve(TYPICAL_BYTES);
        Self { subject, long: None }
    }

    pub(super) fn push(&mut self, text: &str) {
        if let Some(long) = &mut self.long {
            long.update(text);
        } else if self.subject.len() + text.len() <= SUBJECT_PLAIN_BYTES_MAX {
            self.subject.push_str(text);
        } else {
            let long = self.long.insert(LongDigest::new());
            long.update(self.subject);
            long.update(text);
        }
    }

    /// [`Writer::push`] of several pieces.
    #[inline]
    pub(super) fn push_all<const COUNT: usize>(&mut self, pieces: [&str; COUNT]) {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.long.is_none() && self.subject.len() + length <= SUBJECT_PLAIN_BYTES_MAX {
            pieces.iter().for_each(|piece| self.subject.push_str(piece));
        } else {
            pieces.iter().for_each(|piece| self.push(piece));
        }
    }

    /// Letters and digits of any script stay; what does not is `%XX`, byte by
    /// byte. So are marks that could turn the direction of a line in a log.
    pub(super) fn push_escaped(&mut self, text: &str, plain: &Plain) {
        let mut kept_from = 0;
        let mut at = 0;
        let bytes = text.as_bytes();
        while let Some(byte) = bytes.get(at) {
            let length = if byte.is_ascii() {
                if plain.keeps(*byte) {
                    at += 1;
                    continue;
                }
                1
            } else {
                let character = text[at..].chars().next().unwrap_or_default();
                if character.is_alphanumeric() {
                    at += character.len_utf8();
                    continue;
                }
                character.len_utf8()
            };
            self.push(&text[kept_from..at]);
            for byte in &bytes[at..at + length] {
                self.push_code(*byte);
            }
            at += length;
            kept_from = at;
        }
        self.push(&text[kept_from..]);
    }

    fn push_code(&mut self, byte: u8) {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let code = [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        self.push(std::str::from_utf8(&code).unwrap_or_default());
    }

    pub(super) fn finish(&mut self, first_words: &str) {
        let Some(long) = &self.long else { return };
        let digest: Digest = long.finish();
        self.subject.clear();
        let mut ends = (0..=first_words.len().min(WORDS_BYTES_MAX)).rev();
        let end = ends.find(|end| first_words.is_char_boundary(*end)).unwrap_or(0);
        self.subject.push_str(&first_words[..end]);
        self.subject.push_str(digest.as_str());
    }
}

/// A value as somebody wrote it by hand: escaped or not. `None` if it is empty
/// or stands for no text.
pub(super) fn unescaped(value: &str) -> Option<String> {
    let decoded = percent_decode(value.as_bytes()).decode_utf8().ok().map(Cow::into_owned);
    decoded.filter(|value| !value.is_empty())
}
