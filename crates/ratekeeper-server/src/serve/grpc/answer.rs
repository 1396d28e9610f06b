//! What goes back on a stream: a message and how the call ended, or only how.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use hyper::body::{Body, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Receiver;

use crate::serve::listener::activity::Activity;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// What stands before each message: whether it is compressed, and its length.
pub(super) const PREFIX_BYTES: usize = 5;

/// How calls end, as gRPC numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Ok = 0,
    InvalidArgument = 3,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

impl Code {
    fn value(self) -> HeaderValue {
        HeaderValue::from(self as u16)
    }
}

/// What is left of an answer.
#[derive(Debug)]
pub(super) enum AnswerBody {
    /// A message, and then that all is well.
    Message(Bytes),
    /// That all is well.
    Trailers,
    /// Messages as they come; when no more do, the server finishes.
    Messages {
        messages: Receiver<Bytes>,
        _under_way: UnderWay,
        _place: OwnedSemaphorePermit,
    },
    Nothing,
}

/// A call that goes on until its answer has ended.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Activity>);

impl UnderWay {
    pub(super) fn new(activity: &Arc<Activity>) -> Self {
        activity.begin();
        Self(Arc::clone(activity))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let frame = match this {
            Self::Message(message) => {
                let message = std::mem::take(message);
                *this = Self::Trailers;
                Frame::data(message)
            }
            Self::Trailers => {
                *this = Self::Nothing;
                Frame::trailers(HeaderMap::from_iter([(STATUS, Code::Ok.value())]))
            }
            Self::Messages { messages, .. } => match std::task::ready!(messages.poll_recv(context)) {
                Some(message) => Frame::data(message),
                None => {
                    *this = Self::Nothing;
                    Frame::trailers(HeaderMap::from_iter([(STATUS, Code::Unavailable.value())]))
                }
            },
            Self::Nothing => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// An answer with this body.
pub(super) fn response(body: AnswerBody) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// A message as it is sent.
pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut framed = Vec::with_capacity(PREFIX_BYTES + message.len());
    framed.push(0);
    // Ours are short.
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    framed.extend_from_slice(message);
    framed.into()
}

/// The one message that answers a call.
pub(super) fn answered(message: &[u8]) -> Response<AnswerBody> {
    response(AnswerBody::Message(framed(message)))
}

/// An answer without a message: why there is none.
pub(super) fn ended(code: Code, why: &str) -> Response<AnswerBody> {
    let mut response = response(AnswerBody::Nothing);
    let headers = response.headers_mut();
    headers.insert(STATUS, code.value());
    if let Ok(why) = HeaderValue::from_str(&percent_encoded(why)) {
        headers.insert(MESSAGE, why);
    }
    response
}

/// Text as a field may have it.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
