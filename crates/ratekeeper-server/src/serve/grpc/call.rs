//! A call: which it is, its message within bounds, how long its caller waits, its answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use super::answer::{AnswerBody, Code, PREFIX_BYTES, UnderWay, answered, ended, response};
use super::messages::{DESCRIPTORS_MAX, ENTRIES_MAX, Unread, read_call, write_answer};
use super::wire::Fields;
use super::{Grpc, Outcome};
use crate::serve::api::{Api, EnvoyTerms, Problem};
use crate::serve::http::room::Taken;
use crate::serve::http2;
use crate::serve::listener::Finishing;
use crate::serve::listener::activity::Activity;

/// The most bytes of a call. Clients choose values, so it is more than a proxy passes on: a call that fails is one that is
/// not limited.
pub const CALL_BYTES_MAX: usize = 1 << 20;
/// Where Envoy calls.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
/// How long Envoy waits, in milliseconds, ...
const ENVOY_TIMEOUT: &str = "x-envoy-expected-rq-timeout-ms";
/// ... and how long any other caller does.
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// What of the caller's time is kept for the way back, as one of so many parts, and at least.
const WAY_BACK_PART: u32 = 4;
const WAY_BACK_MIN: Duration = Duration::from_millis(1);

/// How a call that is not answered ended.
pub(super) struct Ended(Outcome, Code, String);

impl Ended {
    pub(super) fn invalid(why: impl Into<String>) -> Self {
        Self(Outcome::Invalid, Code::InvalidArgument, why.into())
    }

    pub(super) fn not_found(why: impl Into<String>) -> Self {
        Self(Outcome::Invalid, Code::NotFound, why.into())
    }

    pub(super) fn failed(code: Code, why: impl Into<String>) -> Self {
        Self(Outcome::Failed, code, why.into())
    }
}

impl From<Problem> for Ended {
    fn from(problem: Problem) -> Self {
        let detail = problem.detail().to_owned();
        match problem.status {
            503 | 408 => Self::failed(Code::Unavailable, detail),
            413 => Self::failed(Code::ResourceExhausted, detail),
            _ => Self::invalid(detail),
        }
    }
}

type Answered = Result<(Outcome, Response<AnswerBody>), Ended>;

impl Grpc {
    /// Answers a call, and counts it.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        activity: Arc<Activity>,
        finishing: Finishing,
    ) -> Response<AnswerBody> {
        let under_way = UnderWay::new(&activity);
        if !is_call(&request) {
            self.api.metrics.calls.note(Outcome::Invalid);
            let mut response = ended(Code::Internal, "expected a call of gRPC: POST, application/grpc");
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return response;
        }
        let answered = self.call(request, under_way, &activity, finishing).await;
        if self.stop.is_stopping() || activity.place().is_spare() {
            activity.leave();
        }
        let (outcome, response) =
            answered.unwrap_or_else(|Ended(outcome, code, why)| (outcome, ended(code, &why)));
        self.api.metrics.calls.note(outcome);
        response
    }

    async fn call(
        self: &Arc<Self>,
        request: Request<Incoming>,
        under_way: UnderWay,
        activity: &Activity,
        finishing: Finishing,
    ) -> Answered {
        let start = Instant::now();
        let mut taken = Taken::default();
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let is_watch = path == HEALTH_WATCH;
        let is_health = is_watch || path == HEALTH_CHECK;
        if !is_health && path != SHOULD_RATE_LIMIT {
            let why = format!("there is no such call; expected {SHOULD_RATE_LIMIT} or a health check");
            return Err(Ended(Outcome::Invalid, Code::Unimplemented, why));
        }
        if activity.place().is_spare() && !is_health {
            return Err(Ended::failed(Code::Unavailable, "too many connections"));
        }
        if !self.heads.resize(&mut taken, http2::head_bytes(&head.headers, path)) {
            return Err(Ended::failed(Code::Unavailable, "the heads of all calls under way take too much"));
        }
        let body = self.calls.read(body, CALL_BYTES_MAX + PREFIX_BYTES, self.call_wait).await?;
        let message = only_message(&body.bytes)?;
        if is_watch {
            return Ok((Outcome::Health, response(self.watch_health(message, under_way, finishing)?)));
        }
        if is_health {
            return Ok((Outcome::Health, answered(&self.check_health(message).await?)));
        }
        let patience = patience(&head.headers);
        let call = read_call(message)?;
        let left = patience.map(|patience| patience.saturating_sub(start.elapsed()));
        let answer = self.api.envoy(&call, self.terms, left).await?;
        let outcome = match () {
            () if answer.is_late => Outcome::Late,
            () if answer.is_over => Outcome::Denied,
            () => Outcome::Allowed,
        };
        Ok((outcome, answered(&write_answer(&answer))))
    }
}

