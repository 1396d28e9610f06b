//! One connection to a server, and the keeper that brings it back.
//!
//! While the connection is lost for the first time, calls wait for it within
//! their deadlines. Once an attempt to get it back has failed, or the breaker has
//! seen enough, calls fail at once and the keeper probes the server: one probe at
//! a time, ever more rarely.

mod calls;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub(super) use self::calls::{Answered, Confirming, Outgoing, bytes_of, command};
use super::breaker::{Breaker, BreakerPolicy, back_off};
use super::encode::{Call, call};
use super::locate::Locator;
use super::role::{refuse_misplaced, refuse_replicas};
use super::silence::{Signs, unless_silent, unless_silent_until};
use super::wire::{Address, Wire};
use crate::store::{BreakerState, StoreError, StoreErrorKind};

/// How long connecting may take, at least: a handshake is several round trips.
const CONNECT_MIN: Duration = Duration::from_millis(500);
/// Commands that wait to be written to one connection: batches and a few others.
const PIPELINE_MAX: usize = 256;
/// How many deadlines a call may take if it was sent late, or others are answered meanwhile.
const DEADLINES_MAX: u32 = 2;

/// Over how long connections are spread that a failover has cut.
const SPREAD_MAX: Duration = Duration::from_millis(10);
/// How often a node that takes no writes is asked whether it is still a primary.
const DOUBT_EVERY: Duration = Duration::from_millis(100);

/// An opening of the breaker so soon after it closed counts as the same trouble.
const RELAPSE_WITHIN: Duration = Duration::from_secs(10);

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
    locator: Locator,
    /// The server, without secrets: for logs and errors.
    pub(super) server: String,
    script: Script,
    deadline: Duration,
    confirming: Confirming,
    state: watch::Sender<State>,
    breaker: Breaker,
    keeping: AtomicBool,
    /// Ends the keeper's wait: the server is somewhere else by now.
    hurry: Arc<Notify>,
    /// Whether the server is being asked if it is still a primary.
    is_doubted: AtomicBool,
    /// Whether there is a connection, as far as is known.
    up: AtomicBool,
    /// Whether there are other connections, which are used while this one fails calls; and whether it does.
    has_siblings: bool,
    is_suspect: AtomicBool,
    /// Whether the log says that it answers too slowly.
    is_slow: AtomicBool,
    /// How often in a row the breaker opened soon after it had closed.
    relapses: AtomicU32,
    /// When the breaker last closed, in microseconds since `started`.
    closed: AtomicU64,
    generations: AtomicU64,
    opened: AtomicU64,
    started: Instant,
    runtime: Handle,
}

#[derive(Clone, Debug)]
enum State {
    /// Being made; calls wait.
    Connecting,
    /// There; the number tells it from the ones before.
    Up(Arc<Wire>, u64),
    /// Not to be had; calls fail.
    Down(StoreErrorKind, Arc<str>),
}

