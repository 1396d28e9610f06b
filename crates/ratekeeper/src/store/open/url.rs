//! The URL of a store.

use std::fmt;
use std::path::Path;
#[cfg(feature = "redis")]
use std::path::PathBuf;
use std::str::FromStr;

use ratekeeper_core::{Field, InvalidInput};

use super::cluster::Nodes;
#[cfg(feature = "redis")]
use super::hosts::bare;
use super::sentinel::Watched;
use super::several;

/// The longest URL of a store, in bytes.
pub const URL_BYTES_MAX: usize = 4_096;
/// How much of an unknown scheme an error repeats, in bytes.
const SCHEME_BYTES_MAX: usize = 32;
const MEMORY: &str = "memory";
const DIRECTORY: &str = "memory+dir";
const DIRECTORY_EXAMPLE: &str = "memory+dir:///var/lib/ratekeeper";
const EXAMPLE: &str = "redis://user:password@host:6379/0";
const SENTINEL_EXAMPLE: &str = "redis+sentinel://user:password@host:26379,host:26379/service/0";
const SEVERAL_EXAMPLE: &str = "redis://host,redis://other";
const CLUSTER_EXAMPLE: &str = "redis+cluster://user:password@host:6379,host:6379";

/// Every scheme there is, and what it means.
const SCHEMES: [(&str, Place); 17] = [
    (MEMORY, Place::Memory),
    ("redis", Place::Plain),
    ("rediss", Place::Tls),
    ("redis+unix", Place::Socket),
    ("unix", Place::Socket),
    ("redis+sentinel", Place::Sentinel { is_tls: false }),
    ("rediss+sentinel", Place::Sentinel { is_tls: true }),
    ("redis+cluster", Place::Cluster { is_tls: false }),
    ("rediss+cluster", Place::Cluster { is_tls: true }),
    ("valkey", Place::Plain),
    ("valkeys", Place::Tls),
    ("valkey+unix", Place::Socket),
    ("valkey+sentinel", Place::Sentinel { is_tls: false }),
    ("valkeys+sentinel", Place::Sentinel { is_tls: true }),
    ("valkey+cluster", Place::Cluster { is_tls: false }),
    ("valkeys+cluster", Place::Cluster { is_tls: true }),
    (DIRECTORY, Place::Directory),
];

/// Where counters live, and how to get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In this process.
    Memory,
    /// In this process, and in a directory that outlives it.
    Directory,
    /// On a server, over TCP.
    Plain,
    /// On a server, over TLS.
    Tls,
    /// On a server of this machine.
    Socket,
    /// On the server that sentinels name.
    Sentinel { is_tls: bool },
    /// On several servers, each with a URL of its own.
    Several,
    /// On the nodes of a cluster.
    Cluster { is_tls: bool },
}

impl Place {
    fn is_memory(self) -> bool {
        matches!(self, Place::Memory | Place::Directory)
    }
}

/// Where counters live: `memory`, `memory+dir://` with the path of a directory behind it, or the URL of a server.
///
/// ```
/// use ratekeeper::StoreUrl;
///
/// let url: StoreUrl = "valkeys://ann:secret@example.org:6380/2".parse()?;
/// // A password is never printed.
/// assert_eq!(url.to_string(), "valkeys://example.org:6380/2");
///
/// let error = "http://example.org".parse::<StoreUrl>().unwrap_err();
/// assert!(error.to_string().starts_with("store: got the scheme \"http\"; expected memory, redis://,"));
/// # Ok::<(), ratekeeper::InvalidInput>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    place: Place,
}

/// A server as its URL describes it, for another client of the same server.
#[cfg(feature = "redis")]
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerParts {
    /// The socket of a server on this machine; then host and port mean nothing.
    pub socket: Option<PathBuf>,
    /// The sentinels that know where it is; then host and port mean nothing.
    pub sentinels: Option<SentinelParts>,
    /// Nodes of the cluster that it is; then host and port mean nothing. Empty of a server by itself.
    pub nodes: Vec<(String, u16)>,
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether everything is encrypted on its way.
    pub is_tls: bool,
    /// The user to log in as.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: i64,
}

/// Sentinels, what they are asked for, and who to be to them.
#[cfg(feature = "redis")]
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentinelParts {
    /// Where they are.
    pub hosts: Vec<(String, u16)>,
    /// The name under which they know the server.
    pub service: String,
    /// The user to log in as.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
}

