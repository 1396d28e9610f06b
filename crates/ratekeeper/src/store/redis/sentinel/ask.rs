//! One sentinel: how it is asked, and what its refusals mean.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, RedisError};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::super::wire::{Address, Wire};
use crate::store::{StoreError, StoreErrorKind};

/// How many services an error lists of those that a sentinel knows.
const SERVICES_MAX: usize = 8;
/// The longest name of a host or a service that is believed, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Characters of somebody else's words in an error.
const WORDS_MAX: usize = 200;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store::redis) struct Node {
    pub(in crate::store::redis) host: String,
    pub(in crate::store::redis) port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// What a sentinel says of its service.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Answer {
    /// The primary.
    pub(super) node: Node,
    /// The number of the failover that made it one.
    pub(super) epoch: u64,
}

impl Answer {
    /// Unless it is of an earlier failover than that of a number.
    pub(super) fn not_before(self, epoch: u64) -> Result<Self, Refusal> {
        if self.epoch >= epoch {
            return Ok(self);
        }
        Err(Refusal::new(format!("has not heard of failover {epoch} yet, and names {}", self.node)))
    }
}

/// Why a sentinel did not say it; the words follow its address.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Refusal {
    pub(super) kind: StoreErrorKind,
    pub(super) why: String,
}

impl Refusal {
    fn new(why: impl Into<String>) -> Self {
        Self { kind: StoreErrorKind::Unavailable, why: why.into() }
    }

    pub(super) fn into_error(self) -> StoreError {
        StoreError::new(self.kind, self.why)
    }
}

/// A sentinel, and the connection to it, which is kept.
#[derive(Debug)]
pub(super) struct Scout {
    address: Address,
    service: String,
    kept: Mutex<Option<Wire>>,
}

impl Scout {
    pub(super) fn new(address: Address, service: &str) -> Self {
        Self { address, service: service.to_owned(), kept: Mutex::new(None) }
    }

    pub(super) fn address(&self) -> String {
        self.address.server()
    }

    /// Where the primary is, as this sentinel says within its patience.
    pub(super) async fn ask(&self, patience: Duration, runtime: &Handle) -> Result<Answer, Refusal> {
        let asked = async {
            if let Some(wire) = self.take() {
                // One that was closed meanwhile is no reason to give the sentinel up.
                if let Ok(answer) = self.ask_on(wire).await {
                    return Ok(answer);
                }
            }
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(patience))
                .set_response_timeout(Some(patience));
            let wire = self.address.connect(config, runtime, || {}).await.map_err(|error| refusal(&error))?;
            self.ask_on(wire).await
        };
        match timeout(patience, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(Refusal::new(format!("did not answer within {patience:?}"))),
        }
    }

    /// Keeps the connection if it was answered on.
    async fn ask_on(&self, wire: Wire) -> Result<Answer, Refusal> {
        let mut connection = wire.connection.clone();
        // The epoch first: what comes in between makes an answer look old, never new.
        let epoch = self.epoch(&mut connection).await?;
        let place: Option<(String, String)> =
            query(&mut connection, &["GET-MASTER-ADDR-BY-NAME", &self.service])
                .await
                .map_err(|error| refusal(&error))?;
        let node = place.and_then(|(host, port)| {
            let port = port.parse().ok().filter(|port| *port > 0)?;
            (!host.is_empty() && host.len() <= NAME_BYTES_MAX).then_some(Node { host, port })
        });
        let node = node.ok_or_else(|| Refusal::new("names no address that can be connected to"))?;
        *self.slot() = Some(wire);
        Ok(Answer { node, epoch })
    }

    async fn epoch(&self, connection: &mut MultiplexedConnection) -> Result<u64, Refusal> {
        let service: HashMap<String, String> = match query(connection, &["MASTER", &self.service]).await {
            Ok(service) => service,
            Err(error) if error.detail().is_some_and(|words| words.contains("No such master")) => {
                return Err(self.unknown(connection).await);
            }
            Err(error) => return Err(refusal(&error)),
        };
        let epoch = service.get("config-epoch").and_then(|epoch| epoch.parse().ok());
        epoch.ok_or_else(|| Refusal::new("does not say the epoch of its configuration: is it a sentinel?"))
    }

    /// The service is not known; which are.
    async fn unknown(&self, connection: &mut MultiplexedConnection) -> Refusal {
        let why = format!("knows no service {:?}", self.service);
        let known: Vec<HashMap<String, String>> = match query(connection, &["MASTERS"]).await {
            Ok(known) => known,
            Err(_) => return Refusal::new(why),
        };
        let names = known.iter().filter_map(|service| service.get("name"));
        let names: Vec<String> =
            names.filter(|name| name.len() <= NAME_BYTES_MAX).map(|name| format!("{name:?}")).collect();
        match &names[..] {
            [] => Refusal::new(format!("{why}, nor any other")),
            [names @ .., _] if names.len() >= SERVICES_MAX => {
                Refusal::new(format!("{why}, but {} and others", names[..SERVICES_MAX].join(", ")))
            }
            names => Refusal::new(format!("{why}, but {}", names.join(", "))),
        }
    }

    fn take(&self) -> Option<Wire> {
        self.slot().take()
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Wire>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn query<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &[&str],
) -> Result<T, RedisError> {
    let mut command = Cmd::new();
    command.arg("SENTINEL").arg(words);
    command.query_async(connection).await
}

/// What to make of an error, and what to do about it.
fn refusal(error: &RedisError) -> Refusal {
    let denied = |why: &str| Refusal { kind: StoreErrorKind::Permission, why: why.to_owned() };
    let words = error.detail().unwrap_or_default();
    if error.is_connection_refusal() {
        return Refusal::new("is not there: nobody listens");
    }
    match (error.kind(), error.code()) {
        (_, Some("NOAUTH")) => denied("wants a password: ?sentinel_password= at the end of the URL has it"),
        (_, Some("NOPERM")) => denied("does not let its user ask: see the permissions in docs/redis.md"),
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => {
            denied("does not accept sentinel_user and sentinel_password")
        }
        _ if words.contains("unknown command") => {
            Refusal::new("is no sentinel but a server: name the sentinels, or the server with redis://")
        }
        _ => {
            let words: String = error.to_string().chars().take(WORDS_MAX).collect();
            Refusal::new(format!("failed: {words}"))
        }
    }
}
