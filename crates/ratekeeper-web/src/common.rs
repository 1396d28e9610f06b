//! What the adapters for frameworks share.

/// The body of a response to nobody, where somebody was expected.
#[cfg(any(feature = "actix", feature = "tower"))]
pub(crate) const NO_IDENTITY: &str = concat!(
    r#"{"type":"about:blank","title":"Internal Server Error","status":500,"#,
    r#""detail":"The limits of this service need to know who is calling, and nobody told them."}"#,
);
