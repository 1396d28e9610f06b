//! What a server is told: by flags, by the environment, by a file, in this order.

mod operators;
mod store;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;

pub use self::operators::{Said, Source};
pub(super) use self::store::StoreConfig;
use super::admin::Admin;
use super::listener::CONNECTIONS_MAX_DEFAULT;
use super::otlp::Collector;
use crate::files;

/// The longest settings file, in bytes.
pub const SETTINGS_BYTES_MAX: u64 = 64 << 10;
/// Where HTTP is spoken, unless told otherwise: where nobody else can reach it.
pub const HTTP_DEFAULT: &str = "127.0.0.1:8080";
/// Threads that may serve requests.
const THREADS_MAX: usize = 256;
/// Connections that may be allowed at once.
const CONNECTIONS_MAX: usize = 1_000_000;
/// How long stopping may take, in seconds.
const STOP_SECONDS_MAX: u64 = 3_600;
const GRACE_DEFAULT: Duration = Duration::from_secs(10);

/// Settings as they are written; whoever says nothing of one leaves it to the others.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where HTTP is spoken.
    pub http: Option<String>,
    /// Where Envoy's rate limit service is spoken.
    pub grpc: Option<String>,
    /// Where the Redis protocol is spoken.
    pub resp: Option<String>,
    /// A policy, a folder of them, or the URL of a `MongoDB`.
    pub policy: Option<Secret>,
    /// Where counters live.
    pub store: Option<Secret>,
    /// Who signs the certificate of the store's server.
    pub store_ca: Option<PathBuf>,
    /// How long the store has for an answer, in milliseconds.
    pub store_deadline: Option<u64>,
    /// What the store's keys begin with.
    pub store_prefix: Option<String>,
    /// Connections to the store.
    pub store_connections: Option<usize>,
    /// Counters that are kept in memory.
    pub memory_keys: Option<usize>,
    /// Idempotency ids and reservations that are kept in memory.
    pub memory_ids: Option<usize>,
    /// How many servers share the limits.
    pub instances: Option<u32>,
    /// The certificate, with its chain.
    pub tls_cert: Option<PathBuf>,
    /// Its private key.
    pub tls_key: Option<PathBuf>,
    /// The token of operators is in this file.
    pub admin_token_file: Option<Said<PathBuf>>,
    /// Serves nothing that is for operators alone.
    pub no_admin: Option<Said<bool>>,
    /// What is logged.
    pub log: Option<String>,
    /// `text` or `json`.
    pub log_format: Option<String>,
    /// Threads that serve requests.
    pub threads: Option<usize>,
    /// Connections that are served at once.
    pub connections_max: Option<usize>,
    /// Seconds that everything is served as before when the server is told to stop.
    pub drain_seconds: Option<u64>,
    /// Seconds that requests under way have after that.
    pub shutdown_seconds: Option<u64>,
    /// Where traces and metrics are sent.
    pub otlp: Option<Secret>,
}

/// A text that may hold a password, and is therefore not printed.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(...)")
    }
}

/// What a server does: settings of all sources, checked.
#[derive(Debug)]
pub struct Config {
    pub(super) http: SocketAddr,
    pub(super) policy: Option<Secret>,
    pub(super) store: StoreConfig,
    pub(super) instances: NonZeroU32,
    pub(super) tls: Option<(PathBuf, PathBuf)>,
    pub(super) admin: Admin,
    pub(super) log: String,
    pub(super) log_format: LogFormat,
    pub(super) threads: Option<usize>,
    pub(super) connections_max: usize,
    pub(super) drain: Duration,
    pub(super) grace: Duration,
    pub(super) otlp: Option<Collector>,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogFormat {
    Text,
    Json,
}

impl Settings {
    /// What a file says.
    ///
    /// # Errors
    /// If it cannot be read, or something in it is no setting: the error has the line.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = files::text(path, SETTINGS_BYTES_MAX)?;
        toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            anyhow::anyhow!("{shown}:{line}: {}", in_words(error.message()))
        })
    }

    /// These settings, and those of `file` where they say nothing.
    #[must_use]
    pub fn over(self, file: Self) -> Self {
        Self {
            http: self.http.or(file.http),
            grpc: self.grpc.or(file.grpc),
            resp: self.resp.or(file.resp),
            policy: self.policy.or(file.policy),
            store: self.store.or(file.store),
            store_ca: self.store_ca.or(file.store_ca),
            store_deadline: self.store_deadline.or(file.store_deadline),
            store_prefix: self.store_prefix.or(file.store_prefix),
            store_connections: self.store_connections.or(file.store_connections),
            memory_keys: self.memory_keys.or(file.memory_keys),
            memory_ids: self.memory_ids.or(file.memory_ids),
            instances: self.instances.or(file.instances),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            admin_token_file: self.admin_token_file.or(file.admin_token_file),
            no_admin: self.no_admin.or(file.no_admin),
            log: self.log.or(file.log),
            log_format: self.log_format.or(file.log_format),
            threads: self.threads.or(file.threads),
            connections_max: self.connections_max.or(file.connections_max),
            drain_seconds: self.drain_seconds.or(file.drain_seconds),
            shutdown_seconds: self.shutdown_seconds.or(file.shutdown_seconds),
            otlp: self.otlp.or(file.otlp),
        }
    }

    /// Checks everything; `token` is what the environment says of the operators' token.
    ///
    /// # Errors
    /// The first setting that cannot be used, and what would be right.
    pub fn check(self, token: Option<&str>) -> anyhow::Result<Config> {
        let store = StoreConfig::of(&self)?;
        for (setting, what) in
            [(&self.grpc, "grpc: Envoy's rate limit service"), (&self.resp, "resp: the Redis protocol")]
        {
            if setting.is_some() {
                bail!("{what} comes with a later version; this one speaks HTTP");
            }
        }
        let http = self.http.as_deref().unwrap_or(HTTP_DEFAULT);
        let http: SocketAddr = http.parse().map_err(|_| {
            anyhow::anyhow!(
                "http: got `{http}`; expected an address and a port, such as {HTTP_DEFAULT} or [::]:8080"
            )
        })?;
        let tls = match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => bail!("tls-cert: expected tls-key beside it"),
            (None, Some(_)) => bail!("tls-key: expected tls-cert beside it"),
        };
        let admin = operators::admin(self.no_admin, self.admin_token_file, token, http)?;
        let log_format = match self.log_format.as_deref() {
            None | Some("text") => LogFormat::Text,
            Some("json") => LogFormat::Json,
            Some(other) => bail!("log-format: got `{other}`; expected text or json"),
        };
        let instances = NonZeroU32::new(self.instances.unwrap_or(1));
        Ok(Config {
            http,
            policy: self.policy,
            store,
            instances: instances.context("instances: got 0; expected at least 1")?,
            tls,
            admin,
            log: self.log.unwrap_or_else(|| "info".to_owned()),
            log_format,
            threads: self.threads.map(|threads| bounded("threads", threads, THREADS_MAX)).transpose()?,
            connections_max: bounded(
                "connections-max",
                self.connections_max.unwrap_or(CONNECTIONS_MAX_DEFAULT),
                CONNECTIONS_MAX,
            )?,
            drain: seconds("drain-seconds", self.drain_seconds)?.unwrap_or_default(),
            grace: seconds("shutdown-seconds", self.shutdown_seconds)?.unwrap_or(GRACE_DEFAULT),
            otlp: self.otlp.map(|Secret(url)| Collector::at(&url)).transpose()?,
        })
    }
}

