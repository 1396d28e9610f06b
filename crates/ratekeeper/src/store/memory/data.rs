//! A directory that outlives the process: what a store in memory knows is kept there, too.
//!
//! Two speeds. Overrides, switches, the journal and secrets are in the file before the call that sets them returns. What changes
//! with requests (counters that take longer than a minute to be vacant again, ids, receipts) is saved once a second from a
//! thread of its own: a crash loses at most the last second of it, and requests never wait for the disk.
//!
//! A counter is kept under its fingerprint, so the secret of the fingerprints is kept as well, in a file that its owner alone
//! may read. Its state has the instants that it is judged by, so it means the same after a restart, however long that took.

mod bytes;
mod directory;
mod file;
mod load;
mod record;
mod save;

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ratekeeper_core::{InvalidInput, Override, OverrideScope, Timestamp};
use redb::{Error, ReadableTable as _};

pub use self::directory::DATA_VERSION;
use self::directory::{Directory, refused};
use self::file::{COUNTERS, File, JOURNAL, OVERRIDES, Opening, RULES, SWITCHES, Table};
use self::load::Left;
use self::save::{Order, Rules, SavedAt, Saving};
use super::fingerprint::Fingerprinter;
use super::{MemoryStore, StoreClock};
use crate::audit::AUDIT_LINES_MAX;
use crate::control::Switch;
use crate::fence::Fence;
use crate::store::{DataHealth, SECRET_BYTES, ScopedOverride, StoreError};

/// Records that are removed in one step at the start.
const STEP_REMOVED_MAX: usize = 10_000;

/// The directory of a store, written by a thread of its own.
#[derive(Debug)]
pub(super) struct DataDir {
    saving: Arc<Saving>,
    /// Where the thread takes orders, and the thread; none once it was told to stop.
    writer: Option<(Sender<Order>, JoinHandle<()>)>,
    /// Whether a damaged file was set aside at the start.
    was_damaged: bool,
    unreadable: u64,
}

/// What is saved, and when.
#[derive(Clone, Debug)]
pub(super) struct DataOptions {
    /// Runs around every step that holds locks.
    pub(super) fence: Fence,
    /// Counters are saved that take longer to be full again.
    pub(super) longer_than: Duration,
}

impl Default for DataOptions {
    fn default() -> Self {
        Self { fence: Fence::default(), longer_than: Duration::from_secs(60) }
    }
}

impl DataOptions {
    /// The shortest counter that is saved.
    fn least_millis(&self) -> u64 {
        let millis = u64::try_from(self.longer_than.as_millis()).unwrap_or(u64::MAX);
        // A counter whose time is below a millisecond counts as one of 0.
        if millis == 0 { 0 } else { millis.saturating_add(1) }
    }
}

/// A store with what another process left in a directory.
pub(super) fn open(
    (max_keys, max_ids): (usize, usize),
    clock: StoreClock,
    options: &DataOptions,
    path: &Path,
) -> Result<MemoryStore, InvalidInput> {
    let fence = options.fence.clone();
    let directory = Directory::open(path)?;
    let (file, opening) = File::open(directory, &fresh_secret()?)?;
    let trouble = |error: StoreError| refused(error.to_string(), "a directory that can be read and written");
    let now = clock.now();
    let left = Left::read(&file, now).map_err(trouble)?;
    if left.unreadable > 0 {
        let records = left.unreadable;
        tracing::error!(directory = %path.display(), records, "some records of the data directory cannot be read: they are left out");
    }
    remove(&file, COUNTERS, &left.dead).and_then(|()| remove(&file, RULES, &left.unused)).map_err(trouble)?;
    let fingerprinter = fingerprinter(&file).map_err(trouble)?;
    let mut store = MemoryStore::make((max_keys, max_ids), clock.twin(), fingerprinter);
    let rules = left.rules.iter().copied();
    let saving = Arc::new(Saving {
        file,
        clock,
        shards: Arc::clone(&store.shards),
        ledgers: Arc::clone(&store.ledgers),
        receipts: Arc::clone(&store.receipts),
        rules: Mutex::new(Rules::restored(rules, fence.clone())),
        fence,
        turn: Mutex::default(),
        saved_at: SavedAt::now(),
    });
    let (was_damaged, unreadable) = (matches!(opening, Opening::Aside), left.unreadable);
    store.restore(left, now, options.least_millis());
    let (sender, orders) = channel();
    let writing = Arc::clone(&saving);
    let thread = std::thread::Builder::new().name("ratekeeper-data".to_owned());
    let thread = thread.spawn(move || writing.run(&orders));
    let thread = thread.map_err(|error| refused(error.to_string(), "room for one more thread"))?;
    store.data = Some(DataDir { saving, writer: Some((sender, thread)), was_damaged, unreadable });
    Ok(store)
}

/// Words that nobody can guess, for the fingerprints of a new file.
fn fresh_secret() -> Result<Vec<u8>, InvalidInput> {
    let mut secret = vec![0; Fingerprinter::WORDS * size_of::<u64>()];
    let filled = getrandom::fill(&mut secret);
    filled.map_err(|error| refused(error.to_string(), "a system that has random bytes"))?;
    Ok(secret)
}

/// The fingerprints of what is in the file.
fn fingerprinter(file: &File) -> Result<Fingerprinter, StoreError> {
    let secret = file.read(|from| {
        let secret = file::meta(from, file::FINGERPRINTS)?;
        secret.ok_or_else(|| Error::Corrupted("it has no secret".to_owned()))
    })?;
    let (words, _) = secret.as_chunks::<{ size_of::<u64>() }>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    // Its length was looked at when the file was opened.
    Ok(Fingerprinter::from_words(&words))
}

