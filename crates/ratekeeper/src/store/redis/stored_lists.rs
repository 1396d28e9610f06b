//! What the server alone says of logs and lists of holders. Their limits are not stored, so it is what they hold.

use std::time::Duration;

use ::redis::cmd;
use ratekeeper_core::{Algorithm, Key, Name, Timestamp};
use tokio::time::Instant;

use super::Inner;
use super::answer::{Reader, garbled};
use super::route::Part;
use super::script::FORMAT;
use crate::store::{StoreError, StoredList};

/// Bytes of an entry of a log, and of a holder.
const ENTRY_BYTES: usize = 12;
const HOLDER_BYTES: usize = 16;

/// One of the lists of an index; `script/list.lua` says what is in it.
struct List {
    algorithm: Algorithm,
    own: f64,
    window: f64,
    newest: f64,
    shift: f64,
    since: f64,
    first: f64,
    gone: f64,
    units: f64,
    blocks: Vec<Block>,
}

#[derive(Clone, Copy)]
struct Block {
    place: u16,
    units: f64,
    last: f64,
}

/// What counts of a list.
struct Live {
    units: f64,
    /// The block of the first entry that counts, if others in it may have left, and the instant behind which entries count.
    cut: Option<(u16, f64)>,
    /// When the last entry leaves, in microseconds from now.
    ends_after: f64,
}

impl Inner {
    /// The log and the holders of a rule's only quota, for a subject. Those of quotas with names are found by listing.
    pub(super) async fn lists_of(&self, rule: &str, subject: &[u8]) -> Result<Vec<StoredList>, StoreError> {
        let (end, key, mut found) = (self.end_of_call(), Key::new(Name::RAW, subject)?, Vec::new());
        for name in self.layout.lists(rule, subject) {
            for (part, name) in self.layout.names_of(key, name) {
                found.extend(self.lists_at(end, part, &name).await?);
            }
        }
        Ok(found)
    }

    /// The lists at a key, one for each window, in which something counts.
    pub(super) async fn lists_at(
        &self,
        end: Instant,
        part: Part,
        key: &[u8],
    ) -> Result<Vec<StoredList>, StoreError> {
        let element = |place: u16| cmd("LINDEX").arg(key).arg(place).to_owned();
        let index: Option<Vec<u8>> = self.send_until(end, part, element(0)).await?;
        let Some(index) = index else { return Ok(Vec::new()) };
        let lists = lists_in(&index).map_err(|_| StoreError::unreadable_at(key))?;
        let (now, mut found) = (self.instant(end, part).await?, Vec::new());
        for list in lists {
            let Some(Live { mut units, cut, ends_after }) = list.live(now) else { continue };
            if let Some((place, behind)) = cut {
                let block: Option<Vec<u8>> = self.send_until(end, part, element(place)).await?;
                units -= units_until(&block.unwrap_or_default(), list.algorithm, behind)?;
            }
            found.push(StoredList {
                algorithm: list.algorithm,
                window: Duration::from_micros(list.own as u64),
                used: units as u64,
                ends_after: Duration::from_micros(ends_after as u64),
            });
        }
        Ok(found)
    }
}

impl List {
    /// As a peek counts it; nothing if nothing counts.
    fn live(&self, now: Timestamp) -> Option<Live> {
        let (at, last) = (now.as_micros() as f64, self.blocks.last()?.last);
        let newest = if self.algorithm == Algorithm::Concurrency { self.newest } else { last };
        // Further ahead by more than a window, the clock has stepped back.
        let ahead = newest - self.shift - at;
        let shift = if ahead > self.window { self.shift + ahead } else { self.shift };
        let ends_after = last - shift + self.window - at;
        let mut behind = at + shift - self.window;
        if behind < self.since {
            behind = self.since - 1.0;
        }
        if self.first > behind {
            let units = self.units - self.gone;
            return (units > 0.0 && ends_after > 0.0).then_some(Live { units, cut: None, ends_after });
        }
        let mut left = self.blocks.iter().skip_while(|block| block.last <= behind).peekable();
        let cut = left.peek().map(|block| (block.place, behind));
        let units: f64 = left.map(|block| block.units).sum();
        (cut.is_some() && ends_after > 0.0).then_some(Live { units, cut, ends_after })
    }
}

fn lists_in(index: &[u8]) -> Result<Vec<List>, StoreError> {
    let mut reader = Reader(index);
    let [format, algorithm, count, _] = reader.array()?;
    let algorithm = Algorithm::ALL.into_iter().find(|known| *known as u8 == algorithm && known.keeps_all());
    let algorithm = algorithm.filter(|_| format == FORMAT).ok_or_else(garbled)?;
    // The time to live, and how many places there are.
    reader.take(12)?;
    let mut lists = Vec::with_capacity(count.into());
    for _ in 0..count {
        let mut numbers = [0.0; 8];
        for number in &mut numbers {
            *number = reader.double()?;
        }
        let [own, window, newest, shift, since, first, gone, units] = numbers;
        reader.u32()?;
        let blocks = reader.u16()?;
        let blocks = (0..blocks).map(|_| block(&mut reader)).collect::<Result<Vec<Block>, StoreError>>()?;
        lists.push(List { algorithm, own, window, newest, shift, since, first, gone, units, blocks });
    }
    Ok(lists)
}

fn block(reader: &mut Reader<'_>) -> Result<Block, StoreError> {
    let place = reader.u16()?;
    reader.take(6)?;
    Ok(Block { place, units: reader.double()?, last: reader.double()? })
}

/// The units of a block's entries up to an instant.
fn units_until(block: &[u8], algorithm: Algorithm, instant: f64) -> Result<f64, StoreError> {
    let bytes = if algorithm == Algorithm::Concurrency { HOLDER_BYTES } else { ENTRY_BYTES };
    let mut units = 0.0;
    for entry in block.chunks_exact(bytes) {
        let mut reader = Reader(entry);
        if reader.double()? > instant {
            break;
        }
        units += f64::from(reader.u32()?);
    }
    Ok(units)
}
