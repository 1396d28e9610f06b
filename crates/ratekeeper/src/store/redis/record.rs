//! What is kept under an id: the script's answer, and the charges it was about.
//!
//! The script writes and guards the record but cannot read the charges in it;
//! whoever repeats or settles them decodes them here, in any process.

use ratekeeper_core::{
    Algorithm, Calendar, CalendarUnit, Charge, Check, Decision, Emergency, Enforcement, Key, Level, Name,
    Origin, Quota, Timestamp,
};
use std::time::Duration;

use super::answer::{Answer, Reader, garbled};
use super::encode::{ALIGNED, Change, Target, Units, clock_of, tag_of};
use super::layout::{Class, Layout};
use super::script::FORMAT;
use crate::store::StoreError;

/// The stage of a record that is only remembered, never to be settled.
const REMEMBERED: u8 = 0;

/// The record of an id.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// What check it is of.
    pub(super) digest: u64,
    /// Whether it is of a reservation, also one that was settled.
    is_held: bool,
    answer: Answer<'a>,
    charges: Vec<Kept<'a>>,
}

/// A charge as it was asked for.
#[derive(Debug)]
struct Kept<'a> {
    class: Class,
    name: &'a [u8],
    tag: u32,
    quota: Quota,
    cost: u32,
    enforcement: Enforcement,
    emergency: Emergency,
    level: Level,
    flat: bool,
    any_window: bool,
}

/// What to keep of the charges of a check.
pub(super) fn keep(layout: &Layout, check: &Check<'_>) -> Vec<u8> {
    let mut kept = vec![check.charges().len() as u8];
    for charge in check.charges() {
        let mut name = Vec::new();
        let class = layout.counter(charge, &mut name);
        let quota = charge.quota();
        let (unit, offset) = clock_of(quota);
        let flags = u8::from(charge.enforced() == Enforcement::Shadow)
            | u8::from(charge.is_flat()) << 1
            | u8::from(charge.is_in_any_window()) << 2;
        kept.extend_from_slice(&[class as u8, flags, charge.switched() as u8, charge.quota_level() as u8]);
        kept.extend_from_slice(&[quota.algorithm() as u8, unit]);
        kept.extend_from_slice(&offset.to_le_bytes());
        kept.extend_from_slice(&quota.window_micros().to_le_bytes());
        let extra =
            if quota.algorithm() == Algorithm::LeakyBucket { quota.queue() } else { quota.capacity() };
        let tag = tag_of(charge.key(), quota.algorithm());
        for word in [tag, charge.units(), quota.limit(), extra] {
            kept.extend_from_slice(&word.to_le_bytes());
        }
        kept.extend_from_slice(&(name.len() as u16).to_le_bytes());
        kept.extend_from_slice(&name);
    }
    kept
}

