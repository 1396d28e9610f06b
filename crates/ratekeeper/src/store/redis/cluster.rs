//! A cluster: each slot of the keys is on one node, with connections, a queue and a breaker of its own.
//!
//! Which node has a slot is known from the nodes themselves (`survey.rs`): they are asked at the start, once a second,
//! and when a connection is lost or a call was sent elsewhere. A node that does not have the keys of a call says so and
//! has done nothing; only then is the call sent again, to where the node says.

mod node;
mod report;
mod survey;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::redis::{Cmd, RedisError, Value};
use arc_swap::ArcSwap;
use ratekeeper_core::{Clock, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use self::node::{Node, Topology};
pub use self::report::{ClusterNode, ClusterReport};
use self::survey::Survey;
use super::encode::Item;
use super::lane::{Errand, Lane, Manner, Refused, Reply};
use super::lanes::LaneMaker;
use super::link::{out_of_time, timeout};
use super::pauses::Pauses;
use super::redirect::{Place, Redirect};
use super::route::Part;
use super::wire::Address;
use crate::clock::SystemClock;
use crate::store::{Health, StoreError, StoreErrorKind};

/// How often a call is sent from node to node: nodes that disagree for longer are given up.
const HOPS_MAX: u32 = 8;
/// How many nodes a store connects to: as many as clusters can have.
pub(super) const NODES_MAX: usize = 1_000;

/// The nodes of a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    name: String,
    /// The nodes that the URL names.
    seeds: Vec<Address>,
    maker: LaneMaker,
    topology: ArcSwap<Topology>,
    /// What is known of the topology.
    known: watch::Sender<Known>,
    /// Asks for a survey.
    changed: Arc<Notify>,
    /// Held while the topology is replaced.
    updates: Mutex<()>,
    /// Counts of nodes that have left, and of calls that found no node.
    counts: Mutex<Health>,
    own_clock: SystemClock,
}

#[derive(Clone, Debug)]
enum Known {
    /// Nothing yet: calls wait.
    NotYet,
    /// Where slots are.
    Yes,
    /// Why not; calls fail.
    No(StoreErrorKind, Arc<str>),
}

