//! How a source is set up, and what can be wrong with that.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::mongodb::options::ConnectionString;
use ratekeeper_core::NAME_BYTES_MAX;

use super::copy::LocalCopy;
use super::documents::is_name;
use super::secret::{Secret, servers};
use super::{MongoSource, MongoSourceError};
use crate::policy::book::SERVICES_MAX;
use crate::policy::problem::quoted;

/// The database, unless told otherwise.
pub const DATABASE_DEFAULT: &str = "ratekeeper";
/// The collection, unless told otherwise.
pub const COLLECTION_DEFAULT: &str = "policies";
/// How often to poll, unless told otherwise.
pub const INTERVAL_DEFAULT: Duration = Duration::from_secs(30);
/// How long a call may take, unless told otherwise.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(5);

const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const DEADLINE_MIN: Duration = Duration::from_millis(10);
const DEADLINE_MAX: Duration = Duration::from_secs(10 * 60);
/// As MongoDB has it.
const DATABASE_BYTES_MAX: usize = 63;
const COLLECTION_BYTES_MAX: usize = 120;

/// Where the documents are, and how often to look.
#[derive(Clone)]
pub struct MongoSourceBuilder {
    url: String,
    database: String,
    collection: String,
    services: Option<Vec<String>>,
    interval: Duration,
    deadline: Duration,
    copy: Option<PathBuf>,
}

impl fmt::Debug for MongoSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("MongoSourceBuilder");
        all.field("database", &self.database).field("collection", &self.collection);
        all.field("services", &self.services).field("interval", &self.interval);
        all.field("deadline", &self.deadline).field("copy", &self.copy).finish_non_exhaustive()
    }
}

impl MongoSourceBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            database: DATABASE_DEFAULT.to_owned(),
            collection: COLLECTION_DEFAULT.to_owned(),
            services: None,
            interval: INTERVAL_DEFAULT,
            deadline: DEADLINE_DEFAULT,
            copy: None,
        }
    }

    /// The database; [`DATABASE_DEFAULT`] by default.
    #[must_use]
    pub fn database(self, database: &str) -> Self {
        Self { database: database.to_owned(), ..self }
    }

    /// The collection; [`COLLECTION_DEFAULT`] by default.
    #[must_use]
    pub fn collection(self, collection: &str) -> Self {
        Self { collection: collection.to_owned(), ..self }
    }

    /// The services whose documents to read; all in the collection by default.
    #[must_use]
    pub fn services<S: Into<String>>(self, services: impl IntoIterator<Item = S>) -> Self {
        Self { services: Some(services.into_iter().map(Into::into).collect()), ..self }
    }

    /// How often to poll, give or take a tenth; [`INTERVAL_DEFAULT`] by default.
    #[must_use]
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// How long each call to the server may take; [`DEADLINE_DEFAULT`] by default.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Keeps the documents in force in this file, for a start while the server is away.
    #[must_use]
    pub fn copy(self, path: impl Into<PathBuf>) -> Self {
        Self { copy: Some(path.into()), ..self }
    }

    /// Checks the settings. Nothing is connected yet.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub fn build(self) -> Result<MongoSource, MongoSourceError> {
        let url = parse_url(&self.url)?;
        self.check_names()?;
        self.check_services()?;
        check_time("interval", self.interval, INTERVAL_MIN, INTERVAL_MAX)?;
        check_time("deadline", self.deadline, DEADLINE_MIN, DEADLINE_MAX)?;
        let of = format!("{}.{}", self.database, self.collection);
        let copy = self.copy.map(|path| checked_copy(path, &of)).transpose()?;
        Ok(MongoSource {
            secret: Secret::of(&self.url, &url),
            name: format!("mongodb://{}/{of}", servers(&url)),
            url,
            database: self.database,
            collection: self.collection,
            services: self.services,
            interval: self.interval,
            deadline: self.deadline,
            copy,
        })
    }

    fn check_names(&self) -> Result<(), MongoSourceError> {
        let wrong = |byte: u8| byte.is_ascii_control() || b"/\\. \"$*<>:|?".contains(&byte);
        let length = self.database.len();
        if !(1..=DATABASE_BYTES_MAX).contains(&length) || self.database.bytes().any(wrong) {
            let expected = format!("a name of 1 to {DATABASE_BYTES_MAX} bytes without punctuation");
            return Err(setting("database", quoted(&self.database), expected));
        }
        let wrong = |byte: u8| byte.is_ascii_control() || byte == b'$';
        let length = self.collection.len();
        let is_reserved = self.collection.starts_with("system.");
        if !(1..=COLLECTION_BYTES_MAX).contains(&length) || self.collection.bytes().any(wrong) || is_reserved
        {
            let expected =
                format!("a name of 1 to {COLLECTION_BYTES_MAX} bytes without `$`, not of `system.`");
            return Err(setting("collection", quoted(&self.collection), expected));
        }
        Ok(())
    }

    fn check_services(&self) -> Result<(), MongoSourceError> {
        let Some(services) = &self.services else { return Ok(()) };
        if !(1..=SERVICES_MAX).contains(&services.len()) {
            return Err(setting(
                "services",
                format!("{} names", services.len()),
                format!("1 to {SERVICES_MAX} names"),
            ));
        }
        let expected = || format!("names of 1 to {NAME_BYTES_MAX} printable ASCII characters");
        let wrong = services.iter().find(|service| !is_name(service));
        wrong.map_or(Ok(()), |service| Err(setting("services", quoted(service), expected())))
    }
}

/// Reads the URL; nothing of it is repeated, because a password may be anywhere in a wrong one.
fn parse_url(url: &str) -> Result<ConnectionString, MongoSourceError> {
    if url.starts_with("mongodb+srv://") && !cfg!(feature = "mongodb-srv") {
        let expected = "mongodb://, or the feature `mongodb-srv` of this crate";
        return Err(setting("url", "a URL with mongodb+srv://", expected));
    }
    let expected = "mongodb://user:password@host:27017/?options, with %-codes for special characters in the \
        password";
    // A password with a question mark in it, taken for hosts and options.
    let is_torn = url.split_once('?').is_some_and(|(_, options)| options.contains('@'));
    let parsed = ConnectionString::parse(url).ok().filter(|_| !is_torn);
    parsed.ok_or_else(|| setting("url", "another text", expected))
}

fn check_time(
    argument: &'static str,
    time: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), MongoSourceError> {
    if (min..=max).contains(&time) {
        return Ok(());
    }
    Err(setting(argument, format!("{time:?}"), format!("{min:?} to {max:?}")))
}

fn checked_copy(path: PathBuf, of: &str) -> Result<LocalCopy, MongoSourceError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.file_name().is_none() || path.is_dir() || !folder.is_dir() {
        let got = quoted(&path.display().to_string());
        return Err(setting("copy", got, "the path of a file in a folder that is there"));
    }
    Ok(LocalCopy::new(path, of.to_owned()))
}

fn setting(argument: &'static str, got: impl Into<String>, expected: impl Into<String>) -> MongoSourceError {
    MongoSourceError::Setting { argument, got: got.into(), expected: expected.into() }
}
