//! Saving what changes all the time: counters, ids and receipts, once a second, behind the requests.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ratekeeper_core::Name;
use redb::{Error, StorageError, WriteTransaction};

use super::bytes::Writer;
use super::file::{COUNTERS, File, IDS, RECEIPTS, RULES};
use super::record::{self, FileRule};
use crate::fence::Fence;
use crate::store::StoreError;
use crate::store::memory::StoreClock;
use crate::store::memory::fingerprint::Fingerprint;
use crate::store::memory::ledger::IdLedger;
use crate::store::memory::lock::Lock;
use crate::store::memory::receipts::Receipts;
use crate::store::memory::shard::{Counter, Found, Take};
use crate::store::memory::{Padded, SHARDS};

/// How often changes are saved: what happened since is lost in a crash.
pub(super) const SAVED_EVERY: Duration = Duration::from_secs(1);
/// The longest pause between attempts while saving fails.
const RETRIED_EVERY_MAX: Duration = Duration::from_secs(30);
/// Counters that are written in one step, so that an override need not wait for more than that.
const STEP_COUNTERS_MAX: usize = 10_000;
/// Counters that are looked up while their shard is locked.
const LOCKED_COUNTERS_MAX: usize = 256;
/// What is over and removed in one step.
const STEP_OVER_MAX: usize = 10_000;

/// What is saved, and where.
#[derive(Debug)]
pub(super) struct Saving {
    pub(super) file: File,
    pub(super) clock: StoreClock,
    pub(super) shards: Arc<[Padded]>,
    pub(super) ledgers: Arc<[Lock<IdLedger>]>,
    pub(super) receipts: Arc<Lock<Receipts>>,
    pub(super) rules: Mutex<Rules>,
    pub(super) fence: Fence,
    /// Held while everything is saved, so that two do not take a part each.
    pub(super) turn: Mutex<()>,
    pub(super) saved_at: SavedAt,
}

/// When everything was saved last.
#[derive(Debug)]
pub(super) struct SavedAt {
    start: Instant,
    millis: AtomicU64,
}

impl SavedAt {
    pub(super) fn now() -> Self {
        Self { start: Instant::now(), millis: AtomicU64::new(0) }
    }

    fn set(&self, at: Instant) {
        let millis = at.saturating_duration_since(self.start).as_millis();
        self.millis.store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.millis.load(Ordering::Relaxed)))
    }
}

/// The numbers that rules have in the file: those of a process are another's in the next.
#[derive(Debug)]
pub(super) struct Rules {
    known: HashMap<u32, FileRule>,
    next: FileRule,
    /// Those that the file does not have yet.
    new: Vec<(FileRule, Name)>,
    fence: Fence,
}

impl Rules {
    /// Rules that the file has.
    pub(super) fn restored(known: impl Iterator<Item = (FileRule, Name)>, fence: Fence) -> Self {
        let mut rules = Self { known: HashMap::new(), next: 1, new: Vec::new(), fence };
        for (number, name) in known {
            rules.next = rules.next.max(number.saturating_add(1));
            rules.known.insert(name.number(), number);
        }
        rules
    }

    /// Has all of them written again.
    fn write_all_later(&mut self) {
        let named = |(number, in_file): (&u32, &FileRule)| Some((*in_file, Name::numbered(*number)?));
        self.new = self.fence.around(|| self.known.iter().filter_map(named).collect());
    }

    fn of(&mut self, counter: Counter) -> FileRule {
        let number = counter.rule.bits();
        if let Some(known) = self.known.get(&number) {
            return *known;
        }
        // Raw charges are one rule, and have no name.
        let name = self.fence.around(|| Name::numbered(number)).filter(|name| *name != Name::RAW);
        let Some(name) = name else { return 0 };
        let fresh = self.next;
        self.next = self.next.saturating_add(1);
        self.known.insert(number, fresh);
        self.new.push((fresh, name));
        fresh
    }
}

