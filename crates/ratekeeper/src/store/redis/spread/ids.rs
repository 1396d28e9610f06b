//! Ids over several parts.
//!
//! An id has a place of its own, where it says what it was used for: a digest of the check, and tags of the parts that
//! have its charges. It is taken there before anything is charged, and given back after a denial. What was decided is
//! kept in each of these parts, by the call that charges: so a retry asks them again, and charges only what is missing.

use ::redis::{Cmd, cmd};
use ratekeeper_core::{Check, Decision, LIMIT_MAX, Origin, Reservation, Settled};
use tokio::time::Instant;

use super::{Portion, Spread, all, by};
use crate::store::redis::answer::Reader;
use crate::store::redis::tag::tag_of_id;
use crate::store::{Store as _, StoreError, StoreErrorKind};

/// Takes an id for a check, unless another check has it: the answer is then what that one noted. The same check may
/// take it again, under another number. ARGV: what it is used for, the length of the digest at its start, the number
/// of the attempt, milliseconds.
const TAKE: &str = "\
local known = redis.call('GET', KEYS[1])
if known and string.sub(known, 1, ARGV[2]) ~= string.sub(ARGV[1], 1, ARGV[2]) then return known end
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[3], 'PX', ARGV[4])
return false";
/// Gives an id back, unless somebody has taken it again. ARGV: as it was taken.
const GIVE_BACK: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end";
/// The version of a note, and the digest.
const DIGEST_BYTES: usize = 9;
const VERSION: u8 = 1;
/// Of the number of an attempt.
const ATTEMPT_BYTES: usize = 8;

/// What is noted in the place of an id.
struct Note {
    /// Without the number of the attempt.
    bytes: Vec<u8>,
    attempt: [u8; ATTEMPT_BYTES],
}

impl Note {
    fn new(check: &Check<'_>, portions: &[Portion<'_>]) -> Self {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&check.digest().to_le_bytes());
        // At most one for each charge, so a byte counts them; tags are short.
        bytes.push(portions.len() as u8);
        for portion in portions {
            bytes.push(portion.tag.len() as u8);
            bytes.extend_from_slice(&portion.tag);
        }
        Self { bytes, attempt: fastrand::u64(..).to_le_bytes() }
    }

    fn digest_of(note: &[u8]) -> Option<&[u8]> {
        note.get(..DIGEST_BYTES)
    }

    fn whole(&self) -> Vec<u8> {
        [&self.bytes[..], &self.attempt].concat()
    }

    /// The tags of a note.
    fn tags(note: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut reader = Reader(note);
        if reader.u8()? != VERSION {
            return Err(StoreError::unreadable());
        }
        reader.u64()?;
        let count = reader.u8()?;
        let mut tag = || {
            let length = reader.u8()?;
            reader.take(length.into()).map(<[u8]>::to_vec)
        };
        (0..count).map(|_| tag()).collect()
    }
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
        by(end, self.take(&note, check, reservation)).await?;
        if portions.len() > 1 && !check.is_peek() {
            self.counts.spanning.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
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
            self.take_back(check, &portions, &answers, reservation, &note, end).await;
        }
        joined(&portions, answers)
    }

    /// Notes what an id is used for, unless it is used for something else.
    async fn take(
        &self,
        note: &Note,
        check: &Check<'_>,
        reservation: &Reservation<'_>,
    ) -> Result<(), StoreError> {
        let life = reservation.keep() + reservation.held_for().unwrap_or_default();
        let millis = u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1);
        let known: Option<Vec<u8>> = if check.is_peek() {
            self.at_id(reservation.id(), |key| Cmd::get(key)).await?
        } else {
            let take = |key: &[u8]| {
                let mut take = cmd("EVAL");
                take.arg(TAKE)
                    .arg(1)
                    .arg(key)
                    .arg(&note.bytes)
                    .arg(DIGEST_BYTES)
                    .arg(&note.attempt)
                    .arg(millis);
                take
            };
            self.at_id(reservation.id(), take).await?
        };
        match known {
            Some(known) if Note::digest_of(&known) != Note::digest_of(&note.bytes) => {
                Err(reservation.conflict().into())
            }
            _ => Ok(()),
        }
    }

    /// Undoes what this attempt has charged. What an earlier one has charged under this id stays: it may be told again.
    async fn take_back(
        &self,
        check: &Check<'_>,
        portions: &[Portion<'_>],
        answers: &[Result<Decision, StoreError>],
        reservation: &Reservation<'_>,
        note: &Note,
        end: Instant,
    ) {
        let is_new = |decision: &Decision| decision.is_allowed() && decision.origin() != Origin::Repeat;
        let pairs = portions.iter().zip(answers);
        let new = pairs.filter_map(|(portion, answer)| {
            let decision = answer.as_ref().ok().filter(|decision| is_new(decision))?;
            Some((portion, decision))
        });
        let refunds = all(new.map(|(portion, decision)| async move {
            let outcome = by(end, self.forget(portion, check, decision, reservation)).await;
            self.count_refund(&outcome);
            outcome.is_ok()
        }));
        let are_refunded = refunds.await.into_iter().all(|is_refunded| is_refunded);
        let is_denied = |answer: &Result<Decision, StoreError>| {
            answer.as_ref().is_ok_and(|decision| is_new(decision) || !decision.is_allowed())
        };
        // Else some part remembers the id, and a retry has to find it.
        if are_refunded && answers.iter().all(is_denied) {
            let give_back = |key: &[u8]| {
                let mut give_back = cmd("EVAL");
                give_back.arg(GIVE_BACK).arg(1).arg(key).arg(note.whole());
                give_back
            };
            // What stays there ends by its time to live.
            let _ = by(end, self.at_id::<()>(reservation.id(), give_back)).await;
        }
    }

    /// Forgets what a part has decided under an id, and gives its charge back: in this order, so that no retry is
    /// told of a charge that is not there.
    async fn forget(
        &self,
        portion: &Portion<'_>,
        check: &Check<'_>,
        decision: &Decision,
        reservation: &Reservation<'_>,
    ) -> Result<u64, StoreError> {
        let store = self.store(portion.part);
        let key = store.record_key(&portion.tag, reservation.id());
        let _: usize = store.send_to(&portion.tag, Cmd::del(&key)).await?;
        let part = portion.of(check);
        let decision = decision.clone().no_longer_held();
        store.refund(&part, &decision, LIMIT_MAX).await
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
