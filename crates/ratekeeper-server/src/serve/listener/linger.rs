//! The end of a connection whose client may still be sending.
//!
//! A connection that is closed while something unread has arrived is reset, and the client may lose the answer with
//! it: who writes all before it reads sees a broken pipe. So the rest is read and forgotten, within bounds.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBuf, Write};

use crate::serve::listener::Finishing;

/// The most bytes that are read and forgotten.
pub(in crate::serve) const LINGER_BYTES_MAX: usize = 16 << 20;
/// The longest that is read on.
pub(in crate::serve) const LINGER_MAX: Duration = Duration::from_secs(5);
/// Bytes that are read at once.
const PIECE: usize = 16 << 10;
/// Pieces that are read before others have their turn.
const AT_ONCE: usize = 16;

/// Says that nothing more will be said, and reads on until the client has noticed; not while the server finishes.
pub(in crate::serve) async fn linger(
    mut stream: impl Read + Write + Unpin,
    wait: Duration,
    finishing: Finishing,
) {
    let mut left = LINGER_BYTES_MAX;
    let forget = async {
        let closed = poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await;
        if closed.is_ok() {
            poll_fn(|context| forget(&mut stream, &mut left, context)).await;
        }
    };
    tokio::select! {
        () = forget => {}
        () = tokio::time::sleep(wait) => {}
        () = finishing.wait() => {}
    }
}

fn forget(stream: &mut (impl Read + Unpin), left: &mut usize, context: &mut Context<'_>) -> Poll<()> {
    for _ in 0..AT_ONCE {
        // Here, and not in what is kept of the connection.
        let mut piece = [MaybeUninit::uninit(); PIECE];
        let mut piece = ReadBuf::uninit(&mut piece);
        let read = ready!(Pin::new(&mut *stream).poll_read(context, piece.unfilled()));
        let length = piece.filled().len();
        *left = left.saturating_sub(length);
        if read.is_err() || length == 0 || *left == 0 {
            return Poll::Ready(());
        }
    }
    context.waker().wake_by_ref();
    Poll::Pending
}
