//! Ids over several parts.
//!
//! An id has a place of its own, where it says what it was used for: a digest of the check, and tags of the parts that
//! have its charges. It is taken there before anything is charged, and given back after a denial. What was decided is
//! kept in each of these parts, by the call that charges: so a retry asks them again, and charges only what is missing.

mod note;

use std::sync::atomic::Ordering;

use ::redis::Cmd;
use ratekeeper_core::{Check, Decision, LIMIT_MAX, Origin, Reservation, Settled};
use tokio::time::Instant;

use self::note::{Note, Taken};
use super::{Portion, Spread, all, by};
use crate::store::redis::pauses::Pauses;
use crate::store::redis::tag::tag_of_id;
use crate::store::{Store as _, StoreError, StoreErrorKind};

/// An attempt at a check under an id.
struct Attempt<'r> {
    reservation: &'r Reservation<'r>,
    note: Note,
    /// When it must be over.
    end: Instant,
    /// Whether no other attempt was under way when it took the id.
    is_alone: bool,
}

impl Spread {
    /// Sends a command to where an id is.
    async fn at_id<T: ::redis::FromRedisValue>(
        &self,
        id: &[u8],
        command: impl FnOnce(&[u8]) -> Cmd,
    ) -> Result<T, StoreError> {
        let mut tag = Vec::new();
        tag_of_id(id, &mut tag);
        let server = self.server(self.part_of(&tag));
        let key = server.store.id_key(&tag, id);
        server.store.send_to(&tag, command(&key)).await
    }

    /// Judges a check under an id. Whatever becomes of a part that does not answer: it is charged once, by this attempt
    /// or the next.
    pub(super) async fn reserve(
        &self,
        check: &Check<'_>,
        reservation: &Reservation<'_>,
    ) -> Result<Decision, StoreError> {
        let portions = self.split(check)?.into_portions(check);
        let (note, end) = (Note::new(check, &portions), Instant::now() + self.total);
        let mut attempt = Attempt { reservation, note, end, is_alone: false };
        attempt.is_alone = if check.is_peek() {
            by(end, self.look(&attempt)).await?;
            false
        } else {
            by(end, self.take(&attempt)).await?
        };
        if portions.len() > 1 && !check.is_peek() {
            self.counts.spanning.fetch_add(1, Ordering::Relaxed);
        }
        let answers = all(portions.iter().map(|portion| async move {
            let part = portion.of(check);
            by(end, self.store(portion.part).reserve(&part, reservation)).await
        }));
        let answers = answers.await;
        let is_wrong = |error: &StoreError| error.kind() == StoreErrorKind::Input;
        let may_stand = !answers.iter().any(|answer| match answer {
            Ok(decision) => !decision.is_allowed(),
            Err(error) => is_wrong(error),
        });
        if !check.is_peek() && !may_stand {
            self.take_back(check, &portions, &answers, &attempt).await;
        }
        joined(&portions, answers)
    }

    /// Looks whether an id is used for something else.
    async fn look(&self, attempt: &Attempt<'_>) -> Result<(), StoreError> {
        let known: Option<Vec<u8>> = self.at_id(attempt.reservation.id(), |key| Cmd::get(key)).await?;
        match known {
            Some(known) if !attempt.note.is_of_same(&known) => Err(attempt.reservation.conflict().into()),
            _ => Ok(()),
        }
    }

    /// Notes what an id is used for, unless it is used for something else, and as soon as nobody gives back what was
    /// charged under it. Says whether no other attempt is under way.
    async fn take(&self, attempt: &Attempt<'_>) -> Result<bool, StoreError> {
        let (Attempt { reservation, note, end, .. }, mut pauses) = (attempt, Pauses::default());
        let life = reservation.keep() + reservation.held_for().unwrap_or_default();
        loop {
            let taken = self.at_id(reservation.id(), |key| note.take(key, life, self.total)).await?;
            match Taken::read(taken)? {
                Taken::Alone => return Ok(true),
                Taken::Beside => return Ok(false),
                Taken::Conflict => return Err(reservation.conflict().into()),
                Taken::Closed => pauses.wait(*end).await,
            }
        }
    }

