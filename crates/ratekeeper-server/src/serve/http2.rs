//! HTTP/2 on a connection, whatever is spoken over it: bounds, when it is idle, and how it ends.
//!
//! hyper reads frames and serves each stream in a task of its own. Here is how much a client may have under way, and
//! how it is told to go elsewhere: with GOAWAY, after which what is under way is finished.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Request, Response};
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;

use super::listener::Finishing;
use super::listener::activity::Activity;

/// What a connection of HTTP/2 begins with.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Streams that a client may have open at once on a connection.
pub const STREAMS_MAX: u32 = 200;
/// The most bytes of a head, each field counted with 32 more.
pub const STREAM_HEAD_BYTES_MAX: u32 = 16 << 10;
/// The most bytes that the heads of all streams under way take together.
pub const STREAM_HEADS_BYTES_MAX: usize = 64 << 20;
/// Bytes that a client may send before they are read: on a stream, and on all of a connection.
const WINDOW_BYTES_MAX: u32 = (64 << 10) - 1;
/// Bytes of an answer that wait for the client to take them.
const SENDING_BYTES_MAX: usize = 16 << 10;
/// How long a client has to go when it was told to and nothing is under way.
const GOODBYE_WAIT: Duration = Duration::from_millis(250);

/// Serves all streams of a connection.
pub(super) async fn serve<S, A, F, B>(stream: S, activity: &Activity, answer: A, finishing: Finishing)
where
    S: Read + Write + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(STREAM_HEAD_BYTES_MAX)
        .initial_stream_window_size(WINDOW_BYTES_MAX)
        .initial_connection_window_size(WINDOW_BYTES_MAX)
        .max_send_buf_size(SENDING_BYTES_MAX);
    let mut served = pin!(builder.serve_connection(stream, service));
    // What goes wrong on a connection is its client's business: it is over either way.
    tokio::select! {
        biased;
        _ = &mut served => return,
        () = activity.until_needed() => return,
        _ = activity.until_quiet(activity.idle(), false) => {}
        () = activity.until_leaving(finishing.clone()) => {}
        () = activity.until_finishing(finishing.clone()) => {}
    }
    served.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        _ = &mut served => {}
        _ = activity.until_quiet(GOODBYE_WAIT, false) => {}
    }
}

/// Bytes that the head of a stream takes.
pub(super) fn head_bytes(headers: &HeaderMap, path: &str) -> usize {
    let fields: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
    fields + path.len()
}

/// A stream with what was read of it before, which notes whether all that was written has left.
#[derive(Debug)]
pub(super) struct Noted<S> {
    read: Bytes,
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Noted<S> {
    pub(super) fn new(read: Bytes, stream: S, activity: Arc<Activity>) -> Self {
        Self { read, stream, activity }
    }
}

impl<S: Read + Unpin> Read for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.read.len().min(buffer.remaining());
        buffer.put_slice(&self.read[..length]);
        self.read.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: Write + Unpin> Write for Noted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.activity.writes(true);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.activity.writes(false);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.activity.writes(true);
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }
}
