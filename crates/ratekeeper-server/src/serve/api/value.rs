//! The values of members: JSON, read without copying what needs no copy, and bounded.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use ratekeeper::bounds::LIMIT_MAX;
use ratekeeper::policy::{Body, JsonBody, Scalar};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::problem::Problem;

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

/// A whole number, also one that is written `5.0` or `5e0`, as some languages write all numbers. What is
/// beyond is as much as there can be, which is more than any member takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Whole(pub(super) u64);

impl Whole {
    /// It, if it is no more than a quota can be.
    pub(super) fn units(self, field: &str) -> Result<u32, Problem> {
        let units = u32::try_from(self.0).ok().filter(|units| *units <= LIMIT_MAX);
        units.ok_or_else(|| Problem::wrong(field, format!("a whole number from 0 to {LIMIT_MAX}")))
    }
}

impl<'de> Deserialize<'de> for Whole {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            #[inline]
            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Whole(number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                if number >= 0.0 && number.fract() == 0.0 {
                    return Ok(Whole(number as u64));
                }
                Err(E::invalid_value(serde::de::Unexpected::Float(number), &self))
            }
        }
        deserializer.deserialize_u64(Number)
    }
}

/// The members of an object, at most `MAX`, in the order they came in. One that is `null` is as good as absent.
#[derive(Debug)]
pub(super) struct Pairs<V, const MAX: usize>(Vec<(Box<str>, Option<V>)>);

impl<V, const MAX: usize> Pairs<V, MAX> {
    pub(super) fn get(&self, name: &str) -> Option<&V> {
        self.0.iter().find(|(key, _)| **key == *name).and_then(|(_, value)| value.as_ref())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &V)> {
        self.0.iter().filter_map(|(name, value)| Some((&**name, value.as_ref()?)))
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
                let mut pairs: Vec<(Box<str>, Option<V>)> = Vec::new();
                while let Some((name, value)) = members.next_entry::<Box<str>, Option<V>>()? {
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

/// The lines of a header: one, or a list of several. Those that are `null` are none.
#[derive(Debug)]
pub(super) enum Lines<'a> {
    One(Cow<'a, str>),
    Several(Vec<Text<'a>>),
}

impl Lines<'_> {
    pub(super) fn nth(&self, index: usize) -> Option<&str> {
        match self {
            Lines::One(line) => (index == 0).then_some(line),
            Lines::Several(lines) => lines.get(index).map(Text::as_str),
        }
    }

    pub(super) fn nth_from_end(&self, back: usize) -> Option<&str> {
        let count = match self {
            Lines::One(_) => 1,
            Lines::Several(lines) => lines.len(),
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
                let Few(lines) = Few::<Option<Text<'_>>, HEADERS_MAX>::deserialize(lines)?;
                Ok(Lines::Several(lines.into_iter().flatten().collect()))
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
        // As it was written: a number that a float does not hold keeps its digits, as in bodies.
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        if raw.starts_with('"') {
            let text = serde_json::from_str::<Text<'de>>(raw);
            let text = text.map_err(|_| D::Error::custom("got half a character; expected text"))?;
            return Ok(Claim(Scalar::Text(text.0)));
        }
        match JsonBody::new(raw.as_bytes()).as_body() {
            Body::Json(Json::Bool(truth)) => Ok(Claim((*truth).into())),
            Body::Json(Json::String(digits)) => Ok(Claim(digits.clone().into())),
            Body::Json(Json::Number(number)) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(number), ..) => Ok(Claim(number.into())),
                (None, Some(number), _) => Ok(Claim(number.into())),
                (None, None, number) => Ok(Claim(number.unwrap_or_default().into())),
            },
            _ => Err(D::Error::custom("got no single value; expected a text, a number, true or false")),
        }
    }
}
