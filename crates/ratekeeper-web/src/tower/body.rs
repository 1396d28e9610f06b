//! Bodies on their way through: requests that were looked into, and responses
//! that hold something until they are sent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::response::{Kind, ResponseBody};

pin_project! {
    /// The body of a request, whole, also if its beginning has been read.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        // What has been read and is to be read again.
        read: Option<Bytes>,
        // What came after it: trailers, or data that would have been too much.
        next: Option<Frame<Bytes>>,
        failed: Option<BodyError>,
        // Whether nothing comes after what has been read.
        ended: bool,
        #[pin]
        rest: B,
    }
}

type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl<B> RequestBody<B> {
    /// A body that nobody has touched.
    pub fn untouched(body: B) -> Self {
        Self { read: None, next: None, failed: None, ended: false, rest: body }
    }

    /// The body as it was if nobody has touched it, or else what `rebuilt` makes of it.
    #[cfg(feature = "axum")]
    pub(super) fn into_body(self, rebuilt: impl FnOnce(Self) -> B) -> B {
        let is_touched = self.read.is_some() || self.next.is_some() || self.failed.is_some() || self.ended;
        if is_touched { rebuilt(self) } else { self.rest }
    }
}

impl<B> RequestBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    /// Reads up to `bytes_max` bytes for up to `wait`. The bytes are those of the whole
    /// body, or `None`; either way the body goes on whole.
    pub(super) async fn read(mut body: B, bytes_max: usize, wait: Duration) -> (Option<Bytes>, Self) {
        if body.size_hint().lower() > bytes_max as u64 {
            return (None, Self::untouched(body));
        }
        let (mut buffer, mut next, mut failed) = (BytesMut::new(), None, None);
        let all = async {
            while let Some(frame) =
                std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
            {
                match frame.map(Frame::into_data) {
                    Ok(Ok(data)) if data.len() <= bytes_max - buffer.len() => buffer.extend_from_slice(&data),
                    Ok(Ok(data)) => {
                        next = Some(Frame::data(data));
                        return false;
                    }
                    Ok(Err(trailers)) => next = Some(trailers),
                    Err(error) => {
                        failed = Some(error.into());
                        return false;
                    }
                }
            }
            true
        };
        let whole = tokio::time::timeout(wait, all).await.unwrap_or(false);
        let bytes = buffer.freeze();
        let read = (!bytes.is_empty()).then(|| bytes.clone());
        (whole.then_some(bytes), Self { read, next, failed, ended: whole, rest: body })
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.project();
        if let Some(frame) = this.read.take().map(Frame::data).or_else(|| this.next.take()) {
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(error) = this.failed.take() {
            *this.ended = true;
            return Poll::Ready(Some(Err(error)));
        }
        if *this.ended {
            return Poll::Ready(None);
        }
        this.rest.poll_frame(context).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_none()
            && self.next.is_none()
            && self.failed.is_none()
            && (self.ended || self.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.as_ref().map_or(0, Bytes::len);
        let next = self.next.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
        let known = (read + next) as u64;
        if self.ended {
            return SizeHint::with_exact(known);
        }
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(known.saturating_add(upper));
        }
        hint.set_lower(known.saturating_add(rest.lower()));
        hint
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.poll_piece(|body| body.poll_frame(context), Frame::data)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Service { body, .. } => body.is_end_stream(),
            Kind::Denial { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { body, .. } => body.size_hint(),
            Kind::Denial { text } => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}
