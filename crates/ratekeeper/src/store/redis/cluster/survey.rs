//! What nodes say of their cluster, and when they are asked.

mod read;

use std::sync::{Arc, Weak};
use std::time::Duration;

use ::redis::{AsyncConnectionConfig, ErrorKind, RedisError, Value};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::read::read;
use super::super::link::Link;
use super::super::redirect::Place;
use super::super::role::STAND_ALONE;
use super::super::tag::SLOTS;
use super::super::wire::Address;
use super::{Cluster, Known};
use crate::store::{StoreError, StoreErrorKind};

/// How often nodes are asked if nothing happens, up to a quarter more or less, so that instances do not ask together.
const EVERY: Duration = Duration::from_secs(1);
/// How often at most, also while connections are lost and calls are sent elsewhere.
const AGAIN: Duration = Duration::from_millis(50);
/// How many nodes are asked at once: one could be cut off from the others.
const ASKED_MAX: usize = 3;
/// How long one node may take to answer, at least: a handshake is several round trips.
const ANSWER_MIN: Duration = Duration::from_millis(250);
/// ... and at most, however patient calls are.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// For so long after an epoch was last heard of, lower ones are out of date. Then the cluster has been set up anew.
const EPOCH_HOLDS: Duration = Duration::from_secs(10);
/// Characters of somebody else's words in an error.
const WORDS_MAX: usize = 200;

/// What a node says of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Survey {
    /// The number of the last failover or move of slots that it has heard of.
    pub(super) epoch: u64,
    /// Whether it takes calls, as far as the cluster is concerned.
    pub(super) is_ok: bool,
    pub(super) ranges: Vec<Range>,
}

/// Slots of a node, from the first to the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) place: Place,
}

impl Survey {
    /// A node that does not know its own host is where it was asked.
    fn asked_at(mut self, server: &str) -> Self {
        let host = Place::read(server).map(|place| place.host).unwrap_or_default();
        for range in self.ranges.iter_mut().filter(|range| range.place.host.is_empty()) {
            range.place.host.clone_from(&host);
        }
        self
    }

    /// How many slots some node has. Ranges that overlap count once.
    pub(super) fn covered(&self) -> usize {
        let mut is_covered = vec![false; usize::from(SLOTS)];
        for range in &self.ranges {
            let slots = is_covered.get_mut(usize::from(range.first)..=usize::from(range.last));
            slots.into_iter().flatten().for_each(|slot| *slot = true);
        }
        is_covered.into_iter().filter(|is_covered| *is_covered).count()
    }

    /// What keeps the cluster from deciding, and what to do about it.
    pub(super) fn trouble(&self) -> Option<String> {
        let covered = self.covered();
        let is_covered = covered >= usize::from(SLOTS);
        let repair = "redis-cli --cluster check names them, --cluster fix repairs them";
        match (is_covered, self.is_ok) {
            (true, true) => None,
            (false, _) => Some(format!(
                "{covered} of {SLOTS} slots are on a node: bring back the nodes that had the others, or assign them \
                 ({repair})"
            )),
            (true, false) => Some(format!(
                "its state is fail although all slots are assigned: bring back the primaries that are away, or let \
                 replicas take over ({repair})"
            )),
        }
    }
}

/// What one node said, or why not. The words follow its address.
pub(super) type Said = (String, Result<Survey, StoreError>);