#[cfg(feature = "redis")]
impl fmt::Debug for SentinelParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without user and password.
        f.debug_tuple("SentinelParts").field(&self.hosts).field(&self.service).finish()
    }
}

#[cfg(feature = "redis")]
impl fmt::Debug for ServerParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without user and password.
        let place = (&self.socket, &self.sentinels, &self.nodes, &self.host, self.port, self.database);
        f.debug_tuple("ServerParts").field(&place).finish()
    }
}

/// Every scheme that the URL of a store may have.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    SCHEMES.iter().map(|(scheme, _)| *scheme)
}

impl StoreUrl {
    /// What an URL should be.
    #[must_use]
    pub fn expected() -> String {
        format!("{MEMORY}, {}; or {DIRECTORY_EXAMPLE}", Self::expected_server())
    }

    fn expected_server() -> String {
        let servers = SCHEMES.iter().filter(|(_, place)| !place.is_memory());
        let servers: Vec<String> = servers.map(|(scheme, _)| format!("{scheme}://")).collect();
        let (last, others) = servers.split_last().map_or((EXAMPLE, &[][..]), |(last, others)| (last, others));
        format!(
            "{} or {last}, such as {EXAMPLE}, {SENTINEL_EXAMPLE} or {CLUSTER_EXAMPLE}; several servers each with its \
             scheme: {SEVERAL_EXAMPLE}",
            others.join(", ")
        )
    }

    /// The memory of this process.
    #[must_use]
    pub fn memory() -> Self {
        Self { text: MEMORY.to_owned(), place: Place::Memory }
    }

    /// The URL of a server: as [`StoreUrl::from_str`], without `memory`.
    ///
    /// # Errors
    /// If it is none.
    pub fn server(text: &str) -> Result<Self, InvalidInput> {
        let url = Self::read(text).and_then(|url| match url.place {
            Place::Memory => Err(MEMORY.to_owned()),
            Place::Directory => Err(format!("{DIRECTORY}://")),
            _ => Ok(url),
        });
        url.map_err(|got| InvalidInput::new(Field::Store, got, Self::expected_server()))
    }

    /// Or why not, without anything that could be a password.
    fn read(text: &str) -> Result<Self, String> {
        if text.len() > URL_BYTES_MAX {
            return Err(format!("{} bytes, more than {URL_BYTES_MAX}", text.len()));
        }
        match &*several::split(text) {
            [_] => Self::read_one(text),
            urls => several::read(urls).map(|()| Self { text: text.to_owned(), place: Place::Several }),
        }
    }

