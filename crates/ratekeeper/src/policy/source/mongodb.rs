//! Policies as documents in MongoDB: one for each service, polled.
//!
//! ```no_run
//! use ratekeeper::policy::Policies;
//! use ratekeeper::policy::source::mongodb::MongoSource;
//!
//! # async fn example(policies: &Policies) -> Result<(), Box<dyn std::error::Error>> {
//! let source = MongoSource::builder("mongodb://reader:password@db.example:27017")
//!     .database("limits")
//!     .copy("/var/lib/search/policies.json")
//!     .build()?;
//! let watch = source.start(policies).await?;
//! // The policies are in force, and follow the documents until `watch` is dropped.
//! # drop(watch);
//! # Ok(())
//! # }
//! ```
//!
//! A poll asks for `_id` and `last_updated` of all documents and reads those that changed.
//! It needs no more than the right to `find`, and no change streams.

mod bson;
mod copy;
mod documents;
mod known;
mod poll;
mod secret;
mod settings;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::mongodb::options::ConnectionString;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::AbortHandle;

pub use self::copy::COPY_BYTES_MAX;
use self::copy::{Copied, LocalCopy};
use self::documents::Documents;
use self::known::Known;
use self::poll::{Poller, Reply, locked};
use self::secret::Secret;
pub use self::settings::{
    COLLECTION_DEFAULT, DATABASE_DEFAULT, DEADLINE_DEFAULT, INTERVAL_DEFAULT, MongoSourceBuilder,
};
use crate::policy::book::Policies;

/// How many calls of [`MongoWatch::refresh`] may wait; more wait to be let in.
const REFRESHES_MAX: usize = 64;

/// Why policies cannot be had from MongoDB.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MongoSourceError {
    /// A setting is not valid.
    #[error("{argument}: got {got}; expected {expected}")]
    Setting {
        /// Which one.
        argument: &'static str,
        /// What was given; nothing of a URL.
        got: String,
        /// What would be accepted.
        expected: String,
    },
    /// The server did not answer as it should, or not in time.
    #[error("{source_name}: {reason}")]
    Unavailable {
        /// The server and the collection, without secrets.
        source_name: String,
        /// Why.
        reason: String,
    },
    /// The watch has ended: it was stopped, or the runtime was.
    #[error("the watch has ended")]
    Stopped,
}

/// Where the documents are, and how often to look. Made by [`MongoSource::builder`].
pub struct MongoSource {
    url: ConnectionString,
    secret: Secret,
    name: String,
    database: String,
    collection: String,
    services: Option<Vec<String>>,
    interval: Duration,
    deadline: Duration,
    copy: Option<LocalCopy>,
}

impl fmt::Debug for MongoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("MongoSource");
        all.field("name", &self.name).field("services", &self.services).field("interval", &self.interval);
        all.field("deadline", &self.deadline).field("copy", &self.copy).finish_non_exhaustive()
    }
}

/// Keeps policies as the documents are. Dropping it ends that; the policies stay in force.
#[must_use = "changes come into force only as long as it is kept"]
pub struct MongoWatch {
    poller: Arc<Poller>,
    asks: mpsc::Sender<Reply>,
    task: AbortHandle,
}

impl fmt::Debug for MongoWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoWatch").field("name", &self.poller.name).finish_non_exhaustive()
    }
}

impl MongoSource {
    /// A source at the server of `url`: `mongodb://user:password@host:27017/?options`.
    /// A database in it is where the user is known; that of the policies is said apart.
    #[must_use]
    pub fn builder(url: &str) -> MongoSourceBuilder {
        MongoSourceBuilder::new(url)
    }

    /// Reads all documents, puts their policies into force, and keeps polling.
    ///
    /// If the server does not answer but there is a local copy, the policies of that are
    /// put into force.
    ///
    /// # Errors
    /// If the server does not answer and there is no good copy, or no tokio runtime is at hand.
    pub async fn start(self, policies: &Policies) -> Result<MongoWatch, MongoSourceError> {
        let runtime = Handle::try_current().map_err(|_| MongoSourceError::Stopped)?;
        let interval = self.interval;
        let (copied, copy_failure) = self.read_copy();
        let poller = self.poller(policies, copy_failure.is_some());
        poller.note_copy(copy_failure.clone());
        let has_copy = copied.is_some();
        if let Some(copied) = copied {
            poller.restore(copied).await.map_err(|reason| poller.unavailable(&reason))?;
        }
        if let Err(reason) = poller.round().await
            && !has_copy
        {
            poller.stop();
            let and_copy = copy_failure.map(|why| format!("; and its local copy: {why}"));
            return Err(poller.unavailable(&format!("{reason}{}", and_copy.unwrap_or_default())));
        }
        let (asks, asked) = mpsc::channel(REFRESHES_MAX);
        let task = runtime.spawn(Arc::clone(&poller).run(interval, asked)).abort_handle();
        Ok(MongoWatch { poller, asks, task })
    }

    /// What the copy holds, if there is a good one, and what is wrong with it, if there is a bad one.
    fn read_copy(&self) -> (Option<Vec<Copied>>, Option<String>) {
        match self.copy.as_ref().map(LocalCopy::read) {
            None => (None, None),
            Some(Ok(copied)) => (copied, None),
            Some(Err(why)) => (None, Some(why)),
        }
    }

    fn poller(self, policies: &Policies, is_unsaved: bool) -> Arc<Poller> {
        let mut known = Known::new(policies.clone(), self.services.as_deref(), self.copy.is_some());
        known.is_unsaved = is_unsaved;
        let documents = Documents {
            url: self.url,
            database: self.database,
            collection: self.collection,
            services: self.services,
            deadline: self.deadline,
            secret: self.secret,
            connected: OnceCell::new(),
        };
        Arc::new(Poller {
            documents,
            policies: policies.clone(),
            name: self.name,
            known: Mutex::new(known),
            copy: self.copy,
            copy_failure: Mutex::new(None),
            restored: Mutex::new(None),
            is_stopped: AtomicBool::new(false),
        })
    }
}

impl MongoWatch {
    /// Polls now, and returns when that is done.
    ///
    /// # Errors
    /// If the server did not answer; the policies stay.
    pub async fn refresh(&self) -> Result<(), MongoSourceError> {
        let (reply, done) = oneshot::channel();
        self.asks.send(reply).await.map_err(|_| MongoSourceError::Stopped)?;
        let done = done.await.map_err(|_| MongoSourceError::Stopped)?;
        done.map_err(|reason| self.poller.unavailable(&reason))
    }

    /// Whether the policies are those of the local copy: the server has not answered yet.
    #[must_use]
    pub fn is_from_copy(&self) -> bool {
        locked(&self.poller.restored).is_some()
    }

    /// Why there is no good local copy, if there should be one.
    #[must_use]
    pub fn copy_failure(&self) -> Option<String> {
        locked(&self.poller.copy_failure).clone()
    }

    /// Ends it, and waits for a document that is just being put into force; no other will be.
    /// The policies stay.
    pub fn stop(self) {
        self.task.abort();
        self.poller.stop();
    }
}

impl Drop for MongoWatch {
    fn drop(&mut self) {
        self.task.abort();
        // What the task has handed to another thread finds this and changes nothing.
        self.poller.is_stopped.store(true, std::sync::atomic::Ordering::Release);
    }
}
