//! Where counters are.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ratekeeper::policy::Policies;
use ratekeeper::{MemoryStore, RedisStore, Store};

use super::settings::{Secret, StoreConfig};
use crate::files::{self, AUTHORITIES_BYTES_MAX};

/// What counters in this process are called.
const MEMORY: &str = "memory";
const SCHEMES: [&str; 7] = ["redis", "rediss", "redis+unix", "unix", "valkey", "valkeys", "valkey+unix"];

/// The store.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    /// What it is called.
    pub(super) description: &'static str,
    /// How long it has for an answer, if it could take long.
    pub(super) deadline: Option<Duration>,
}

impl Opened {
    /// What the settings say, or else the policies.
    pub(super) fn new(config: &StoreConfig, policies: &Policies) -> anyhow::Result<Self> {
        let url = match &config.url {
            Some(Secret(url)) => Some(url.clone()),
            None => store_of_policies(policies)?,
        };
        let Some(url) = url.filter(|url| url != MEMORY) else {
            let store =
                MemoryStore::builder().max_keys(config.memory_keys).max_ids(config.memory_ids).build();
            let description = "memory, of this process alone";
            return Ok(Self { store: Arc::new(store), description, deadline: None });
        };
        // Only what stands before it: the rest may hold a password.
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        if let Some(scheme) = scheme.filter(|scheme| !SCHEMES.contains(scheme)) {
            bail!("store: got a URL of {scheme:?}; expected {MEMORY}, redis://, rediss:// or redis+unix://");
        }
        let mut builder = RedisStore::builder(&url)
            .deadline(config.deadline)
            .prefix(&config.prefix)
            .connections(config.connections);
        if let Some(path) = &config.ca {
            let pem = files::bytes(path, AUTHORITIES_BYTES_MAX).context("store-ca")?;
            builder = builder.certificate_authority(pem);
        }
        let store = builder.build()?;
        Ok(Self { store: Arc::new(store), description: "Redis", deadline: Some(config.deadline) })
    }
}

/// What the policies say of the store, if they agree.
fn store_of_policies(policies: &Policies) -> anyhow::Result<Option<String>> {
    let named = policies.status().into_iter().filter_map(|service| {
        let policy = policies.policy(&service.service)?;
        policy.store().map(|url| (service.service, url.as_str().to_owned()))
    });
    let mut found: Option<(String, String)> = None;
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
