//! A stream that knows whether all that was written has left, what length heads say, and keeps to itself what
//! hyper would answer without a word.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use super::HEAD_BYTES_MAX;
use super::connection::Connection;
use super::framing::Framing;
use super::head;
use crate::serve::http2::PREFACE;

/// The stream of a connection, which is told about it.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    connection: Arc<Connection>,
    framing: Framing,
    /// Whether hyper has refused a head. It does so without a body, which is said with one in its place.
    is_refused: bool,
    /// How much of the preface of HTTP/2 has come. hyper can tell what it is only when it is whole, so it is kept until
    /// then, or until it turns out to be something else.
    preface: Option<usize>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { stream, connection, framing: Framing::default(), is_refused: false, preface: Some(0) }
    }

    /// The stream, and whether hyper has refused a head without a word of it having left.
    pub(super) fn into_stream(self) -> (S, bool) {
        (self.stream, self.is_refused)
    }
}

/// Whether bytes are the beginning of `whole`, and not all of it.
fn begins(bytes: &[u8], whole: &[u8]) -> bool {
    !bytes.is_empty() && bytes.len() < whole.len() && whole.starts_with(bytes)
}

impl<S: Read + Unpin> Read for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            // What is written into a buffer of hyper's cannot be looked at.
            let mut piece = [MaybeUninit::uninit(); HEAD_BYTES_MAX];
            let room = buffer.remaining().saturating_sub(self.preface.unwrap_or(0)).min(piece.len());
            let mut piece = ReadBuf::uninit(&mut piece[..room]);
            ready!(Pin::new(&mut self.stream).poll_read(context, piece.unfilled()))?;
            if let Some(kept) = self.preface {
                if begins(piece.filled(), &PREFACE[kept..]) {
                    self.preface = Some(kept + piece.filled().len());
                    continue;
                }
                self.preface = None;
                self.framing.is_ambiguous(&PREFACE[..kept]);
                buffer.put_slice(&PREFACE[..kept]);
            }
            if self.framing.is_ambiguous(piece.filled()) {
                self.connection.is_ambiguous.store(true, Ordering::Relaxed);
            }
            buffer.put_slice(piece.filled());
            return Poll::Ready(Ok(()));
        }
    }
}

impl<S: Write + Unpin> Write for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = match head::automatic(bytes) {
            // The last that it writes.
            Some(0) => {
                self.is_refused = true;
                return Poll::Ready(Ok(bytes.len()));
            }
            Some(before) => &bytes[..before],
            None => bytes,
        };
        self.connection.activity.writes(true);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    /// hyper flushes when it has written everything.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.connection.activity.writes(false);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_refused {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