/// Asks the nodes whenever there is reason to, until the store is gone.
pub(super) async fn follow(cluster: Weak<Cluster>, changed: Arc<Notify>) {
    let mut rounds = Rounds::default();
    loop {
        {
            let Some(cluster) = cluster.upgrade() else { return };
            rounds.note(&cluster, &cluster.asked().await);
        }
        sleep(AGAIN.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
        let calm = EVERY.mul_f64(0.75 + 0.5 * fastrand::f64());
        let _ = timeout(calm, changed.notified()).await;
    }
}

/// What is remembered from one survey to the next.
#[derive(Default)]
struct Rounds {
    /// The highest epoch, and when it was last heard of.
    epoch: Option<(u64, Instant)>,
    /// What the log says is wrong.
    trouble: Option<String>,
}

impl Rounds {
    fn note(&mut self, cluster: &Cluster, said: &[Said]) {
        let floor =
            self.epoch.filter(|(_, heard)| heard.elapsed() < EPOCH_HOLDS).map_or(0, |(epoch, _)| epoch);
        let best = newest(said).filter(|survey| survey.epoch >= floor);
        let Some(best) = best else {
            // While nobody knows better, calls go where they went.
            return self.unknown(cluster, said);
        };
        self.epoch = Some((best.epoch, Instant::now()));
        cluster.replace(best);
        cluster.known.send_replace(Known::Yes);
        let trouble = best.trouble().or_else(|| stand_alone(said));
        if trouble != self.trouble {
            match &trouble {
                Some(reason) => tracing::warn!(cluster = cluster.name(), reason, "the cluster is not whole"),
                None => tracing::info!(cluster = cluster.name(), "the cluster is whole"),
            }
            self.trouble = trouble;
        }
    }

    fn unknown(&mut self, cluster: &Cluster, said: &[Said]) {
        let error = refusal(cluster.name(), said);
        let is_first = !matches!(&*cluster.known.borrow(), Known::Yes);
        if is_first {
            cluster.known.send_replace(Known::No(error.kind(), error.to_string().into()));
        }
        let trouble = Some(error.to_string());
        if trouble != self.trouble {
            tracing::warn!(cluster = cluster.name(), reason = %error, "no node says where the slots are");
            self.trouble = trouble;
        }
    }
}

/// Why nobody has said where slots are.
pub(super) fn refusal(name: &str, said: &[Said]) -> StoreError {
    let errors = || said.iter().filter_map(|(address, answer)| Some((address, answer.as_ref().err()?)));
    let is_refused = errors().any(|(_, error)| error.kind() == StoreErrorKind::Permission);
    let kind = if is_refused { StoreErrorKind::Permission } else { StoreErrorKind::Unavailable };
    let reasons: Vec<String> = errors().map(|(address, error)| format!("{address} {error}")).collect();
    StoreError::new(kind, format!("{name} does not say where its slots are: {}", reasons.join("; ")))
}

/// The answer of the newest epoch; of several, one of a node that takes calls.
pub(super) fn newest(said: &[Said]) -> Option<&Survey> {
    let answers = said.iter().filter_map(|(_, answer)| answer.as_ref().ok());
    answers.max_by_key(|survey| (survey.epoch, survey.is_ok, survey.covered()))
}

/// A server that the URL names and that is no node.
fn stand_alone(said: &[Said]) -> Option<String> {
    said.iter().find_map(|(address, answer)| {
        let error = answer.as_ref().err()?;
        error.is_no_node().then(|| format!("{address}: {error}"))
    })
}

impl Cluster {
    /// Asks a few nodes that are connected to, and if there are too few, those that the URL names.
    async fn asked(&self) -> Vec<Said> {
        let mut links: Vec<Arc<Link>> =
            self.topology.load().nodes.iter().map(|node| node.lanes.pick().link().clone()).collect();
        links.retain(|link| link.is_up());
        fastrand::shuffle(&mut links);
        links.truncate(ASKED_MAX);
        let mut asked = JoinSet::new();
        let runtime = &self.maker.runtime;
        let patience = self.patience();
        let is_first = !matches!(&*self.known.borrow(), Known::Yes);
        let seeds = if links.len() < ASKED_MAX { &self.seeds[..] } else { &[] };
        let new_seeds = seeds.iter().filter(|seed| links.iter().all(|link| link.server != seed.server()));
        for seed in new_seeds.cloned() {
            let runtime_of_it = runtime.clone();
            asked.spawn_on(async move { ask_seed(seed, patience, &runtime_of_it).await }, runtime);
        }
        for link in links {
            asked.spawn_on(async move { (link.server.clone(), ask_link(&link, patience).await) }, runtime);
        }
        let (mut said, majority) = (Vec::new(), asked.len() / 2 + 1);
        while let Some(joined) = asked.join_next().await {
            // A task that died has said nothing.
            said.extend(joined);
            let answered = said.iter().filter(|(_, answer): &&Said| answer.is_ok()).count();
            if answered < majority {
                continue;
            }
            if !is_first {
                break;
            }
            // Calls wait; what is wrong with the others is for the log.
            if let Some(best) = newest(&said) {
                self.replace(best);
                self.known.send_replace(Known::Yes);
            }
        }
        said
    }

    /// Asks every node that the URL names.
    pub(super) async fn ask_seeds(&self) -> Vec<Said> {
        let mut asked = JoinSet::new();
        for (index, seed) in self.seeds.iter().cloned().enumerate() {
            let (runtime, patience) = (self.maker.runtime.clone(), self.patience());
            let answer = async move { (index, ask_seed(seed, patience, &runtime).await) };
            asked.spawn_on(answer, &self.maker.runtime);
        }
        let mut said = asked.join_all().await;
        said.sort_by_key(|(index, _)| *index);
        said.into_iter().map(|(_, said)| said).collect()
    }

    fn patience(&self) -> Duration {
        self.maker.deadline().saturating_mul(4).clamp(ANSWER_MIN, ANSWER_MAX)
    }
}

/// Asks a node on the connection for calls.
async fn ask_link(link: &Arc<Link>, patience: Duration) -> Result<Survey, StoreError> {
    let sent =
        |mut connection: ::redis::aio::MultiplexedConnection| async move { ask(&mut connection).await };
    let survey = link.send(Instant::now() + patience, sent).await?;
    survey.map(|survey| survey.asked_at(&link.server)).map_err(|error| failure(&error))
}

/// Asks a node on a connection for this only.
async fn ask_seed(seed: Address, patience: Duration, runtime: &tokio::runtime::Handle) -> Said {
    let asked = async {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(patience))
            .set_response_timeout(Some(patience));
        let wire = seed.connect(config, runtime, || {}).await.map_err(|error| failure(&error))?;
        let mut connection = wire.connection.clone();
        ask(&mut connection).await.and_then(|answer| answer).map_err(|error| failure(&error))
    };
    let answer = match timeout(patience, asked).await {
        Ok(answer) => answer.map(|survey| survey.asked_at(&seed.server())),
        Err(_) => {
            let why = format!("did not answer within {patience:?}");
            Err(StoreError::new(StoreErrorKind::Unavailable, why))
        }
    };
    (seed.server(), answer)
}

