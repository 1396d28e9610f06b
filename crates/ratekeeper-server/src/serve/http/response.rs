//! From answers to responses.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::answer::AnswerBody;
use super::room::{Room, Taken};
use crate::serve::admin::Refusal;
use crate::serve::api::{Answer, Problem};
use crate::serve::calls::Body;

/// An answer that is short.
pub(super) fn response(mut answer: Answer) -> Response<AnswerBody> {
    let body = AnswerBody::short(std::mem::take(&mut answer.body));
    with_body(answer, body)
}

/// An answer that may be long, and has taken room for that.
pub(super) fn response_in(room: &Room, taken: Taken, mut answer: Answer) -> Response<AnswerBody> {
    match room.body_of(&mut answer, taken) {
        Ok(body) => with_body(answer, body),
        Err(problem) => no_room(problem),
    }
}

/// There is none for a call, or for its answer.
pub(super) fn no_room(problem: Problem) -> Response<AnswerBody> {
    let mut response = response(problem.into());
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn with_body(answer: Answer, body: AnswerBody) -> Response<AnswerBody> {
    let mut response = Response::new(body);
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
pub(super) fn unread(problem: Problem) -> Response<AnswerBody> {
    closing(if problem.status == 503 { no_room(problem) } else { response(problem.into()) })
}

/// What is left of the body is not read: the connection is over.
fn closing(mut response: Response<AnswerBody>) -> Response<AnswerBody> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The answer to a client that may not call.
pub(super) fn refused(refusal: Refusal, body: Body) -> Response<AnswerBody> {
    let is_challenge = refusal.problem.status == 401;
    let mut response = response(refusal.problem.into());
    if let Some(wait) = refusal.retry_after {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
    if is_challenge {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    match body {
        Body::None => response,
        Body::Json(_) => closing(response),
    }
}
