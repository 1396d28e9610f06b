//! The document that tells of all calls. A test compares it with what is answered.

/// The document.
pub(crate) fn text() -> &'static str {
    include_str!("openapi.json")
}
