//! The settings of a server: from flags, from the environment and from a file, in this order.
//! `list` has them all, `check` says what is wrong with them.

mod grpc;
mod list;
mod operators;
mod resp;
mod store;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use ratekeeper::policy::Network;
use ratekeeper_http::{Legacy, Reset, SPREAD_PERCENT_MAX};

pub use self::grpc::GRPC_DEFAULT;
pub(super) use self::grpc::GrpcConfig;
pub use self::list::{Secret, Settings};
pub use self::operators::Source;
use self::operators::{Operators, Said};
pub(super) use self::resp::RespConfig;
pub(super) use self::store::StoreConfig;
use super::admin::Admin;
use super::listener::CONNECTIONS_MAX_DEFAULT;
use super::notices::Receiver;
use super::otlp::Collector;
use crate::files;

/// The longest settings file, in bytes.
pub const SETTINGS_BYTES_MAX: u64 = 64 << 10;
/// Where HTTP is spoken, unless told otherwise: where nobody else can reach it.
pub const HTTP_DEFAULT: &str = "127.0.0.1:8080";
/// Where gateways are, unless told otherwise: on this machine.
const GATEWAYS_DEFAULT: &str = "127.0.0.0/8,::1";
/// Networks of gateways.
const GATEWAYS_MAX: usize = 256;
/// Threads that may serve requests.
const THREADS_MAX: usize = 256;
/// Connections that may be allowed at once.
const CONNECTIONS_MAX: usize = 1_000_000;
/// How long stopping may take, in seconds.
const STOP_SECONDS_MAX: u64 = 3_600;
const GRACE_DEFAULT: Duration = Duration::from_secs(10);

/// What a server does: settings of all sources, checked.
#[derive(Debug)]
pub struct Config {
    pub(super) http: SocketAddr,
    pub(super) grpc: Option<GrpcConfig>,
    pub(super) resp: Option<RespConfig>,
    pub(super) policy: Option<Secret>,
    pub(super) store: StoreConfig,
    pub(super) instances: NonZeroU32,
    pub(super) tls: Option<(PathBuf, PathBuf)>,
    pub(super) admin_http: Option<SocketAddr>,
    pub(super) admin: Admin,
    pub(super) gateways: Vec<Network>,
    pub(super) receipt_keys: Option<PathBuf>,
    pub(super) demo_load: bool,
    pub(super) log: String,
    pub(super) log_format: LogFormat,
    pub(super) threads: Option<usize>,
    pub(super) connections_max: usize,
    pub(super) retry_after_spread: u8,
    pub(super) drain: Duration,
    pub(super) grace: Duration,
    pub(super) otlp: Option<Collector>,
    pub(super) notify: Option<Receiver>,
    /// Which header fields of old are sent, and what their Reset counts.
    pub(super) legacy: (Legacy, Reset),
    pub(super) mongo: MongoConfig,
}

/// Where the policies of a MongoDB are, as far as it was said.
#[derive(Debug)]
#[cfg_attr(not(feature = "mongodb"), expect(dead_code, reason = "such a build reads no MongoDB"))]
pub(super) struct MongoConfig {
    pub(super) database: Option<String>,
    pub(super) collection: Option<String>,
    pub(super) interval: Option<Duration>,
    pub(super) copy: Option<PathBuf>,
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

