//! What is wrong with a call, as a problem document (RFC 9457).

use ratekeeper::{Field, InvalidInput, StoreError, StoreErrorKind};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::serve::outage;

/// What a problem document is.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// How much is said of what cannot be read.
const DETAIL_CHARS_MAX: usize = 500;

/// Something that is wrong with a call, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    /// The status of the response.
    pub status: u16,
    detail: String,
    /// Which field of the call is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

impl Problem {
    /// A problem with a status; its title is the status in words.
    pub(crate) fn new(status: u16, detail: impl Into<String>) -> Self {
        let title = match status {
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            409 => "Conflict",
            410 => "Gone",
            413 => "Content Too Large",
            422 => "Unprocessable Content",
            429 => "Too Many Requests",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            503 => "Service Unavailable",
            _ => "Error",
        };
        Self { kind: "about:blank", title, status, detail: detail.into(), field: None }
    }

    /// What is wrong, in words.
    pub(in crate::serve) fn detail(&self) -> &str {
        &self.detail
    }

    /// The same, with what it means for the call.
    pub(super) fn before(mut self, what: &str) -> Self {
        self.detail = format!("{what}: {}", self.detail);
        self
    }

    /// A field that is wrong, and what would be right.
    pub(crate) fn wrong(field: impl Into<String>, expected: impl AsRef<str>) -> Self {
        let field = field.into();
        let detail = format!("{field}: expected {}", expected.as_ref());
        Self { field: Some(field), ..Self::new(422, detail) }
    }

    /// A field that must be there.
    pub(super) fn missing(field: &str) -> Self {
        let detail = format!("{field}: it is missing");
        Self { field: Some(field.to_owned()), ..Self::new(422, detail) }
    }

    /// A field that is wrong: what it was, and what would be right.
    pub(super) fn got(field: &str, got: &str, expected: impl AsRef<str>) -> Self {
        let detail = format!("{field}: got {got}; expected {}", expected.as_ref());
        Self { field: Some(field.to_owned()), ..Self::new(422, detail) }
    }

    /// The same, of a field within another: `charges[0]`.
    pub(super) fn within(mut self, parent: &str) -> Self {
        self.field = Some(match self.field.take() {
            Some(field) => format!("{parent}.{field}"),
            None => parent.to_owned(),
        });
        self.detail = format!("{parent}.{}", self.detail);
        self
    }

    /// A call that is no JSON, or not the JSON that is expected.
    #[cold]
    pub(super) fn unread<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8], error: &serde_json::Error) -> Self {
        if !error.is_data() {
            return Self::new(400, shortened(&format!("the body is no JSON: {error}")));
        }
        // Read again, to find out where it went wrong.
        let deserializer = &mut serde_json::Deserializer::from_slice(bytes);
        let path = serde_path_to_error::deserialize::<_, T>(deserializer)
            .err()
            .map(|error| error.path().to_string());
        let field = path.filter(|path| path != "." && path != "?");
        let place = field.as_ref().map_or_else(String::new, |field| format!("{field}: "));
        let detail = shortened(&format!("{place}{}", in_words(&error.to_string())));
        Self { field: field.as_deref().map(shortened), ..Self::new(422, detail) }
    }

    /// A check of a batch that is not what is expected. What comes before it in the batch is not known here, so
    /// no line and column are said.
    pub(super) fn unread_check<'a, T: serde::Deserialize<'a>>(
        check: &'a RawValue,
        error: &serde_json::Error,
    ) -> Self {
        let mut problem = Self::unread::<T>(check.get().as_bytes(), error);
        if let Some((what, _)) = problem.detail.rsplit_once(" at line ") {
            problem.detail.truncate(what.len());
        }
        problem
    }

    /// What the library says of an input.
    pub(super) fn input(error: &InvalidInput) -> Self {
        let field = match error.field {
            Field::Idempotency | Field::Reservation | Field::IdInUse => "id",
            Field::Check => "charges",
            Field::QuotaText | Field::Limit | Field::Window | Field::Burst | Field::Queue | Field::Offset => {
                "quota"
            }
            Field::Algorithm => "algorithm",
            Field::Cost => "cost",
            Field::Key => "key",
            Field::Name => "name",
            Field::Override => "overrides",
            _ => "request",
        };
        let status = if error.field == Field::IdInUse { 409 } else { 422 };
        Self { field: Some(field.to_owned()), ..Self::new(status, error.to_string()) }
    }

    /// The same, of a field that the call has under this name.
    pub(super) fn of_input(field: &str, error: &InvalidInput) -> Self {
        Self { field: Some(field.to_owned()), ..Self::new(422, error.to_string()) }
    }

    /// A store that could not answer a call which has no failure policy.
    pub(super) fn store(error: StoreError) -> Self {
        let kind = error.kind();
        match error.into_input() {
            Some(input) => Self::input(&input),
            None if kind == StoreErrorKind::Timeout => {
                Self::new(503, "the store did not answer in time; what was asked may have been done")
            }
            None => Self::new(503, format!("the store could not be asked: {}", outage::reason(kind))),
        }
    }

    /// The document.
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        // Strings and numbers can always be written.
        let _ = serde_json::to_writer(into, self);
    }
}

/// What serde expects, in words of those who call: they know nothing of our types.
fn in_words(text: &str) -> String {
    let Some((before, expected)) = text.rsplit_once("expected ") else { return text.to_owned() };
    let (what, place) = expected.split_once(" at line ").unwrap_or((expected, ""));
    let at = if place.is_empty() { "" } else { " at line " };
    format!("{before}expected {what}{at}{place}")
}

/// What was sent is not sent back at any length.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(DETAIL_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::api::call::{CheckCall, LimitCall, RefundCall};
    use crate::serve::api::members::{Members, Placed};

    fn detail<'a, T: Members<'a> + std::fmt::Debug>(text: &'a str) -> String {
        let error = serde_json::from_str::<Placed<T>>(text).unwrap_err();
        Problem::unread::<Placed<T>>(text.as_bytes(), &error).detail
    }

    #[test]
    fn no_type_of_ours_is_in_a_problem() {
        let (object, number) = (detail::<LimitCall<'_>>("7"), detail::<CheckCall<'_>>(r#"{"cost": "many"}"#));
        assert!(object.contains("expected an object at line 1"), "{object}");
        assert!(number.contains("expected a whole number at line 1"), "{number}");
        let charge = detail::<LimitCall<'_>>(r#"{"charges": [7]}"#);
        assert!(charge.contains("expected an object"), "{charge}");
        for number in ["-1", "5.5", "-1e0", "true"] {
            let units = format!(r#"{{"units": {number}}}"#);
            assert!(
                detail::<RefundCall<'_>>(&units).contains("expected a whole number at line 1"),
                "{number}"
            );
        }
        assert!(detail::<LimitCall<'_>>(r#"{"id": 7}"#).contains("expected a string"));
    }
}
