//! Keys: 32-byte strings written in place from an index.
//!
//! Writing the key is part of every measured check, because a limiter that is
//! fast only on keys it has just seen in the same memory would look too good;
//! so it is kept cheap, and measured as a row of its own.

/// The length of every key.
pub const KEY_BYTES: usize = 32;
/// Where the index stands.
const INDEX_AT: usize = KEY_BYTES - 8;

/// A key that can be rewritten without allocating. A `String`, because some
/// peers look up nothing else.
#[derive(Debug)]
pub struct KeyText(String);

impl KeyText {
    /// A key of `layer`, four ASCII characters.
    #[must_use]
    pub fn new(layer: &str) -> Self {
        let text = format!("{layer}:tenant-00000042:id={}", "a".repeat(KEY_BYTES - INDEX_AT));
        assert!(text.is_ascii() && text.len() == KEY_BYTES, "a layer has four characters");
        Self(text)
    }

    /// Makes it the key of `index`.
    #[inline]
    #[allow(unsafe_code)]
    pub fn set(&mut self, index: u32) {
        let letters = letters(index).to_le_bytes();
        // SAFETY: the letters are ASCII and so is what they replace, so the
        // string stays valid UTF-8.
        let bytes = unsafe { self.0.as_bytes_mut() };
        bytes[INDEX_AT..].copy_from_slice(&letters);
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn text(&self) -> &String {
        &self.0
    }
}

/// Eight letters from `a` to `p`, one for every four bits: arithmetic on one
/// word, so that the key is written by a single store.
#[inline]
fn letters(index: u32) -> u64 {
    let bits = u64::from(index);
    let bits = (bits | bits << 16) & 0x0000_ffff_0000_ffff;
    let bits = (bits | bits << 8) & 0x00ff_00ff_00ff_00ff;
    let bits = (bits | bits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    bits + u64::from_ne_bytes([b'a'; 8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_32_bytes_and_all_different() {
        let mut key = KeyText::new("user");
        let indices = (0..100_000).chain([u32::MAX, u32::MAX - 1, 1 << 31]);
        let mut seen = HashSet::new();
        for index in indices {
            key.set(index);
            assert_eq!(key.text().len(), KEY_BYTES);
            assert!(key.text().is_ascii());
            assert!(seen.insert(key.text().clone()), "{index} twice");
        }
    }
}
