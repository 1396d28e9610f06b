//! Decisions as responses of actix-web, which speaks version 0.2 of the `http` crate.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use ratekeeper::{Decision, InvalidInput};
use ratekeeper_http::{Denial, HttpOptions};

use crate::common;
use crate::denial::DenialBody;
use crate::gate::NoIdentity;
use crate::response::ResponseBody;

/// Puts a field into a header map, over the one that is there.
pub(super) fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    // Fields are ASCII without control characters, always.
    if let Ok(value) = HeaderValue::from_str(value) {
        // All names are constants in lower case; a test sends every one of them.
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// The response to a denied request, without the fields about limits.
pub(super) fn denied<B>(
    decision: &Decision,
    options: &HttpOptions,
    own: Option<DenialBody>,
) -> HttpResponse<ResponseBody<B>> {
    let Some(denial) = Denial::of(decision, options) else {
        return HttpResponse::with_body(StatusCode::OK, ResponseBody::denial(Bytes::new()));
    };
    let (own_type, text) =
        own.map_or_else(|| (None, denial.body()), |own| (Some(own.content_type), own.text));
    let body = match text {
        std::borrow::Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        std::borrow::Cow::Owned(text) => Bytes::from(text),
    };
    let status = StatusCode::from_u16(denial.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let mut response = HttpResponse::with_body(status, ResponseBody::denial(body));
    for (name, value) in denial.fields() {
        insert(response.headers_mut(), name, &value);
    }
    if let Some(own_type) = own_type {
        let plain = |_| HeaderValue::from_static("text/plain");
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_str(&own_type).unwrap_or_else(plain));
    }
    response
}

/// The response to a request that something of the service's own went wrong with.
pub(super) fn failed<B>(error: &InvalidInput) -> HttpResponse<ResponseBody<B>> {
    internal_error(common::failed(error).into())
}

fn internal_error<B>(problem: Bytes) -> HttpResponse<ResponseBody<B>> {
    let body = ResponseBody::denial(problem);
    let mut response = HttpResponse::with_body(StatusCode::INTERNAL_SERVER_ERROR, body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// The response to a request of nobody, where somebody was expected.
pub(super) fn no_identity<B>(what: NoIdentity) -> HttpResponse<ResponseBody<B>> {
    internal_error(Bytes::from_static(common::missing(what).as_bytes()))
}
