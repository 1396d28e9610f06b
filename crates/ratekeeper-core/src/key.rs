//! What a charge counts against: a name and a subject.

use crate::error::{Field, InvalidInput};
use crate::name::{Name, RawName, digest_more};

/// The longest subject, in bytes. Longer ones are to be hashed by the caller.
pub const SUBJECT_BYTES_MAX: usize = 1_024;

/// An odd number with its bits well mixed: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The identity of a counter: which quota (`api.rpm`) and whose (`user:42`).
///
/// The two parts never run into each other: no subject can be chosen so that
/// it names another quota's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    scope: Name,
    /// The name that a caller gave to a raw charge; `scope` stands in for it then.
    raw: Option<&'a RawName<'a>>,
    subject: &'a [u8],
}

impl<'a> Key<'a> {
    /// The counter of `subject` under the quota `scope`. Subjects are bytes.
    ///
    /// # Errors
    /// If the subject is empty or longer than [`SUBJECT_BYTES_MAX`].
    pub fn new(scope: Name, subject: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, InvalidInput> {
        Self { scope, raw: None, subject: &[] }.of(subject.as_ref())
    }

    /// The counter of `subject` under a name of the caller's. Decisions call it [`Name::RAW`].
    ///
    /// # Errors
    /// As [`Key::new`].
    pub fn raw(
        name: &'a RawName<'a>,
        subject: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Result<Self, InvalidInput> {
        Self { scope: Name::RAW, raw: Some(name), subject: &[] }.of(subject.as_ref())
    }

    #[inline]
    fn of(self, subject: &'a [u8]) -> Result<Self, InvalidInput> {
        if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
            let got = format!("{} bytes", subject.len());
            let expected = format!("1 to {SUBJECT_BYTES_MAX} bytes; hash what is longer");
            return Err(InvalidInput::new(Field::Key, got, expected));
        }
        Ok(Self { subject, ..self })
    }

    /// A key whose subject was found to be within bounds before.
    pub(crate) const fn of_checked(scope: Name, subject: &'a [u8]) -> Self {
        Self { scope, raw: None, subject }
    }

    /// The quota's name; the one that stands in for it if the caller made the name up.
    #[must_use]
    pub const fn scope(&self) -> Name {
        self.scope
    }

    /// The name that a caller made up, if one did.
    #[must_use]
    pub const fn raw_name(&self) -> Option<&'a RawName<'a>> {
        self.raw
    }

    /// The name as people know it.
    #[must_use]
    pub fn label(&self) -> &'a str {
        self.raw.map_or(self.scope.label(), |raw| raw.text())
    }

    /// A number that is the same for the same name in every process and version.
    #[must_use]
    #[inline]
    pub fn scope_id(&self) -> u64 {
        self.raw.map_or_else(|| self.scope.id(), RawName::id)
    }

    /// A number that is the same for the same name and subject in every process and version.
    #[must_use]
    #[inline]
    pub fn digest(&self) -> u64 {
        // Eight bytes a step: every decision of a store on Redis has one for each of its charges.
        let (words, rest) = self.subject.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let start = self.scope_id() ^ self.subject.len() as u64;
        let words = words.iter().chain(std::iter::once(&last)).map(|word| u64::from_le_bytes(*word));
        words.fold(start, |digest, word| {
            let product = u128::from(digest ^ word) * u128::from(SPREAD);
            product as u64 ^ (product >> 64) as u64
        })
    }

    /// Name and subject, in bytes that no other key has.
    #[must_use]
    pub fn in_words(&self) -> Vec<u8> {
        let (space, name) = self.raw.map_or(("", self.scope.as_str()), |raw| (raw.space(), raw.text()));
        // No name has a zero in it, and subjects come last.
        [space.as_bytes(), b"\0", name.as_bytes(), b"\0", self.subject].concat()
    }

    /// Whether the subject is among the first `percent` per cent of all subjects
    /// of its rule, in an order of chance that never changes: the same ones stay
    /// in as the share grows.
    #[must_use]
    pub fn is_within(&self, percent: u8) -> bool {
        let digest = digest_more(self.scope.rule().id(), self.subject);
        // The last bytes reach only the low bits of FNV; mixing spreads them.
        let mixed = (digest ^ (digest >> 32)).wrapping_mul(SPREAD);
        (u128::from(mixed) * 100) >> 64 < u128::from(percent)
    }

    /// Whose counter it is.
    #[must_use]
    pub const fn subject(&self) -> &'a [u8] {
        self.subject
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_without_losing_anybody() {
        let scope = Name::new("ramped").unwrap();
        let subjects: Vec<String> = (0..10_000).map(|n| format!("user:{n}")).collect();
        let within =
            |percent| subjects.iter().filter(move |s| Key::new(scope, s).unwrap().is_within(percent));
        assert_eq!((within(0).count(), within(100).count()), (0, subjects.len()));
        for percent in [1, 10, 50, 90] {
            let (count, expected) = (within(percent).count(), usize::from(percent) * 100);
            assert!(count.abs_diff(expected) < 250, "{percent}: {count}");
            assert!(within(percent).all(|s| Key::new(scope, s).unwrap().is_within(percent + 1)));
        }
    }

    #[test]
    fn subjects_are_bounded_bytes() {
        let scope = Name::new("api").unwrap();
        assert!(Key::new(scope, "user:42").is_ok());
        assert!(Key::new(scope, &[0xff, 0x00, 0xfe]).is_ok(), "any bytes will do");
        for subject in [String::new(), "x".repeat(1 << 20)] {
            let error = Key::new(scope, &subject).unwrap_err();
            assert!(error.to_string().contains("expected 1 to 1024 bytes; hash what is longer"), "{error}");
        }
    }
}
