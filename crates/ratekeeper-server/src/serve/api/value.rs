//! The values of members: JSON, read without copying what needs no copy, and bounded.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use ratekeeper::policy::Scalar;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Headers that a request may be told with.
pub const HEADERS_MAX: usize = 128;
/// Query parameters that a request may be told with.
pub const PARAMETERS_MAX: usize = 128;
/// Claims that a caller may be told with.
pub const CLAIMS_MAX: usize = 64;

/// A text, borrowed unless it had escapes in it.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// At most `MAX` of something.
#[derive(Debug, Default)]
pub(super) struct Few<T, const MAX: usize>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Few<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = Few<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX}")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut few = Vec::new();
                while let Some(item) = items.next_element()? {
                    if few.len() == MAX {
                        return Err(A::Error::custom(format_args!("a list of more than {MAX}")));
                    }
                    few.push(item);
                }
                Ok(Few(few))
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// The members of an object, at most `MAX`, in the order they came in.
#[derive(Debug)]
pub(super) struct Pairs<V, const MAX: usize>(pub(super) Vec<(Box<str>, V)>);

impl<V, const MAX: usize> Pairs<V, MAX> {
    pub(super) fn get(&self, name: &str) -> Option<&V> {
        self.0.iter().find(|(key, _)| **key == *name).map(|(_, value)| value)
    }
}

impl<'de, V: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Pairs<V, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<V, const MAX: usize>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>, const MAX: usize> Visitor<'de> for Members<V, MAX> {
            type Value = Pairs<V, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object of at most {MAX} members")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let mut pairs: Vec<(Box<str>, V)> = Vec::new();
                while let Some((name, value)) = members.next_entry::<Box<str>, V>()? {
                    if pairs.len() == MAX {
                        return Err(A::Error::custom(format_args!("an object of more than {MAX} members")));
                    }
                    if pairs.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom("a member that stands twice"));
                    }
                    pairs.push((name, value));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// The query of a request: as it was sent, or its parameters decoded.
#[derive(Debug)]
pub(super) enum Query<'a> {
    Sent(Cow<'a, str>),
    Decoded(Pairs<Text<'a>, PARAMETERS_MAX>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Query<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Query<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a query string, or an object of parameters")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Query::Sent(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Query::Sent(Cow::Owned(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
                let members = serde::de::value::MapAccessDeserializer::new(members);
                Pairs::deserialize(members).map(Query::Decoded)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// The lines of a header: one, or a list of several.
#[derive(Debug)]
pub(super) enum Lines<'a> {
    One(Cow<'a, str>),
    Several(Few<Text<'a>, HEADERS_MAX>),
}

impl Lines<'_> {
    pub(super) fn nth(&self, index: usize) -> Option<&str> {
        match self {
            Lines::One(line) => (index == 0).then_some(line),
            Lines::Several(lines) => lines.0.get(index).map(Text::as_str),
        }
    }

    pub(super) fn nth_from_end(&self, back: usize) -> Option<&str> {
        let count = match self {
            Lines::One(_) => 1,
            Lines::Several(lines) => lines.0.len(),
        };
        self.nth(count.checked_sub(back + 1)?)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Lines<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Lines<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the value of a header, or a list of them")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Lines::One(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Lines::One(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, lines: A) -> Result<Self::Value, A::Error> {
                let lines = serde::de::value::SeqAccessDeserializer::new(lines);
                Few::deserialize(lines).map(Lines::Several)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// What is known of a caller.
#[derive(Debug)]
pub(super) struct Claim<'a>(pub(super) Scalar<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Claim<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Single;
        impl<'de> Visitor<'de> for Single {
            type Value = Claim<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true or false")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Claim(Scalar::Text(Cow::Borrowed(text))))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Claim(Scalar::Text(Cow::Owned(text.to_owned()))))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Claim(number.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Claim(number.into()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
                Ok(Claim(number.into()))
            }

            fn visit_bool<E>(self, truth: bool) -> Result<Self::Value, E> {
                Ok(Claim(truth.into()))
            }
        }
        deserializer.deserialize_any(Single)
    }
}
