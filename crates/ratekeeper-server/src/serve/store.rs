//! Where counters are.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ratekeeper::policy::Policies;
use ratekeeper::store::open;
use ratekeeper::{OpenOptions, OpenedStore, Store, StoreUrl};

use super::settings::{Secret, StoreConfig};
use crate::files::{self, AUTHORITIES_BYTES_MAX};

/// The store.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    /// What it is called.
    pub(super) description: String,
    /// How long it has for an answer, if it could take long.
    pub(super) deadline: Option<Duration>,
    opened: OpenedStore,
}

impl Opened {
    /// What the settings say, or else the policies, or else memory.
    pub(super) fn new(config: &StoreConfig, policies: &Policies) -> anyhow::Result<Self> {
        let url = match &config.url {
            Some(Secret(url)) => Some(url.parse()?),
            None => store_of_policies(policies)?,
        };
        let url = url.unwrap_or_else(StoreUrl::memory);
        let opened = open(&url, &options(config, &url)?)?;
        let (description, deadline) = match (&opened, url.directory()) {
            (OpenedStore::Memory(_), Some(path)) => {
                (format!("memory, of this process alone, kept in {}", path.display()), None)
            }
            (OpenedStore::Memory(_), None) => {
                ("memory, of this process alone, lost when it ends (--data DIR keeps it)".to_owned(), None)
            }
            (OpenedStore::Spread(_), _) if url.has_nodes() => ("a cluster".to_owned(), Some(config.deadline)),
            (OpenedStore::Spread(_), _) => ("several servers".to_owned(), Some(config.deadline)),
            _ => ("Redis".to_owned(), Some(config.deadline)),
        };
        Ok(Self { store: opened.store(), description, deadline, opened })
    }

    /// Saves what a data directory does not have yet: the server is about to end.
    pub(super) fn finish(&self) {
        // A failure was logged where it was met.
        if self.opened.flush().is_err() {
            tracing::error!("what changed since the last save of the data directory is lost");
        }
    }
}

fn options(config: &StoreConfig, url: &StoreUrl) -> anyhow::Result<OpenOptions> {
    let options = OpenOptions::new()
        .memory(|memory| memory.max_keys(config.memory_keys).max_ids(config.memory_ids))
        .redis(|redis| {
            let redis = redis.deadline(config.deadline).total(config.total);
            let redis = redis.prefix(&config.prefix).connections(config.connections);
            redis.queue_max(config.queue_max).replicas(config.replicas)
        });
    let options = match &config.password_file {
        Some(file) => options.redis(|redis| redis.password_file(file)),
        None => options,
    };
    let Some(path) = config.ca.as_ref().filter(|_| !url.is_memory()) else { return Ok(options) };
    let pem = files::bytes(path, AUTHORITIES_BYTES_MAX).context("store-ca")?;
    Ok(options.redis(|redis| redis.certificate_authority(pem)))
}

/// What the policies say of the store, if they agree.
fn store_of_policies(policies: &Policies) -> anyhow::Result<Option<StoreUrl>> {
    let named = policies.status().into_iter().filter_map(|service| {
        let policy = policies.policy(&service.service)?;
        policy.store().map(|url| (service.service, url.clone()))
    });
    let mut found: Option<(String, StoreUrl)> = None;
    for (service, url) in named {
        match &found {
            Some((other, known)) if *known != url => {
                bail!("store: the policies of {other} and {service} name different ones; expected --store")
            }
            Some(_) => {}
            None => found = Some((service, url)),
        }
    }
    Ok(found.map(|(_, url)| url))
}