/// What is wrong with a number, without the names that programs have for numbers.
fn in_words(message: &str) -> String {
    let names = ["usize", "u64", "u32"];
    names.iter().fold(message.to_owned(), |message, name| {
        message.replace(&format!("expected {name}"), "expected a whole number that is not negative")
    })
}

fn bounded(setting: &str, value: usize, max: usize) -> anyhow::Result<usize> {
    if value == 0 || value > max {
        bail!("{setting}: got {value}; expected 1 to {max}");
    }
    Ok(value)
}

fn seconds(setting: &str, value: Option<u64>) -> anyhow::Result<Option<Duration>> {
    match value {
        Some(value) if value > STOP_SECONDS_MAX => {
            bail!("{setting}: got {value}; expected 0 to {STOP_SECONDS_MAX}")
        }
        value => Ok(value.map(Duration::from_secs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(settings: Settings) -> String {
        format!("{:#}", settings.check(None).unwrap_err())
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        let some = |text: &str| Some(text.to_owned());
        let cases: [(Settings, &str); 9] = [
            (Settings { http: some("8080"), ..Settings::default() }, "http: got `8080`; expected an address"),
            (Settings { http: some("localhost"), ..Settings::default() }, "http: got `localhost`"),
            (
                Settings { grpc: some("127.0.0.1:1"), ..Settings::default() },
                "grpc: Envoy's rate limit service comes",
            ),
            (Settings { resp: some("127.0.0.1:1"), ..Settings::default() }, "resp: the Redis protocol comes"),
            (Settings { tls_cert: Some("c".into()), ..Settings::default() }, "tls-cert: expected tls-key"),
            (Settings { threads: Some(0), ..Settings::default() }, "threads: got 0; expected 1 to 256"),
            (Settings { log_format: some("xml"), ..Settings::default() }, "log-format: got `xml`"),
            (Settings { instances: Some(0), ..Settings::default() }, "instances: got 0"),
            (Settings { drain_seconds: Some(9_999), ..Settings::default() }, "drain-seconds: got 9999"),
        ];
        for (settings, start) in cases {
            let error = refused(settings);
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn a_file_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ratekeeper.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Settings::read(&path)
        };
        let settings = read("http = \"127.0.0.1:9\"\nno_admin = true\n").unwrap();
        let from_file = Some(Said { value: true, by: Source::File });
        assert_eq!((settings.http.as_deref(), settings.no_admin), (Some("127.0.0.1:9"), from_file));
        let flags = Settings { http: Some("127.0.0.1:8".to_owned()), ..Settings::default() };
        let both = flags.over(settings);
        assert_eq!((both.http.as_deref(), both.no_admin), (Some("127.0.0.1:8"), from_file));
        let error = read("http = \"127.0.0.1:9\"\n\nhtpp = 1\n").unwrap_err().to_string();
        assert!(error.contains("ratekeeper.toml:3: unknown field `htpp`"), "{error}");
        let error = read("threads = \"many\"\n").unwrap_err().to_string();
        assert!(error.contains("ratekeeper.toml:1: ") && error.contains("invalid type"), "{error}");
        let error = read("threads = -1\n").unwrap_err().to_string();
        assert!(error.contains("expected a whole number that is not negative"), "{error}");
        let error = read(&"#".repeat(70_000)).unwrap_err().to_string();
        assert!(error.contains("at most 65536 bytes"), "{error}");
    }

    #[test]
    fn passwords_are_not_printed() {
        let url = Some(Secret("redis://:hunter2@example.org".to_owned()));
        let settings = Settings { store: url.clone(), policy: url, ..Settings::default() };
        assert!(!format!("{settings:?}").contains("hunter2"));
        assert!(!format!("{:?}", settings.check(None).unwrap()).contains("hunter2"));
    }
}
