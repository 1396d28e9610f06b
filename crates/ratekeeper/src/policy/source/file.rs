//! A policy in a file, or one for each service in a folder, that is watched.
//!
//! ```no_run
//! # use ratekeeper::policy::{Policies, source::file::PolicyFile};
//! # fn run(policies: &Policies) -> Result<(), ratekeeper::policy::source::file::FileError> {
//! let watch = PolicyFile::new("/etc/search/policy.toml").start(policies)?;
//! // Changes come into force until `watch` is dropped.
//! # Ok(())
//! # }
//! ```
//!
//! Every wake-up takes the same way, whoever caused it: arm the watches, look at
//! the content, and, if it is not what is known, look again until it has been
//! the same for as long as the debounce. So an event only says *when* to look,
//! never *what* happened, and an event that was lost (a network file system, no
//! watches left) costs no more than the time to the next poll.
//!
//! What the documents mean and what becomes of bad ones is not decided here;
//! [`Policies`] does that.

mod alarm;
mod error;
mod known;
mod links;
mod look;
mod read;
mod watcher;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::alarm::Alarm;
pub use self::error::FileError;
use self::known::Known;
pub use self::look::{FILES_MAX, FOLDER_BYTES_MAX};
use self::look::{Kind, Target};
use self::read::rehearse;
pub use self::read::{ReadPolicy, read_policies};
use self::watcher::{Shared, Watcher};
use crate::policy::{Format, Policies};

/// How long a file must have been the same before it is believed.
pub const DEBOUNCE_DEFAULT: Duration = Duration::from_millis(100);
/// How often a file is looked at even if nothing says that it has changed.
pub const POLL_DEFAULT: Duration = Duration::from_secs(10);

/// A policy in a file, or one for each service in a folder.
///
/// A folder stands for every file in it that ends in `.toml`, `.yaml`, `.yml` or
/// `.json` and is not hidden; folders in it are left out.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    path: PathBuf,
    format: Option<Format>,
    debounce: Duration,
    poll: Duration,
}

impl PolicyFile {
    /// The policy at that path.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), format: None, debounce: DEBOUNCE_DEFAULT, poll: POLL_DEFAULT }
    }

    /// What the file is written in; otherwise its ending says it. In a folder
    /// the endings always do.
    #[must_use]
    pub fn format(self, format: Format) -> Self {
        Self { format: Some(format), ..self }
    }

    /// How long a file must have been the same before it is believed;
    /// [`DEBOUNCE_DEFAULT`], if nothing is said.
    #[must_use]
    pub fn debounce(self, debounce: Duration) -> Self {
        Self { debounce, ..self }
    }

    /// How often a file is looked at even if nothing says that it has changed;
    /// [`POLL_DEFAULT`], if nothing is said.
    #[must_use]
    pub fn poll_every(self, poll: Duration) -> Self {
        Self { poll, ..self }
    }

    /// Reads what is there, puts it into force, and follows its changes in a
    /// thread of its own.
    ///
    /// # Errors
    /// If something cannot be read or is wrong, with everything that is wrong:
    /// then nothing of it came into force, and what was in force before still is.
    pub fn start(self, policies: &Policies) -> Result<FileWatch, FileError> {
        let target = Target { kind: Kind::of(&self.path, self.format)?, path: self.path };
        let (wake, woken) = sync_channel(1);
        // Armed before it is read: whatever changes from now on is noticed.
        let mut alarm = Alarm::new(wake.clone());
        alarm.arm(&target);
        let look = target.look();
        rehearse(&target, &look, policies)?;
        let mut known = Known::new(target.clone(), policies.clone());
        known.take(look);
        if let Err(error) = known.outcome() {
            known.withdraw_all();
            return Err(error);
        }
        let watcher = Watcher {
            target,
            debounce: self.debounce,
            poll: self.poll,
            shared: Arc::new(Shared::new(known)),
            woken,
            alarm,
        };
        FileWatch::of(watcher, wake)
    }

    /// Follows what another watch of the same policies has followed, as the child of a fork does, which has the
    /// policies and not the thread. What is in force stays, whatever is there now: the thread looks at once, and
    /// refuses what is wrong as it does with any change.
    ///
    /// # Errors
    /// If there is nothing at the path, or no thread can be had: then it can be tried again.
    pub fn resume(self, policies: &Policies) -> Result<FileWatch, FileError> {
        let target = Target { kind: Kind::of(&self.path, self.format)?, path: self.path };
        let (wake, woken) = sync_channel(1);
        let mut alarm = Alarm::new(wake.clone());
        alarm.arm(&target);
        // If there is no room, there is a wake-up already.
        let _ = wake.try_send(());
        let watcher = Watcher {
            shared: Arc::new(Shared::new(Known::resumed(target.clone(), policies.clone()))),
            target,
            debounce: self.debounce,
            poll: self.poll,
            woken,
            alarm,
        };
        FileWatch::of(watcher, wake)
    }
}

/// A file that is being watched, until this is dropped. What is in force then
/// stays in force.
#[must_use = "changes come into force only as long as it is kept"]
#[derive(Debug)]
pub struct FileWatch {
    shared: Arc<Shared>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl FileWatch {
    fn of(watcher: Watcher, wake: SyncSender<()>) -> Result<Self, FileError> {
        let shared = Arc::clone(&watcher.shared);
        let thread = std::thread::Builder::new().name("policy-file".to_owned());
        let thread = thread.spawn(move || watcher.run()).map_err(FileError::Thread)?;
        Ok(Self { shared, wake, thread: Some(thread) })
    }

    /// Reads the file now, without waiting for it to settle.
    ///
    /// # Errors
    /// If something cannot be read or is wrong, also if that was known before.
    /// What was in force stays in force.
    pub fn refresh(&self) -> Result<(), FileError> {
        let mut known = self.shared.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.refresh();
        known.outcome()
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        // If there is no room, the thread has a wake-up before it anyway.
        let _ = self.wake.try_send(());
        if let Some(thread) = self.thread.take() {
            // Whether it has panicked or not, it is over.
            let _ = thread.join();
        }
    }
}