    /// Checks everything. `token` is what the environment has for the operators' token, `source` where
    /// a setting comes from.
    ///
    /// # Errors
    /// The first setting that cannot be used, and what would be right.
    pub fn check(self, token: Option<&str>, source: impl Fn(&str) -> Source) -> anyhow::Result<Config> {
        let store = StoreConfig::of(&self)?;
        let mongo = MongoConfig::of(&self)?;
        let (notify, demo_load) = (receiver(&self)?, demo_load(&self)?);
        let (grpc, resp) = (GrpcConfig::of(&self)?, RespConfig::of(&self)?);
        let http = address("http", self.http.as_deref().unwrap_or(HTTP_DEFAULT))?;
        let admin_http = self.admin_http.as_deref().map(|text| address("admin-http", text)).transpose()?;
        let tls = match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => bail!("tls-cert: expected tls-key beside it"),
            (None, Some(_)) => bail!("tls-key: expected tls-cert beside it"),
        };
        let operators = Operators {
            no_admin: Said::new(self.no_admin, source("no_admin")),
            without_token: Said::new(self.admin_without_token, source("admin_without_token")),
            file: Said::new(self.admin_token_file, source("admin_token_file")),
            token,
            tokens: Said::new(self.tokens, source("tokens")),
        };
        let admin = operators.admin(admin_http.unwrap_or(http))?;
        if admin_http.is_some() && matches!(admin, Admin::Off) {
            bail!("admin-http: got no-admin beside it; expected one of them");
        }
        let log_format = match self.log_format.as_deref() {
            None | Some("text") => LogFormat::Text,
            Some("json") => LogFormat::Json,
            Some(other) => bail!("log-format: got `{other}`; expected text or json"),
        };
        let otlp = collector(self.otlp, self.otlp_ca.as_deref(), self.otlp_compression.as_deref())?;
        let legacy = (
            word("legacy-headers", self.legacy_headers.as_deref(), &LEGACY)?,
            word("legacy-reset", self.legacy_reset.as_deref(), &RESETS)?,
        );
        let instances = NonZeroU32::new(self.instances.unwrap_or(1));
        Ok(Config {
            http,
            grpc,
            resp,
            policy: self.policy,
            store,
            instances: instances.context("instances: got 0; expected at least 1")?,
            tls,
            admin_http,
            admin,
            gateways: networks(
                "forward-auth-from",
                self.forward_auth_from.as_deref().unwrap_or(GATEWAYS_DEFAULT),
            )?,
            receipt_keys: self.receipt_key_file,
            demo_load,
            log: self.log.unwrap_or_else(|| "info".to_owned()),
            log_format,
            threads: self.threads.map(|threads| bounded("threads", threads, THREADS_MAX)).transpose()?,
            connections_max: bounded(
                "connections-max",
                self.connections_max.unwrap_or(CONNECTIONS_MAX_DEFAULT),
                CONNECTIONS_MAX,
            )?,
            retry_after_spread: percent("retry-after-spread", self.retry_after_spread.unwrap_or(0))?,
            drain: seconds("drain-seconds", self.drain_seconds)?.unwrap_or_default(),
            grace: seconds("shutdown-seconds", self.shutdown_seconds)?.unwrap_or(GRACE_DEFAULT),
            otlp,
            notify,
            legacy,
            mongo,
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

fn address(setting: &str, text: &str) -> anyhow::Result<SocketAddr> {
    text.parse().map_err(|_| {
        anyhow::anyhow!(
            "{setting}: got `{text}`; expected an address and a port, such as {HTTP_DEFAULT} or [::]:8080"
        )
    })
}

/// Networks, with commas between them; `none` is none.
fn networks(setting: &str, text: &str) -> anyhow::Result<Vec<Network>> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let networks: Vec<&str> = text.split(',').map(str::trim).collect();
    if networks.len() > GATEWAYS_MAX {
        bail!("{setting}: got {} networks; expected at most {GATEWAYS_MAX}", networks.len());
    }
    let read = |text: &&str| {
        let parsed = text.parse::<Network>().ok();
        parsed.with_context(|| {
            format!("{setting}: got `{text}`; expected a network such as 10.0.0.0/8 or ::1, several with commas, or none")
        })
    };
    networks.iter().map(read).collect()
}

/// Whether policies are to come from a MongoDB.
pub(super) fn is_mongodb(policy: &str) -> bool {
    policy.starts_with("mongodb://") || policy.starts_with("mongodb+srv://")
}

impl MongoConfig {
    fn of(settings: &Settings) -> anyhow::Result<Self> {
        let said = [
            ("mongodb-database", settings.mongodb_database.is_some()),
            ("mongodb-collection", settings.mongodb_collection.is_some()),
            ("mongodb-interval", settings.mongodb_interval.is_some()),
            ("mongodb-copy", settings.mongodb_copy.is_some()),
        ];
        let is_mongo = settings.policy.as_ref().is_some_and(|Secret(url)| is_mongodb(url));
        if let Some((name, _)) = said.into_iter().find(|(_, is_said)| *is_said && !is_mongo) {
            bail!("{name}: expected the URL of a MongoDB in policy");
        }
        Ok(Self {
            database: settings.mongodb_database.clone(),
            collection: settings.mongodb_collection.clone(),
            interval: settings.mongodb_interval.map(Duration::from_millis),
            copy: settings.mongodb_copy.clone(),
        })
    }
}

/// The words for header fields of old, the first of them the default.
const LEGACY: [(&str, Legacy); 3] =
    [("off", Legacy::Off), ("ratelimit", Legacy::RateLimit), ("x-ratelimit", Legacy::XRateLimit)];
const RESETS: [(&str, Reset); 2] = [("delta", Reset::Delta), ("epoch", Reset::Epoch)];
const COMPRESSIONS: [(&str, bool); 2] = [("none", false), ("gzip", true)];

/// What one of some words means; without one, what the first does.
fn word<T: Copy>(setting: &str, said: Option<&str>, words: &[(&str, T)]) -> anyhow::Result<T> {
    let found = said.map_or(words.first(), |said| words.iter().find(|(word, _)| *word == said));
    found.map(|(_, meaning)| *meaning).with_context(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{setting}: got `{}`; expected {}", said.unwrap_or_default(), words.join(" or "))
    })
}

/// The collector that is sent traces and metrics, if there is one.
fn collector(
    url: Option<Secret>,
    authority: Option<&Path>,
    compression: Option<&str>,
) -> anyhow::Result<Option<Collector>> {
    let gzip = word("otlp-compression", compression, &COMPRESSIONS)?;
    let Some(Secret(url)) = url else {
        match (authority, compression) {
            (None, None) => return Ok(None),
            (Some(_), _) => bail!("otlp-ca: expected otlp beside it"),
            (None, Some(_)) => bail!("otlp-compression: expected otlp beside it"),
        }
    };
    Ok(Some(Collector::at(&url, authority)?.compressed(gzip)))
}

/// Whether operators can start a load.
fn demo_load(settings: &Settings) -> anyhow::Result<bool> {
    let is_wanted = settings.demo_load.unwrap_or(false);
    if is_wanted && settings.policy.is_some() {
        bail!("demo-load: got policy beside it; expected one of them: the load comes with its own policy");
    }
    Ok(is_wanted)
}

/// Who is posted notices, if anybody is.
fn receiver(settings: &Settings) -> anyhow::Result<Option<Receiver>> {
    let (authority, secret) = (settings.notify_ca.as_deref(), settings.notify_secret_file.as_deref());
    let percents = settings.notify_at.as_deref();
    let Some(Secret(url)) = &settings.notify_url else {
        let said = [
            ("notify-secret-file", secret.is_some()),
            ("notify-ca", authority.is_some()),
            ("notify-at", percents.is_some()),
        ];
        return match said.into_iter().find(|(_, is_said)| *is_said) {
            Some((setting, _)) => bail!("{setting}: expected notify-url beside it"),
            None => Ok(None),
        };
    };
    let secret = secret.context("notify-url: expected notify-secret-file beside it: notices are signed")?;
    let receiver = Receiver::at(url, authority, secret)?;
    Ok(Some(match percents {
        Some(percents) => receiver.percents(percents)?,
        None => receiver,
    }))
}

fn bounded(setting: &str, value: usize, max: usize) -> anyhow::Result<usize> {
    if value == 0 || value > max {
        bail!("{setting}: got {value}; expected 1 to {max}");
    }
    Ok(value)
}

fn percent(setting: &str, value: u64) -> anyhow::Result<u8> {
    match u8::try_from(value) {
        Ok(percent) if percent <= SPREAD_PERCENT_MAX => Ok(percent),
        _ => bail!("{setting}: got {value}; expected 0 to {SPREAD_PERCENT_MAX}"),
    }
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
        format!("{:#}", settings.check(None, |_| Source::Flag).unwrap_err())
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        let some = |text: &str| Some(text.to_owned());
        let secret = |text: &str| Some(Secret(text.to_owned()));
        let cases: [(Settings, &str); 20] = [
            (
                Settings { notify_url: secret("http://h"), ..Settings::default() },
                "notify-url: expected notify-secret-file",
            ),
            (Settings { notify_at: some("80"), ..Settings::default() }, "notify-at: expected notify-url"),
            (
                Settings { demo_load: Some(true), policy: secret("p.toml"), ..Settings::default() },
                "demo-load: got policy beside it",
            ),
            (
                Settings { mongodb_copy: Some("c".into()), policy: secret("p.toml"), ..Settings::default() },
                "mongodb-copy: expected the URL of a MongoDB",
            ),
            (
                Settings { legacy_headers: some("X-RateLimit"), ..Settings::default() },
                "legacy-headers: got `X-RateLimit`; expected off or ratelimit or x-ratelimit",
            ),
            (
                Settings { legacy_reset: some("utc"), ..Settings::default() },
                "legacy-reset: got `utc`; expected delta or epoch",
            ),
            (
                Settings { otlp_compression: some("zstd"), ..Settings::default() },
                "otlp-compression: got `zstd`; expected none or gzip",
            ),
            (Settings { otlp_ca: Some("c".into()), ..Settings::default() }, "otlp-ca: expected otlp"),
            (
                Settings { otlp: secret("http://h"), otlp_ca: Some("c".into()), ..Settings::default() },
                "otlp-ca: got one for http://",
            ),
            (
                Settings {
                    otlp: secret("https://h"),
                    otlp_ca: Some("/nowhere".into()),
                    ..Settings::default()
                },
                "otlp-ca: /nowhere",
            ),
            (
                Settings { retry_after_spread: Some(101), ..Settings::default() },
                "retry-after-spread: got 101; expected 0 to 100",
            ),
            (Settings { http: some("8080"), ..Settings::default() }, "http: got `8080`; expected an address"),
            (Settings { http: some("localhost"), ..Settings::default() }, "http: got `localhost`"),
            (Settings { grpc: some("8081"), ..Settings::default() }, "grpc: got `8081`; expected an address"),
            (Settings { tls_cert: Some("c".into()), ..Settings::default() }, "tls-cert: expected tls-key"),
            (
                Settings { forward_auth_from: some("10.0.0.0/8, gateway"), ..Settings::default() },
                "forward-auth-from: got `gateway`; expected a network such as 10.0.0.0/8",
            ),
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
        assert_eq!((settings.http.as_deref(), settings.no_admin), (Some("127.0.0.1:9"), Some(true)));
        let flags = Settings { http: Some("127.0.0.1:8".to_owned()), ..Settings::default() };
        let both = flags.over(settings);
        assert_eq!((both.http.as_deref(), both.no_admin), (Some("127.0.0.1:8"), Some(true)));
        let error = read("http = \"127.0.0.1:9\"\n\nhtpp = 1\n").unwrap_err().to_string();
        assert!(error.contains("ratekeeper.toml:3: unknown field `htpp`"), "{error}");
        let error = read("threads = \"many\"\n").unwrap_err().to_string();
        assert!(error.contains("ratekeeper.toml:1: ") && error.contains("invalid type"), "{error}");
        let error = read("threads = -1\n").unwrap_err().to_string();
        assert!(error.contains("expected a whole number that is not negative"), "{error}");
        let error = read(&"#".repeat(70_000)).unwrap_err().to_string();
        assert!(error.contains("at most 65536 bytes"), "{error}");
    }

    /// Where the help names a default, it is the one that holds.
    #[test]
    fn defaults_are_those_in_the_help() {
        use clap::Args as _;
        let config = Settings::default().check(None, |_| Source::Flag).unwrap();
        let defaults = [
            ("http", config.http.to_string()),
            ("store_deadline", config.store.deadline.as_millis().to_string()),
            ("store_connections", config.store.connections.to_string()),
            ("memory_keys", config.store.memory_keys.to_string()),
            ("memory_ids", config.store.memory_ids.to_string()),
            ("instances", config.instances.to_string()),
            ("log", config.log),
            ("log_format", format!("{:?}", config.log_format).to_lowercase()),
            ("connections_max", config.connections_max.to_string()),
            ("drain_seconds", config.drain.as_secs().to_string()),
            ("shutdown_seconds", config.grace.as_secs().to_string()),
        ];
        let command = Settings::augment_args(clap::Command::new("serve"));
        for (setting, default) in defaults {
            let argument = command.get_arguments().find(|argument| argument.get_id() == setting);
            let help = argument.and_then(|argument| argument.get_help()).unwrap().to_string();
            assert!(help.contains(&format!("[default: {default}]")), "{setting}: {help}");
        }
    }

    #[test]
    fn passwords_are_not_printed() {
        let url = Some(Secret("redis://:hunter2@example.org".to_owned()));
        let settings = Settings { store: url.clone(), policy: url, ..Settings::default() };
        assert!(!format!("{settings:?}").contains("hunter2"));
        assert!(!format!("{:?}", settings.check(None, |_| Source::Flag).unwrap()).contains("hunter2"));
    }
}
