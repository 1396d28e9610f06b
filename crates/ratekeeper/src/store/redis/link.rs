//! One connection to a server, and the keeper that brings it back.
//!
//! While the connection is lost for the first time, calls wait for it within
//! their deadlines. Once an attempt to get it back has failed, or the breaker has
//! seen enough, calls fail at once and the keeper probes the server: one probe at
//! a time, ever more rarely.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use super::breaker::{Breaker, BreakerPolicy, back_off};
use super::encode::{Call, call};
use super::silence::unless_silent;
use crate::store::{BreakerState, StoreError, StoreErrorKind};

/// How long connecting may take, at least: a handshake is several round trips.
const CONNECT_MIN: Duration = Duration::from_millis(250);
/// Commands that wait to be written to one connection: batches and a few others.
const PIPELINE_MAX: usize = 256;
/// How many deadlines a call may take in all if others are answered meanwhile: it is
/// sent behind one other at most.
const DEADLINES_MAX: u32 = 2;

/// The script and its digest.
#[derive(Debug)]
pub(super) struct Script {
    text: Box<str>,
    sha: String,
}

impl Script {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.into(), sha: redis::Script::new(text).get_hash().to_owned() }
    }
}

/// A connection to one server.
#[derive(Debug)]
pub(super) struct Link {
    client: Client,
    /// The server, without secrets: for logs and errors.
    pub(super) server: String,
    script: Script,
    deadline: Duration,
    state: watch::Sender<State>,
    breaker: Breaker,
    keeping: AtomicBool,
    generations: AtomicU64,
    opened: AtomicU64,
    started: Instant,
    /// When the server last said anything, in microseconds since `started`.
    heard: AtomicU64,
    runtime: Handle,
}

#[derive(Clone, Debug)]
enum State {
    /// Being made; calls wait.
    Connecting,
    /// There; the number tells it from the ones before.
    Up(MultiplexedConnection, u64),
    /// Not to be had; calls fail.
    Down(StoreErrorKind, Arc<str>),
}

