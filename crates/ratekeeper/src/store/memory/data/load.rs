//! Taking in what another process left.

use std::collections::{HashMap, HashSet};

use ratekeeper_core::{Held, Name, Remembered, State, Timestamp};
use redb::{Error, ReadTransaction, ReadableTable as _};

use super::bytes::{Read, Reader, Unreadable};
use super::file::{COUNTERS, File, IDS, JOURNAL, OVERRIDES, RECEIPTS, RULES, SWITCHES, Table};
use super::record::{self, FileRule, Place};
use crate::control::Switch;
use crate::store::ScopedOverride;
use crate::store::StoreError;
use crate::store::memory::receipts::Given;
use crate::store::memory::shard::{Counter, RuleNumber};
use crate::store::memory::slot::Pressure;

/// A counter as another process left it.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) counter: Counter,
    pub(super) state: State,
    pub(super) pressure: Pressure,
}

/// What of a file is still of use.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) counters: Vec<Restored>,
    pub(super) ids: Vec<(Vec<u8>, Remembered<Counter>)>,
    pub(super) receipts: Vec<Given>,
    pub(super) overrides: Vec<ScopedOverride>,
    pub(super) switches: Vec<(String, Switch)>,
    /// Of the audit log, the oldest first.
    pub(super) lines: Vec<String>,
    /// The numbers that the file has for rules, and their names.
    pub(super) rules: Vec<(FileRule, Name)>,
    /// Keys of counters that are over, or cannot be read.
    pub(super) dead: Vec<Vec<u8>>,
    /// Keys of rules that have no counter any more.
    pub(super) unused: Vec<Vec<u8>>,
    /// Records that cannot be read.
    pub(super) unreadable: u64,
}

impl Left {
    /// Reads a file.
    pub(super) fn read(file: &File, now: Timestamp) -> Result<Self, StoreError> {
        file.read(|from| {
            let mut left = Self::default();
            left.read_rules(from)?;
            left.read_counters(from, now.as_micros())?;
            left.read_ids(from, now.as_micros())?;
            left.read_receipts(from, now.as_micros())?;
            left.read_operators(from)?;
            left.forget_unused_rules();
            Ok(left)
        })
    }

    fn read_rules(&mut self, from: &ReadTransaction) -> Result<(), Error> {
        self.each(from, RULES, |left, key, value| {
            let number = <[u8; 4]>::try_from(key).map(u32::from_be_bytes).map_err(|_| Unreadable)?;
            let mut reader = Reader(value);
            let name = reader.name()?;
            left.rules.push((number, name));
            reader.end()
        })
    }

    fn read_counters(&mut self, from: &ReadTransaction, now: u64) -> Result<(), Error> {
        let rules: HashMap<FileRule, Name> = self.rules.iter().copied().collect();
        self.each(from, COUNTERS, |left, key, value| {
            let restored = read_counter(key, value, &rules);
            let is_alive = |restored: &Restored| restored.state.expires_at() > now;
            if !restored.as_ref().is_ok_and(is_alive) {
                left.dead.push(key.to_vec());
            }
            left.counters.extend(restored.map(|restored| Some(restored).filter(is_alive))?);
            Ok(())
        })
    }

    /// Names stay for the life of a process, so those that nothing needs are not taken along for ever.
    fn forget_unused_rules(&mut self) {
        let held = self.ids.iter().flat_map(|(_, kept)| &kept.held).map(|held| held.counter.rule);
        let used: HashSet<u32> = self
            .counters
            .iter()
            .map(|restored| restored.counter.rule)
            .chain(held)
            .map(RuleNumber::bits)
            .collect();
        let (used, unused) = self.rules.iter().copied().partition(|(_, name)| used.contains(&name.number()));
        self.rules = used;
        let unused: Vec<(FileRule, Name)> = unused;
        self.unused = unused.iter().map(|(number, _)| number.to_be_bytes().to_vec()).collect();
    }

    fn read_ids(&mut self, from: &ReadTransaction, now: u64) -> Result<(), Error> {
        let rules: HashMap<FileRule, Name> = self.rules.iter().copied().collect();
        self.each(from, IDS, |left, key, value| {
            let (forget_at, id) = record::read_ending_key(key)?;
            let Remembered { digest, decision, held, stage, .. } = record::read_remembered(value, forget_at)?;
            if forget_at > now {
                let held = held.into_iter();
                let held = held.map(|held| Held::from_parts(counter(held.counter, &rules), held.parts()));
                let held = held.collect();
                left.ids.push((id.to_vec(), Remembered { digest, decision, held, stage, forget_at }));
            }
            Ok(())
        })
    }

    fn read_receipts(&mut self, from: &ReadTransaction, now: u64) -> Result<(), Error> {
        self.each(from, RECEIPTS, |left, key, value| {
            let given = record::read_given(key, value)?;
            left.receipts.extend((given.until > now).then_some(given));
            Ok(())
        })
    }

    /// Overrides and switches, also those that are over: they go when there is no room, as ever.
    fn read_operators(&mut self, from: &ReadTransaction) -> Result<(), Error> {
        self.each(from, OVERRIDES, |left, key, value| {
            let (scope, to) = (record::read_scope(key)?, record::read_override(value)?);
            let scoped = ScopedOverride {
                endpoint: scope.endpoint().to_owned(),
                organisation: scope.organisation_id().to_owned(),
                project: scope.project_id().map(ToOwned::to_owned),
                to,
                server: None,
            };
            left.overrides.push(scoped);
            Ok(())
        })?;
        self.each(from, SWITCHES, |left, key, value| {
            let (rule, text) = (Reader(key).rest()?, Reader(value).rest()?);
            let switch: Switch = text.parse().map_err(|_| Unreadable)?;
            let switch = crate::control::validated(rule, switch).map_err(|_| Unreadable)?;
            left.switches.push((rule.to_owned(), switch));
            Ok(())
        })?;
        self.each(from, JOURNAL, |left, _, value| {
            left.lines.push(Reader(value).rest()?.to_owned());
            Ok(())
        })
    }

    /// Hands every record of a table to `read`; those that cannot be read are counted.
    fn each(
        &mut self,
        from: &ReadTransaction,
        table: Table,
        mut read: impl FnMut(&mut Self, &[u8], &[u8]) -> Read<()>,
    ) -> Result<(), Error> {
        for entry in from.open_table(table)?.iter()? {
            let (key, value) = entry?;
            if read(self, key.value(), value.value()).is_err() {
                self.unreadable += 1;
            }
        }
        Ok(())
    }
}

fn read_counter(key: &[u8], value: &[u8], rules: &HashMap<FileRule, Name>) -> Read<Restored> {
    let (state, pressure, rule) = record::read_counter(value)?;
    let counter = counter(Place { fingerprint: record::read_counter_key(key)?, rule }, rules);
    Ok(Restored { counter, state, pressure })
}

/// A counter by the number that its rule has in this process; one whose rule is unknown is a raw one.
fn counter(place: Place, rules: &HashMap<FileRule, Name>) -> Counter {
    let rule = rules.get(&place.rule).map_or(Name::RAW, |name| *name);
    Counter { fingerprint: place.fingerprint, rule: RuleNumber::of_name(rule) }
}