    /// The same for one that names one place.
    pub(super) fn read_one(text: &str) -> Result<Self, String> {
        if text == MEMORY {
            return Ok(Self::memory());
        }
        let (scheme, rest) = text.split_once("://").ok_or("a text without a scheme")?;
        let known = SCHEMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(scheme));
        match (known.map(|(_, place)| *place), rest) {
            (None, _) => Err(unknown(scheme)),
            (Some(Place::Memory), "") => Ok(Self::memory()),
            (Some(Place::Memory), _) => Err(format!("{MEMORY}:// with more behind it")),
            (Some(Place::Directory), "") => Err(format!("{scheme}:// without the path of a directory")),
            (Some(_), "") => Err(format!("{scheme}:// without a server")),
            (Some(place), _) => Self { text: text.to_owned(), place }.checked(),
        }
    }

    /// Whether sentinels can be asked for it, and the client of the server understands it.
    fn checked(self) -> Result<Self, String> {
        if self.is_memory() {
            return Ok(self);
        }
        if self.has_comma_in_host() {
            return Err("a server whose host has a comma".to_owned());
        }
        self.watched().transpose()?;
        self.nodes().transpose()?;
        #[cfg(feature = "redis")]
        self.connection_info().map_err(|error| error.to_string())?;
        Ok(self)
    }

    /// The URLs of its servers, one by one: of one server itself, of memory none.
    #[must_use]
    pub fn servers(&self) -> Vec<Self> {
        match self.place {
            Place::Memory => Vec::new(),
            // They were read when it was.
            Place::Several => several::split(&self.text).into_iter().flat_map(Self::read_one).collect(),
            _ => vec![self.clone()],
        }
    }

    /// Whether it names several servers.
    #[must_use]
    pub fn has_several(&self) -> bool {
        self.place == Place::Several
    }

    /// Several servers have a scheme each; to the client of one, the whole would be a name.
    fn has_comma_in_host(&self) -> bool {
        let authority = self.text.split_once("://").map_or("", |(_, rest)| rest);
        let authority = authority.split(['/', '?']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        matches!(self.place, Place::Plain | Place::Tls) && host.contains(',')
    }

    /// What stands behind the scheme of a URL with sentinels.
    fn watched(&self) -> Option<Result<Watched<'_>, String>> {
        let Place::Sentinel { .. } = self.place else { return None };
        let (scheme, rest) = self.text.split_once("://")?;
        Some(Watched::read(scheme, rest))
    }

    /// What stands behind the scheme of a URL of a cluster.
    fn nodes(&self) -> Option<Result<Nodes<'_>, String>> {
        let Place::Cluster { .. } = self.place else { return None };
        let (_, rest) = self.text.split_once("://")?;
        Some(Nodes::read(rest))
    }

    /// The server for its client; of a cluster the first node that is named; where sentinels know it, with the place of the first of them.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn connection_info(&self) -> Result<::redis::ConnectionInfo, ::redis::RedisError> {
        use ::redis::IntoConnectionInfo as _;
        match (self.watched(), self.nodes()) {
            (Some(Ok(watched)), _) => watched.server(self.is_tls()).into_connection_info(),
            (_, Some(Ok(nodes))) => nodes.server(self.is_tls()).into_connection_info(),
            _ => self.text.as_str().into_connection_info(),
        }
    }

    /// The parts of a server's URL; `None` for the memory of this process, and for [several](StoreUrl::servers)
    /// servers.
    ///
    /// ```
    /// use ratekeeper::StoreUrl;
    ///
    /// let url: StoreUrl = "redis+unix:///run/redis.sock?user=ann&pass=secret&db=2".parse()?;
    /// let parts = url.server_parts().expect("a server");
    /// assert_eq!((parts.password.as_deref(), parts.database), (Some("secret"), 2));
    /// # Ok::<(), ratekeeper::InvalidInput>(())
    /// ```
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn server_parts(&self) -> Option<ServerParts> {
        use ::redis::ConnectionAddr;
        if self.is_memory() || self.has_several() {
            return None;
        }
        // It was checked when it was read.
        let info = self.connection_info().ok()?;
        let sentinels = self.watched().and_then(Result::ok).map(|watched| {
            let (user, password) = watched.sentinel_login();
            let hosts = watched.hosts.iter().map(|(host, port)| (bare(host).to_owned(), *port)).collect();
            SentinelParts { hosts, service: watched.service.to_owned(), user, password }
        });
        let nodes = self.nodes().and_then(Result::ok).map(|nodes| nodes.hosts).unwrap_or_default();
        let nodes: Vec<_> = nodes.iter().map(|(host, port)| (bare(host).to_owned(), *port)).collect();
        let login = info.redis_settings();
        let (socket, host, port) = match info.addr() {
            _ if sentinels.is_some() || !nodes.is_empty() => (None, String::new(), 0),
            ConnectionAddr::Unix(path) => (Some(path.clone()), String::new(), 0),
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (None, host.clone(), *port)
            }
            _ => return None,
        };
        Some(ServerParts {
            socket,
            sentinels,
            nodes,
            host,
            port,
            is_tls: self.is_tls(),
            user: login.username().map(ToOwned::to_owned),
            password: login.password().map(ToOwned::to_owned),
            database: login.db(),
        })
    }

    /// The URL as it was written: with its password.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether counters live in this process, with a directory or without.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.place.is_memory()
    }

    /// The directory that keeps what is in memory, if there is one: what stands behind `memory+dir://`, as it is.
    ///
    /// ```
    /// use std::path::Path;
    /// use ratekeeper::StoreUrl;
    ///
    /// let url: StoreUrl = "memory+dir:///var/lib/ratekeeper".parse()?;
    /// assert_eq!(url.directory(), Some(Path::new("/var/lib/ratekeeper")));
    /// # Ok::<(), ratekeeper::InvalidInput>(())
    /// ```
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        let (_, path) = self.text.split_once("://").filter(|_| self.place == Place::Directory)?;
        Some(Path::new(path))
    }

    /// Whether everything is encrypted on its way.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        match self.place {
            Place::Several => self.servers().iter().all(Self::is_tls),
            Place::Sentinel { is_tls } | Place::Cluster { is_tls } => is_tls,
            place => place == Place::Tls,
        }
    }

    /// Whether counters are on several servers: then a rule with overrides has a key that names the organisation.
    #[must_use]
    pub fn is_parted(&self) -> bool {
        self.has_nodes() || self.has_several()
    }

    /// Whether it is a cluster, with nodes that have the keys between them.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        matches!(self.place, Place::Cluster { .. })
    }

    /// Whether sentinels are asked where the server is.
    #[must_use]
    pub fn has_sentinels(&self) -> bool {
        matches!(self.place, Place::Sentinel { .. })
    }
}

