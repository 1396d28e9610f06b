//! The body of an answer. A long one takes room until it has left, which is when its
//! reader likes it to.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::body::full;
use super::room::{Room, Taken};
use crate::serve::api::{Answer, Problem};

/// Bytes of an answer that are as good as part of its connection, and go at once: what is
/// longer goes in such pieces, so that no more of it is in the buffers of a connection,
/// which keep their size.
const PIECE: usize = 16 << 10;
/// About as many bytes are told of each object in a call (a check, or a charge), ...
const TOLD_OF_EACH: usize = 192;
/// ... and at most so many of what it says itself: its name.
const REPEATED_OF_EACH: usize = 128;

/// What is left of an answer.
#[derive(Debug, Default)]
pub(super) struct AnswerBody {
    rest: Bytes,
    taken: Taken,
}

impl AnswerBody {
    /// A short one.
    pub(super) fn short(bytes: Vec<u8>) -> Self {
        Self { rest: bytes.into(), taken: Taken::default() }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.rest.len().min(PIECE);
        // Nearly always it is all of it, and nobody has to share it with what is left.
        let piece = if length == self.rest.len() {
            std::mem::take(&mut self.rest)
        } else {
            self.rest.split_to(length)
        };
        if self.rest.is_empty() {
            self.taken = Taken::default();
        }
        Poll::Ready((length > 0).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

impl Room {
    /// Takes room for the answer to a call. What is decided is charged, so it is done
    /// before, for as long an answer as it may be.
    pub(super) fn for_answer_to(&self, call: &[u8]) -> Result<Taken, Problem> {
        let objects = call.iter().filter(|byte| **byte == b'{').count();
        let repeated = call.len().min(objects * REPEATED_OF_EACH);
        self.for_answer(Taken::default(), objects * TOLD_OF_EACH + repeated)
    }

    /// The answer as a body, which holds on to what was taken for it.
    pub(super) fn body_of(&self, answer: &mut Answer, taken: Taken) -> Result<AnswerBody, Problem> {
        let taken = self.for_answer(taken, answer.body.len())?;
        let mut body = std::mem::take(&mut answer.body);
        if body.len() > PIECE {
            // It grew by doubling; only what there is was counted.
            body.shrink_to_fit();
        }
        Ok(AnswerBody { rest: body.into(), taken })
    }

    fn for_answer(&self, mut taken: Taken, length: usize) -> Result<Taken, Problem> {
        let counted = if length > PIECE { length } else { 0 };
        if self.resize(&mut taken, counted) { Ok(taken) } else { Err(full(self.bytes)) }
    }
}