impl Cluster {
    /// Begins to ask the seeds; never waits and never fails.
    pub(super) fn start(name: String, seeds: Vec<Address>, maker: LaneMaker) -> Arc<Self> {
        let runtime = maker.runtime.clone();
        let cluster = Arc::new(Self {
            name,
            seeds,
            maker,
            topology: ArcSwap::from_pointee(Topology::default()),
            known: watch::Sender::new(Known::NotYet),
            changed: Arc::new(Notify::new()),
            updates: Mutex::default(),
            counts: Mutex::default(),
            own_clock: SystemClock::new(),
        });
        runtime.spawn(survey::follow(Arc::downgrade(&cluster), Arc::clone(&cluster.changed)));
        cluster
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn end_of_call(&self) -> Instant {
        self.maker.end_of_call()
    }

    /// The time of a node that answers, as far as we know it.
    pub(super) fn now(&self) -> Timestamp {
        if let Some(clock) = &self.maker.clock {
            return clock.now();
        }
        let topology = self.topology.load();
        let node = topology.nodes.iter().find(|node| node.lanes.is_up());
        node.map_or_else(|| self.own_clock.now(), |node| node.lanes.pick().now())
    }

    /// All nodes that have slots together, and what was counted of those that have left.
    pub(super) fn health(&self) -> Health {
        let counts = *self.counts();
        let topology = self.topology.load();
        let nodes = topology.nodes.iter().filter(|node| node.has_slots()).map(|node| node.lanes.health());
        let others = topology.nodes.iter().filter(|node| !node.has_slots());
        let others = others.map(|node| node.lanes.health().counts_alone());
        nodes.chain(others).fold(counts, Health::and)
    }

    /// Why a call would fail at once, if it would.
    pub(super) fn refusal(&self, part: Part) -> Option<StoreError> {
        let topology = self.topology.load();
        match topology.node(part) {
            Some(node) => {
                let lane = node.lanes.pick();
                lane.link().refusal().inspect(|refusal| lane.count(refusal))
            }
            None => match &*self.known.borrow() {
                Known::No(kind, why) => {
                    Some(StoreError::new(*kind, &**why)).inspect(|error| self.count(error))
                }
                Known::NotYet | Known::Yes => None,
            },
        }
    }

    /// Counts what no node can be blamed for.
    pub(super) fn count(&self, error: &StoreError) {
        if error.kind() != StoreErrorKind::Input {
            self.counts().failures += 1;
            self.maker.failures.count(error, false);
        }
    }

    /// Asks the node that has the slot, wherever that goes meanwhile.
    pub(super) async fn ask(&self, part: Part, item: Item) -> Result<Reply, StoreError> {
        let end = self.end_of_call();
        let Some(lane) = self.known_lane(part) else {
            // Some of the total goes by before there is a lane, whose own would begin only then.
            return self.ask_until(end, part, item).await;
        };
        match lane.run(Errand { item, part, manner: Manner::Together }).await {
            Ok(reply) => Ok(reply),
            Err(refused) => self.redirected(end, lane, refused).await,
        }
    }

    /// The same as a later step of a call, which must be over by `end`.
    pub(super) async fn ask_until(&self, end: Instant, part: Part, item: Item) -> Result<Reply, StoreError> {
        let lane = self.lane(part, end).await?;
        match lane.run_until(end, Errand { item, part, manner: Manner::Together }).await {
            Ok(reply) => Ok(reply),
            Err(refused) => self.redirected(end, lane, refused).await,
        }
    }

    /// Goes on where a node has sent a call to.
    async fn redirected(&self, end: Instant, lane: Arc<Lane>, refused: Refused) -> Result<Reply, StoreError> {
        let mut trip = Trip::new(self, end, lane);
        let mut refused = refused;
        loop {
            let (redirect, mut errand) = match refused {
                Refused::Failed(error) => return Err(error),
                Refused::Elsewhere(back) => *back,
            };
            errand.manner = trip.next(errand.part, redirect).await.inspect_err(|error| self.count(error))?;
            match trip.lane.run_until(end, errand).await {
                Ok(reply) => return Ok(reply),
                Err(again) => refused = again,
            }
        }
    }

    /// Sends a command about keys of a slot.
    pub(super) async fn send_until(
        &self,
        end: Instant,
        part: Part,
        command: Cmd,
    ) -> Result<Value, StoreError> {
        let mut trip = Trip::new(self, end, self.lane(part, end).await?);
        let mut manner = Manner::Together;
        loop {
            let command = &command;
            let sent = |mut connection: ::redis::aio::MultiplexedConnection| async move {
                let mut pipeline = ::redis::pipe();
                let mut count = 1;
                if manner == Manner::Asking {
                    pipeline.add_command(::redis::cmd("ASKING"));
                    count += 1;
                }
                pipeline.add_command(command.clone());
                let mut values = connection.send_packed_commands(&pipeline, 0, count).await?;
                let value = values.pop().unwrap_or(Value::Nil).extract_error();
                // What only sends the caller elsewhere is no failure.
                match value {
                    Err(error) if Redirect::of(&error).is_none() => Err(error),
                    value => Ok(value),
                }
            };
            let reply: Result<Value, RedisError> = trip.lane.link().send(end, sent).await?;
            let error = match reply {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let Some(redirect) = Redirect::of(&error) else { return Err(StoreError::from_redis(&error)) };
            manner = trip.next(part, redirect).await?;
        }
    }

    /// A connection to the node that has a slot.
    async fn lane(&self, part: Part, end: Instant) -> Result<Arc<Lane>, StoreError> {
        match self.known_lane(part) {
            Some(lane) => Ok(lane),
            None => self.uncovered(part, end).await.inspect_err(|error| self.count(error)),
        }
    }

    fn known_lane(&self, part: Part) -> Option<Arc<Lane>> {
        Some(Arc::clone(self.topology.load().node(part)?.lanes.pick()))
    }

    /// The name of the node that has a slot, as far as this process knows.
    pub(super) fn server_of(&self, part: Part) -> Option<String> {
        Some(self.topology.load().node(part)?.lanes.pick().link().server.clone())
    }

    /// Waits for a topology where none is known.
    async fn uncovered(&self, part: Part, end: Instant) -> Result<Arc<Lane>, StoreError> {
        self.settled(end).await?;
        if let Some(lane) = self.known_lane(part) {
            return Ok(lane);
        }
        self.changed.notify_one();
        let why = format!(
            "{}: no node has slot {}: give it one (redis-cli --cluster fix), or bring back the node that had it",
            self.name, part.0
        );
        Err(StoreError::new(StoreErrorKind::Unavailable, why))
    }

    /// Waits for the first survey, for a deadline at most.
    async fn settled(&self, end: Instant) -> Result<(), StoreError> {
        let deadline = self.maker.deadline();
        let end = end.min(Instant::now() + deadline);
        let mut known = self.known.subscribe();
        let first = timeout_at(end, known.wait_for(|known| !matches!(known, Known::NotYet))).await;
        match first {
            Ok(Ok(known)) => match &*known {
                Known::No(kind, why) => Err(StoreError::new(*kind, &**why)),
                Known::NotYet | Known::Yes => Ok(()),
            },
            _ => Err(timeout(deadline)),
        }
    }

    /// A connection to each node that has slots.
    pub(super) async fn nodes(&self) -> Result<Vec<Arc<Lane>>, StoreError> {
        self.settled(self.end_of_call()).await?;
        let topology = self.topology.load();
        let nodes = topology.nodes.iter().filter(|node| node.has_slots());
        Ok(nodes.map(|node| Arc::clone(node.lanes.pick())).collect())
    }

    /// The node of a place; connected to if it is new.
    fn node_at(&self, place: &Place) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.topology.load().at(place) {
            return Ok(node);
        }
        let _updates = self.updating();
        let topology = self.topology.load();
        if let Some(node) = topology.at(place) {
            return Ok(node);
        }
        if topology.nodes.len() >= NODES_MAX {
            let why = format!("{}: more than {NODES_MAX} nodes", self.name);
            return Err(StoreError::new(StoreErrorKind::Unavailable, why));
        }
        let node = self.connect(place);
        self.topology.store(Arc::new(topology.with(Arc::clone(&node))));
        Ok(node)
    }

    fn connect(&self, place: &Place) -> Arc<Node> {
        // It was read when the store was made: there is a first.
        let address = self.seeds[0].at(&place.host, place.port);
        let is_heir = matches!(&*self.known.borrow(), Known::Yes);
        Arc::new(Node::new(place.clone(), address, &self.maker, &self.changed, is_heir))
    }

    /// Puts what nodes have said into force.
    fn replace(&self, survey: &Survey) {
        let _updates = self.updating();
        let before = self.topology.load_full();
        let after = Topology::of(survey, &before, NODES_MAX, |place| self.connect(place));
        let left = before.nodes.iter().filter(|node| after.at(&node.place).is_none());
        let left = left.map(|node| node.lanes.health().counts_alone());
        {
            let mut counts = self.counts();
            *counts = left.fold(*counts, Health::and);
        }
        self.topology.store(Arc::new(after));
    }

    fn updating(&self) -> MutexGuard<'_, ()> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, Health> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is sent from node to node.
struct Trip<'c> {
    cluster: &'c Cluster,
    end: Instant,
    /// Where it was sent last.
    lane: Arc<Lane>,
    hops: u32,
    pauses: Pauses,
}

impl<'c> Trip<'c> {
    fn new(cluster: &'c Cluster, end: Instant, lane: Arc<Lane>) -> Self {
        Self { cluster, end, lane, hops: 0, pauses: Pauses::default() }
    }

