//! The file: opened, read, and changed in steps that are there whole or not at all.

use std::fs::File as SystemFile;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratekeeper_core::InvalidInput;
use redb::{
    Builder, Database, Error, ReadTransaction, ReadableDatabase as _, StorageError, TableDefinition,
    WriteTransaction,
};

use super::directory::{self, Directory, refused, unusable};
use crate::store::{SECRET_BYTES, StoreError, StoreErrorKind};

/// A table of the file.
pub(super) type Table = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// By fingerprint.
pub(super) const COUNTERS: Table = Table::new("counters");
/// Names of rules by the numbers that counters have for them.
pub(super) const RULES: Table = Table::new("rules");
/// By the instant at which it is forgotten, and id.
pub(super) const IDS: Table = Table::new("ids");
/// By the instant at which it is forgotten, counter and number of the receipt.
pub(super) const RECEIPTS: Table = Table::new("receipts");
pub(super) const OVERRIDES: Table = Table::new("overrides");
pub(super) const SWITCHES: Table = Table::new("switches");
/// By number.
pub(super) const JOURNAL: Table = Table::new("journal");
/// Secrets.
pub(super) const META: Table = Table::new("meta");
const TABLES: [Table; 8] = [COUNTERS, RULES, IDS, RECEIPTS, OVERRIDES, SWITCHES, JOURNAL, META];

/// The secret of the fingerprints.
pub(super) const FINGERPRINTS: &[u8] = b"fingerprints";
/// The secret that receipts are signed with.
pub(super) const RECEIPT_KEY: &[u8] = b"receipt key";

/// Memory for pages of the file.
const CACHE_BYTES_MAX: usize = 32 << 20;

/// The file of a directory, for this process alone.
pub(super) struct File {
    directory: Directory,
    /// None after a failure, until it is opened again.
    database: Mutex<Option<Database>>,
    /// The process that opened it: one that was forked off leaves it alone.
    process: u32,
    failures: AtomicU64,
    /// Whether the last attempt to write failed.
    is_failing: AtomicBool,
}

/// What was found when a file was opened.
#[derive(Debug)]
pub(super) enum Opening {
    New,
    Old,
    /// A damaged one was set aside.
    Aside,
}

/// Why a file cannot be opened.
enum Trouble {
    /// It is no such file, or not whole.
    Damaged(String),
    Refused(InvalidInput),
}

impl File {
    /// Opens the file of a directory. One that is damaged is set aside, and a new one made.
    pub(super) fn open(directory: Directory, secret: &[u8]) -> Result<(Self, Opening), InvalidInput> {
        let (database, opening) = match old(&directory, secret.len()) {
            Ok(Some(database)) => (database, Opening::Old),
            Ok(None) => (new(&directory, secret)?, Opening::New),
            Err(Trouble::Refused(error)) => return Err(error),
            Err(Trouble::Damaged(why)) => {
                let aside = directory.set_aside().map_err(|error| unusable(&directory.file(), &error))?;
                tracing::error!(
                    file = %directory.file().display(), %why, kept_as = %aside.display(),
                    "the file of the data directory is damaged: it is set aside, and everything begins anew: \
                     overrides, switches and counters are gone"
                );
                (new(&directory, secret)?, Opening::Aside)
            }
        };
        let file = Self {
            directory,
            database: Mutex::new(Some(database)),
            process: std::process::id(),
            failures: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
        };
        Ok((file, opening))
    }

    /// Whether this is the process that opened it.
    pub(super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Changes it in one step, which lasts when this returns.
    pub(super) fn commit<T>(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let mut open = self.opened()?;
        let done = guarded(|| {
            let Some(database) = open.as_ref() else { return Err(Error::DatabaseClosed) };
            let transaction = database.begin_write()?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        });
        match done {
            Ok(done) => {
                if self.is_failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the data directory is written again");
                }
                Ok(done)
            }
            Err(error) => {
                // After a failure it has to be opened again, which undoes what was half done.
                close(&mut open);
                drop(open);
                Err(self.failed(&error))
            }
        }
    }

    /// Reads it as it is.
    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&ReadTransaction) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let open = self.opened()?;
        let done = guarded(|| {
            let Some(database) = open.as_ref() else { return Err(Error::DatabaseClosed) };
            work(&database.begin_read()?)
        });
        done.map_err(|error| self.failed(&error))
    }

    /// The open file, opened again if it has to be.
    fn opened(&self) -> Result<MutexGuard<'_, Option<Database>>, StoreError> {
        if !self.is_ours() {
            return Err(StoreError::new(
                StoreErrorKind::ReadOnly,
                "the data directory is the process's that opened it, and this one was forked off: open a store after \
                 the fork, or let all processes ask one ratekeeper server",
            ));
        }
        let mut open = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            let again = guarded(|| Ok(builder().open(self.directory.file())?));
            *open = Some(again.map_err(|error| self.failed(&error))?);
        }
        Ok(open)
    }

    fn failed(&self, error: &Error) -> StoreError {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let why = format!("{}: {error}", self.directory.file().display());
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            tracing::error!(
                %why,
                "the data directory cannot be written: counters go on in memory and would be lost in a restart; \
                 overrides and switches cannot be set"
            );
        }
        StoreError::new(StoreErrorKind::ReadOnly, format!("the data directory cannot be written: {why}"))
    }

    /// How large it is, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        std::fs::metadata(self.directory.file()).map_or(0, |metadata| metadata.len())
    }

    /// How often something could not be written.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Whether the last attempt to write failed.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let open = self.database.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.process == std::process::id() {
            close(open);
        } else {
            // To close it would write to it.
            std::mem::forget(open.take());
        }
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Closing writes, too, and may fail; it was opened again in time if that matters.
fn close(open: &mut Option<Database>) {
    if let Some(database) = open.take() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
    }
}

