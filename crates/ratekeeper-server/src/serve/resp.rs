//! The Redis protocol: `CL.THROTTLE` as the module redis-cell has it, for every client of Redis.
//!
//! A listener beside HTTP, off unless settings name its address. Commands are read where they lie and answered
//! together: on a store in memory nothing is allocated for one, on other stores those that came together are judged
//! together. Counters are those of charges without a policy, under the name `cl.throttle`.

mod connection;
mod http;
mod input;
mod parse;
mod reply;
mod session;
mod table;
mod throttle;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper::OnOutage;

use self::connection::Connection;
pub(super) use self::connection::replies_to;
pub use self::connection::{REPLIES_BYTES_MAX, TOGETHER_MAX};
use self::http::Strays;
pub use self::parse::{ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, COMMAND_BYTES_MAX};
use self::table::COMMANDS;
use super::admin::Keyring;
use super::api::Api;
use super::listener::{Finishing, Place, Protocol, Serving, Stream};

/// How long a connection may be without a command, unless told otherwise: clients keep connections in a pool.
pub const RESP_IDLE_DEFAULT: Duration = Duration::from_secs(300);
/// How long is waited for the rest of a command, and for a client that takes no replies; it is noticed after twice
/// that at the latest.
pub const RESP_REST_WAIT_DEFAULT: Duration = Duration::from_secs(10);
/// The version of Redis whose clients know what is spoken here.
const COMPATIBLE_VERSION: &str = "7.2.0";

/// The Redis protocol as something that listens.
#[derive(Debug)]
pub struct Resp {
    api: Arc<Api>,
    password: Option<Arc<Keyring>>,
    on_outage: OnOutage,
    idle: Duration,
    rest_wait: Duration,
    strays: Strays,
}

impl Resp {
    /// Serves `api`, to clients that send the password if there is one.
    #[must_use]
    pub fn new(api: Arc<Api>, password: Option<Arc<Keyring>>) -> Self {
        Self {
            api,
            password,
            on_outage: OnOutage::Allow,
            idle: RESP_IDLE_DEFAULT,
            rest_wait: RESP_REST_WAIT_DEFAULT,
            strays: Strays::default(),
        }
    }

    /// What becomes of a charge when the store cannot be asked.
    #[must_use]
    pub fn on_outage(self, on_outage: OnOutage) -> Self {
        Self { on_outage, ..self }
    }

    /// How long a connection may be without a command, and how long is waited for the rest of one.
    #[must_use]
    pub fn patience(self, idle: Duration, rest_wait: Duration) -> Self {
        Self { idle, rest_wait, ..self }
    }

    /// Notes a command by its place in the table.
    #[inline]
    fn note(&self, place: Option<usize>, is_error: bool) {
        self.api.metrics.commands.note(place, is_error);
    }
}

impl Protocol for Resp {
    fn name(&self) -> &'static str {
        "RESP"
    }

    fn opened(&self) {
        self.api.metrics.connection_opened();
    }

    fn closed(&self) {
        self.api.metrics.connection_closed();
    }

    fn refused(&self) -> &'static [u8] {
        self.api.metrics.connection_refused();
        b"-ERR max number of clients reached\r\n"
    }

    fn serve(self: Arc<Self>, stream: Stream, finishing: Finishing, place: Place) -> Serving {
        let from = stream.peer();
        match stream {
            Stream::Plain(stream) => Box::pin(Connection::serve(self, stream, finishing, place, from)),
            Stream::Tls(stream) => Box::pin(Connection::serve(self, stream, finishing, place, from)),
        }
    }
}

/// How often each command was answered, and how often with an error. Those that are not known are the last.
#[derive(Debug)]
pub(super) struct CommandCounts([[AtomicU64; 2]; COMMANDS.len() + 1]);

impl Default for CommandCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Default::default()))
    }
}

impl CommandCounts {
    #[inline]
    fn note(&self, place: Option<usize>, is_error: bool) {
        let place = place.unwrap_or(COMMANDS.len());
        if let Some(counts) = self.0.get(place) {
            counts[usize::from(is_error)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All that were called: the command, the outcome, how often. That of charges is shown before it is called.
    pub(super) fn read(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let names = COMMANDS.iter().map(|known| known.name).chain(["unknown"]);
        let counted = names.zip(&self.0).flat_map(|(name, counts)| {
            let outcomes = ["answered", "error"].into_iter().zip(counts);
            outcomes.map(move |(outcome, count)| (name, outcome, count.load(Ordering::Relaxed)))
        });
        counted
            .enumerate()
            .filter(|(index, (.., count))| *index == 0 || *count > 0)
            .map(|(_, counted)| counted)
    }
}