impl Link {
    /// Begins to connect; never waits and never fails.
    pub(super) fn start(
        client: Client,
        script: Script,
        deadline: Duration,
        policy: BreakerPolicy,
        runtime: Handle,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            server: client.get_connection_info().addr().to_string(),
            client,
            script,
            deadline,
            state: watch::Sender::new(State::Connecting),
            breaker: Breaker::new(policy),
            keeping: AtomicBool::new(false),
            generations: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            started: Instant::now(),
            heard: AtomicU64::new(0),
            runtime,
        });
        link.wake_keeper(Duration::ZERO);
        link
    }

    /// Why a call would fail at once, if it would.
    #[inline]
    pub(super) fn refusal(&self) -> Option<StoreError> {
        if self.breaker.state() == BreakerState::Closed {
            return None;
        }
        Some(self.down())
    }

    #[cold]
    fn down(&self) -> StoreError {
        match &*self.state.borrow() {
            State::Down(kind, why) => StoreError::new(*kind, &**why),
            _ => StoreError::new(StoreErrorKind::Unavailable, "the store is being connected again"),
        }
    }

    pub(super) fn breaker_state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// How often the breaker has opened.
    pub(super) fn times_opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs the script once, within the deadline. Never sent twice: what was
    /// not answered may have been charged.
    pub(super) async fn run(self: &Arc<Self>, call: &Call<'_>) -> Result<Vec<u8>, StoreError> {
        self.run_in_turn(call, ()).await
    }

    /// The same; drops `turn` as soon as the call is on its way, before whatever is sent next.
    pub(super) async fn run_in_turn<T>(
        self: &Arc<Self>,
        call: &Call<'_>,
        turn: T,
    ) -> Result<Vec<u8>, StoreError> {
        let reply = self.within_deadline(turn, |connection| self.evaluate(connection, call)).await?;
        match reply {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(super::answer::garbled()),
        }
    }

    /// Sends a command or a transaction once, within the deadline.
    pub(super) async fn send<F>(
        self: &Arc<Self>,
        send: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<Value, StoreError>
    where
        F: Future<Output = Result<Value, RedisError>>,
    {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        self.within_deadline((), send).await
    }

    /// The later of an instant and when the server last said anything.
    pub(super) fn heard_of(&self, since: Instant) -> Instant {
        since.max(self.started + Duration::from_micros(self.heard.load(Ordering::Relaxed)))
    }

    fn answered(&self) {
        let now = Instant::now();
        let since = u64::try_from((now - self.started).as_micros()).unwrap_or(u64::MAX);
        self.heard.store(since, Ordering::Relaxed);
        self.breaker.succeeded(now.into_std());
    }

    async fn within_deadline<T, F>(
        self: &Arc<Self>,
        turn: T,
        send: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<Value, StoreError>
    where
        F: Future<Output = Result<Value, RedisError>>,
    {
        let mut generation = None;
        let attempt = async {
            let (connection, number) = self.connection().await?;
            generation = Some(number);
            // Looked at once, it is in the connection's queue, if the runtime lets it: see there.
            let mut sent = pin!(tokio::task::unconstrained(send(connection)));
            let at_once = std::future::poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await;
            drop(turn);
            let reply = match at_once {
                Poll::Ready(reply) => reply,
                Poll::Pending => sent.await,
            };
            // The client hands a server's refusal over as if it were an answer.
            Ok(reply.and_then(Value::extract_error))
        };
        let begun = Instant::now();
        // What was sent before may be answered only meanwhile.
        let heard = || self.heard_of(begun).min(begun + self.deadline * (DEADLINES_MAX - 1));
        let outcome = match unless_silent(begun, self.deadline, heard, attempt).await {
            Some(Err(refusal)) => return Err(refusal),
            Some(Ok(outcome)) => outcome,
            None => {
                self.failed(None, "no answer in time");
                return Err(timeout(self.deadline));
            }
        };
        outcome.inspect(|_| self.answered()).map_err(|error| {
            let known = StoreError::from_redis(&error);
            if error.is_io_error() || error.is_connection_dropped() {
                self.failed(generation, &error.to_string());
            } else if known.kind() == StoreErrorKind::Unavailable {
                self.failed(None, &error.to_string());
            } else {
                // It answers, if not what we hoped for.
                self.answered();
            }
            known
        })
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), StoreError> {
        let mut state = self.state.subscribe();
        loop {
            match &*state.borrow_and_update() {
                State::Up(connection, generation) => return Ok((connection.clone(), *generation)),
                State::Down(kind, why) => return Err(StoreError::new(*kind, &**why)),
                State::Connecting => {}
            }
            if state.changed().await.is_err() {
                return Err(StoreError::new(StoreErrorKind::Unavailable, "the store is gone"));
            }
        }
    }

    /// EVALSHA; and where the script is not known (a restart, a failover, SCRIPT
    /// FLUSH), EVAL: then nothing has been executed.
    async fn evaluate(
        &self,
        mut connection: MultiplexedConnection,
        call: &Call<'_>,
    ) -> Result<Value, RedisError> {
        let by_sha = command("EVALSHA", &self.script.sha, call);
        match connection.send_packed_command(&by_sha).await?.extract_error() {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let whole = command("EVAL", &self.script.text, call);
                connection.send_packed_command(&whole).await?.extract_error()
            }
            other => other,
        }
    }

    /// Counts a failure; `lost` is the connection it was the end of.
    fn failed(self: &Arc<Self>, lost: Option<u64>, why: &str) {
        if self.breaker.failed(Instant::now().into_std()) {
            let first = back_off(self.breaker.policy(), 0);
            self.open(StoreErrorKind::Unavailable, why);
            self.wake_keeper(first);
        } else if let Some(lost) = lost {
            let is_lost = |state: &State| matches!(state, State::Up(_, number) if *number == lost);
            let gone = self.state.send_if_modified(|state| {
                let gone = is_lost(state);
                if gone {
                    *state = State::Connecting;
                }
                gone
            });
            if gone {
                self.wake_keeper(Duration::ZERO);
            }
        }
    }

    fn open(&self, kind: StoreErrorKind, why: &str) {
        let message = format!("{} cannot be asked: {why}", self.server);
        self.state.send_replace(State::Down(kind, message.into()));
        if self.breaker.set(BreakerState::Open) == BreakerState::Closed {
            self.opened.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(server = %self.server, reason = why, "circuit breaker open: rules decide by their failure policy");
        }
    }

    fn close(&self, connection: MultiplexedConnection) {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        // Before the connection is there for others to lose.
        self.keeping.store(false, Ordering::Release);
        // First, because it forgets the failures so far: one more, of a call that began
        // before, would take the new connection down.
        let before = self.breaker.set(BreakerState::Closed);
        self.state.send_replace(State::Up(connection, generation));
        if before != BreakerState::Closed {
            tracing::info!(server = %self.server, "circuit breaker closed: the store decides again");
        }
    }

    fn wake_keeper(self: &Arc<Self>, first: Duration) {
        if self.keeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let link = Arc::downgrade(self);
        self.runtime.spawn(async move {
            let (mut wait, mut failed) = (first, 0);
            loop {
                tokio::time::sleep(wait).await;
                let Some(link) = link.upgrade() else { return };
                if link.breaker.state() == BreakerState::Open {
                    link.breaker.set(BreakerState::HalfOpen);
                }
                match link.connect().await {
                    Ok(connection) => return link.close(connection),
                    Err((kind, why)) => {
                        link.open(kind, &why);
                        wait = back_off(link.breaker.policy(), failed);
                        failed += 1;
                    }
                }
            }
        });
    }

    /// A new connection that has run the script once.
    async fn connect(&self) -> Result<MultiplexedConnection, (StoreErrorKind, String)> {
        let patience = CONNECT_MIN.max(self.deadline.saturating_mul(4));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(patience))
            // Ours is shorter, and starts before the call waits its turn.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_MAX);
        let attempt = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            // First what is short: to whoever is not let in, a server says so only then.
            self.evaluate(connection.clone(), &call(&[], None)).await?;
            // What came by EVAL may be dropped again; what was loaded stays.
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(&*self.script.text)
                .query_async::<String>(&mut connection)
                .await?;
            Ok(connection)
        };
        match tokio::time::timeout(patience, attempt).await {
            // Whoever is not let in must hear that, not that nobody is there.
            Ok(Err(error)) if StoreError::from_redis(&error).kind() == StoreErrorKind::Permission => {
                Err((StoreErrorKind::Permission, error.to_string()))
            }
            Ok(outcome) => outcome.map_err(|error| (StoreErrorKind::Unavailable, error.to_string())),
            Err(_) => Err((StoreErrorKind::Unavailable, format!("no connection within {patience:?}"))),
        }
    }
}

pub(super) fn command(name: &str, script: &str, call: &Call<'_>) -> Cmd {
    let size =
        call.keys.iter().map(|key| key.len() + 16).sum::<usize>() + call.batch.len() + script.len() + 64;
    let mut command = Cmd::with_capacity(call.keys.len() + call.kept.len() + 4, size);
    command.arg(name).arg(script).arg(call.keys.len());
    for key in &call.keys {
        command.arg(*key);
    }
    command.arg(&*call.batch);
    for kept in &call.kept {
        command.arg(*kept);
    }
    command
}

pub(super) fn timeout(deadline: Duration) -> StoreError {
    StoreError::new(StoreErrorKind::Timeout, format!("no answer within {deadline:?}"))
}