/// The answer to a message, whichever domain it names, if it is a call: for fuzzers.
pub(in crate::serve) async fn judged(api: &Api, message: &[u8], terms: EnvoyTerms) -> Option<Vec<u8>> {
    let mut call = read_call(message).ok()?;
    if !call.domain.is_empty() {
        call.domain = "fuzzed".into();
    }
    let answer = write_answer(&api.envoy(&call, terms, None).await.ok()?);
    assert!(Fields::of(&answer).all(|field| field.is_ok()), "an answer that nobody reads");
    Some(answer)
}

impl From<Unread> for Ended {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Malformed => Self::invalid("the message is no RateLimitRequest"),
            Unread::Descriptors => Self::invalid(format!("descriptors: expected at most {DESCRIPTORS_MAX}")),
            Unread::Entries => {
                Self::invalid(format!("descriptors.entries: expected at most {ENTRIES_MAX} in each"))
            }
        }
    }
}

fn is_call(request: &Request<Incoming>) -> bool {
    let is_of = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/grpc");
    request.method() == Method::POST && request.headers().get(CONTENT_TYPE).is_some_and(is_of)
}

/// The only message of a call, which is not compressed.
fn only_message(body: &Bytes) -> Result<&[u8], Ended> {
    let Some((prefix, message)) = body.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(Ended::failed(Code::Internal, "the call has no message"));
    };
    let [compressed, length @ ..] = *prefix;
    let length = u32::from_be_bytes(length) as usize;
    match compressed {
        0 if length == message.len() => Ok(message),
        0 if length > message.len() => Err(Ended::failed(Code::Internal, "the message has not come whole")),
        0 => Err(Ended::failed(Code::Internal, "expected one message")),
        1 => {
            Err(Ended(Outcome::Invalid, Code::Unimplemented, "expected a message without compression".into()))
        }
        _ => Err(Ended::failed(Code::Internal, "what stands before the message is nothing of gRPC")),
    }
}

/// How long an answer may take so that the caller still waits for it.
fn patience(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let envoy = text(ENVOY_TIMEOUT).and_then(|text| text.parse().ok()).filter(|millis| *millis > 0);
    let envoy = envoy.map(Duration::from_millis);
    let own = text(GRPC_TIMEOUT).and_then(grpc_timeout);
    let waits = match (envoy, own) {
        (Some(envoy), Some(own)) => envoy.min(own),
        (waits, None) | (None, waits) => waits?,
    };
    Some(waits.saturating_sub((waits / WAY_BACK_PART).max(WAY_BACK_MIN)))
}

/// A time as gRPC writes it: up to eight digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_answered_before_it_gives_up() {
        let waits = |fields: &[(&'static str, &'static str)]| {
            let fields = fields
                .iter()
                .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
            patience(&fields.collect())
        };
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(waits(&[]), None);
        assert_eq!(waits(&[(ENVOY_TIMEOUT, "20")]), millis(15));
        assert_eq!(waits(&[(ENVOY_TIMEOUT, "2")]), millis(1));
        assert_eq!(waits(&[(ENVOY_TIMEOUT, "1")]), millis(0));
        assert_eq!(waits(&[(ENVOY_TIMEOUT, "0")]), None, "it waits for ever");
        assert_eq!(waits(&[(ENVOY_TIMEOUT, "soon")]), None);
        assert_eq!(waits(&[(ENVOY_TIMEOUT, "40"), (GRPC_TIMEOUT, "20m")]), millis(15));
        assert_eq!(waits(&[(GRPC_TIMEOUT, "1S")]), millis(750));
        for (text, expected) in [
            ("2H", Some(Duration::from_secs(7_200))),
            ("3M", Some(Duration::from_secs(180))),
            ("99999999S", Some(Duration::from_secs(99_999_999))),
            ("5u", Some(Duration::from_micros(5))),
            ("7n", Some(Duration::from_nanos(7))),
            ("100000000n", None),
            ("5", None),
            ("", None),
            ("m", None),
            ("-1m", None),
            ("\u{e9}", None),
        ] {
            assert_eq!(grpc_timeout(text), expected, "{text}");
        }
    }

    #[test]
    fn a_call_is_one_whole_message() {
        let message =
            |bytes: &'static [u8]| only_message(&Bytes::from_static(bytes)).map(<[u8]>::to_vec).ok();
        assert_eq!(message(b"\0\0\0\0\x02ab"), Some(b"ab".to_vec()));
        assert_eq!(message(b"\0\0\0\0\0"), Some(Vec::new()));
        for wrong in
            [&b""[..], b"\0\0\0", b"\0\0\0\0\x03ab", b"\0\0\0\0\x01ab", b"\x01\0\0\0\x02ab", b"\x07\0\0\0\0"]
        {
            assert_eq!(message(wrong), None, "{wrong:?}");
        }
        assert_eq!(message(b"\0\xff\xff\xff\xffab"), None);
    }
}
