//! Sources of policies that are followed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use ratekeeper::policy::source::file::{FileError, FileWatch, PolicyFile};
use ratekeeper::policy::source::mongodb::{INTERVAL_DEFAULT, MongoSource, MongoWatch};
use ratekeeper::policy::{Format, Policies as Book};

use super::Policies;
use crate::arguments::duration;
use crate::error::Failure;
use crate::runtime::{self, Own, fenced};

/// A source that cannot be followed in a child is tried again, and not more often than this.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// A source of policies that is being followed, until `stop`, or as long as the policies are used.
/// What is in force stays in force. After a fork the child follows it anew with its
/// first call that uses the policies.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct PolicyWatch {
    following: Arc<Following>,
    policies: Py<Policies>,
}

impl PolicyWatch {
    pub(super) fn new(following: Arc<Following>, policies: Py<Policies>) -> Self {
        Self { following, policies }
    }
}

#[pymethods]
impl PolicyWatch {
    /// Ends it; what is in force stays in force.
    fn stop(&self, py: Python<'_>) {
        // It waits for a thread that may be reading.
        py.detach(|| self.following.stop());
    }
}

both_forms! { PolicyWatch:
    /// Looks now. Raises PolicyError if something cannot be read or is wrong; what is in force stays.
    fn refresh / arefresh [Far] () (self, py) -> () {
        self.policies.get().follow()?;
        let following = Arc::clone(&self.following);
        async move { following.refresh().await }
    }
}

/// Where policies come from.
#[derive(Debug)]
pub(super) enum Origin {
    File { path: PathBuf, format: Option<Format>, debounce: Duration, poll: Duration },
    MongoDb(MongoSettings),
}

#[derive(Debug)]
enum Live {
    File(Arc<FileWatch>),
    MongoDb(Arc<MongoWatch>),
}

/// A source, and the thread or task of this process that follows it.
#[derive(Debug)]
pub(super) struct Following {
    origin: Origin,
    is_stopped: AtomicBool,
    live: Mutex<Option<Own<Live>>>,
}

impl Following {
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, is_stopped: AtomicBool::new(false), live: Mutex::new(None) }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn live(&self) -> MutexGuard<'_, Option<Own<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> Option<PolicyFile> {
        let Origin::File { path, format, debounce, poll } = &self.origin else { return None };
        let file = PolicyFile::new(path).debounce(*debounce).poll_every(*poll);
        Some(match format {
            Some(format) => file.format(*format),
            None => file,
        })
    }

    pub(super) fn start_file(&self, policies: &Book) -> Result<(), Failure> {
        let Some(file) = self.file() else { return Ok(()) };
        let watch = file.start(policies).map_err(Failure::policy)?;
        fenced(|| *self.live() = Some(Own::new(Live::File(Arc::new(watch)))));
        Ok(())
    }

    /// Follows a file in a child. What is wrong with it is told by its own thread, so that whoever asks first does
    /// not wait for it.
    fn resume_file(&self, policies: &Book) -> Result<(), FileError> {
        let Some(file) = self.file() else { return Ok(()) };
        let watch = file.resume(policies)?;
        if !self.is_stopped() {
            *self.live() = Some(Own::new(Live::File(Arc::new(watch))));
        }
        Ok(())
    }

    /// The same, until it can be followed. The policies stay meanwhile.
    async fn keep_resuming_file(&self, policies: &Book, path: &Path, poll: Duration) {
        while !self.is_stopped() {
            let Err(error) = self.resume_file(policies) else { return };
            policies.source_failed(&path.display().to_string(), &error.to_string());
            tokio::time::sleep(poll.max(RETRY_MIN)).await;
        }
    }

    pub(super) async fn start_mongodb(&self, policies: &Book) -> Result<(), Failure> {
        let Origin::MongoDb(settings) = &self.origin else { return Ok(()) };
        let watch = settings.source()?.start(policies).await.map_err(Failure::policy)?;
        if !self.is_stopped() {
            *self.live() = Some(Own::new(Live::MongoDb(Arc::new(watch))));
        }
        Ok(())
    }

    /// Follows it in a child, which has the policies of its parent but not its threads.
    /// A source that cannot be had just now is tried again: the policies stay meanwhile.
    pub(super) fn resume(self: Arc<Self>, policies: &Book) -> PyResult<()> {
        if self.is_stopped() {
            return Ok(());
        }
        let policies = policies.clone();
        match &self.origin {
            // Under the interpreter's lock, so only what takes no time and no fence.
            Origin::File { path, poll, .. } => {
                if self.resume_file(&policies).is_err() {
                    let (this, path, poll) = (Arc::clone(&self), path.clone(), *poll);
                    runtime::background(
                        async move { this.keep_resuming_file(&policies, &path, poll).await },
                    )?;
                }
            }
            Origin::MongoDb(settings) => {
                let interval = settings.interval.unwrap_or(INTERVAL_DEFAULT);
                runtime::background(async move {
                    while self.start_mongodb(&policies).await.is_err() && !self.is_stopped() {
                        tokio::time::sleep(interval).await;
                    }
                })?;
            }
        }
        Ok(())
    }

    async fn refresh(&self) -> Result<(), Failure> {
        let live = self.live().as_ref().and_then(Own::get).map(|live| match live {
            Live::File(watch) => Live::File(Arc::clone(watch)),
            Live::MongoDb(watch) => Live::MongoDb(Arc::clone(watch)),
        });
        match live {
            Some(Live::File(watch)) => watch.refresh().map_err(Failure::policy),
            Some(Live::MongoDb(watch)) => watch.refresh().await.map_err(Failure::policy),
            None => Err(Failure::policy("the watch has ended")),
        }
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        // Not within the fence: it waits for a thread that may be there.
        let live = fenced(|| self.live().take());
        drop(live);
    }
}

/// How documents in MongoDB are reached.
pub(super) struct MongoSettings {
    url: String,
    database: Option<String>,
    collection: Option<String>,
    services: Option<Vec<String>>,
    pub(super) interval: Option<Duration>,
    deadline: Option<Duration>,
    copy: Option<PathBuf>,
}

impl std::fmt::Debug for MongoSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        f.debug_struct("MongoSettings").field("database", &self.database).finish_non_exhaustive()
    }
}

impl MongoSettings {
    pub(super) fn new(
        url: String,
        (database, collection): (Option<String>, Option<String>),
        services: Option<&Bound<'_, PyAny>>,
        (interval, deadline): (Option<f64>, Option<f64>),
        copy: Option<PathBuf>,
    ) -> PyResult<Self> {
        let services = services.map(|services| services.try_iter()?.map(|name| name?.extract()).collect());
        Ok(Self {
            url,
            database,
            collection,
            services: services.transpose()?,
            interval: interval.map(|interval| duration("interval", interval)).transpose()?,
            deadline: deadline.map(|deadline| duration("deadline", deadline)).transpose()?,
            copy,
        })
    }

    pub(super) fn source(&self) -> Result<MongoSource, Failure> {
        let mut source = MongoSource::builder(&self.url);
        if let Some(database) = &self.database {
            source = source.database(database);
        }
        if let Some(collection) = &self.collection {
            source = source.collection(collection);
        }
        if let Some(services) = &self.services {
            source = source.services(services.iter().cloned());
        }
        if let Some(interval) = self.interval {
            source = source.interval(interval);
        }
        if let Some(deadline) = self.deadline {
            source = source.deadline(deadline);
        }
        if let Some(copy) = &self.copy {
            source = source.copy(copy);
        }
        source.build().map_err(|error| Failure::Input(error.to_string()))
    }
}
