//! From what the script found to a decision.
//!
//! The script decides and charges; it answers with the states as it found them.
//! What is left, when to come back and the rest is worked out here, by the same
//! [`judge`](judge()) as everywhere: the server has one processor for all, we have
//! our own. If the two ever disagreed, the call would fail rather than lie.

use ratekeeper_core::algorithm::{Concurrency, FixedWindow, Holder, SlidingLog};
use ratekeeper_core::{
    Algorithm, Case, Charge, Check, Decision, Field, InvalidInput, Level, Quota, Settled, State, Timestamp,
    judge, judge_one, too_many_windows,
};
use smallvec::SmallVec;
use std::time::Duration;

use super::encode::{Asked, tag_of};
use super::packed::Records;
use super::penal;
use super::record::Record;
use super::script::COUNTERS_MAX;
use crate::store::{StoreError, StoreErrorKind};

pub(super) const ALLOWED: u8 = 1;
pub(super) const DENIED: u8 = 2;
pub(super) const REPEATED: u8 = 3;
pub(super) const OTHER_CHECK: u8 = 4;
pub(super) const UNREADABLE: u8 = 5;
pub(super) const TOO_MANY_WINDOWS: u8 = 6;
pub(super) const NOT_WRITTEN: u8 = 7;
pub(super) const TOO_MANY_COUNTERS: u8 = 8;
pub(super) const ADJUSTED: u8 = 10;
pub(super) const ALREADY: u8 = 11;
pub(super) const LAPSED: u8 = 12;
pub(super) const UNKNOWN: u8 = 13;
/// What a reset has forgotten.
pub(super) const COUNTED: u8 = 14;
pub(super) const NOTHING_COUNTED: u8 = 15;
/// Bytes of how many units of a charge were given back.
const UNITS_BYTES: usize = 4;

/// The answer to one item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    /// When the batch was judged.
    pub(super) now: Timestamp,
    /// The bytes of the answer.
    pub(super) bytes: &'a [u8],
}

/// The number of the key that an answer says is unreadable.
pub(super) fn unreadable_key(answer: &[u8]) -> Option<usize> {
    match *answer {
        [UNREADABLE, low, high] => Some(u16::from_le_bytes([low, high]).into()),
        _ => None,
    }
}

/// Reads numbers off the front of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], StoreError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(garbled)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(garbled)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, StoreError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, StoreError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, StoreError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, StoreError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A whole number in a double.
    pub(super) fn whole(&mut self) -> Result<u64, StoreError> {
        whole(self.double()?)
    }

    /// Any number, also one that is none.
    pub(super) fn double(&mut self) -> Result<f64, StoreError> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    fn optional(&mut self) -> Result<Option<u64>, StoreError> {
        let mut ahead = *self;
        if f64::from_le_bytes(ahead.array()?) < 0.0 {
            *self = ahead;
            return Ok(None);
        }
        self.whole().map(Some)
    }
}

pub(super) fn garbled() -> StoreError {
    StoreError::new(StoreErrorKind::Protocol, "the server's answer makes no sense to this version")
}

/// Takes a reply apart: the instant, and the bytes of each item's answer.
pub(super) fn split(
    reply: &[u8],
    asked: impl Iterator<Item = Asked>,
) -> Result<(Timestamp, Vec<&[u8]>), StoreError> {
    let mut reader = Reader(reply);
    let now = Timestamp::from_micros(reader.whole()?);
    let mut answers = Vec::with_capacity(asked.size_hint().0);
    for asked in asked {
        let whole = reader.0;
        skip(&mut reader, asked)?;
        answers.push(&whole[..whole.len() - reader.0.len()]);
    }
    if reader.0.is_empty() { Ok((now, answers)) } else { Err(garbled()) }
}

fn skip(reader: &mut Reader<'_>, asked: Asked) -> Result<(), StoreError> {
    match reader.u8()? {
        ALLOWED | DENIED => {
            (0..asked.charges).try_for_each(|_| skip_found(reader))?;
            if asked.penalties > 0 { penal::skip(reader, asked.penalties) } else { Ok(()) }
        }
        REPEATED => {
            let length = reader.u32()?;
            reader.take(length as usize).map(|_| ())
        }
        UNREADABLE => reader.take(2).map(|_| ()),
        NOT_WRITTEN => {
            let length = reader.u8()?;
            reader.take(length.into()).map(|_| ())
        }
        ADJUSTED => reader.take(UNITS_BYTES * asked.charges).map(|_| ()),
        OTHER_CHECK | TOO_MANY_WINDOWS | TOO_MANY_COUNTERS | ALREADY..=NOTHING_COUNTED => Ok(()),
        _ => Err(garbled()),
    }
}

pub(super) fn skip_found(reader: &mut Reader<'_>) -> Result<(), StoreError> {
    match reader.u8()? {
        7 | 8 => {
            reader.take(16)?;
            skip_found(reader)
        }
        0 | 1 => Ok(()),
        2 => {
            let length = reader.u16()?;
            reader.take(length.into()).map(|_| ())
        }
        3 => {
            reader.take(20)?;
            let entries = reader.u8()?;
            reader.take(12 * usize::from(entries)).map(|_| ())
        }
        4 => reader.take(16).map(|_| ()),
        _ => Err(garbled()),
    }
}

