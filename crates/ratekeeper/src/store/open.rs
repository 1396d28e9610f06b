//! Opening a store by its URL: the one place that knows which URLs there are.
//!
//! ```
//! use ratekeeper::store::open;
//! use ratekeeper::{OpenOptions, StoreUrl};
//!
//! let url: StoreUrl = "memory".parse()?;
//! let options = OpenOptions::new().memory(|memory| memory.max_keys(10_000));
//! let store = open(&url, &options)?.store();
//! # Ok::<(), ratekeeper::InvalidInput>(())
//! ```

mod cluster;
mod hosts;
mod sentinel;
mod several;
mod url;

use std::path::Path;
use std::sync::Arc;

use ratekeeper_core::InvalidInput;

pub use self::cluster::CLUSTER_SEEDS_MAX;
pub use self::sentinel::{SENTINEL_PORT, SENTINELS_MAX};
pub use self::several::SERVERS_MAX;
#[cfg(feature = "redis")]
pub use self::url::{SentinelParts, ServerParts};
pub use self::url::{StoreUrl, URL_BYTES_MAX, schemes};
use super::memory::{MemoryStore, MemoryStoreBuilder};
#[cfg(feature = "redis")]
use super::redis::{RedisStore, RedisStoreBuilder, SpreadStore};
use super::{Store, StoreError};

/// How to open a store, wherever its URL leads.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    memory: MemoryStoreBuilder,
    #[cfg(feature = "redis")]
    redis: RedisStoreBuilder,
}

impl OpenOptions {
    /// The usual ones.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory: MemoryStore::builder(),
            #[cfg(feature = "redis")]
            redis: RedisStore::builder(""),
        }
    }

    /// Changes what holds for counters in memory: how many there may be, and their clock.
    #[must_use]
    pub fn memory(mut self, change: impl FnOnce(MemoryStoreBuilder) -> MemoryStoreBuilder) -> Self {
        self.memory = change(self.memory);
        self
    }

    /// Changes what holds for counters on a server: deadline, prefix, connections, certificate
    /// authority and the rest.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn redis(mut self, change: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder) -> Self {
        self.redis = change(self.redis);
        self
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A store that was opened by its URL. Clones share it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OpenedStore {
    /// In this process, with a directory or without.
    Memory(Arc<MemoryStore>),
    /// On a server.
    #[cfg(feature = "redis")]
    Redis(RedisStore),
    /// On several servers, or a cluster.
    #[cfg(feature = "redis")]
    Spread(SpreadStore),
}

impl OpenedStore {
    /// The store.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::clone(store) as Arc<dyn Store>,
            #[cfg(feature = "redis")]
            Self::Redis(store) => Arc::new(store.clone()),
            #[cfg(feature = "redis")]
            Self::Spread(store) => Arc::new(store.clone()),
        }
    }

    /// Whether it can be asked: whether its server can be reached, lets us in, and runs the script.
    ///
    /// # Errors
    /// Why it cannot.
    pub async fn ping(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.ping().await,
            #[cfg(feature = "redis")]
            Self::Spread(store) => store.ping().await,
        }
    }

    /// Saves what a directory does not have yet; see [`MemoryStore::flush`].
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn flush(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.flush(),
            #[cfg(feature = "redis")]
            Self::Redis(_) | Self::Spread(_) => Ok(()),
        }
    }
}

/// Opens the store at `url`: within a tokio runtime, unless it is in memory. A server that is
/// down is no error: the store answers when it is up.
///
/// # Errors
/// If an option is not valid, a directory cannot be used or is another process's, or this program was built without what the URL needs.
pub fn open(url: &StoreUrl, options: &OpenOptions) -> Result<OpenedStore, InvalidInput> {
    if let Some(directory) = url.directory() {
        return in_directory(directory, options);
    }
    if url.is_memory() {
        return Ok(OpenedStore::Memory(Arc::new(options.memory.clone().build())));
    }
    #[cfg(feature = "redis")]
    if url.has_several() {
        return options.redis.clone().build_spread(&url.servers()).map(OpenedStore::Spread);
    }
    #[cfg(feature = "redis")]
    if url.has_nodes() {
        return options.redis.clone().at(url).build_slots().map(OpenedStore::Spread);
    }
    #[cfg(feature = "redis")]
    return options.redis.clone().at(url).build().map(OpenedStore::Redis);
    #[cfg(not(feature = "redis"))]
    Err(InvalidInput::new(
        ratekeeper_core::Field::Store,
        format!("{url} in a program without the feature `redis`"),
        "memory, or a program that is built with the feature `redis`",
    ))
}

#[cfg(feature = "data-dir")]
fn in_directory(directory: &Path, options: &OpenOptions) -> Result<OpenedStore, InvalidInput> {
    let store = options.memory.clone().open(directory)?;
    Ok(OpenedStore::Memory(Arc::new(store)))
}

#[cfg(not(feature = "data-dir"))]
fn in_directory(directory: &Path, _: &OpenOptions) -> Result<OpenedStore, InvalidInput> {
    Err(InvalidInput::new(
        ratekeeper_core::Field::Store,
        format!("the directory {} in a program without the feature `data-dir`", directory.display()),
        "memory, or a program that is built with the feature `data-dir`",
    ))
}

impl StoreUrl {
    /// Opens the store with the usual options; see [`open`].
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(&self) -> Result<Arc<dyn Store>, InvalidInput> {
        open(self, &OpenOptions::new()).map(|opened| opened.store())
    }
}
