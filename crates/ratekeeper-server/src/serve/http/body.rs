//! The body of a call, within bounds of size and time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Frame, Incoming};

use crate::serve::api::Problem;

/// Reads a body of at most `max` bytes. One that came with its head is neither waited
/// for nor copied.
pub(super) async fn read(mut body: Incoming, max: usize, wait: Duration) -> Result<Bytes, Problem> {
    let announced = body.size_hint();
    if announced.lower() > max as u64 {
        return Err(too_long(max));
    }
    let at_once = poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context))).await;
    let first = match at_once {
        Poll::Ready(Some(frame)) => data(frame)?,
        Poll::Ready(None) => return Ok(Bytes::new()),
        Poll::Pending => Bytes::new(),
    };
    if first.len() > max {
        return Err(too_long(max));
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    let rest = tokio::time::timeout(wait, rest(body, first, max)).await;
    rest.unwrap_or_else(|_| Err(Problem::new(408, format!("the body did not come within {wait:?}"))))
}

async fn rest(mut body: Incoming, first: Bytes, max: usize) -> Result<Bytes, Problem> {
    let mut all = BytesMut::from(first);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let more = data(frame)?;
        if all.len() + more.len() > max {
            return Err(too_long(max));
        }
        all.extend_from_slice(&more);
    }
    Ok(all.freeze())
}

fn data(frame: Result<Frame<Bytes>, hyper::Error>) -> Result<Bytes, Problem> {
    match frame {
        Ok(frame) => Ok(frame.into_data().unwrap_or_default()),
        Err(error) => Err(Problem::new(400, format!("the body could not be read: {error}"))),
    }
}

fn too_long(max: usize) -> Problem {
    Problem::new(413, format!("expected a body of at most {max} bytes"))
}
