//! What is asked of one part: a call whose keys are all there.

use ::redis::{Cmd, FromRedisValue};
use ratekeeper_core::{Check, Decision, Settled};

use crate::store::redis::RedisStore;
use crate::store::redis::encode::Item;
use crate::store::redis::lane::Reply;
use crate::store::{StoreError, StoreFuture};

/// The decision on a part of a check, and what it was made of.
pub(super) struct Judged {
    pub(super) decision: Decision,
    reply: Reply,
}

impl Judged {
    /// What is true once the charge was given back: the answer has the states as they were found. If a peek would
    /// not read them so, as with the strikes of a rule that only watches, the states are those of the charge.
    pub(super) fn uncharged(self, part: &Check<'_>) -> Decision {
        let before = self.reply.answer().decision(&part.peek());
        before.unwrap_or_else(|_| self.decision.without_receipts())
    }
}

impl RedisStore {
    /// Judges a check, all of whose counters are in one part: `slot` of a cluster.
    pub(super) fn check_in<'a>(&'a self, slot: u16, check: &'a Check<'a>) -> StoreFuture<'a, Decision> {
        self.inner.check(self.inner.route.way(self.inner.layout.part_in(slot)), check)
    }

    /// The same, with what it takes to say how it would be without the charge.
    pub(super) async fn judged(&self, slot: u16, check: &Check<'_>) -> Result<Judged, StoreError> {
        let inner = &self.inner;
        let way = inner.route.way(inner.layout.part_in(slot));
        if let Some(refusal) = way.refusal() {
            return Err(refusal);
        }
        inner.meetings.note(check);
        let reply = way.ask(Item::check(&inner.layout, check)).await?;
        let decision = reply.decision(check).inspect_err(|error| way.note(error))?;
        Ok(Judged { decision, reply })
    }

    /// Sends a command on a key that is where `tag` is.
    pub(super) async fn send_to<T: FromRedisValue>(&self, tag: &[u8], command: Cmd) -> Result<T, StoreError> {
        self.inner.send(self.inner.layout.part_under(tag), command).await
    }

    /// Settles the part of a reservation that is where `tag` is.
    pub(super) async fn settle_under(
        &self,
        tag: &[u8],
        id: &[u8],
        actual: Option<u32>,
    ) -> Result<Settled, StoreError> {
        self.inner.settle(tag, id, actual).await
    }

    /// The key of an id where `tag` is: of its record.
    pub(super) fn record_key(&self, tag: &[u8], id: &[u8]) -> Vec<u8> {
        self.inner.layout.id_under(tag, id)
    }

    /// The key of an id in its own place.
    pub(super) fn id_key(&self, tag: &[u8], id: &[u8]) -> Vec<u8> {
        self.inner.layout.under(tag, self.inner.layout.id_note(id))
    }
}