fn remove(file: &File, table: Table, keys: &[Vec<u8>]) -> Result<(), StoreError> {
    for step in keys.chunks(STEP_REMOVED_MAX) {
        file.commit(|into| {
            let mut table = into.open_table(table)?;
            step.iter().try_for_each(|key| Ok(table.remove(&key[..]).map(drop)?))
        })?;
    }
    Ok(())
}

impl DataDir {
    /// Keeps an override, and forgets those that are `over`.
    pub(super) fn set_override(
        &self,
        scope: OverrideScope<'_>,
        to: &Override,
        over: &[ScopedOverride],
    ) -> Result<(), StoreError> {
        self.saving.file.commit(|into| {
            let mut table = into.open_table(OVERRIDES)?;
            for key in over.iter().filter_map(key_of) {
                table.remove(&key[..])?;
            }
            table.insert(&record::scope_key(scope)[..], &record::override_to(to)[..])?;
            Ok(())
        })
    }

    /// Forgets overrides.
    pub(super) fn delete_overrides(&self, gone: &[ScopedOverride]) -> Result<(), StoreError> {
        self.saving.file.commit(|into| {
            let mut table = into.open_table(OVERRIDES)?;
            gone.iter().filter_map(key_of).try_for_each(|key| Ok(table.remove(&key[..]).map(drop)?))
        })
    }

    /// Keeps a switch, and forgets those that are `over`.
    pub(super) fn set_switch(&self, rule: &str, switch: Switch, over: &[String]) -> Result<(), StoreError> {
        self.saving.file.commit(|into| {
            let mut table = into.open_table(SWITCHES)?;
            for rule in over {
                table.remove(rule.as_bytes())?;
            }
            table.insert(rule.as_bytes(), switch.to_string().as_bytes())?;
            Ok(())
        })
    }

    /// Forgets a switch.
    pub(super) fn clear_switch(&self, rule: &str) -> Result<(), StoreError> {
        self.saving.file.commit(|into| {
            into.open_table(SWITCHES)?.remove(rule.as_bytes())?;
            Ok(())
        })
    }

    /// Keeps a line of the audit log, and drops the oldest at the bound.
    pub(super) fn append_line(&self, line: &str) -> Result<(), StoreError> {
        self.saving.file.commit(|into| {
            let mut table = into.open_table(JOURNAL)?;
            let last =
                table.last()?.and_then(|(key, _)| key.value().try_into().ok()).map_or(0, u64::from_be_bytes);
            let number = last.saturating_add(1);
            table.insert(&number.to_be_bytes()[..], line.as_bytes())?;
            let dropped = number.saturating_sub(AUDIT_LINES_MAX as u64).to_be_bytes();
            table.retain_in::<&[u8], _>(..=&dropped[..], |_, _| false)?;
            Ok(())
        })
    }

    /// The secret that receipts are signed with; `fresh` if there is none yet.
    pub(super) fn receipt_key(&self, fresh: &[u8; SECRET_BYTES]) -> Result<[u8; SECRET_BYTES], StoreError> {
        file::receipt_key(&self.saving.file, fresh)
    }

    /// Saves what has changed, now.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        self.saving.save()
    }

    pub(super) fn health(&self) -> DataHealth {
        let file = &self.saving.file;
        DataHealth {
            bytes: file.bytes(),
            age: self.saving.saved_at.elapsed(),
            failures: file.failures(),
            is_failing: file.is_failing(),
            was_damaged: self.was_damaged,
            unreadable: self.unreadable,
        }
    }
}

fn key_of(scoped: &ScopedOverride) -> Option<Vec<u8>> {
    scoped.scope().ok().map(record::scope_key)
}

impl Drop for DataDir {
    fn drop(&mut self) {
        let Some((sender, thread)) = self.writer.take() else { return };
        if !self.saving.file.is_ours() {
            // After a fork there is no such thread to wait for.
            std::mem::forget(thread);
            return;
        }
        let _ = sender.send(Order::Stop);
        // It saves everything first. Whether it panicked or not, it is over.
        let _ = thread.join();
    }
}

impl MemoryStore {
    /// Takes in what another process left.
    fn restore(&mut self, left: Left, now: Timestamp, least_millis: u64) {
        let now = now.as_micros();
        for restored in left.counters {
            let mut shard = self.shard(restored.counter.fingerprint);
            // It may hold fewer than the last time.
            shard.make_room(&[restored.counter.rule], now, |_| false);
            shard.insert(restored.counter, restored.state, restored.pressure, now);
        }
        for (id, kept) in left.ids {
            self.ledger(&id).restore(&id, kept);
        }
        left.receipts.into_iter().for_each(|given| self.receipts.lock().restore(given));
        left.overrides.into_iter().for_each(|scoped| self.overrides.put(scoped));
        self.control.update(|switches| switches.extend(left.switches));
        for line in left.lines {
            // It was a line when it was written, or is left out.
            let _ = self.audit.append(&line);
        }
        for shard in self.shards.iter() {
            let mut shard = shard.0.lock();
            shard.save_from(least_millis);
            if shard.evicted() > 0 {
                shard.save_all();
            }
        }
        self.ledgers.iter().for_each(|ledger| ledger.lock().save(false));
        self.receipts.lock().save(false);
    }
}