    /// Finds the next node by what the last one has said; how the call goes there.
    async fn next(&mut self, part: Part, redirect: Redirect) -> Result<Manner, StoreError> {
        self.cluster.changed.notify_one();
        let manner = match &redirect {
            Redirect::Moved(place) => {
                let place = self.whole(place);
                let node = self.cluster.node_at(&place)?;
                self.cluster.topology.load().learn(part, &place);
                self.go(&node);
                Manner::Together
            }
            Redirect::Ask(place) => {
                let node = self.cluster.node_at(&self.whole(place))?;
                self.go(&node);
                Manner::Asking
            }
            Redirect::TryAgain => {
                // Keys are in between for as long as one slot is moving.
                self.pauses.wait(self.end).await;
                self.lane = self.cluster.lane(part, self.end).await?;
                Manner::Alone
            }
            Redirect::NotServed => return Err(self.lost(&redirect)),
        };
        if self.hops > HOPS_MAX || Instant::now() >= self.end {
            return Err(self.lost(&redirect));
        }
        Ok(manner)
    }

    fn go(&mut self, node: &Node) {
        self.hops += 1;
        self.lane = Arc::clone(node.lanes.pick());
    }

    /// A place without a host is on the machine of the node that named it.
    fn whole(&self, place: &Place) -> Place {
        let own = || Place::read(&self.lane.link().server).map(|own| own.host);
        let host = if place.host.is_empty() { own() } else { None };
        Place { host: host.unwrap_or_else(|| place.host.clone()), port: place.port }
    }

