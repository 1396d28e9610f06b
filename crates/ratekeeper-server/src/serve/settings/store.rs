//! Where counters are, and how long is waited for them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use ratekeeper::StoreUrl;
use ratekeeper::bounds::{MAX_IDS, MAX_KEYS_DEFAULT};
use ratekeeper::store::redis::{
    CONNECTIONS_MAX, DEADLINE_DEFAULT, DEADLINE_MAX, QUEUE_MAX_DEFAULT, REPLICAS_MAX,
    TOTAL_DEADLINES_DEFAULT, TOTAL_MAX,
};

use super::{Secret, Settings};

/// The longest prefix of the store's keys, in bytes.
const PREFIX_BYTES_MAX: usize = 128;
/// Checks that can be told to wait for a connection.
const QUEUE_MAX: usize = 1_000_000;
/// Counters, and ids, that memory can be told to keep: each store has a few hundred parts,
/// and with fewer some would have no room for what one check needs.
const KEPT_MIN: usize = 1_000;
const KEPT_MAX: usize = 100_000_000;

/// What a server does about its store.
#[derive(Debug)]
pub(in crate::serve) struct StoreConfig {
    /// Or what the policies name.
    pub(in crate::serve) url: Option<Secret>,
    pub(in crate::serve) ca: Option<PathBuf>,
    pub(in crate::serve) password_file: Option<PathBuf>,
    pub(in crate::serve) deadline: Duration,
    /// Of a call, wherever it waits.
    pub(in crate::serve) total: Duration,
    pub(in crate::serve) prefix: String,
    pub(in crate::serve) connections: usize,
    pub(in crate::serve) queue_max: usize,
    /// That must have a charge before it is answered.
    pub(in crate::serve) replicas: usize,
    pub(in crate::serve) memory_keys: usize,
    pub(in crate::serve) memory_ids: usize,
}

impl StoreConfig {
    pub(super) fn of(settings: &Settings) -> anyhow::Result<Self> {
        let prefix = settings.store_prefix.clone().unwrap_or_default();
        if prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!(
                "store-prefix: got {prefix:?}; expected at most {PREFIX_BYTES_MAX} printable ASCII characters \
                 without spaces"
            );
        }
        let least = Duration::from_millis(1);
        let deadline =
            millis("store-deadline", settings.store_deadline, DEADLINE_DEFAULT, least, DEADLINE_MAX)?;
        let four = deadline * TOTAL_DEADLINES_DEFAULT;
        let total = millis("store-total", settings.store_total, four, deadline, TOTAL_MAX)?;
        Ok(Self {
            url: url(settings)?,
            ca: settings.store_ca.clone(),
            password_file: settings.store_password_file.clone(),
            deadline,
            total,
            prefix,
            connections: super::bounded(
                "store-connections",
                settings.store_connections.unwrap_or(1),
                CONNECTIONS_MAX,
            )?,
            queue_max: super::bounded(
                "store-queue",
                settings.store_queue.unwrap_or(QUEUE_MAX_DEFAULT),
                QUEUE_MAX,
            )?,
            replicas: replicas(settings.store_replicas.unwrap_or(0))?,
            memory_keys: kept("memory-keys", settings.memory_keys.unwrap_or(MAX_KEYS_DEFAULT))?,
            memory_ids: kept("memory-ids", settings.memory_ids.unwrap_or(MAX_IDS))?,
        })
    }
}

/// Where counters are: what `store` says, or in memory with a directory.
fn url(settings: &Settings) -> anyhow::Result<Option<Secret>> {
    let Some(directory) = &settings.data else { return Ok(settings.store.clone()) };
    match &settings.store {
        Some(Secret(store)) if !is_plain_memory(store) => {
            bail!("data: got another store beside it; expected one of data and store")
        }
        _ => {}
    }
    match directory.to_str().filter(|path| !path.is_empty()) {
        Some(path) => Ok(Some(Secret(format!("memory+dir://{path}")))),
        None => bail!("data: got {directory:?}; expected the path of a directory in UTF-8"),
    }
}

