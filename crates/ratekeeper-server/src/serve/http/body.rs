//! The body of a call, within bounds of size and time, and all of them within the room
//! that calls have.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming};

use super::room::{Room, Taken};
use crate::serve::api::Problem;

/// Bytes of a body that are as good as part of its connection: they are not counted, so
/// that short calls are served whatever others send.
const UNCOUNTED: usize = 4 << 10;

/// A body, and the room it takes for as long as it is there.
#[derive(Debug)]
pub(in crate::serve) struct Body {
    pub(in crate::serve) bytes: Bytes,
    _taken: Taken,
}

impl Room {
    /// Reads a body of at most `max` bytes. One that came with its head is neither waited
    /// for nor copied.
    pub(in crate::serve) async fn read(
        &self,
        mut body: Incoming,
        max: usize,
        wait: Duration,
    ) -> Result<Body, Problem> {
        let announced = body.size_hint();
        if announced.lower() > max as u64 {
            return Err(too_long(max));
        }
        let at_once = poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context))).await;
        let first = match at_once {
            Poll::Ready(Some(frame)) => data(frame)?,
            Poll::Ready(None) => return Ok(Body { bytes: Bytes::new(), _taken: Taken::default() }),
            Poll::Pending => Bytes::new(),
        };
        if first.len() > max {
            return Err(too_long(max));
        }
        if body.is_end_stream() {
            return Ok(Body { bytes: first, _taken: Taken::default() });
        }
        // No more comes than was announced, so no more room is taken.
        let max =
            announced.upper().and_then(|upper| usize::try_from(upper).ok()).map_or(max, |all| all.min(max));
        let rest = tokio::time::timeout(wait, self.rest(body, &first, max)).await;
        rest.unwrap_or_else(|_| Err(Problem::new(408, format!("the body did not come within {wait:?}"))))
    }

    async fn rest(&self, mut body: Incoming, first: &[u8], max: usize) -> Result<Body, Problem> {
        let mut all = Growing {
            room: self,
            bytes: Vec::with_capacity(UNCOUNTED.min(max)),
            taken: Taken::default(),
            max,
        };
        all.add(first)?;
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            all.add(&data(frame)?)?;
        }
        Ok(Body { bytes: all.bytes.into(), _taken: all.taken })
    }
}

/// A body that is still coming. It takes room as it comes, not as it was announced.
struct Growing<'r> {
    room: &'r Room,
    bytes: Vec<u8>,
    taken: Taken,
    max: usize,
}

impl Growing<'_> {
    fn add(&mut self, more: &[u8]) -> Result<(), Problem> {
        let (length, capacity) = (self.bytes.len() + more.len(), self.bytes.capacity());
        if length > self.max {
            return Err(too_long(self.max));
        }
        if length > capacity {
            let grown = length.max(2 * capacity).min(self.max);
            // The first ones were not counted.
            if !self.room.resize(&mut self.taken, grown - UNCOUNTED.min(self.max)) {
                return Err(full(self.room.bytes));
            }
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }
}

/// What is said when there is no room, before anything was decided.
pub(super) fn full(all: usize) -> Problem {
    Problem::new(503, format!("the long calls and answers under way have {all} bytes; send it again"))
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