/// What the writer is told.
pub(super) enum Order {
    /// To save everything and stop.
    Stop,
}

/// Counters on their way to the file.
#[derive(Debug, Default)]
struct Batch {
    written: Vec<([u8; 16], Vec<u8>)>,
    removed: Vec<[u8; 16]>,
    /// Shards of which nothing else is kept.
    whole: Vec<u8>,
}

impl Batch {
    fn len(&self) -> usize {
        self.written.len() + self.removed.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0 && self.whole.is_empty()
    }

    fn add(&mut self, fingerprint: Fingerprint, found: Option<&Found>, rules: &mut Rules) {
        let key = record::counter_key(fingerprint);
        match found {
            Some(found) => self.written.push((key, record::counter(found, rules.of(found.counter)))),
            None => self.removed.push(key),
        }
    }
}

impl Saving {
    /// Saves once a second until it is told to stop.
    pub(super) fn run(&self, orders: &Receiver<Order>) {
        let (mut every, mut took) = (SAVED_EVERY, Duration::ZERO);
        loop {
            let order = orders.recv_timeout(every.saturating_sub(took));
            let began = Instant::now();
            let saved = self.save();
            took = began.elapsed();
            match order {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                // The failure was logged where it was met.
                Err(RecvTimeoutError::Timeout) if saved.is_err() => {
                    every = (every * 2).min(RETRIED_EVERY_MAX);
                }
                Err(RecvTimeoutError::Timeout) => every = SAVED_EVERY,
            }
        }
    }

