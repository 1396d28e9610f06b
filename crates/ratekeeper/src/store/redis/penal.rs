//! Penalties in the words of the script, and what it made of them.
//!
//! As with charges, the script decides and tells the states it found; the library
//! works the same out from them, and fails if it comes to something else.

use ratekeeper_core::{
    Check, Decision, Enforcement, Penalty, PenaltyCase, Quota, State, Strike, Timestamp, judge_penal,
};
use smallvec::SmallVec;

use super::answer::{Answer, Begun, Reader, disagreement, packed, skip_found};
use super::encode::tag_of;
use crate::store::StoreError;

pub(super) const SHADOW: u8 = 1;
pub(super) const COUNTS: u8 = 2;
pub(super) const GROWS: u8 = 4;

/// A penalty in the words of the script, without the key of its counters.
pub(super) fn terms(into: &mut Vec<u8>, penalty: &Penalty<'_>) {
    let mut flags = 0;
    if penalty.enforcement == Enforcement::Shadow {
        flags |= SHADOW;
    }
    if penalty.counts {
        flags |= COUNTS;
    }
    if penalty.offences.is_some() {
        flags |= GROWS;
    }
    let charges = &penalty.charges;
    into.extend_from_slice(&[flags, charges.start as u8, charges.len() as u8, penalty.sentences.len() as u8]);
    let mut tags = penalty.counters().map(|(key, quota, _)| tag_of(key, quota.algorithm()));
    for _ in 0..3 {
        into.extend_from_slice(&tags.next().unwrap_or_default().to_le_bytes());
    }
    let number = |into: &mut Vec<u8>, number: u64| into.extend_from_slice(&(number as f64).to_le_bytes());
    let counted = [Some(penalty.strikes.1), penalty.offences.map(|(_, quota)| quota)];
    for quota in counted {
        into.extend_from_slice(&quota.map_or(0, Quota::limit).to_le_bytes());
        number(into, quota.map_or(0, Quota::window_micros));
    }
    let [_, offences] = counted;
    for (micros, rest) in offences.map_or([(0, 0); 2], |quota| [quota.debt_of(1), quota.debt_allowed()]) {
        number(into, micros);
        into.extend_from_slice(&rest.to_le_bytes());
    }
    penalty.sentences.iter().for_each(|sentence| number(into, sentence.window_micros()));
}

/// Passes over what is told of penalties.
pub(super) fn skip(reader: &mut Reader<'_>, penalties: usize) -> Result<(), StoreError> {
    reader.take(9)?;
    (0..penalties).try_for_each(|_| {
        skip_found(reader)?;
        reader.u8().map(|_| ())
    })
}

/// When a check with penalties was judged: their counters have a say in it.
pub(super) fn judged_at(reader: &mut Reader<'_>) -> Result<Timestamp, StoreError> {
    reader.whole().map(Timestamp::from_micros)
}

/// The decision of a check with penalties.
pub(super) fn decide(answer: Answer<'_>, check: &Check<'_>) -> Result<Decision, StoreError> {
    let (charges, peek) = (check.charges(), check.is_peek());
    let mut begun = answer.begin()?;
    let mut cases =
        begun.cases(charges, |index| tag_of(charges[index].key(), charges[index].quota().algorithm()))?;
    let at = judged_at(&mut begun.reader)?;
    // A server that does not write denies, but counts no strikes.
    let are_counted = begun.reader.u8()? == 1;
    let mut penalties = Vec::with_capacity(check.penalties().len());
    let mut came: SmallVec<[u8; 4]> = SmallVec::new();
    for penalty in check.penalties() {
        penalties.push(case(&mut begun, penalty)?);
        came.push(begun.reader.u8()?);
    }
    let mut decision = Decision::default();
    judge_penal(&mut cases, &mut penalties, answer.now, peek, &mut decision);
    let mut agree = decision.at() == at;
    for (case, came) in penalties.iter().zip(came) {
        let strike = if are_counted && !peek { case.strike(&decision) } else { None };
        agree &= came == code_of(case, strike.as_ref());
        strike.iter().for_each(|strike| decision.struck(case, strike));
    }
    if !agree {
        return Err(disagreement());
    }
    begun.agreed(&mut decision, charges)?;
    Ok(decision)
}

/// A penalty on the states that the script found.
fn case<'c>(begun: &mut Begun<'_>, penalty: &'c Penalty<'c>) -> Result<PenaltyCase<'c>, StoreError> {
    let value = begun.value()?;
    let states = penalty.counters().map(|(key, quota, window)| {
        let algorithm = quota.algorithm();
        match value {
            Some(value) => packed(value, tag_of(key, algorithm), window, algorithm),
            None => Ok(State::vacant(algorithm)),
        }
    });
    let states = states.collect::<Result<SmallVec<[State; 3]>, _>>()?;
    Ok(PenaltyCase::new(penalty, states))
}

/// What the script calls what came of a penalty.
fn code_of(case: &PenaltyCase<'_>, strike: Option<&Strike>) -> u8 {
    match strike {
        None => u8::from(case.denies()),
        Some(Strike::Counted { .. }) => 2,
        Some(Strike::Tipped { .. }) => 3,
        Some(Strike::Repeated) => 4,
    }
}
