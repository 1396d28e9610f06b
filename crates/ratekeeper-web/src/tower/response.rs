//! Decisions as responses of the `http` crate.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use ratekeeper::Decision;
use ratekeeper_http::field::{self, GRPC_MESSAGE, GRPC_STATUS, NO_STORE};
use ratekeeper_http::{Denial, FIELDS_MAX, HttpOptions, Tally};

use crate::common;

/// Room for the fields of a denial, and those about limits.
const DENIAL_FIELDS: usize = 3 + FIELDS_MAX;

/// Whom a response is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Http,
    /// With what its bodies are called: `grpc-web` is not `grpc`.
    Grpc(&'static str),
}

impl Dialect {
    /// That of a request. gRPC calls are POST, always; whoever sends its content type with another
    /// method does not get to turn a 429 into a 200.
    pub(super) fn of(method: &Method, headers: &HeaderMap) -> Self {
        if method != Method::POST {
            return Dialect::Http;
        }
        let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let Some(rest) = content_type.and_then(|value| value.strip_prefix(b"application/grpc")) else {
            return Dialect::Http;
        };
        match rest {
            [] | [b'+' | b';' | b' ', ..] => Dialect::Grpc("application/grpc"),
            _ if rest.starts_with(b"-web-text") => Dialect::Grpc("application/grpc-web-text+proto"),
            _ if rest.starts_with(b"-web") => Dialect::Grpc("application/grpc-web+proto"),
            _ => Dialect::Http,
        }
    }

    pub(super) fn is_grpc(self) -> bool {
        matches!(self, Dialect::Grpc(_))
    }
}

// Made once: a name is checked and hashed letter by letter.
static NAMES: [HeaderName; 8] = [
    HeaderName::from_static(field::RATELIMIT_POLICY),
    HeaderName::from_static(field::RATELIMIT),
    HeaderName::from_static(field::LEGACY[0]),
    HeaderName::from_static(field::LEGACY[1]),
    HeaderName::from_static(field::LEGACY[2]),
    HeaderName::from_static(field::LEGACY_X[0]),
    HeaderName::from_static(field::LEGACY_X[1]),
    HeaderName::from_static(field::LEGACY_X[2]),
];

/// Puts a field about limits into a header map, over the one that is there.
pub(crate) fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    let known = NAMES.iter().find(|known| known.as_str() == name);
    let name = known.cloned().unwrap_or_else(|| HeaderName::from_static(name));
    // Fields are ASCII without control characters, always.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Puts the fields about limits into the response to the only decision there was.
pub(super) fn tell<B>(response: &mut Response<B>, decision: &Decision, options: &HttpOptions) {
    if options.has_fields() {
        let headers = response.headers_mut();
        Tally::of(decision).each_field(options, |name, value| insert(headers, name, value));
    }
}

/// The response to a denied request, without the fields about limits.
pub(crate) fn denied<B>(
    decision: &Decision,
    options: &HttpOptions,
    dialect: Dialect,
    body_of: impl FnOnce(Bytes) -> B,
) -> Response<B> {
    let Some(denial) = Denial::of(decision, options) else { return Response::new(body_of(Bytes::new())) };
    let mut headers = HeaderMap::with_capacity(DENIAL_FIELDS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(NO_STORE));
    if let Some(secs) = denial.retry_after() {
        headers.insert(RETRY_AFTER, secs.into());
    }
    let (status, content_type, text) = match dialect {
        // Nothing but trailers, which come as headers then; the HTTP status is 200.
        Dialect::Grpc(content_type) => {
            headers.insert(GRPC_STATUS, HeaderValue::from_static(denial.grpc_status()));
            if let Ok(message) = HeaderValue::try_from(denial.grpc_message()) {
                headers.insert(GRPC_MESSAGE, message);
            }
            (StatusCode::OK, content_type, Bytes::new())
        }
        Dialect::Http => {
            let text = match denial.body() {
                Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
                Cow::Owned(text) => Bytes::from(text),
            };
            let status = StatusCode::from_u16(denial.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
            (status, denial.content_type(), text)
        }
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let mut response = Response::new(body_of(text));
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

/// The response to a request of nobody, where somebody was expected.
pub(crate) fn no_identity<B>(dialect: Dialect, body_of: impl FnOnce(Bytes) -> B) -> Response<B> {
    let mut response = Response::new(body_of(match dialect {
        Dialect::Http => Bytes::from_static(common::NO_IDENTITY.as_bytes()),
        Dialect::Grpc(_) => Bytes::new(),
    }));
    let headers = response.headers_mut();
    match dialect {
        Dialect::Http => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        Dialect::Grpc(content_type) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            headers.insert(GRPC_STATUS, HeaderValue::from_static("13"));
            headers.insert(GRPC_MESSAGE, HeaderValue::from_static("limits need an identity"));
        }
    }
    response
}
