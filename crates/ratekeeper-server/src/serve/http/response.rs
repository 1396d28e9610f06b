//! From answers to responses.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use crate::serve::api::{Answer, Problem};

pub(super) fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers: &mut HeaderMap = response.headers_mut();
    headers.reserve(answer.fields.len() + 1);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    for (name, value) in answer.fields {
        // The fields about limits are ASCII, always.
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value.into_owned())) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// The answer to a body that was not read.
pub(super) fn unread(problem: Problem) -> Response<Full<Bytes>> {
    let is_full = problem.status == 503;
    let mut response = closing(response(problem.into()));
    if is_full {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// What is left of the body is not read: the connection is over.
fn closing(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

pub(super) fn challenged(problem: Problem) -> Response<Full<Bytes>> {
    let is_challenge = problem.status == 401;
    let response = closing(response(problem.into()));
    if is_challenge { challenge(response) } else { response }
}

pub(super) fn challenge(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}