impl<'a> Record<'a> {
    /// Reads a record.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, StoreError> {
        let mut reader = Reader(bytes);
        if reader.u8()? != FORMAT {
            return Err(StoreError::unreadable());
        }
        // The rest of the stages is for the script to look at.
        let is_held = reader.u8()? != REMEMBERED;
        let digest = reader.u64()?;
        reader.take(16)?; // open until, forgotten at: the script's too
        let now = Timestamp::from_micros(reader.whole()?);
        let length = reader.u32()?;
        let answer = Answer { now, bytes: reader.take(length as usize)? };
        let count = reader.u8()?;
        let charges = (0..count).map(|_| Kept::read(&mut reader)).collect::<Result<_, _>>()?;
        Ok(Self { digest, is_held, answer, charges })
    }

    /// The decision it holds, again, for the check it was of: by the quotas of then, which
    /// rules may have changed since.
    pub(super) fn repeat(&self, check: &Check<'_>) -> Result<Decision, StoreError> {
        if check.charges().len() != self.charges.len() {
            return Err(garbled());
        }
        let pairs = check.charges().iter().zip(&self.charges);
        let own = pairs.map(|(charge, kept)| (charge.key(), &kept.quota, charge.index()));
        let charges = self.charges(own)?;
        let mut decision = self.answer.recorded(&charges, |index| self.charges[index].tag)?;
        if self.is_held {
            decision.set_held();
        }
        Ok(decision.from_origin(Origin::Repeat))
    }

    /// What is to be done to make its charges `actual` units (`None`: undone).
    pub(super) fn changes(&self, actual: Option<u32>) -> Result<Vec<Change<'_>>, StoreError> {
        let key = Key::new(Name::new("held")?, "held")?;
        let charges = self.charges(self.charges.iter().map(|kept| (key, &kept.quota, 0)))?;
        let decision = self.answer.recorded(&charges, |index| self.charges[index].tag)?;
        let mut changes = Vec::new();
        for (kept, verdict) in self.charges.iter().zip(decision.verdicts()) {
            let Some(receipt) = verdict.receipt() else { continue };
            let units = match actual {
                Some(_) if kept.flat => continue,
                Some(actual) if actual > kept.cost => Units::TopUp(actual - kept.cost),
                Some(actual) => Units::Refund(kept.cost - actual),
                None => Units::Refund(kept.cost),
            };
            let quota = *verdict.quota();
            let any_window = kept.any_window;
            let own_window = kept.quota.window_micros();
            let target =
                Target { class: kept.class, name: kept.name, tag: kept.tag, quota, own_window, any_window };
            changes.push(Change { target, units, receipt, note: None });
        }
        Ok(changes)
    }

    fn charges<'c>(
        &self,
        own: impl ExactSizeIterator<Item = (Key<'c>, &'c Quota, u16)>,
    ) -> Result<Vec<Charge<'c>>, StoreError> {
        if own.len() != self.charges.len() {
            return Err(garbled());
        }
        let charges = own.zip(&self.charges).map(|((key, quota, index), kept)| {
            let charge = Charge::new(key, quota).at_index(index).cost(kept.cost.into())?;
            let charge = charge.enforcement(kept.enforcement).emergency(kept.emergency).level(kept.level);
            Ok(if kept.any_window { charge.any_window() } else { charge })
        });
        charges.collect()
    }
}

impl<'a> Kept<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, StoreError> {
        let [class, flags, emergency, level, algorithm, unit] = reader.array()?;
        let offset = i16::from_le_bytes(reader.array()?);
        let window = Duration::from_micros(reader.u64()?);
        let (tag, cost, limit, extra) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let length = reader.u16()?;
        let name = reader.take(length.into())?;
        let pick = |number: u8, from: &[Class]| from.get(usize::from(number)).copied().ok_or_else(garbled);
        Ok(Self {
            class: pick(class, &[Class::Text, Class::Kit, Class::List])?,
            name,
            tag,
            quota: quota_of(algorithm, (limit, extra), window, (unit, offset))?,
            cost,
            enforcement: if flags & 1 == 1 { Enforcement::Shadow } else { Enforcement::Enforce },
            emergency: match emergency {
                0 => Emergency::Off,
                1 => Emergency::Lift,
                _ => Emergency::Block,
            },
            level: match level {
                0 => Level::Default,
                1 => Level::Plan,
                _ => Level::Custom,
            },
            flat: flags & 2 == 2,
            any_window: flags & 4 == 4,
        })
    }
}

pub(super) fn quota_of(
    algorithm: u8,
    (limit, extra): (u32, u32),
    window: Duration,
    (unit, offset): (u8, i16),
) -> Result<Quota, StoreError> {
    const UNITS: [CalendarUnit; 5] = [
        CalendarUnit::Minute,
        CalendarUnit::Hour,
        CalendarUnit::Day,
        CalendarUnit::Week,
        CalendarUnit::Month,
    ];
    if unit > 0 && unit != ALIGNED {
        let unit = UNITS.get(usize::from(unit - 1)).ok_or_else(garbled)?;
        return Ok(Quota::calendar(limit.into(), Calendar::with_offset(*unit, offset)?)?);
    }
    let algorithm = Algorithm::ALL.into_iter().find(|known| *known as u8 == algorithm).ok_or_else(garbled)?;
    let quota = Quota::new(algorithm, limit.into(), window)?;
    Ok(match algorithm {
        // Without a rate there is neither.
        Algorithm::TokenBucket | Algorithm::LeakyBucket if quota.is_closed() => quota,
        Algorithm::TokenBucket => quota.with_burst(extra.into())?,
        Algorithm::LeakyBucket => quota.with_queue(extra.into())?,
        Algorithm::FixedWindow if unit == ALIGNED => quota.aligned()?,
        _ => quota,
    })
}
