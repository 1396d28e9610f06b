//! The document that tells of all calls.

pub(crate) fn text() -> String {
    "{}".to_owned()
}
