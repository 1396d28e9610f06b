//! The JSON in a body, as it was sent.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::Body;

/// A body that was read: the one way from bytes to what policies see, for every framework.
///
/// What kind of content it says it is makes no difference: a service may read it as JSON all the same. Of members of
/// one name the last counts. A number with more digits than a float keeps becomes the text of its digits, in one
/// form for all its spellings, so that two numbers never are one key.
///
/// ```
/// use ratekeeper::policy::{Body, JsonBody};
///
/// assert_eq!(JsonBody::new(b"").as_body(), Body::Absent);
/// assert_eq!(JsonBody::new(br#"{"rows": 1e999}"#).as_body(), Body::Unreadable);
/// assert!(matches!(JsonBody::new(b"{}").as_body(), Body::Json(_)));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JsonBody(Kind);

#[derive(Clone, Debug, Default, PartialEq)]
enum Kind {
    #[default]
    Unread,
    Absent,
    Unreadable,
    Json(Json),
}

impl JsonBody {
    /// The whole body. An empty one is none; what is not JSON, or nested more than 127 deep, cannot be read.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self(Kind::Absent);
        }
        Self(serde_json::from_slice(&with_exact_numbers(bytes)).map_or(Kind::Unreadable, Kind::Json))
    }

    /// The body, if it could be read whole: too long or too late, it cannot be read.
    #[must_use]
    pub fn of(read: Option<&[u8]>) -> Self {
        read.map_or(Self(Kind::Unreadable), Self::new)
    }

    /// Whether a body with this content type is looked into. All are that could be JSON, whatever they say:
    /// services read JSON out of `text/plain`, forms and bodies without a type. Uploads and streams are not, because
    /// nobody should wait for them; those cannot be read ([`JsonBody::of`] with `None`).
    #[must_use]
    pub fn is_looked_into(content_type: Option<&[u8]>) -> bool {
        let is_upload = |kind: &[u8]| {
            let starts =
                |start: &[u8]| kind.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start));
            UPLOADS.iter().any(|start| starts(start.as_bytes()))
        };
        !content_type.is_some_and(|kind| is_upload(kind.trim_ascii_start()))
    }

    /// JSON that was parsed elsewhere.
    #[must_use]
    pub fn parsed(json: Json) -> Self {
        Self(Kind::Json(json))
    }

    /// What policies see.
    #[must_use]
    pub fn as_body(&self) -> Body<'_> {
        match &self.0 {
            Kind::Unread => Body::Unread,
            Kind::Absent => Body::Absent,
            Kind::Unreadable => Body::Unreadable,
            Kind::Json(json) => Body::Json(json),
        }
    }
}

/// What content types begin with whose bodies nobody waits for.
const UPLOADS: [&str; 6] =
    ["multipart/", "image/", "audio/", "video/", "application/octet-stream", "application/grpc"];

/// Decimal digits that a float always keeps.
const FLOAT_DIGITS: usize = 15;
/// Below, floats lose digits.
const EXPONENT_MIN: i64 = -300;
/// A number with more digits than that is written with an exponent.
const PLAIN_DIGITS_MAX: i64 = 64;