impl<'a> Answer<'a> {
    /// The decision of a check.
    pub(super) fn decision(self, check: &Check<'_>) -> Result<Decision, StoreError> {
        if let [REPEATED, _, _, _, _, record @ ..] = self.bytes {
            return Record::read(record)?.repeat(check);
        }
        if !check.penalties().is_empty() {
            return penal::decide(self, check);
        }
        let (charges, peek) = (check.charges(), check.is_peek());
        let mut begun = self.begin()?;
        let mut decision = Decision::default();
        if let [charge] = charges {
            let (terms, mut state) = begun.found(charge, tag_of_charge(charge))?;
            let (quota, level) = match &terms {
                Some((quota, level)) => (quota, *level),
                None => (charge.quota(), charge.quota_level()),
            };
            judge_one(charge, (quota, level), &mut state, self.now, peek, &mut decision);
        } else {
            let mut cases = begun.cases(charges, |index| tag_of_charge(&charges[index]))?;
            judge(&mut cases, self.now, peek, &mut decision);
        }
        begun.agreed(&mut decision, charges)?;
        Ok(decision)
    }

    /// The decision that was recorded, on `charges` whose records have these tags.
    pub(super) fn recorded(
        self,
        charges: &[Charge<'_>],
        tag: impl Fn(usize) -> u32,
    ) -> Result<Decision, StoreError> {
        let mut begun = self.begin()?;
        let mut cases = begun.cases(charges, tag)?;
        let at = if begun.reader.0.is_empty() { self.now } else { penal::judged_at(&mut begun.reader)? };
        let mut decision = Decision::default();
        judge(&mut cases, at, false, &mut decision);
        begun.agreed(&mut decision, charges)?;
        Ok(decision)
    }

    /// Begins to read the answer to a check.
    pub(super) fn begin(self) -> Result<Begun<'a>, StoreError> {
        let mut reader = Reader(self.bytes);
        let status = reader.u8()?;
        if !matches!(status, ALLOWED | DENIED) {
            return Err(self.failure());
        }
        Ok(Begun { reader, now: self.now, is_allowed: status == ALLOWED, value: &[] })
    }

    /// Whether the id was used for another check.
    pub(super) fn is_conflict(self) -> bool {
        self.bytes.first() == Some(&OTHER_CHECK)
    }

    /// What became of a call to settle.
    pub(super) fn settled(self) -> Result<Settled, StoreError> {
        match self.bytes.first() {
            Some(&ADJUSTED) => Ok(Settled::Done),
            Some(&ALREADY) => Ok(Settled::Already),
            Some(&LAPSED) => Ok(Settled::Lapsed),
            Some(&UNKNOWN) => Ok(Settled::Unknown),
            _ => Err(self.failure()),
        }
    }

    /// How many units of all charges were given back.
    pub(super) fn given_back(self) -> Result<u64, StoreError> {
        let Some((&ADJUSTED, units)) = self.bytes.split_first() else { return Err(self.failure()) };
        let (units, _) = units.as_chunks::<UNITS_BYTES>();
        Ok(units.iter().map(|units| u64::from(u32::from_le_bytes(*units))).sum())
    }

    /// Whether something counted in what was forgotten.
    pub(super) fn was_there(self) -> Result<bool, StoreError> {
        match self.bytes.first() {
            Some(&COUNTED) => Ok(true),
            Some(&NOTHING_COUNTED) => Ok(false),
            _ => Err(self.failure()),
        }
    }

    #[cold]
    fn failure(self) -> StoreError {
        let mut reader = Reader(self.bytes);
        match reader.u8() {
            Ok(UNREADABLE) => StoreError::unreadable(),
            Ok(TOO_MANY_WINDOWS) => too_many_windows().into(),
            Ok(TOO_MANY_COUNTERS) => too_many_counters().into(),
            Ok(NOT_WRITTEN) => match reader.u8().and_then(|length| reader.take(length.into())) {
                Ok(reason) => StoreError::from_server(&String::from_utf8_lossy(reason)),
                Err(error) => error,
            },
            _ => garbled(),
        }
    }
}

/// The tag of a charge's record.
pub(super) fn tag_of_charge(charge: &Charge<'_>) -> u32 {
    tag_of(charge.key(), charge.quota().algorithm())
}

/// What is wrong with one counter more of a rule and key.
fn too_many_counters() -> InvalidInput {
    let got = format!("more than {COUNTERS_MAX} counters of a rule for one key");
    let expected = format!("at most {COUNTERS_MAX} in which something counts at a time");
    InvalidInput::new(Field::Check, got, expected)
}

/// The script and this library have decided differently.
#[cold]
pub(super) fn disagreement() -> StoreError {
    let message = "the script and this library do not agree: are two versions at work?";
    StoreError::new(StoreErrorKind::Protocol, message)
}

