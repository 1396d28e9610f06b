//! Decisions as responses of the `http` crate.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ratekeeper::Decision;
use ratekeeper_http::{Denial, Field, HttpOptions};

use super::body::ResponseBody;
use crate::common;

/// Whom a response is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Http,
    /// With what its bodies are called: `grpc-web` is not `grpc`.
    Grpc(&'static str),
}

impl Dialect {
    /// That of a request.
    pub(super) fn of(parts: &Parts) -> Self {
        let content_type = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
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

/// Puts fields into a header map, over those that are there.
pub(crate) fn insert(headers: &mut HeaderMap, fields: impl Iterator<Item = Field>) {
    for (name, value) in fields {
        let value = match value {
            std::borrow::Cow::Borrowed(text) => HeaderValue::from_static(text),
            // Fields are ASCII without control characters, always.
            std::borrow::Cow::Owned(text) => match HeaderValue::try_from(text) {
                Ok(value) => value,
                Err(_) => continue,
            },
        };
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// The response to a denied request, without the fields about limits.
pub(crate) fn denied<B>(
    decision: &Decision,
    options: &HttpOptions,
    dialect: Dialect,
) -> Response<ResponseBody<B>> {
    let Some(denial) = Denial::of(decision, options) else {
        return Response::new(ResponseBody::denial(Bytes::new()));
    };
    if let Dialect::Grpc(content_type) = dialect {
        // Nothing but trailers, which come as headers then; the HTTP status is 200.
        let mut response = Response::new(ResponseBody::denial(Bytes::new()));
        insert(response.headers_mut(), denial.grpc_fields());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        return response;
    }
    let body = match denial.body() {
        std::borrow::Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        std::borrow::Cow::Owned(text) => Bytes::from(text),
    };
    let mut response = Response::new(ResponseBody::denial(body));
    *response.status_mut() = StatusCode::from_u16(denial.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    insert(response.headers_mut(), denial.fields());
    response
}

/// The response to a request of nobody, where somebody was expected.
pub(crate) fn no_identity<B>(dialect: Dialect) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::denial(match dialect {
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
            headers.insert("grpc-status", HeaderValue::from_static("13"));
            headers.insert("grpc-message", HeaderValue::from_static("limits need an identity"));
        }
    }
    response
}