/// Runs what reads or writes pages: of a damaged file they can be such that the library panics.
fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let panicked = |_| Err(Error::Corrupted("it has pages that no history makes".to_owned()));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES_MAX);
    builder
}

/// The file that is there, if there is one.
fn old(directory: &Directory, secret_bytes: usize) -> Result<Option<Database>, Trouble> {
    let path = directory.file();
    let unusable = |error: &io::Error| Trouble::Refused(unusable(&path, error));
    let file = match SystemFile::options().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(&error)),
    };
    directory::make_private(&file).map_err(|error| unusable(&error))?;
    // It was made under another name and renamed, so it never was empty.
    if file.metadata().map_err(|error| unusable(&error))?.len() == 0 {
        return Err(Trouble::Damaged("it is empty".to_owned()));
    }
    drop(file);
    let opened = guarded(|| {
        let repaired = std::sync::Arc::new(AtomicBool::new(false));
        let noted = std::sync::Arc::clone(&repaired);
        let mut builder = builder();
        builder.set_repair_callback(move |_| noted.store(true, Ordering::Relaxed));
        let mut database = builder.open(&path)?;
        // After a crash it was looked through already. That something had to be put right is no damage: the free pages
        // are counted anew. What is damaged beyond that is an error.
        if !repaired.load(Ordering::Relaxed) {
            let was_clean = database.check_integrity()?;
            tracing::debug!(was_clean, "looked through the file of the data directory");
        }
        whole(&database, secret_bytes)?;
        Ok(database)
    });
    match opened {
        Ok(database) => Ok(Some(database)),
        Err(Error::UpgradeRequired(_) | Error::DatabaseAlreadyOpen) => {
            let expected = "a file of this version of ratekeeper, which no other process has open";
            Err(Trouble::Refused(refused(path.display().to_string(), expected)))
        }
        Err(Error::Io(error)) if !is_damage(error.kind()) => Err(unusable(&error)),
        Err(error) => Err(Trouble::Damaged(error.to_string())),
    }
}

/// What reading beyond the end of a file is, or something else than a file of ours.
const fn is_damage(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput)
}

/// Whether every table is there, and the secret without which counters mean nothing.
fn whole(database: &Database, secret_bytes: usize) -> Result<(), Error> {
    let transaction = database.begin_read()?;
    for table in TABLES {
        transaction.open_table(table)?;
    }
    match meta(&transaction, FINGERPRINTS)? {
        Some(secret) if secret.len() == secret_bytes => Ok(()),
        _ => Err(Error::Corrupted("it is without its secret".to_owned())),
    }
}

/// Makes a file with all tables under another name: under its own it is whole.
fn new(directory: &Directory, secret: &[u8]) -> Result<Database, InvalidInput> {
    let path = directory.file();
    let made = || -> Result<Database, Error> {
        let new = path.with_extension("new");
        let file = directory::private().create(true).truncate(true).read(true).write(true).open(&new);
        let database = builder().create_file(file.map_err(StorageError::from)?)?;
        let transaction = database.begin_write()?;
        for table in TABLES {
            transaction.open_table(table)?;
        }
        transaction.open_table(META)?.insert(FINGERPRINTS, secret)?;
        transaction.commit()?;
        directory.rename(&new, &path).map_err(StorageError::from)?;
        Ok(database)
    };
    guarded(made).map_err(|error| match error {
        Error::Io(error) => unusable(&path, &error),
        error => refused(format!("{}: {error}", path.display()), "a directory that can be written"),
    })
}

/// What stands under a name among the secrets.
pub(super) fn meta(from: &ReadTransaction, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let table = from.open_table(META)?;
    Ok(table.get(name)?.map(|value| value.value().to_vec()))
}

/// The secret that receipts are signed with, made now if there is none.
pub(super) fn receipt_key(file: &File, fresh: &[u8; SECRET_BYTES]) -> Result<[u8; SECRET_BYTES], StoreError> {
    let known = file.read(|from| meta(from, RECEIPT_KEY))?;
    if let Some(known) = known.and_then(|known| known.try_into().ok()) {
        return Ok(known);
    }
    file.commit(|into| {
        into.open_table(META)?.insert(RECEIPT_KEY, &fresh[..])?;
        Ok(())
    })?;
    Ok(*fresh)
}