fn is_plain_memory(store: &str) -> bool {
    store.parse().is_ok_and(|url: StoreUrl| url.is_memory() && url.directory().is_none())
}

fn replicas(given: usize) -> anyhow::Result<usize> {
    if given > REPLICAS_MAX {
        bail!("store-replicas: got {given}; expected 0 to {REPLICAS_MAX}");
    }
    Ok(given)
}

fn millis(
    setting: &str,
    given: Option<u64>,
    default: Duration,
    least: Duration,
    most: Duration,
) -> anyhow::Result<Duration> {
    let value = given.map_or(default, Duration::from_millis);
    if !(least..=most).contains(&value) {
        let [got, least, most] = [value, least, most].map(|each| each.as_millis());
        bail!("{setting}: got {got}; expected {least} to {most} milliseconds");
    }
    Ok(value)
}

fn kept(setting: &str, value: usize) -> anyhow::Result<usize> {
    if !(KEPT_MIN..=KEPT_MAX).contains(&value) {
        bail!("{setting}: got {value}; expected {KEPT_MIN} to {KEPT_MAX}");
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_store_is_named_with_what_would_be_right() {
        let all = Settings::default;
        let secret = |text: &str| Some(Secret(text.to_owned()));
        let cases: [(Settings, &str); 15] = [
            (Settings { store_deadline: Some(0), ..all() }, "store-deadline: got 0; expected 1 to 60000"),
            (Settings { store_deadline: Some(60_001), ..all() }, "store-deadline: got 60001"),
            (Settings { store_total: Some(24), ..all() }, "store-total: got 24; expected 25 to 240000"),
            (Settings { store_total: Some(240_001), ..all() }, "store-total: got 240001"),
            (
                Settings { store_deadline: Some(50), store_total: Some(49), ..all() },
                "store-total: got 49; expected 50 to",
            ),
            (Settings { store_prefix: Some("a b".into()), ..all() }, "store-prefix: got \"a b\"; expected"),
            (Settings { store_prefix: Some("x".repeat(129)), ..all() }, "store-prefix: got "),
            (
                Settings { store_connections: Some(65), ..all() },
                "store-connections: got 65; expected 1 to 64",
            ),
            (Settings { store_replicas: Some(17), ..all() }, "store-replicas: got 17; expected 0 to 16"),
            (Settings { store_queue: Some(0), ..all() }, "store-queue: got 0; expected 1 to 1000000"),
            (
                Settings { data: Some("/d".into()), store: secret("redis://h"), ..all() },
                "data: got another store",
            ),
            (
                Settings { data: Some("/d".into()), store: secret("memory+dir:///e"), ..all() },
                "data: got another store",
            ),
            (Settings { data: Some("".into()), ..all() }, "data: got \"\"; expected the path"),
            (Settings { memory_keys: Some(999), ..all() }, "memory-keys: got 999; expected 1000 to"),
            (Settings { memory_ids: Some(0), ..all() }, "memory-ids: got 0; expected 1000 to"),
        ];
        for (settings, start) in cases {
            let error = StoreConfig::of(&settings).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
        let said = Settings { store_deadline: Some(80), store_prefix: Some("live:".into()), ..all() };
        let config = StoreConfig::of(&said).unwrap();
        assert_eq!((config.deadline.as_millis(), config.prefix.as_str()), (80, "live:"));
        assert_eq!(config.total.as_millis(), 320, "four deadlines");
        for memory in ["memory", "memory://", "MEMORY://"] {
            let kept = Settings { data: Some("/var/lib/a b".into()), store: secret(memory), ..all() };
            let url = StoreConfig::of(&kept).unwrap().url;
            assert_eq!(url.map(|Secret(url)| url).as_deref(), Some("memory+dir:///var/lib/a b"));
        }
    }
}
