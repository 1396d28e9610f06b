//! Decisions as responses of the `http` crate.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use ratekeeper::Decision;
use ratekeeper_http::field::{self, GRPC_MESSAGE, GRPC_STATUS, NO_STORE};
use ratekeeper_http::{Denial, HttpOptions, Tally};

use super::policies;
use crate::common;
use crate::denial::DenialBody;
use crate::gate::NoIdentity;

/// The fields of a denial beside those about limits: over HTTP, and of a gRPC call.
const HTTP_FIELDS: usize = 3;
const GRPC_FIELDS: usize = 5;

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

/// The name of a field about limits. As constants, because a name is checked and hashed letter by letter.
fn name_of(name: &'static str) -> HeaderName {
    const POLICY: HeaderName = HeaderName::from_static(field::RATELIMIT_POLICY);
    const STATUS: HeaderName = HeaderName::from_static(field::RATELIMIT);
    const LEGACY: [HeaderName; 3] = [
        HeaderName::from_static(field::LEGACY[0]),
        HeaderName::from_static(field::LEGACY[1]),
        HeaderName::from_static(field::LEGACY[2]),
    ];
    const LEGACY_X: [HeaderName; 3] = [
        HeaderName::from_static(field::LEGACY_X[0]),
        HeaderName::from_static(field::LEGACY_X[1]),
        HeaderName::from_static(field::LEGACY_X[2]),
    ];
    let place = |names: &[&str]| names.iter().position(|known| *known == name);
    match name {
        field::RATELIMIT_POLICY => POLICY,
        field::RATELIMIT => STATUS,
        _ => match (place(&field::LEGACY_X), place(&field::LEGACY)) {
            (Some(at), _) => LEGACY_X[at].clone(),
            (None, Some(at)) => LEGACY[at].clone(),
            (None, None) => HeaderName::from_static(name),
        },
    }
}

/// Puts a field about limits into a header map, over the one that is there.
#[inline]
pub(crate) fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    // Fields are ASCII without control characters, always.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name_of(name), value);
    }
}

/// Puts the fields about limits into the response to the only decision there was.
pub(super) fn tell(headers: &mut HeaderMap, decision: &Decision, options: &HttpOptions) {
    let known = if options.has_standard() { policies::kept(decision) } else { None };
    let knows_policies = known.is_some();
    if let Some(value) = known {
        headers.insert(name_of(field::RATELIMIT_POLICY), value);
    }
    Tally::each_field_of(decision, options, knows_policies, |name, value| {
        let Ok(value) = HeaderValue::from_str(value) else { return };
        if name == field::RATELIMIT_POLICY {
            policies::keep(decision, &value);
        }
        headers.insert(name_of(name), value);
    });
}

/// A value that is always the same. As constants, because values are checked letter by letter.
fn fixed(value: &'static str) -> HeaderValue {
    const NO_STORE_VALUE: HeaderValue = HeaderValue::from_static(NO_STORE);
    const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
    match value {
        NO_STORE => NO_STORE_VALUE,
        "application/problem+json" => PROBLEM,
        _ => HeaderValue::from_static(value),
    }
}

/// The response to a denied request, without the fields about limits.
pub(crate) fn denied<B>(
    decision: &Decision,
    options: &HttpOptions,
    own: Option<DenialBody>,
    dialect: Dialect,
    body_of: impl FnOnce(Bytes) -> B,
) -> Response<B> {
    let Some(denial) = Denial::of(decision, options) else { return Response::new(body_of(Bytes::new())) };
    let fields = if dialect.is_grpc() { GRPC_FIELDS } else { HTTP_FIELDS };
    let mut headers = HeaderMap::with_capacity(fields + options.field_count());
    headers.insert(CACHE_CONTROL, fixed(NO_STORE));
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
            (StatusCode::OK, fixed(content_type), Bytes::new())
        }
        Dialect::Http => {
            let status = StatusCode::from_u16(denial.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
            let (content_type, text) = match own {
                Some(own) => {
                    let plain = |_| HeaderValue::from_static("text/plain");
                    (HeaderValue::try_from(&*own.content_type).unwrap_or_else(plain), own.text)
                }
                None => (fixed(denial.content_type()), denial.body()),
            };
            let text = match text {
                Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
                Cow::Owned(text) => Bytes::from(text),
            };
            (status, content_type, text)
        }
    };
    headers.insert(CONTENT_TYPE, content_type);
    let mut response = Response::new(body_of(text));
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

/// The response to a request that something of the service's own went wrong with: a problem document.
#[cfg(feature = "axum")]
pub(crate) fn internal_error<B>(problem: Bytes, body_of: impl FnOnce(Bytes) -> B) -> Response<B> {
    let mut response = Response::new(body_of(problem));
    response.headers_mut().insert(CONTENT_TYPE, fixed("application/problem+json"));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// The response to a request of nobody, where somebody was expected.
pub(crate) fn no_identity<B>(
    what: NoIdentity,
    dialect: Dialect,
    body_of: impl FnOnce(Bytes) -> B,
) -> Response<B> {
    let mut response = Response::new(body_of(match dialect {
        Dialect::Http => Bytes::from_static(common::missing(what).as_bytes()),
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
            headers.insert(GRPC_MESSAGE, HeaderValue::from_static(common::missing_in_grpc(what)));
        }
    }
    response
}
