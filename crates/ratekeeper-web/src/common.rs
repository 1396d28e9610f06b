//! What the adapters for frameworks share.

#[cfg(any(feature = "actix", feature = "tower"))]
use crate::gate::{Missing, NoIdentity};

/// The body of a response to nobody, where somebody was expected.
#[cfg(any(feature = "actix", feature = "tower"))]
const NO_IDENTITY: &str = concat!(
    r#"{"type":"about:blank","title":"Internal Server Error","status":500,"#,
    r#""detail":"The limits of this service need to know who is calling, and nobody told them."}"#,
);
/// The same where the client's address is missing.
#[cfg(any(feature = "actix", feature = "tower"))]
const NO_ADDRESS: &str = concat!(
    r#"{"type":"about:blank","title":"Internal Server Error","status":500,"#,
    r#""detail":"The limits of this service need the client's address, which the server does not pass on."}"#,
);

/// The body that says what is missing.
#[cfg(any(feature = "actix", feature = "tower"))]
pub(crate) fn missing(what: NoIdentity) -> &'static str {
    match what.0 {
        Missing::Identity => NO_IDENTITY,
        Missing::Address => NO_ADDRESS,
    }
}