impl Link {
    /// Begins to connect; never waits and never fails.
    pub(super) fn start(
        locator: Locator,
        script: Script,
        deadline: Duration,
        replicas: usize,
        policy: BreakerPolicy,
        runtime: Handle,
        has_siblings: bool,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            server: locator.name(),
            locator,
            script,
            deadline,
            confirming: Confirming::new(replicas, deadline),
            state: watch::Sender::new(State::Connecting),
            breaker: Breaker::new(policy),
            keeping: AtomicBool::new(false),
            hurry: Arc::new(Notify::new()),
            is_doubted: AtomicBool::new(false),
            up: AtomicBool::new(false),
            has_siblings,
            is_suspect: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            relapses: AtomicU32::new(0),
            closed: AtomicU64::new(0),
            generations: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            started: Instant::now(),
            runtime,
        });
        let first = link.locator.is_in_storm().then(spread).unwrap_or_default();
        link.wake_keeper(first);
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

    /// Whether a call would find a connection.
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Whether a call would rather take another connection.
    #[inline]
    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed)
    }

    /// Whether something has arrived that was not read yet.
    pub(super) fn has_unread(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(wire, _) if wire.traffic.has_unread())
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
        bytes_of(
            self.within_deadline((), None, |_| None, |connection| self.evaluate(connection, call)).await?,
        )
    }

    /// Runs calls of the script in one go; says what became of each, if they did not all fail. Drops `turn` as soon as
    /// they are on their way, before whatever is sent next. `due` ends what has waited too long by an instant, and says
    /// when there is more.
    pub(super) async fn run_in_turn<T>(
        self: &Arc<Self>,
        calls: &[Outgoing<'_>],
        turn: T,
        due: impl FnMut(Instant) -> Option<Instant>,
    ) -> Result<Answered, StoreError> {
        self.within_deadline(turn, None, due, |connection| self.evaluate_all(connection, calls)).await
    }

    /// Sends commands once, within the deadline and until `end`.
    pub(super) async fn send<R, F>(
        self: &Arc<Self>,
        end: Instant,
        send: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<R, StoreError>
    where
        F: Future<Output = Result<R, RedisError>>,
    {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        if end <= Instant::now() {
            return Err(out_of_time()); // and nothing is sent
        }
        self.within_deadline((), Some(end), |_| None, send).await
    }

    fn answered(&self) {
        if self.has_siblings {
            self.is_suspect.store(false, Ordering::Relaxed);
        }
        self.breaker.succeeded(Instant::now().into_std());
    }

    /// Microseconds since this link was made.
    fn micros(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    async fn within_deadline<T, R, F>(
        self: &Arc<Self>,
        turn: T,
        end: Option<Instant>,
        due: impl FnMut(Instant) -> Option<Instant>,
        send: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<R, StoreError>
    where
        F: Future<Output = Result<R, RedisError>>,
    {
        let way = OnceLock::new();
        let attempt = async {
            let (wire, generation) = self.connection().await?;
            let connection = wire.connection.clone();
            let writes = wire.traffic.writes();
            way.get_or_init(|| Way { wire, generation, writes });
            // Looked at once, it is in the connection's queue, if the runtime lets it: see there.
            let mut sent = pin!(tokio::task::unconstrained(send(connection)));
            let at_once = std::future::poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await;
            drop(turn);
            let reply = match at_once {
                Poll::Ready(reply) => reply,
                Poll::Pending => sent.await,
            };
            Ok(reply)
        };
        let begun = Instant::now();
        let latest = begun + self.deadline * (DEADLINES_MAX - 1);
        let since = || way.get().map_or(begun, |way| way.silent_since(begun).min(latest));
        let has_unread = || way.get().is_some_and(|way| way.wire.traffic.has_unread());
        let signs = Signs { since, has_unread, due };
        let outcome = match unless_silent_until(end, self.deadline, signs, attempt).await {
            Some(Err(refusal)) => return Err(refusal),
            Some(Ok(outcome)) => outcome,
            // The call is over, and the server was not silent for a deadline yet.
            None if end.is_some() && Instant::now() < since() + self.deadline => return Err(out_of_time()),
            None => {
                self.failed(None, "no answer in time");
                return Err(timeout(self.deadline));
            }
        };
        let generation = way.get().map(|way| way.generation);
        outcome.inspect(|_| self.answered()).map_err(|error| {
            let known = StoreError::from_redis(&error);
            if error.is_io_error() || error.is_connection_dropped() {
                self.failed(generation, &error.to_string());
            } else if known.kind() == StoreErrorKind::Unavailable {
                self.failed(None, &error.to_string());
            } else {
                // It answers, if not what we hoped for.
                self.answered();
                self.doubt(&known);
            }
            known
        })
    }

    async fn connection(&self) -> Result<(Arc<Wire>, u64), StoreError> {
        let mut state = self.state.subscribe();
        loop {
            match &*state.borrow_and_update() {
                State::Up(wire, generation) => return Ok((Arc::clone(wire), *generation)),
                State::Down(kind, why) => return Err(StoreError::new(*kind, &**why)),
                State::Connecting => {}
            }
            if state.changed().await.is_err() {
                return Err(StoreError::new(StoreErrorKind::Unavailable, "the store is gone"));
            }
        }
    }

    /// Counts a failure; `lost` is the connection it was the end of.
    fn failed(self: &Arc<Self>, lost: Option<u64>, why: &str) {
        if self.breaker.failed(Instant::now().into_std()) {
            let first = back_off(self.breaker.policy(), self.relapse());
            self.open(StoreErrorKind::Unavailable, why);
            self.wake_keeper(first);
        } else if let Some(lost) = lost {
            self.lost(lost);
        } else if self.has_siblings && !self.is_suspect.swap(true, Ordering::Relaxed) {
            self.runtime.spawn(clear_up(Arc::downgrade(self)));
        }
    }

    /// A connection has ended: the next one is made before anything is asked, if it was the last.
    fn lost(self: &Arc<Self>, lost: u64) {
        let gone = self.state.send_if_modified(|state| {
            let gone = matches!(state, State::Up(_, number) if *number == lost);
            if gone {
                *state = State::Connecting;
                self.up.store(false, Ordering::Relaxed);
            }
            gone
        });
        if gone {
            // A failover cuts the connections of all instances at once.
            self.wake_keeper(if self.locator.can_move() { spread() } else { Duration::ZERO });
        }
    }

    /// The server is at `place`: a connection to somewhere else ends here, also if it still answers, because it may go to
    /// a primary of yesterday. `is_new` says that nobody has heard of that place yet.
    pub(super) fn belongs_at(self: &Arc<Self>, place: &str, is_new: bool) {
        let elsewhere = match &*self.state.borrow() {
            State::Up(wire, generation) if wire.server != place => Some((wire.server.clone(), *generation)),
            _ => None,
        };
        if let Some((left, generation)) = elsewhere {
            tracing::warn!(server = %self.server, left, place, "the primary has changed: its connection is left");
            self.lost(generation);
        } else if is_new && !self.is_up() {
            self.hurry.notify_one();
        }
    }

    /// A server that takes no writes may have become a replica: it is asked, and left if it has.
    pub(super) fn doubt(self: &Arc<Self>, error: &StoreError) {
        let is_read_only = error.kind() == StoreErrorKind::ReadOnly;
        if !is_read_only || !self.locator.is_primary_alone() || self.is_doubted.swap(true, Ordering::AcqRel) {
            return;
        }
        let up = match &*self.state.borrow() {
            State::Up(wire, generation) => Some((wire.connection.clone(), *generation)),
            _ => None,
        };
        let (link, patience) = (Arc::downgrade(self), self.patience());
        self.runtime.spawn(async move {
            let mut replica = None;
            if let Some((mut connection, generation)) = up {
                let role = tokio::time::timeout(patience, refuse_replicas(&mut connection)).await;
                replica = matches!(role, Ok(Err(_))).then_some(generation);
            }
            if let Some((link, generation)) = link.upgrade().zip(replica) {
                link.lost(generation);
            }
            // A primary that refuses for another reason is not asked with every check.
            tokio::time::sleep(DOUBT_EVERY).await;
            if let Some(link) = link.upgrade() {
                link.is_doubted.store(false, Ordering::Release);
            }
        });
    }

    /// Counts an opening soon after the breaker closed: a server that passes probes and fails calls is probed
    /// ever more rarely, too.
    fn relapse(&self) -> u32 {
        let since = self.micros().saturating_sub(self.closed.load(Ordering::Relaxed));
        if Duration::from_micros(since) > RELAPSE_WITHIN {
            self.relapses.store(0, Ordering::Relaxed);
            return 0;
        }
        self.relapses.fetch_add(1, Ordering::Relaxed)
    }

    fn open(&self, kind: StoreErrorKind, why: &str) {
        self.up.store(false, Ordering::Relaxed);
        let message = format!("{} cannot be asked: {why}", self.server);
        self.state.send_replace(State::Down(kind, message.into()));
        if self.breaker.set(BreakerState::Open) == BreakerState::Closed {
            self.opened.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(server = %self.server, reason = why, "circuit breaker open: rules decide by their failure policy");
        }
    }

    fn close(&self, wire: Wire, generation: u64) {
        // Before the connection is there for others to lose.
        self.keeping.store(false, Ordering::Release);
        // First, because it forgets the failures so far: one more, of a call that began
        // before, would take the new connection down.
        let before = self.breaker.set(BreakerState::Closed);
        self.closed.store(self.micros(), Ordering::Relaxed);
        if self.locator.is_primary_alone() {
            tracing::info!(server = %self.server, primary = wire.server, "connected to the primary");
        }
        self.state.send_replace(State::Up(Arc::new(wire), generation));
        self.up.store(true, Ordering::Relaxed);
        self.is_suspect.store(false, Ordering::Relaxed);
        self.is_slow.store(false, Ordering::Relaxed);
        if before != BreakerState::Closed {
            tracing::info!(server = %self.server, "circuit breaker closed: the store decides again");
        }
    }

    fn wake_keeper(self: &Arc<Self>, first: Duration) {
        if self.keeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let (link, hurry) = (Arc::downgrade(self), Arc::clone(&self.hurry));
        self.runtime.spawn(async move {
            let (mut wait, mut failed) = (first, 0);
            loop {
                let _ = tokio::time::timeout(wait, hurry.notified()).await;
                let Some(link) = link.upgrade() else { return };
                if link.breaker.state() == BreakerState::Open {
                    link.breaker.set(BreakerState::HalfOpen);
                }
                let generation = link.generations.fetch_add(1, Ordering::Relaxed) + 1;
                match link.connect(generation).await {
                    Ok(wire) => return link.close(wire, generation),
                    Err((kind, why)) => {
                        link.open(kind, &why);
                        wait = back_off(link.breaker.policy(), failed);
                        failed += 1;
                    }
                }
            }
        });
    }

    /// How long it may take to connect.
    fn patience(&self) -> Duration {
        CONNECT_MIN.max(self.deadline.saturating_mul(4))
    }

    /// A new connection to where the server is now.
    async fn connect(self: &Arc<Self>, generation: u64) -> Result<Wire, (StoreErrorKind, String)> {
        let address = self.locator.locate().await.map_err(|nowhere| (nowhere.kind, nowhere.why))?;
        let connected = self.connect_to(&address, generation).await;
        if !self.locator.is_primary_alone() {
            return connected;
        }
        connected.map_err(|(kind, why)| (kind, format!("{}: {why}", address.server())))
    }

    /// A new connection that has run the script once, within the deadline.
    async fn connect_to(
        self: &Arc<Self>,
        address: &Address,
        generation: u64,
    ) -> Result<Wire, (StoreErrorKind, String)> {
        let patience = self.patience();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(patience))
            // Ours is shorter, and starts before the call waits its turn.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_MAX);
        let link = Arc::downgrade(self);
        let ended = move || {
            if let Some(link) = link.upgrade() {
                link.lost(generation);
            }
        };
        let attempt = async {
            let wire = address.connect(config, &self.runtime, ended).await?;
            let mut connection = wire.connection.clone();
            // First what is short: a server refuses a user only then.
            if self.locator.is_primary_alone() {
                refuse_replicas(&mut connection).await?;
            }
            self.evaluate(connection.clone(), &call(&[], None)).await?;
            refuse_misplaced(&mut connection, self.locator.is_of_cluster()).await?;
            self.refuse_waiting(&mut connection).await?;
            // What came by EVAL may be dropped again; what was loaded stays.
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(&*self.script.text)
                .query_async::<String>(&mut connection)
                .await?;
            Ok(wire)
        };
        let connected = match tokio::time::timeout(patience, attempt).await {
            // Report a refused user as such, not as a server that is away.
            Ok(Err(error)) if StoreError::from_redis(&error).kind() == StoreErrorKind::Permission => {
                Err((StoreErrorKind::Permission, error.to_string()))
            }
            Ok(outcome) => outcome.map_err(|error| (StoreErrorKind::Unavailable, error.to_string())),
            Err(_) => Err((StoreErrorKind::Unavailable, format!("no connection within {patience:?}"))),
        };
        self.in_time(connected?, patience).await
    }

    /// The connection, if the server answers on it as fast as calls ask it to. Else each of them would fail.
    async fn in_time(&self, wire: Wire, patience: Duration) -> Result<Wire, (StoreErrorKind, String)> {
        let empty = call(&[], None);
        let (begun, writes) = (Instant::now(), wire.traffic.writes());
        let mut probe = pin!(self.evaluate(wire.connection.clone(), &empty));
        let since = || wire.traffic.written_after(writes).unwrap_or(begun).min(begun + self.deadline);
        let signs = Signs { since, has_unread: || wire.traffic.has_unread(), due: |_| None };
        if let Some(answer) = unless_silent(self.deadline, signs, probe.as_mut()).await {
            return answer.map(|_| wire).map_err(|error| (StoreErrorKind::Unavailable, error.to_string()));
        }
        let slow = match tokio::time::timeout(patience, probe).await {
            Ok(_) => format!("it answers in {:?}", begun.elapsed()),
            Err(_) => format!("it gives no answer within {:?}", begun.elapsed()),
        };
        let deadline = self.deadline;
        let reason = format!(
            "{slow}, and the store's deadline is {deadline:?}; raise that (--store-deadline) if the server is far away"
        );
        // Once: further probes find out no more.
        if !self.is_slow.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = %self.server, reason, "the store is slower than its deadline");
        }
        Err((StoreErrorKind::Unavailable, reason))
    }
}

