//! What goes wrong before there is a request: heads that cannot be read, or do not come.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Write;

use crate::serve::api::{Answer, Problem};

/// The status that hyper has answered a head with that it could not read. It does so by
/// itself, without a body.
pub(super) fn refused_with(error: &hyper::Error) -> Option<u16> {
    match () {
        () if error.is_parse_too_large() => Some(431),
        // Who begins to speak HTTP/2 is not answered.
        () if error.is_parse() && !error.is_parse_version_h2() => Some(400),
        () => None,
    }
}

/// Tells a client that its head did not come in time.
pub(super) async fn tell_late(stream: impl Write + Unpin, wait: Duration) {
    let Answer { content_type, body, .. } =
        Problem::new(408, format!("the head of a request did not come within {wait:?}")).into();
    let mut answer = format!(
        "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: {content_type}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(&body);
    tell(stream, &answer).await;
}

/// Says something that nobody has asked for. What does not fit into the socket's buffer now
/// is not waited for: whoever takes no answers gets none.
pub(super) async fn tell(mut stream: impl Write + Unpin, answer: &[u8]) {
    poll_fn(|context| {
        if Pin::new(&mut stream).poll_write(context, answer).is_ready() {
            let _ = Pin::new(&mut stream).poll_flush(context);
            let _ = Pin::new(&mut stream).poll_shutdown(context);
        }
        Poll::Ready(())
    })
    .await;
}