    /// Not carried out, and not sent on.
    fn lost(&self, redirect: &Redirect) -> StoreError {
        if Instant::now() >= self.end {
            return out_of_time();
        }
        let why = format!("{} of the cluster says that {redirect}", self.lane.link().server);
        StoreError::new(StoreErrorKind::Unavailable, why)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use ratekeeper_core::{Check, Key, Name, Quota};
    use tokio::runtime::Handle;

    use super::*;
    use crate::RedisStore;
    use crate::store::StoreUrl;
    use crate::store::failures::FailureLog;
    use crate::store::redis::layout::Layout;
    use survey::Range;

    const TOTAL: Duration = Duration::from_millis(200);

    /// A server to which connections can be made, and which says nothing.
    fn silent() -> (TcpListener, Place) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::read(&listener.local_addr().unwrap().to_string()).unwrap();
        (listener, place)
    }

    /// Where its nodes are is not known.
    fn cluster(seed: &Place) -> Arc<Cluster> {
        let url: StoreUrl = format!("redis+cluster://{seed}").parse().unwrap();
        let builder = RedisStore::builder(url.as_str()).deadline(TOTAL).total(TOTAL);
        let maker = builder.maker(&Arc::new(FailureLog::new("test".to_owned())), &Handle::current());
        Cluster::start("test".to_owned(), builder.seeds(&url).unwrap(), maker)
    }

    fn survey(places: impl Iterator<Item = Place>) -> Survey {
        let ranges = (0..).zip(places).map(|(slot, place)| Range { first: slot, last: slot, place });
        Survey { epoch: 1, is_ok: true, ranges: ranges.collect() }
    }

    /// The first survey comes late, and then the node is silent: both together are one call.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_the_nodes_ends_with_its_total() {
        let (_listener, place) = silent();
        let (cluster, quota) = (cluster(&place), "5/s".parse::<Quota>().unwrap());
        let charge = ratekeeper_core::Charge::new(Key::new(Name::RAW, "s").unwrap(), &quota);
        let item = Item::check(&Layout::tagged("", None), &Check::one(&charge));
        let begun = Instant::now();
        let late = async {
            tokio::time::advance(TOTAL * 3 / 4).await;
            cluster.replace(&survey([place.clone()].into_iter()));
            cluster.known.send_replace(Known::Yes);
        };
        let (answer, ()) = tokio::join!(cluster.ask(Part(0), item), late);
        assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Timeout);
        assert_eq!(begun.elapsed(), TOTAL);
    }

    /// A cluster that names others all the time, each of which may be asked by calls that are under way.
    #[tokio::test(start_paused = true)]
    async fn nodes_that_come_and_go_are_bounded() {
        let (_listener, place) = silent();
        let cluster = cluster(&place);
        let places = |from: u16, count: u16| {
            let host = place.host.clone();
            (from..from + count).map(move |port| Place { host: host.clone(), port })
        };
        for round in 1..4 {
            cluster.replace(&survey(places(round * 1_000, 600)));
            assert!(cluster.topology.load().nodes.len() <= NODES_MAX, "round {round}");
            let has_slots = |node: &&Arc<Node>| node.has_slots();
            assert_eq!(cluster.topology.load().nodes.iter().filter(has_slots).count(), 600);
        }
        let full = cluster.topology.load().nodes.len();
        assert_eq!(full, NODES_MAX, "those that calls may be under way to stay, as far as there is room");
        let error = cluster.node_at(&Place { port: 9, ..place.clone() }).unwrap_err().to_string();
        assert!(error.contains("more than 1000 nodes"), "{error}");
    }
}
