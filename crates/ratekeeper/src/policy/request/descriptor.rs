//! The descriptor that a proxy sends in place of a request.

use std::borrow::Cow;
use std::sync::OnceLock;

/// The entries by which a proxy such as Envoy tells what a request is, in their order.
///
/// ```
/// use ratekeeper::policy::Descriptor;
///
/// let descriptor: Descriptor = [("plan", "free"), ("user", "ann"), ("user", "bob")].into_iter().collect();
/// assert_eq!(descriptor.get("user"), Some("ann"));
/// assert_eq!(descriptor.get("user#2"), Some("bob"));
/// assert_eq!(descriptor.keys(), "plan,user,user");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Descriptor<'a> {
    entries: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    keys: OnceLock<String>,
}

impl<'a> Descriptor<'a> {
    /// The value of a key; `key#2` is the second entry of a key that is there twice. An entry whose own
    /// key is written so comes first.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.nth(key, 0).or_else(|| {
            let (key, number) = key.rsplit_once('#')?;
            // `#1` and `#02` are no names that anything has.
            let nth =
                number.parse::<usize>().ok().filter(|nth| *nth > 1 && !number.starts_with(['0', '+']))?;
            self.nth(key, nth - 1)
        })
    }

    fn nth(&self, key: &str, index: usize) -> Option<&str> {
        let mut of_key = self.entries.iter().filter(|(known, _)| known == key);
        of_key.nth(index).map(|(_, value)| value.as_ref())
    }

    /// The keys of all entries in their order, with commas between them: what kind of descriptor it is. A comma in a key
    /// is `%2C`, a `%` is `%25`.
    #[must_use]
    pub fn keys(&self) -> &str {
        self.keys.get_or_init(|| {
            let length: usize = self.entries.iter().map(|(key, _)| key.len() + 1).sum();
            let mut keys = String::with_capacity(length);
            for (index, (key, _)) in self.entries.iter().enumerate() {
                if index > 0 {
                    keys.push(',');
                }
                push_escaped(&mut keys, key);
            }
            keys
        })
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Its entries, each a key and a value.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }
}

fn push_escaped(keys: &mut String, key: &str) {
    for piece in key.split_inclusive(['%', ',']) {
        match piece.as_bytes() {
            [.., b'%'] => keys.extend([&piece[..piece.len() - 1], "%25"]),
            [.., b','] => keys.extend([&piece[..piece.len() - 1], "%2C"]),
            _ => keys.push_str(piece),
        }
    }
}

impl<'a, K: Into<Cow<'a, str>>, V: Into<Cow<'a, str>>> FromIterator<(K, V)> for Descriptor<'a> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into()));
        Self { entries: entries.collect(), keys: OnceLock::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_there_more_than_once_are_counted() {
        let descriptor: Descriptor<'_> =
            [("a", "1"), ("b", ""), ("a", "2"), ("a", "3"), ("c#2", "4"), ("c", "5"), ("c", "6")]
                .into_iter()
                .collect();
        let cases = [
            ("a", Some("1")),
            ("a#2", Some("2")),
            ("a#3", Some("3")),
            ("a#4", None),
            ("a#1", None),
            ("a#02", None),
            ("a#+2", None),
            ("a#", None),
            ("b", Some("")),
            ("b#2", None),
            ("c#2", Some("4")),
            ("c", Some("5")),
            ("", None),
        ];
        for (key, expected) in cases {
            assert_eq!(descriptor.get(key), expected, "{key}");
        }
        assert_eq!((descriptor.len(), descriptor.is_empty()), (7, false));
    }

    #[test]
    fn no_key_looks_like_two() {
        let keys = |keys: &[&'static str]| {
            keys.iter().map(|key| (*key, "")).collect::<Descriptor<'_>>().keys().to_owned()
        };
        assert_eq!(keys(&[]), "");
        assert_eq!(keys(&["a"]), "a");
        assert_eq!(keys(&["a", "b", "a"]), "a,b,a");
        assert_eq!(keys(&["a,b", "%2C%"]), "a%2Cb,%252C%25");
    }
}