/// A scheme that is none of ours; repeated only if it can be one, and not a password.
fn unknown(scheme: &str) -> String {
    let can_be = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.len() <= SCHEME_BYTES_MAX
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if can_be { format!("the scheme {scheme:?}") } else { "a text that begins with no scheme".to_owned() }
}

impl FromStr for StoreUrl {
    type Err = InvalidInput;

    /// `memory`, `memory://`, `memory+dir://` and a path, the URL of a server, or those of several with commas in between.
    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        Self::read(text).map_err(|got| InvalidInput::new(Field::Store, got, Self::expected()))
    }
}

impl fmt::Display for StoreUrl {
    /// Without user, password and options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_memory() {
            return f.write_str(&self.text);
        }
        if self.has_several() {
            let servers: Vec<String> = self.servers().iter().map(Self::to_string).collect();
            return f.write_str(&servers.join(","));
        }
        let Some((scheme, rest)) = self.text.split_once("://") else { return f.write_str(&self.text) };
        // A socket and sentinels have passwords in the query; a server and a cluster before the last `@`.
        let has_query = matches!(self.place, Place::Socket | Place::Sentinel { .. } | Place::Cluster { .. });
        let rest = if has_query { before_query(rest) } else { rest };
        let rest = rest.rsplit_once('@').map_or(rest, |(_, behind)| behind);
        write!(f, "{scheme}://{}", before_query(rest))
    }
}

fn before_query(text: &str) -> &str {
    text.split_once('?').map_or(text, |(before, _)| before)
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_url_is_printed_with_its_secrets() {
        let cases = [
            ("memory", "memory"),
            ("memory://", "memory"),
            ("memory+dir:///var/a b@c?d", "memory+dir:///var/a b@c?d"),
            ("redis://localhost", "redis://localhost"),
            ("redis://ann:s3cret@localhost:1/2?protocol=resp3", "redis://localhost:1/2"),
            ("rediss://:s3%40cret@[::1]:6379/0", "rediss://[::1]:6379/0"),
            ("unix:///run/redis.sock?user=ann&pass=s3@cret&db=1", "unix:///run/redis.sock"),
            ("valkey+unix:///run/redis.sock", "valkey+unix:///run/redis.sock"),
            ("redis+sentinel://ann:s3cret@a:1,b/s/2?sentinel_password=s3@cret", "redis+sentinel://a:1,b/s/2"),
            ("redis+cluster://ann:s3%40cret@a:1,b:2", "redis+cluster://a:1,b:2"),
        ];
        for (text, shown) in cases {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(
                (url.to_string(), format!("{url:?}")),
                (shown.to_owned(), format!("StoreUrl({shown})"))
            );
        }
    }

    #[test]
    fn what_cannot_be_a_scheme_is_not_repeated() {
        for text in ["hunter2", "my hunter2://x", "hunter2/://x", "://hunter2", "2hunter2://x"] {
            let error = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn an_error_lists_every_scheme() {
        let error = "redis+shard://host".parse::<StoreUrl>().unwrap_err();
        assert_eq!(error.got, "the scheme \"redis+shard\"");
        assert!(schemes().all(|scheme| error.expected.contains(scheme)), "{}", error.expected);
        let error = StoreUrl::server("memory").unwrap_err();
        assert_eq!(error.got, "memory");
        assert!(!error.expected.contains("memory"), "{}", error.expected);
    }
}