/// The answer to a check while it is read.
#[derive(Debug)]
pub(super) struct Begun<'a> {
    pub(super) reader: Reader<'a>,
    now: Timestamp,
    is_allowed: bool,
    /// The last value that was told, which neighbours share.
    value: &'a [u8],
}

impl<'a> Begun<'a> {
    /// The charges with what the script found for each.
    pub(super) fn cases<'c>(
        &mut self,
        charges: &'c [Charge<'c>],
        tag: impl Fn(usize) -> u32,
    ) -> Result<SmallVec<[Case<'c>; 4]>, StoreError> {
        let mut cases = SmallVec::new();
        for (index, charge) in charges.iter().enumerate() {
            let (terms, state) = self.found(charge, tag(index))?;
            cases.push(Case::new(charge, terms, state));
        }
        Ok(cases)
    }

    /// Completes the decision on `charges`, if the script has decided the same.
    pub(super) fn agreed(&self, decision: &mut Decision, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        if decision.is_allowed() != self.is_allowed {
            return Err(disagreement());
        }
        decision.set_counters(charges.iter().map(|charge| charge.key().digest()));
        Ok(())
    }

    /// The terms and the state the script found for `charge`.
    #[inline]
    fn found(
        &mut self,
        charge: &Charge<'_>,
        tag: u32,
    ) -> Result<(Option<(Quota, Level)>, State), StoreError> {
        found(&mut self.reader, charge, tag, self.now, &mut self.value)
    }

    /// The value that counters of a penalty are in, if there is one.
    pub(super) fn value(&mut self) -> Result<Option<&'a [u8]>, StoreError> {
        match self.reader.u8()? {
            0 => return Ok(None),
            1 => {}
            2 => {
                let length = self.reader.u16()?;
                self.value = self.reader.take(length.into())?;
            }
            _ => return Err(garbled()),
        }
        Ok(Some(self.value))
    }
}

/// The terms and the state the script found for `charge`. `value` is the value
/// of the charge before, which neighbours share.
fn found<'a>(
    reader: &mut Reader<'a>,
    charge: &Charge<'_>,
    tag: u32,
    now: Timestamp,
    value: &mut &'a [u8],
) -> Result<(Option<(Quota, Level)>, State), StoreError> {
    let mut terms = None;
    let mut kind = reader.u8()?;
    if let 7 | 8 = kind {
        let level = if kind == 7 { Level::Project } else { Level::Organisation };
        let (limit, window) = (reader.whole()?, reader.optional()?);
        let quota = charge.quota().overridden(limit, window.map(Duration::from_micros));
        terms = Some((quota, level));
        kind = reader.u8()?;
    }
    let algorithm = charge.quota().algorithm();
    let quota = terms.as_ref().map_or(charge.quota(), |(quota, _)| quota);
    let window = charge.window_number(quota);
    let state = match kind {
        0 => State::vacant(algorithm),
        1 => packed(value, tag, window, algorithm)?,
        2 => {
            let length = reader.u16()?;
            *value = reader.take(length.into())?;
            packed(value, tag, window, algorithm)?
        }
        3 => listed(reader, algorithm)?,
        4 => {
            let (count, left) = (reader.whole()?, reader.whole()?);
            let left = left * 1_000;
            State::FixedWindow(FixedWindow {
                end: now.as_micros() + left,
                length: quota.window_micros().max(left),
                count: u32::try_from(count).unwrap_or(u32::MAX),
            })
        }
        _ => return Err(garbled()),
    };
    Ok((terms, state))
}

/// A number that the script can have written.
pub(super) fn whole(number: f64) -> Result<u64, StoreError> {
    let whole = number as u64;
    // The script knows only whole numbers: to it, one with a fraction is another one.
    if !(0.0..=9_007_199_254_740_992.0).contains(&number) || whole as f64 - number != 0.0 {
        return Err(garbled());
    }
    Ok(whole)
}

/// The state of a charge in a packed value.
pub(super) fn packed(value: &[u8], tag: u32, window: u64, algorithm: Algorithm) -> Result<State, StoreError> {
    let mut records = Records::of(value)?;
    while let Some(record) = records.next()? {
        if record.is(tag, window) {
            return record.state(algorithm);
        }
    }
    Ok(State::vacant(algorithm))
}

/// A log or leases, boiled down by the script to what decides.
fn listed(reader: &mut Reader<'_>, algorithm: Algorithm) -> Result<State, StoreError> {
    let (window, last) = (reader.whole()?, reader.whole()?);
    let next = reader.u32()?;
    let mut entries: SmallVec<[(u64, u32); 2]> = SmallVec::new();
    for _ in 0..reader.u8()? {
        entries.push((reader.whole()?, reader.u32()?));
    }
    match algorithm {
        Algorithm::SlidingLog => {
            let entries = entries.into_iter().collect();
            Ok(State::SlidingLog(Box::new(SlidingLog { entries, window, own_window: 0 })))
        }
        Algorithm::Concurrency => {
            let holder = |(since, units)| Holder { since, number: 0, units };
            let holders = entries.into_iter().map(holder).collect();
            Ok(State::Concurrency(Box::new(Concurrency { holders, next, last, window, own_window: 0 })))
        }
        _ => Err(garbled()),
    }
}