    /// Undoes what this attempt has charged, if no other one can have been told of it. What an earlier one has charged
    /// under this id stays: it may be told again.
    async fn take_back(
        &self,
        check: &Check<'_>,
        portions: &[Portion<'_>],
        answers: &[Result<Decision, StoreError>],
        attempt: &Attempt<'_>,
    ) {
        let is_new = |decision: &Decision| decision.is_allowed() && decision.origin() != Origin::Repeat;
        let pairs = portions.iter().zip(answers);
        let new = pairs.filter_map(|(portion, answer)| {
            let decision = answer.as_ref().ok().filter(|decision| is_new(decision))?;
            Some((portion, decision))
        });
        let new: Vec<(&Portion<'_>, &Decision)> = new.collect();
        if !attempt.is_alone || !new.is_empty() && !self.is_closed(attempt).await {
            // Too strict, and known to all who come again.
            self.counts.refunds_failed.fetch_add(new.len() as u64, Ordering::Relaxed);
            return;
        }
        let refunds = all(new.iter().map(|(portion, decision)| async move {
            let outcome = self.forget(portion, check, decision, attempt).await;
            self.count_refund(&outcome);
            outcome.is_ok()
        }));
        let are_refunded = refunds.await.into_iter().all(|is_refunded| is_refunded);
        let is_denied = |answer: &Result<Decision, StoreError>| {
            answer.as_ref().is_ok_and(|decision| is_new(decision) || !decision.is_allowed())
        };
        // Else some part remembers the id, and a retry has to find it.
        let is_free = are_refunded && answers.iter().all(is_denied);
        if is_free || !new.is_empty() {
            let leave = self.at_id::<()>(attempt.reservation.id(), |key| attempt.note.leave(key, is_free));
            // What stays there ends by its time to live.
            let _ = by(attempt.end, leave).await;
        }
    }

    /// Keeps others from an id until this attempt leaves it. It fails if another one has taken it meanwhile.
    async fn is_closed(&self, attempt: &Attempt<'_>) -> bool {
        let close = self.at_id::<u8>(attempt.reservation.id(), |key| attempt.note.close(key));
        by(attempt.end, close).await.is_ok_and(|closed| closed == 1)
    }

    /// Forgets what a part has decided under an id, and gives its charge back: in this order, so that no retry is
    /// told of a charge that is not there.
    async fn forget(
        &self,
        portion: &Portion<'_>,
        check: &Check<'_>,
        decision: &Decision,
        attempt: &Attempt<'_>,
    ) -> Result<u64, StoreError> {
        let store = self.store(portion.part);
        let key = store.record_key(&portion.tag, attempt.reservation.id());
        let _: usize = by(attempt.end, store.send_to(&portion.tag, Cmd::del(&key))).await?;
        let part = portion.of(check);
        let decision = decision.clone().no_longer_held();
        by(attempt.end, store.refund(&part, &decision, LIMIT_MAX)).await
    }

    /// Settles each part of a reservation.
    pub(super) async fn settle(&self, id: &[u8], actual: Option<u32>) -> Result<Settled, StoreError> {
        let end = Instant::now() + self.total;
        let note: Option<Vec<u8>> = by(end, self.at_id(id, |key| Cmd::get(key))).await?;
        let Some(note) = note else { return Ok(Settled::Unknown) };
        let settled = all(Note::tags(&note)?.into_iter().map(|tag| async move {
            by(end, self.store(self.part_of(&tag)).settle_under(&tag, id, actual)).await
        }));
        let settled: Result<Vec<Settled>, StoreError> = settled.await.into_iter().collect();
        let settled = settled?;
        // What lapsed in one part stays charged there. A retry settles what is left.
        let order = [Settled::Lapsed, Settled::Done, Settled::Already];
        Ok(order.into_iter().find(|settled_so| settled.contains(settled_so)).unwrap_or(Settled::Unknown))
    }
}

/// One decision of all parts. A part that failed is an outage of the whole: under an id, a retry completes it.
fn joined(
    portions: &[Portion<'_>],
    answers: Vec<Result<Decision, StoreError>>,
) -> Result<Decision, StoreError> {
    let is_denied = answers.iter().flatten().any(|decision| !decision.is_allowed());
    let (mut decided, mut failed) = (Vec::new(), Vec::new());
    for (portion, answer) in portions.iter().zip(answers) {
        match answer {
            Ok(decision) if is_denied && decision.is_allowed() => {
                decided.push((portion.told(decision.without_receipts()), portion.places()));
            }
            Ok(decision) => decided.push((portion.told(decision), portion.places())),
            Err(error) => failed.push(error),
        }
    }
    let input = failed.iter().position(|error| error.kind() == StoreErrorKind::Input);
    match (input, failed.is_empty() || is_denied) {
        (Some(at), _) => Err(failed.swap_remove(at)),
        (None, true) => Ok(Decision::of_parts(decided)),
        (None, false) => Err(failed.swap_remove(0)),
    }
}
