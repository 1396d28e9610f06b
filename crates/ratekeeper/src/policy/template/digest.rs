//! Digests of values and of long subjects: BLAKE3, 256 bits in hexadecimal,
//! behind a `#`.
//!
//! Nobody can look for two values that meet. Without a secret, the digest of a
//! value is what `printf %s VALUE | b3sum` prints, so operators can find a
//! counter; but whoever can list all possible values (telephone numbers,
//! addresses) can find them, too. With a secret, only who has it.

use std::fmt;

use crate::policy::syntax::SyntaxError;

/// The shortest secret, in bytes.
const SECRET_BYTES_MIN: usize = 16;
/// Keeps digests of subjects apart from digests of values, which clients choose.
const LONG_CONTEXT: &str = "ratekeeper policy: a subject that is too long";
const SECRET_CONTEXT: &str = "ratekeeper policy: the secret of hash_keys";

/// How values are hashed: with a secret, or so that anybody can do the same.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyHashing {
    key: Option<[u8; blake3::KEY_LEN]>,
}

impl KeyHashing {
    /// Without a secret: keeps credentials out of sight, but not what can be
    /// guessed.
    #[must_use]
    pub fn open() -> Self {
        Self::default()
    }

    /// With a secret. All instances need the same, and with another one all
    /// counters begin anew.
    ///
    /// # Errors
    /// If the secret has less than 16 bytes.
    pub fn secret(secret: &[u8]) -> Result<Self, SyntaxError> {
        if secret.len() < SECRET_BYTES_MIN {
            let got = format!("a secret of {} bytes", secret.len());
            return Err(SyntaxError::new("", 0, got, format!("at least {SECRET_BYTES_MIN} bytes")));
        }
        Ok(Self { key: Some(blake3::derive_key(SECRET_CONTEXT, secret)) })
    }

    pub(super) fn digest_of(&self, value: &str) -> Digest {
        Digest::new(&match &self.key {
            Some(key) => blake3::keyed_hash(key, value.as_bytes()),
            None => blake3::hash(value.as_bytes()),
        })
    }
}

impl fmt::Debug for KeyHashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHashing").field("has_secret", &self.key.is_some()).finish()
    }
}

/// `#` and 64 digits.
pub(super) struct Digest([u8; DIGEST_BYTES]);

const DIGEST_BYTES: usize = 1 + 2 * blake3::OUT_LEN;

impl Digest {
    fn new(hash: &blake3::Hash) -> Self {
        let mut bytes = [b'#'; DIGEST_BYTES];
        bytes[1..].copy_from_slice(hash.to_hex().as_bytes());
        Self(bytes)
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The digest of a subject that is too long to be kept.
pub(super) struct LongDigest(blake3::Hasher);

impl LongDigest {
    pub(super) fn new() -> Self {
        Self(blake3::Hasher::new_derive_key(LONG_CONTEXT))
    }

    pub(super) fn update(&mut self, text: &str) {
        self.0.update(text.as_bytes());
    }

    pub(super) fn finish(&self) -> Digest {
        Digest::new(&self.0.finalize())
    }
}