/// The text with every number as a text that would lose digits. Borrowed, if there is none: then nothing was
/// written.
fn with_exact_numbers(json: &[u8]) -> Cow<'_, [u8]> {
    let (mut written, mut kept_from, mut at) = (Vec::new(), 0, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => at = end_of_text(json, at + 1),
            b'-' | b'0'..=b'9' => {
                let part =
                    |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
                let length = json[at..].iter().position(|byte| !part(byte)).unwrap_or(json.len() - at);
                let number = &json[at..at + length];
                let is_short =
                    length <= FLOAT_DIGITS && !number.iter().any(|byte| matches!(byte, b'e' | b'E'));
                if let Some(exact) = (!is_short).then(|| exact(number)).flatten() {
                    written.extend_from_slice(&json[kept_from..at]);
                    written.extend_from_slice(format!("\"{exact}\"").as_bytes());
                    kept_from = at + length;
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    if kept_from == 0 {
        return Cow::Borrowed(json);
    }
    written.extend_from_slice(&json[kept_from..]);
    Cow::Owned(written)
}

/// Where the text ends whose first character is at `at`.
fn end_of_text(json: &[u8], mut at: usize) -> usize {
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

/// The one text for a number that a float does not hold; `None` if one does, or if it is no number at all or
/// too large for any float: that is the parser's to say.
fn exact(number: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(number).ok()?;
    if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() {
        return None;
    }
    // What the parser would refuse stays as it is.
    serde_json::from_str::<f64>(text).ok()?;
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat();
    let digits = all.trim_start_matches('0').trim_end_matches('0');
    // The number is 0.DIGITS times ten to the power of this.
    let leading = i64::try_from(all.len() - all.trim_start_matches('0').len()).ok()?;
    let power = exponent.checked_add(i64::try_from(whole.len()).ok()?)?.checked_sub(leading)?;
    let count = i64::try_from(digits.len()).ok()?;
    if digits.is_empty() || digits.len() <= FLOAT_DIGITS && power > EXPONENT_MIN {
        return None;
    }
    if (count..=PLAIN_DIGITS_MAX).contains(&power) {
        let zeros = "0".repeat(usize::try_from(power - count).ok()?);
        return Some(format!("{sign}{digits}{zeros}"));
    }
    Some(format!("{sign}0.{digits}e{power}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Json {
        let body = JsonBody::new(text.as_bytes());
        match body.as_body() {
            Body::Json(json) => json.clone(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn numbers_that_a_float_does_not_hold_keep_their_digits() {
        for (text, expected) in [
            ("18446744073709551617", r#""18446744073709551617""#),
            ("-18446744073709551617", r#""-18446744073709551617""#),
            ("18446744073709551617.0", r#""18446744073709551617""#),
            ("1844674407370955161700e-2", r#""18446744073709551617""#),
            ("1.8446744073709551617e+19", r#""18446744073709551617""#),
            ("1844674407370955161.7E1", r#""18446744073709551617""#),
            ("0.12345678901234567", r#""0.12345678901234567e0""#),
            ("1.2345678901234567e-1", r#""0.12345678901234567e0""#),
            ("1e-320", r#""0.1e-319""#),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("100000000000000000000", "1e20"),
            ("1.5", "1.5"),
            ("0.0000000000000000000000000", "0.0"),
            ("1.0000000000000000000000", "1.0"),
            ("1e300", "1e300"),
            (
                r#"{"a\"":"18446744073709551617.0","b":[18446744073709551617]}"#,
                r#"{"a\"":"18446744073709551617.0","b":["18446744073709551617"]}"#,
            ),
        ] {
            assert_eq!(parsed(text), serde_json::from_str::<Json>(expected).unwrap(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_absent() {
        let deep = format!("{}1{}", "[".repeat(128), "]".repeat(128));
        let unreadable: [&[u8]; 9] = [
            b"{",
            b" ",
            b"a=1",
            br#"{"a":1e999}"#,
            br#"{"a":"\ud800"}"#,
            deep.as_bytes(),
            b"NaN",
            b"1e99999999999999999999",
            b"1844674407370955161700..0",
        ];
        for body in unreadable {
            assert_eq!(
                JsonBody::new(body).as_body(),
                Body::Unreadable,
                "{:?}",
                String::from_utf8_lossy(body)
            );
        }
        assert_eq!(JsonBody::of(None).as_body(), Body::Unreadable);
        assert_eq!(JsonBody::of(Some(b"")).as_body(), Body::Absent);
    }

    #[test]
    fn all_that_could_be_json_is_looked_into() {
        for kind in [
            "",
            "application/json",
            "application/problem+json; charset=utf-8",
            "text/plain",
            "TEXT/html",
            "application/x-www-form-urlencoded",
            "nonsense",
            "\u{e9}",
        ] {
            assert!(JsonBody::is_looked_into(Some(kind.as_bytes())), "{kind}");
        }
        for kind in [
            "multipart/form-data; boundary=x",
            " Image/PNG",
            "application/grpc+proto",
            "application/octet-stream",
        ] {
            assert!(!JsonBody::is_looked_into(Some(kind.as_bytes())), "{kind}");
        }
        assert!(JsonBody::is_looked_into(None));
    }

    proptest::proptest! {
        /// No text makes it panic, and nothing that parses stops parsing.
        #[test]
        fn only_numbers_change(text in "[\\[\\]{}\",:\\\\0-9eE.+\\-a ]{0,60}") {
            let before = serde_json::from_str::<Json>(&text);
            let body = JsonBody::new(text.as_bytes());
            if !text.is_empty() {
                proptest::prop_assert_eq!(before.is_ok(), matches!(body.as_body(), Body::Json(_)), "{}", text);
            }
        }
    }
}
