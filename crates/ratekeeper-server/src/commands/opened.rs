//! A store for one command: opened, asked, and gone.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{MemoryStore, RedisStore, Store, StoreError, StoreErrorKind};
use ratekeeper_server::files::{self, AUTHORITIES_BYTES_MAX};
use tokio::runtime::{Builder, Runtime};

use crate::cli::StoreOptions;
use crate::failure::Failure;

/// What a store in this process is called.
pub(super) const MEMORY: &str = "memory";

/// Where counters are.
#[derive(Clone, Debug)]
pub(super) enum Opened {
    /// In this process, for as long as the command runs.
    Memory(Arc<MemoryStore>),
    /// On a server.
    Redis(RedisStore),
}

/// A server to be asked: what was typed, and what was read for it.
#[derive(Clone)]
pub(super) struct Address {
    /// May hold a password.
    pub(super) url: String,
    pub(super) ca: Option<Vec<u8>>,
    pub(super) timeout: Duration,
}

impl Address {
    /// What the options say, or else `otherwise`, the policy's; `None` is this process's memory.
    pub(super) fn of(options: &StoreOptions, otherwise: Option<&str>) -> Result<Option<Self>, Failure> {
        let Some(url) = options.store.as_deref().or(otherwise).filter(|url| *url != MEMORY) else {
            return Ok(None);
        };
        let ca = options.store_ca.as_ref().map(|path| {
            files::bytes(path, AUTHORITIES_BYTES_MAX).map_err(|error| {
                Failure::new(format!("--store-ca {error:#}"))
                    .hint("it is a file with certificates in PEM form")
            })
        });
        let ca = ca.transpose()?;
        Ok(Some(Self { url: url.to_owned(), ca, timeout: Duration::from_millis(options.timeout) }))
    }

    /// A store on the server, which is not asked yet.
    pub(super) fn open(&self) -> Result<RedisStore, Failure> {
        // A service has a connection already; a command makes one first.
        let mut builder = RedisStore::builder(&self.url).deadline(self.timeout);
        if let Some(ca) = &self.ca {
            builder = builder.certificate_authority(ca.clone());
        }
        builder.build().map_err(|error| {
            Failure::new(format!("--store: got {}; expected {}", error.got, error.expected))
                .hint("`memory` counts in this process alone")
        })
    }
}

impl Opened {
    pub(super) fn new(address: Option<&Address>) -> Result<Self, Failure> {
        match address {
            None => Ok(Self::Memory(Arc::new(MemoryStore::new()))),
            Some(address) => address.open().map(Self::Redis),
        }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::clone(store) as Arc<dyn Store>,
            Self::Redis(store) => Arc::new(store.clone()),
        }
    }

    /// Whether it can be asked; and if not, why.
    pub(super) async fn ping(&self) -> Result<(), Failure> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(store) => store.ping().await.map_err(|error| unanswered(&error)),
        }
    }
}

/// Everything a command does in the background ends with it.
pub(super) fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A store that did not answer.
pub(super) fn unanswered(error: &StoreError) -> Failure {
    let failure = Failure::new(format!("the store: {error}"));
    match advice(error.kind()) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// What to do about a store that fails in this way.
pub(super) fn advice(kind: StoreErrorKind) -> Option<&'static str> {
    Some(match kind {
        StoreErrorKind::Unavailable => {
            "start the server, or correct host, port and scheme of the URL (rediss:// speaks TLS)"
        }
        StoreErrorKind::Timeout => "--timeout waits longer; look at the server's SLOWLOG and at the network",
        StoreErrorKind::Permission => {
            "correct user and password of the URL; `ratekeeper doctor` names what the user may not do"
        }
        StoreErrorKind::ReadOnly => "connect to the primary; if it is one, look at its disk and its replicas",
        StoreErrorKind::Capacity => "give the server more memory",
        StoreErrorKind::Unreadable => "look at the key, and delete it if it is nobody's",
        StoreErrorKind::Protocol => "run the same version everywhere; is it Redis or Valkey at all?",
        _ => return None,
    })
}
