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
    r#""detail":"The limits of this service need the client's address, which the server does not pass on. In axum, serve "#,
    r#"the router with into_make_service_with_connect_info::<SocketAddr>(); in other servers, put Peer into the "#,
    r#"extensions of requests."}"#,
);
/// The same where rules in code are about requests of another framework.
#[cfg(any(feature = "actix", feature = "tower"))]
const OTHER_KIND: &str = concat!(
    r#"{"type":"about:blank","title":"Internal Server Error","status":500,"#,
    r#""detail":"The limits of this service are rules in code about another kind of request than its framework has."}"#,
);

/// What gRPC callers are told that the service lacks: the same in the plain characters of a `grpc-message`.
#[cfg(feature = "tower")]
pub(crate) fn missing_in_grpc(what: NoIdentity) -> &'static str {
    match what.0 {
        Missing::Identity => "the limits of this service need an identity, and the request has none",
        Missing::Address => {
            "the limits of this service need the client's address; put Peer into the extensions of requests"
        }
        Missing::Kind => "the limits of this service are rules in code about another kind of request",
    }
}

/// The body that says what is missing.
#[cfg(any(feature = "actix", feature = "tower"))]
pub(crate) fn missing(what: NoIdentity) -> &'static str {
    match what.0 {
        Missing::Identity => NO_IDENTITY,
        Missing::Address => NO_ADDRESS,
        Missing::Kind => OTHER_KIND,
    }
}

/// The body that says what was wrong when a handler asked something of the limits.
#[cfg(any(feature = "actix", feature = "axum"))]
pub(crate) fn failed(error: &ratekeeper::InvalidInput) -> String {
    let detail = serde_json::Value::from(format!("The handler has used its limits wrongly: {error}"));
    format!(r#"{{"type":"about:blank","title":"Internal Server Error","status":500,"detail":{detail}}}"#)
}