/// Both commands in one go. What the node refuses is no failure of its connection.
async fn ask(
    connection: &mut ::redis::aio::MultiplexedConnection,
) -> Result<Result<Survey, RedisError>, RedisError> {
    let mut pipeline = ::redis::pipe();
    pipeline.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
    let values = connection.send_packed_commands(&pipeline, 0, 2).await?;
    let mut values = values.into_iter().map(Value::extract_error);
    let (info, slots) = (values.next(), values.next());
    let Some((info, slots)) = info.zip(slots) else {
        return Err((ErrorKind::UnexpectedReturnType, "too few answers").into());
    };
    Ok(info.and_then(|info| slots.and_then(|slots| read(info, slots))))
}

/// What an error means, and what to do about it.
fn failure(error: &RedisError) -> StoreError {
    let words = error.detail().unwrap_or_default();
    let unavailable = |why: String| StoreError::new(StoreErrorKind::Unavailable, why);
    if error.is_connection_refusal() {
        return unavailable("is not there: nothing listens".to_owned());
    }
    if words.contains("cluster support disabled") {
        return StoreError::no_node(STAND_ALONE);
    }
    let known = StoreError::from_redis(error);
    match known.kind() {
        StoreErrorKind::Permission => {
            let why = format!(
                "does not let its user ask for slots: see the permissions in docs/redis.md ({known})"
            );
            StoreError::new(StoreErrorKind::Permission, why)
        }
        _ => unavailable(error.to_string().chars().take(WORDS_MAX).collect()),
    }
}
