//! A store for one command: opened, asked, and gone.

use std::path::PathBuf;
use std::time::Duration;

use ratekeeper::store::open;
use ratekeeper::{InvalidInput, OpenOptions, OpenedStore, StoreError, StoreErrorKind, StoreUrl};
use ratekeeper_server::files::{self, AUTHORITIES_BYTES_MAX};
use tokio::runtime::{Builder, Runtime};

use crate::cli::StoreOptions;
use crate::failure::Failure;

/// A store to be asked: what was typed, and what was read for it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) url: StoreUrl,
    pub(super) ca: Option<Vec<u8>>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) timeout: Duration,
    /// Before the names of keys.
    pub(super) prefix: String,
}

impl Address {
    /// What the options say, or else the policy, or else this process's memory.
    pub(super) fn of(options: &StoreOptions, of_policy: Option<StoreUrl>) -> Result<Self, Failure> {
        let url = match &options.store {
            Some(text) => text.parse().map_err(|error| unusable(&error))?,
            None => of_policy.unwrap_or_else(StoreUrl::memory),
        };
        let ca = options.store_ca.as_ref().filter(|_| !url.is_memory()).map(|path| {
            files::bytes(path, AUTHORITIES_BYTES_MAX).map_err(|error| {
                Failure::new(format!("--store-ca {error:#}"))
                    .hint("it is a file with certificates in PEM form")
            })
        });
        let (password_file, timeout) =
            (options.store_password_file.clone(), Duration::from_millis(options.timeout));
        Ok(Self { url, ca: ca.transpose()?, password_file, timeout, prefix: String::new() })
    }

    /// The store, which is not asked yet.
    pub(super) fn open(&self) -> Result<OpenedStore, Failure> {
        let options = OpenOptions::new().redis(|redis| {
            // A service has a connection already; a command makes one first.
            let redis = redis.deadline(self.timeout).prefix(&self.prefix);
            let redis = match &self.password_file {
                Some(file) => redis.password_file(file),
                None => redis,
            };
            match &self.ca {
                Some(ca) => redis.certificate_authority(ca.clone()),
                None => redis,
            }
        });
        open(&self.url, &options).map_err(|error| unusable(&error))
    }
}

fn unusable(error: &InvalidInput) -> Failure {
    Failure::new(format!("--store: got {}; expected {}", error.got, error.expected))
        .hint("`memory` counts in this process alone")
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
            "correct user and password, of the URL or in --store-password-file; `ratekeeper doctor` names what the user may not do"
        }
        StoreErrorKind::ReadOnly => "connect to the primary; if it is one, look at its disk and its replicas",
        StoreErrorKind::Capacity => "give the server more memory",
        StoreErrorKind::Unreadable => "look at the key, and delete it if it is nobody's",
        StoreErrorKind::Protocol => "run the same version everywhere; is it Redis or Valkey at all?",
        _ => return None,
    })
}
