//! What goes wrong before there is a request: heads that cannot be read, or do not come.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use http::header::{HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, StatusCode, Version};
use hyper::rt::Write;

use super::{HEAD_BYTES_MAX, HEAD_LINES_MAX};
use crate::serve::api::{Answer, Problem};

/// The most bytes of an answer that hyper gives by itself.
const AUTOMATIC_BYTES_MAX: usize = 192;

/// What a head that hyper could not read is answered with; `rest` is what hyper has not taken.
pub(super) fn problem(error: &hyper::Error, rest: &[u8]) -> Option<Problem> {
    match () {
        () if error.is_parse_too_large() && is_long(rest) => Some(Problem::new(
            431,
            format!("expected a head of at most {HEAD_BYTES_MAX} bytes and {HEAD_LINES_MAX} fields"),
        )),
        // Of such a length, the head was taken.
        () if error.is_parse_too_large() => {
            Some(Problem::new(400, "the head cannot be read: a content-length that no body can have"))
        }
        // Who begins to speak HTTP/2 is not answered.
        () if error.is_parse() && !error.is_parse_version_h2() => {
            Some(Problem::new(400, format!("the head cannot be read: {error}")))
        }
        () => None,
    }
}

/// Whether this is a head of too many bytes or lines.
fn is_long(head: &[u8]) -> bool {
    head.len() >= HEAD_BYTES_MAX || head.iter().filter(|byte| **byte == b'\n').count() > HEAD_LINES_MAX
}

/// Where an answer begins that hyper gives by itself, if one ends these bytes: without a body, and so without
/// a word. All of ours have a type.
#[inline]
pub(super) fn automatic(bytes: &[u8]) -> Option<usize> {
    if bytes.ends_with(b"\r\n\r\n") { automatic_head(bytes) } else { None }
}

#[cold]
fn automatic_head(bytes: &[u8]) -> Option<usize> {
    let from = bytes.len().saturating_sub(AUTOMATIC_BYTES_MAX);
    let last = &bytes[from..];
    let begin = last.windows(7).rposition(|window| window == b"HTTP/1.")?;
    let head = std::str::from_utf8(&last[begin..]).ok()?.to_ascii_lowercase();
    let is_refusal = head.get(8..10) == Some(" 4");
    let is_bare = head.contains("\r\ncontent-length: 0\r\n") && !head.contains("\r\ncontent-type:");
    (is_refusal && is_bare).then_some(from + begin)
}

/// Refuses heads that hyper takes and others might take for something else: with no host or several, and with bodies
/// in a coding other than `chunked`.
#[inline]
pub(super) fn sound(head: &Parts) -> Result<(), Problem> {
    // As RFC 9112 has it, section 3.2: who passes requests on goes by it.
    if head.version == Version::HTTP_11 && head.headers.get_all(HOST).iter().count() != 1 {
        return Err(Problem::new(400, "expected one Host field"));
    }
    if head.headers.contains_key(TRANSFER_ENCODING) { only_chunked(&head.headers) } else { Ok(()) }
}

#[cold]
fn only_chunked(headers: &HeaderMap) -> Result<(), Problem> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (Some(one), None) if one.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Problem::new(501, "transfer-encoding: expected chunked alone, or a content-length")),
    }
}

/// What a head is answered with that says the length of its body twice.
pub(super) fn ambiguous() -> Problem {
    Problem::new(
        400,
        "the head says the length of its body twice; expected one content-length or transfer-encoding",
    )
}

/// Tells a client that its head did not come in time.
pub(super) async fn tell_late(stream: &mut (impl Write + Unpin), wait: Duration) {
    tell_problem(stream, Problem::new(408, format!("the head of a request did not come within {wait:?}")))
        .await;
}

/// Tells a client what is wrong when there is no request to answer.
pub(super) async fn tell_problem(stream: &mut (impl Write + Unpin), problem: Problem) {
    let reason = StatusCode::from_u16(problem.status).ok().and_then(|status| status.canonical_reason());
    let Answer { status, content_type, body, .. } = problem.into();
    let mut answer = format!(
        "HTTP/1.1 {status} {}\r\nconnection: close\r\ncontent-type: {content_type}\r\n\
         content-length: {}\r\n\r\n",
        reason.unwrap_or_default(),
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(&body);
    tell(stream, &answer).await;
}

/// Says something that nobody has asked for. What does not fit into the socket's buffer now
/// is not waited for: whoever takes no answers gets none.
pub(super) async fn tell(stream: &mut (impl Write + Unpin), answer: &[u8]) {
    poll_fn(|context| {
        if Pin::new(&mut *stream).poll_write(context, answer).is_ready() {
            let _ = Pin::new(&mut *stream).poll_flush(context);
            let _ = Pin::new(&mut *stream).poll_shutdown(context);
        }
        Poll::Ready(())
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hyper_answers_by_itself_is_told_from_what_we_do() {
        const BARE: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\
                            date: Tue, 14 Nov 2023 22:13:20 GMT\r\n\r\n";
        const OURS: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(automatic(BARE.as_bytes()), Some(0));
        assert_eq!(automatic(format!("{OURS}{BARE}").as_bytes()), Some(OURS.len()));
        let head =
            "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\ncontent-length: 0\r\n\r\n";
        for other in [OURS, head, "HTTP/1.1 100 Continue\r\n\r\n", "\r\n\r\n", ""] {
            assert_eq!(automatic(other.as_bytes()), None, "{other:?}");
        }
    }
}
