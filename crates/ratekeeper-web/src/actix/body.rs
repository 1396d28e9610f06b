//! Bodies on their way through: requests that were looked into, and responses
//! that hold something until they are sent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};

use crate::response::{Kind, ResponseBody};

/// The body of a request whose beginning has been read: it comes again.
struct Replayed {
    read: Option<Bytes>,
    /// What came after it: an error, or data that would have been too much.
    next: Option<Result<Bytes, PayloadError>>,
    /// Whether nothing comes after what has been read.
    ended: bool,
    rest: Payload,
}

/// Reads up to `bytes_max` bytes for up to `wait`. The bytes are those of the whole
/// body, or `None`; either way the body goes on whole.
pub(super) async fn read(mut body: Payload, bytes_max: usize, wait: Duration) -> (Option<Bytes>, Payload) {
    let (mut buffer, mut next) = (BytesMut::new(), None);
    let all = async {
        while let Some(chunk) = body.next().await {
            match chunk {
                Ok(data) if data.len() <= bytes_max - buffer.len() => buffer.extend_from_slice(&data),
                // Too much, or an error: the handler's to see, as it came.
                other => {
                    next = Some(other);
                    return false;
                }
            }
        }
        true
    };
    let whole = tokio::time::timeout(wait, all).await.unwrap_or(false);
    let bytes = buffer.freeze();
    let read = (!bytes.is_empty()).then(|| bytes.clone());
    let replayed = Replayed { read, next, ended: whole, rest: body };
    (whole.then_some(bytes), Payload::Stream { payload: Box::pin(replayed) })
}

impl Stream for Replayed {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(read) = self.read.take() {
            return Poll::Ready(Some(Ok(read)));
        }
        if let Some(next) = self.next.take() {
            self.ended = next.is_err();
            return Poll::Ready(Some(next));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        self.rest.poll_next_unpin(context)
    }
}

impl<B: MessageBody> MessageBody for ResponseBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        match &self.kind {
            Kind::Service { body, .. } => body.size(),
            Kind::Denial { text } => BodySize::Sized(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        self.poll_piece(|body| body.poll_next(context), |denial| denial)
    }

    /// Not while something is held: whoever takes the bytes out has not sent them yet.
    fn try_into_bytes(self) -> Result<Bytes, Self> {
        match self.kind {
            Kind::Service { body, hold: None } => {
                body.try_into_bytes().map_err(|body| Self::service(body, None))
            }
            Kind::Denial { text } => Ok(text.unwrap_or_default()),
            held @ Kind::Service { .. } => Err(Self { kind: held }),
        }
    }
}
