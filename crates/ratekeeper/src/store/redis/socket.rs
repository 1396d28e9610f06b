//! The socket of a connection, and what is known of it besides its bytes.
//!
//! A busy machine may keep this process from a processor while an answer lies in the socket, or before a
//! call was written at all. Neither is the server's silence. So the socket notes when it was written to and
//! read from, and whether something lies in it unread, which the kernel says at once.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Writes whose instants are remembered. A call that is further behind has no excuse.
const WRITES_KEPT_MAX: usize = 64;

/// A stream that notes what goes through it.
#[derive(Debug)]
pub(super) struct Socket<S> {
    stream: S,
    traffic: Arc<Traffic>,
}

/// What went through a socket, and when.
#[derive(Debug)]
pub(super) struct Traffic {
    /// The same socket, to look into it without the runtime. None where that is not possible.
    window: Option<std::net::TcpStream>,
    started: Instant,
    /// How often it was written to, and when that was, in microseconds since `started`.
    writes: AtomicU64,
    written: [AtomicU64; WRITES_KEPT_MAX],
    /// Whether the last write had to wait: the server does not read.
    is_full: AtomicBool,
    /// When it was last read from, in microseconds since `started`.
    read: AtomicU64,
    /// Whether the connection's task runs: it may have read what it has not handed out yet.
    runs: AtomicBool,
}

impl<S> Socket<S> {
    #[cfg(unix)]
    pub(super) fn new(stream: S) -> io::Result<Self>
    where
        S: std::os::fd::AsFd,
    {
        let same = stream.as_fd().try_clone_to_owned()?;
        Ok(Self { stream, traffic: Arc::new(Traffic::new(Some(same.into()))) })
    }

    #[cfg(not(unix))]
    pub(super) fn new(stream: S) -> io::Result<Self> {
        Ok(Self { stream, traffic: Arc::new(Traffic::new(None)) })
    }

    pub(super) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }
}

impl Traffic {
    fn new(window: Option<std::net::TcpStream>) -> Self {
        Self {
            window,
            started: Instant::now(),
            writes: AtomicU64::new(0),
            written: std::array::from_fn(|_| AtomicU64::new(0)),
            is_full: AtomicBool::new(false),
            read: AtomicU64::new(0),
            runs: AtomicBool::new(false),
        }
    }

    /// How often it was written to so far.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    /// When it was first written to after so many writes; now, if it was not and could have been.
    pub(super) fn written_after(&self, writes: u64) -> Option<Instant> {
        let behind = self.writes().saturating_sub(writes);
        if behind == 0 {
            return (!self.is_full.load(Ordering::Relaxed)).then(Instant::now);
        }
        if behind > WRITES_KEPT_MAX as u64 {
            return None;
        }
        Some(self.at(&self.written[place(writes)]))
    }

    /// When the server last said anything.
    pub(super) fn last_read(&self) -> Instant {
        self.at(&self.read)
    }

    /// Whether something has arrived that was not handed out yet.
    pub(super) fn has_unread(&self) -> bool {
        if self.runs.load(Ordering::Acquire) {
            return true;
        }
        // The end of the stream counts, too: the connection's task has yet to notice it.
        self.window.as_ref().is_some_and(|window| window.peek(&mut [0]).is_ok())
    }

    /// Polls the connection's task.
    pub(super) fn run<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        self.runs.store(true, Ordering::Release);
        let outcome = poll();
        self.runs.store(false, Ordering::Release);
        outcome
    }

    fn at(&self, micros: &AtomicU64) -> Instant {
        self.started + Duration::from_micros(micros.load(Ordering::Relaxed))
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn note_write(&self) {
        let writes = self.writes.load(Ordering::Relaxed);
        self.written[place(writes)].store(self.micros(), Ordering::Relaxed);
        // One task writes, so no write is lost between the two.
        self.writes.store(writes + 1, Ordering::Release);
    }
}

fn place(write: u64) -> usize {
    usize::try_from(write % WRITES_KEPT_MAX as u64).unwrap_or(0)
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut this.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            this.traffic.read.store(this.traffic.micros(), Ordering::Relaxed);
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> Socket<S> {
    fn noted(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.traffic.is_full.store(outcome.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(Ok(_)) = outcome {
            self.traffic.note_write();
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.noted(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.noted(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_testkit::wait::until;
    use std::future::poll_fn;
    use std::io::Write as _;
    use tokio::net::TcpStream;

    async fn pair() -> (Socket<TcpStream>, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Socket::new(stream).unwrap(), listener.accept().unwrap().0)
    }

    async fn write(socket: &mut Socket<TcpStream>) {
        let written = poll_fn(|context| Pin::new(&mut *socket).poll_write(context, b"x")).await;
        assert_eq!(written.unwrap(), 1);
    }

    #[tokio::test]
    async fn it_knows_when_a_call_was_written() {
        let (mut socket, _peer) = pair().await;
        let traffic = socket.traffic();
        let before = Instant::now();
        assert!(traffic.written_after(0).is_some_and(|not_yet| not_yet >= before));
        write(&mut socket).await;
        let first = traffic.written_after(0).unwrap();
        assert!(first <= Instant::now());
        write(&mut socket).await;
        assert_eq!((traffic.written_after(0), traffic.writes()), (Some(first), 2));
        assert!(traffic.written_after(1).unwrap() >= first);
        for _ in 0..WRITES_KEPT_MAX {
            write(&mut socket).await;
        }
        assert_eq!(traffic.written_after(0), None, "that is too long ago to know");
    }

    #[tokio::test]
    async fn it_knows_what_lies_unread() {
        let (mut socket, mut peer) = pair().await;
        let traffic = socket.traffic();
        assert!(!traffic.has_unread());
        peer.write_all(b"answer").unwrap();
        until("bytes that have arrived", || traffic.has_unread());
        let (mut bytes, before) = ([0; 64], traffic.last_read());
        let mut buffer = ReadBuf::new(&mut bytes);
        poll_fn(|context| Pin::new(&mut socket).poll_read(context, &mut buffer)).await.unwrap();
        assert!(!traffic.has_unread() && traffic.last_read() > before);
        // What the connection's task has read it may not have handed out yet.
        assert_eq!(traffic.run(|| Poll::Ready(traffic.has_unread())), Poll::Ready(true));
        assert!(!traffic.has_unread());
        drop(peer);
        until("the end of the stream", || traffic.has_unread());
    }
}