/// So that instances do not connect together.
fn spread() -> Duration {
    SPREAD_MAX.mul_f64(fastrand::f64())
}

/// Asks a connection that has failed a call, while others are used, until it answers or is given up.
async fn clear_up(link: Weak<Link>) {
    loop {
        let Some(link) = link.upgrade() else { return };
        // Answered or not, it is counted as any other call.
        let _ = link.run(&call(&[], None)).await;
        if link.breaker_state() != BreakerState::Closed || !link.is_suspect() {
            return;
        }
    }
}

/// The connection of a call, and how often it had been written to before.
#[derive(Debug)]
struct Way {
    wire: Arc<Wire>,
    generation: u64,
    writes: u64,
}

impl Way {
    /// Since when the server owes an answer to what was asked at an instant: since it was sent, or since the server
    /// last said anything.
    fn silent_since(&self, begun: Instant) -> Instant {
        let sent = self.wire.traffic.written_after(self.writes).unwrap_or(begun);
        sent.max(self.wire.traffic.last_read()).max(begun)
    }
}

/// A call of several steps took longer than its total.
pub(super) fn out_of_time() -> StoreError {
    StoreError::new(StoreErrorKind::Timeout, "no answer within the total of the call")
}

pub(super) fn timeout(deadline: Duration) -> StoreError {
    StoreError::new(StoreErrorKind::Timeout, format!("no answer within {deadline:?}"))
}