    /// Saves everything that has changed.
    pub(super) fn save(&self) -> Result<(), StoreError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let saved = self.save_counters().and_then(|()| self.save_ids()).and_then(|()| self.save_receipts());
        match saved {
            Ok(()) => {
                self.saved_at.set(began);
                Ok(())
            }
            Err(error) => {
                // Nobody knows what of it is in the file.
                self.save_all_later();
                Err(error)
            }
        }
    }

    /// Has everything saved the next time.
    pub(super) fn save_all_later(&self) {
        for shard in self.shards.iter() {
            self.fence.around(|| shard.0.lock().save_all());
        }
        for ledger in self.ledgers.iter() {
            self.fence.around(|| ledger.lock().save(true));
        }
        self.fence.around(|| self.receipts.lock().save(true));
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).write_all_later();
    }

    fn save_counters(&self) -> Result<(), StoreError> {
        let now = self.clock.now().as_micros();
        let mut batch = Batch::default();
        for index in 0..self.shards.len() {
            self.collect(index, now, &mut batch)?;
            if batch.len() >= STEP_COUNTERS_MAX {
                self.write(&std::mem::take(&mut batch))?;
            }
        }
        if batch.is_empty() { Ok(()) } else { self.write(&batch) }
    }

    /// Takes what is to be saved of a shard, a few counters at a time.
    fn collect(&self, index: usize, now: u64, batch: &mut Batch) -> Result<(), StoreError> {
        let shard = || self.shards[index].0.lock();
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = match self.fence.around(|| shard().take_unsaved()) {
            None => return Ok(()),
            Some(Take::All) => {
                let all = self.fence.around(|| shard().saved_all(now));
                all.iter().for_each(|found| batch.add(found.counter.fingerprint, Some(found), &mut rules));
                // There are as many shards as a byte has values.
                batch.whole.push(index as u8);
                return Ok(());
            }
            Some(Take::Listed(listed)) => listed,
        };
        for few in listed.chunks(LOCKED_COUNTERS_MAX) {
            let found: Vec<Option<Found>> = self.fence.around(|| {
                let mut shard = shard();
                few.iter().map(|fingerprint| shard.saved(*fingerprint, now)).collect()
            });
            few.iter().zip(&found).for_each(|(one, found)| batch.add(*one, found.as_ref(), &mut rules));
        }
        Ok(())
    }

    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        self.file.commit(|into| {
            self.write_rules(into)?;
            let mut counters = into.open_table(COUNTERS)?;
            for shard in &batch.whole {
                let kept: HashSet<&[u8]> =
                    batch.written.iter().map(|(key, _)| &key[..]).filter(|key| key[0] == *shard).collect();
                let (first, last) = ([*shard; 1], [&[*shard][..], &[u8::MAX; 16]].concat());
                counters.retain_in::<&[u8], _>(&first[..]..=&last[..], |key, _| kept.contains(key))?;
            }
            for (key, value) in &batch.written {
                counters.insert(&key[..], &value[..])?;
            }
            for key in &batch.removed {
                counters.remove(&key[..])?;
            }
            Ok(())
        })
    }

    /// Rules first: a counter whose rule is not in the file belongs to none.
    fn write_rules(&self, into: &WriteTransaction) -> Result<(), Error> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if rules.new.is_empty() {
            return Ok(());
        }
        let mut table = into.open_table(RULES)?;
        for (number, name) in &rules.new {
            let mut value = Writer::default();
            value.name(*name);
            table.insert(&number.to_be_bytes()[..], &value.done()[..])?;
        }
        // If this step fails, all of them are written again.
        rules.new.clear();
        Ok(())
    }

    fn save_ids(&self) -> Result<(), StoreError> {
        let now = self.clock.now().as_micros();
        let mut written: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for ledger in self.ledgers.iter() {
            let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
            self.fence.around(|| {
                ledger.lock().take_unsaved(|id, kept| {
                    let value = record::remembered(kept, |counter| rules.of(counter));
                    written.push((record::ending_key(kept.forget_at, id), value));
                });
            });
        }
        for step in written.chunks(STEP_COUNTERS_MAX) {
            self.file.commit(|into| {
                self.write_rules(into)?;
                let mut table = into.open_table(IDS)?;
                step.iter().try_for_each(|(key, value)| Ok(table.insert(&key[..], &value[..]).map(drop)?))
            })?;
        }
        self.forget(IDS, now)
    }

    fn save_receipts(&self) -> Result<(), StoreError> {
        let now = self.clock.now().as_micros();
        let given = self.fence.around(|| self.receipts.lock().take_unsaved());
        for step in given.chunks(STEP_COUNTERS_MAX) {
            self.file.commit(|into| {
                let mut table = into.open_table(RECEIPTS)?;
                step.iter().try_for_each(|given| {
                    let (key, value) = record::given(given);
                    Ok(table.insert(&key[..], &value[..]).map(drop)?)
                })
            })?;
        }
        self.forget(RECEIPTS, now)
    }

    /// Removes what is over from a table that is in the order of its ends.
    fn forget(&self, table: super::file::Table, now: u64) -> Result<(), StoreError> {
        let end = now.to_be_bytes();
        let is_over = self.file.read(|from| {
            let first = from.open_table(table)?.range::<&[u8]>(..&end[..])?.next();
            Ok(first.transpose()?.is_some())
        })?;
        if !is_over {
            return Ok(());
        }
        self.file.commit(|into| {
            let mut table = into.open_table(table)?;
            let mut over = table.extract_from_if::<&[u8], _>(..&end[..], |_, _| true)?;
            let removed: Result<Vec<()>, StorageError> =
                over.by_ref().take(STEP_OVER_MAX).map(|removed| removed.map(drop)).collect();
            removed.map(drop).map_err(Error::from)
        })
    }
}

const _: () = assert!(SHARDS == 256, "the first byte of a key says the shard");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::shard_index;

    #[test]
    fn the_first_byte_of_a_key_is_its_shard() {
        for high in [0, 1 << 56, 0xab_cdef_u64 << 40, u64::MAX] {
            let fingerprint = Fingerprint { high, low: 7 };
            assert_eq!(usize::from(record::counter_key(fingerprint)[0]), shard_index(fingerprint));
        }
    }
}
