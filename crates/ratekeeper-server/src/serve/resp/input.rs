//! What a client has sent and nobody has looked at yet.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::parse::COMMAND_BYTES_MAX;

/// Bytes that a connection is read into at first, and while it is not busy.
const INPUT_BYTES: usize = 2 << 10;

/// Bytes on their way from a socket to the commands in them: at most one command's.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// Beyond `end`, room.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

/// Something that is read from.
pub(super) trait Source: AsyncRead + Unpin {
    /// Whether the system has bytes that were not read, also if the runtime does not know of them yet.
    fn has_unread(&self) -> bool;
}

impl Source for TcpStream {
    fn has_unread(&self) -> bool {
        rustix::io::ioctl_fionread(self).is_ok_and(|bytes| bytes > 0)
    }
}

impl Source for Box<TlsStream<TcpStream>> {
    fn has_unread(&self) -> bool {
        self.get_ref().0.has_unread()
    }
}

impl Input {
    /// What was not looked at.
    pub(super) fn unread(&self) -> &[u8] {
        self.bytes.get(self.begin..self.end).unwrap_or_default()
    }

    /// So many bytes were looked at.
    pub(super) fn advance(&mut self, length: usize) {
        self.begin = (self.begin + length).min(self.end);
    }

    /// Reads what comes next; 0 bytes if nothing comes any more, or if `is_over` says so and nothing has come.
    pub(super) async fn read(
        &mut self,
        source: &mut impl Source,
        is_over: impl Fn() -> bool,
    ) -> io::Result<usize> {
        self.make_room();
        poll_fn(|context| self.poll_read(source, &is_over, context)).await
    }

    fn poll_read(
        &mut self,
        source: &mut impl Source,
        is_over: &impl Fn() -> bool,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(self.bytes.get_mut(self.end..).unwrap_or_default());
        let polled = Pin::new(&mut *source).poll_read(context, &mut room);
        if polled.is_pending() && is_over() && !source.has_unread() {
            return Poll::Ready(Ok(0));
        }
        let length = room.filled().len();
        ready!(polled)?;
        self.end += length;
        Poll::Ready(Ok(length))
    }

    /// More of it only for those who use it.
    fn make_room(&mut self) {
        let (used, is_full) = (self.end - self.begin, self.end == self.bytes.len());
        self.bytes.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, used);
        let length = self.bytes.len();
        if is_full {
            self.bytes.resize((2 * length).clamp(INPUT_BYTES, COMMAND_BYTES_MAX), 0);
        } else if used == 0 && length > INPUT_BYTES {
            // It was not filled: half of it is enough the next time.
            self.bytes.truncate((length / 2).max(INPUT_BYTES));
            self.bytes.shrink_to_fit();
        }
    }
}
