//! Single values, as requests have them.

use std::borrow::Cow;

use serde_json::Value as Json;

/// A single value.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// A whole number.
    Integer(i64),
    /// A whole number that is too large for that.
    Large(u64),
    /// Any other number.
    Float(f64),
    /// True or false.
    Bool(bool),
}

/// Floats below are whole numbers if they look like one (2^53).
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

impl<'a> Scalar<'a> {
    /// The scalar in a JSON value. A number is whole by its value and not by
    /// the way it is written: `3`, `3.0` and `3e0` are the same.
    pub(in crate::policy) fn of_json(json: &'a Json) -> Option<Self> {
        Some(match json {
            Json::String(text) => Scalar::Text(Cow::Borrowed(text)),
            Json::Bool(truth) => Scalar::Bool(*truth),
            Json::Number(number) => Self::of_number(number)?,
            Json::Null | Json::Array(_) | Json::Object(_) => return None,
        })
    }

    pub(in crate::policy) fn of_number(number: &serde_json::Number) -> Option<Self> {
        match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Some(Scalar::Integer(number)),
            (None, Some(number)) => Some(Scalar::Large(number)),
            (None, None) => number.as_f64().map(Self::of_float),
        }
    }

    fn of_float(number: f64) -> Self {
        if number.fract() == 0.0 && number.abs() < EXACT_BELOW {
            Scalar::Integer(number as i64)
        } else {
            Scalar::Float(number)
        }
    }

    /// The same value, with a text that is borrowed from this one.
    pub(super) fn borrowed(&self) -> Scalar<'_> {
        match self {
            Scalar::Text(text) => Scalar::Text(Cow::Borrowed(text)),
            Scalar::Integer(number) => Scalar::Integer(*number),
            Scalar::Large(number) => Scalar::Large(*number),
            Scalar::Float(number) => Scalar::Float(*number),
            Scalar::Bool(truth) => Scalar::Bool(*truth),
        }
    }
}

impl<'a> From<&'a str> for Scalar<'a> {
    fn from(text: &'a str) -> Self {
        Scalar::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Scalar<'_> {
    fn from(text: String) -> Self {
        Scalar::Text(Cow::Owned(text))
    }
}

impl From<i64> for Scalar<'_> {
    fn from(number: i64) -> Self {
        Scalar::Integer(number)
    }
}

impl From<u64> for Scalar<'_> {
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or(Scalar::Large(number), Scalar::Integer)
    }
}

impl From<f64> for Scalar<'_> {
    fn from(number: f64) -> Self {
        Self::of_float(number)
    }
}

impl From<bool> for Scalar<'_> {
    fn from(truth: bool) -> Self {
        Scalar::Bool(truth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_whole_by_its_value() {
        let cases = [
            ("3", Some(Scalar::Integer(3))),
            ("3.0", Some(Scalar::Integer(3))),
            ("-3e2", Some(Scalar::Integer(-300))),
            ("-0.0", Some(Scalar::Integer(0))),
            ("3.5", Some(Scalar::Float(3.5))),
            ("18446744073709551615", Some(Scalar::Large(u64::MAX))),
            ("-9223372036854775808", Some(Scalar::Integer(i64::MIN))),
            ("1e300", Some(Scalar::Float(1e300))),
            ("null", None),
            ("[1]", None),
            ("{}", None),
        ];
        for (text, expected) in cases {
            let json: Json = serde_json::from_str(text).unwrap();
            assert_eq!(Scalar::of_json(&json), expected, "{text}");
        }
    }
}
