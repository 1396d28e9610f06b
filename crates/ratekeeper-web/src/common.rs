//! What the adapters for frameworks share.

/// Whether a content type says that the body is JSON: `application/json`,
/// `application/problem+json; charset=utf-8`.
#[cfg(any(feature = "actix", feature = "tower"))]
pub(crate) fn is_json(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is = |text: &[u8]| text.eq_ignore_ascii_case(b"json");
    let mut parts = essence.splitn(2, |byte| *byte == b'/');
    let (Some(_), Some(subtype)) = (parts.next(), parts.next()) else { return false };
    let suffix = subtype.iter().rposition(|byte| *byte == b'+').map(|at| &subtype[at + 1..]);
    is(subtype) || suffix.is_some_and(is)
}

/// The body of a response to nobody, where somebody was expected.
#[cfg(any(feature = "actix", feature = "tower"))]
pub(crate) const NO_IDENTITY: &str = concat!(
    r#"{"type":"about:blank","title":"Internal Server Error","status":500,"#,
    r#""detail":"The limits of this service need to know who is calling, and nobody told them."}"#,
);

#[cfg(all(test, any(feature = "actix", feature = "tower")))]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_its_subtype_or_its_suffix() {
        let json = ["application/json", "Application/JSON ; charset=utf-8", "text/json", "a/b+c+json"];
        let other = ["", "json", "application/jsonp", "application/json+xml", "/", "a/+", "text/plain;json"];
        for text in json {
            assert!(is_json(text.as_bytes()), "{text}");
        }
        for text in other {
            assert!(!is_json(text.as_bytes()), "{text}");
        }
        assert!(!is_json(b"\xff\xfe/\xff"));
    }
}
