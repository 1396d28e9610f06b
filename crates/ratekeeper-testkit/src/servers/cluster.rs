//! Three primaries and a replica of each: a cluster.

mod nodes;
mod slots;

use std::time::{Duration, Instant};

use self::nodes::Nodes;
pub use self::slots::SlotMove;
use super::server::NodeTls;
use super::{Client, Flavour, Server, as_user};
use crate::wait::until;

/// So many hash slots there are.
pub const SLOTS: u16 = 16_384;
const PRIMARIES: usize = 3;
/// While a cluster forms, nodes must hear of each other soon, ...
const FORM_MILLIS: &str = "2000";
/// ... then no primary is given up unless a test wants it, however busy the machine is, ...
const DOWN_AFTER_MILLIS: &str = "60000";
/// ... and then soon.
const DOWN_SOON_MILLIS: &str = "500";
/// A failover on request that has not happened in this time was given up by the replica, which gives it five seconds.
const FAILOVER_GIVEN_UP: Duration = Duration::from_secs(6);

/// Six nodes on loopback ports. Dropping it ends them all.
#[derive(Debug)]
pub struct Cluster {
    /// At the start 0 to 2 are the primaries, each with a third of the slots, and 3 to 5 their replicas, in this order.
    pub nodes: Vec<Server>,
    options: ClusterOptions,
    /// Where nodes say that they are, if it is not where they listen.
    announced: Vec<Option<u16>>,
}

/// What its nodes want of those who ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClusterOptions {
    /// The password of the user `default`.
    pub password: Option<&'static str>,
    /// More directives for every node, such as `("user", "alice on >secret ~* &* +@all")`.
    pub directives: &'static [(&'static str, &'static str)],
    /// Whether nodes speak TLS on ports of their own, also with each other. Their plain ports stay.
    pub tls: bool,
    /// Whether a primary that is away is replaced within seconds, all the time. Otherwise only
    /// [`Cluster::replace_the_dead`] does that: on a busy machine, a node may be silent for seconds.
    pub impatient: bool,
}

impl Cluster {
    #[must_use]
    pub fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, ClusterOptions::default())
    }

    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start_with(flavour: Flavour, options: ClusterOptions) -> Self {
        let mut directives = vec![
            ("cluster-node-timeout", FORM_MILLIS),
            ("cluster-replica-validity-factor", "0"),
            ("repl-diskless-sync-delay", "0"),
        ];
        if let Some(password) = options.password {
            directives.extend([("requirepass", password), ("masterauth", password)]);
        }
        directives.extend(options.directives);
        let first =
            Server::node(flavour, &directives, if options.tls { NodeTls::Own } else { NodeTls::None });
        let mut nodes = vec![first];
        for _ in 1..2 * PRIMARIES {
            let tls = if options.tls { NodeTls::As(&nodes[0]) } else { NodeTls::None };
            let node = Server::node(flavour, &directives, tls);
            nodes.push(node);
        }
        let announced = vec![None; nodes.len()];
        let cluster = Self { nodes, options, announced };
        cluster.form();
        cluster
    }

    /// What `redis-cli --cluster create` does, without its pauses.
    fn form(&self) {
        let count = usize::from(SLOTS);
        for index in 0..self.nodes.len() {
            // Numbers that differ from the start: otherwise nodes have to agree on them first.
            let _ = self.ask(index, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for index in 0..PRIMARIES {
            let (from, to) = (index * count / PRIMARIES, (index + 1) * count / PRIMARIES - 1);
            let _ = self.ask(index, &["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
        }
        self.introduce();
        until("nodes that know each other", || {
            (0..self.nodes.len()).all(|index| self.seen_by(index).is_some_and(|nodes| nodes.all_known()))
        });
        for replica in PRIMARIES..self.nodes.len() {
            let id = self.ask(replica - PRIMARIES, &["CLUSTER", "MYID"]);
            until("a replica", || self.try_ask(replica, &["CLUSTER", "REPLICATE", &id]).is_ok());
        }
        self.until_settled();
        self.set_patience(if self.options.impatient { FORM_MILLIS } else { DOWN_AFTER_MILLIS });
    }

    /// Each meets each, rather than hear of it from the others.
    fn introduce(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            for other in self.nodes.iter().filter(|other| other.port() != node.port()) {
                let (port, bus) = (other.node_port().to_string(), other.bus_port().to_string());
                let _ = self.ask(index, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
    }

    /// Waits until every node finds all slots served, by three primaries that each have a replica which follows.
    pub fn until_settled(&self) {
        until("a cluster where all is well", || self.is_settled());
    }

    /// Whether every node finds all slots served, by three primaries that each have a replica which follows.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let linked = |index: usize| match self.is_primary(index) {
            Some(true) => true,
            Some(false) => self.info(index, "replication", "master_link_status").as_deref() == Some("up"),
            None => false,
        };
        let all = 0..self.nodes.len();
        let (first, mut rest) = (self.seen_by(0), 1..self.nodes.len());
        first.as_ref().is_some_and(|nodes| nodes.all_known() && nodes.primaries() == PRIMARIES)
            && rest.all(|index| self.seen_by(index) == first)
            && all.clone().all(|index| self.is_ok(index))
            && all.clone().all(linked)
    }

    /// Whether a node says that the cluster's state is `ok`.
    #[must_use]
    pub fn is_ok(&self, index: usize) -> bool {
        let state = self.try_ask(index, &["CLUSTER", "INFO"]);
        state.is_ok_and(|state| state.contains("cluster_state:ok"))
    }

    /// The URL with all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let port = |(node, announced): (&Server, &Option<u16>)| announced.unwrap_or_else(|| node.node_port());
        let ports = self.nodes.iter().zip(&self.announced).map(port);
        let places: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        let scheme = if self.options.tls { "rediss" } else { "redis" };
        let login = self.options.password.map_or_else(String::new, |password| format!(":{password}@"));
        format!("{scheme}+cluster://{login}{}", places.join(","))
    }

    /// The number in [`Self::nodes`] of the primary that serves a slot, as the nodes that run see it.
    #[must_use]
    pub fn owner(&self, slot: u16) -> Option<usize> {
        let nodes = self.running().find_map(|index| self.seen_by(index))?;
        self.numbered(nodes.owner(slot)?)
    }

    /// The numbers of the primaries that serve slots, in no order.
    #[must_use]
    pub fn primaries(&self) -> Vec<usize> {
        let seen = self.running().find_map(|index| self.seen_by(index));
        let ports = seen.into_iter().flat_map(|nodes| nodes.serving());
        ports.filter_map(|port| self.numbered(port)).collect()
    }

    /// The number of a replica of a primary that runs.
    #[must_use]
    pub fn replica_of(&self, primary: usize) -> Option<usize> {
        let nodes = self.seen_by(primary)?;
        let replicas = nodes.replicas_of(self.known_port(primary));
        replicas
            .into_iter()
            .filter_map(|port| self.numbered(port))
            .find(|index| self.nodes[*index].can_answer())
    }

    /// Whether a node says that it is a primary; nothing if it does not answer.
    #[must_use]
    pub fn is_primary(&self, index: usize) -> Option<bool> {
        self.info(index, "replication", "role").map(|role| role == "master")
    }

    /// Makes a replica of a primary take its place, while both run; returns which, when all that run know.
    pub fn fail_over(&self, primary: usize) -> usize {
        let replica = self.replica_of(primary).expect("a replica that runs");
        // Primaries vote on the same one again after twice their patience only.
        self.set_patience(FORM_MILLIS);
        let mut accepted: Option<Instant> = None;
        until("a failover", || {
            // Refused while the replica is not linked. Asked again while it goes on, it would begin anew each time, and on
            // a busy machine never end.
            if accepted.is_none_or(|at| at.elapsed() > FAILOVER_GIVEN_UP) {
                let asked = self.try_ask(replica, &["CLUSTER", "FAILOVER"]);
                accepted = asked.is_ok_and(|answer| answer.trim() == "OK").then(Instant::now);
            }
            self.is_primary(replica) == Some(true)
        });
        self.until_known_as_primary(replica);
        self.be_patient_again();
        replica
    }

    /// Waits until the slots of a primary that was killed or paused are served by its replica, and all that run know.
    pub fn replace_the_dead(&self, primary: usize) -> usize {
        let witness = self.running().find(|index| *index != primary).expect("a node that runs");
        let slot = self.seen_by(witness).and_then(|nodes| nodes.a_slot_of(self.known_port(primary)));
        let slot = slot.expect("a primary with slots");
        self.set_patience(DOWN_SOON_MILLIS);
        until("another primary", || self.owner(slot).is_some_and(|owner| owner != primary));
        let owner = self.owner(slot).expect("just seen");
        self.until_known_as_primary(owner);
        self.be_patient_again();
        owner
    }

    fn be_patient_again(&self) {
        self.set_patience(if self.options.impatient { FORM_MILLIS } else { DOWN_AFTER_MILLIS });
    }

    fn until_known_as_primary(&self, index: usize) {
        let port = self.known_port(index);
        until("nodes that all know the new primary", || {
            self.running().all(|node| {
                self.is_ok(node) && self.seen_by(node).is_some_and(|nodes| nodes.serving().contains(&port))
            })
        });
    }

    /// Starts a node again that was killed, empty; it still knows the cluster.
    pub fn restart(&mut self, index: usize) {
        self.nodes[index].restart();
        let millis = if self.options.impatient { FORM_MILLIS } else { DOWN_AFTER_MILLIS };
        let _ = self.ask(index, &["CONFIG", "SET", "cluster-node-timeout", millis]);
        self.say_announced(index);
    }

    /// Lets a node say that it is at another port, where a way to it is: all who ask it go there, its replica too.
    pub fn announce(&mut self, index: usize, port: u16) {
        self.announced[index] = Some(port);
        self.say_announced(index);
        until("nodes that know the port", || {
            self.running().all(|node| self.seen_by(node).is_some_and(|nodes| nodes.has(port)))
        });
    }

    fn say_announced(&self, index: usize) {
        if let Some(port) = self.announced[index] {
            let set = ["CONFIG", "SET", "cluster-announce-port", &port.to_string()];
            assert_eq!(self.ask(index, &set), "OK");
        }
    }

    /// Takes the scripts from all nodes that run.
    pub fn flush_scripts(&self) {
        self.running().for_each(|index| assert_eq!(self.ask(index, &["SCRIPT", "FLUSH"]), "OK"));
    }

    fn set_patience(&self, millis: &str) {
        let set = ["CONFIG", "SET", "cluster-node-timeout", millis];
        self.running().for_each(|index| assert_eq!(self.ask(index, &set), "OK"));
    }

    /// The numbers of the nodes that run and are not paused.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].can_answer())
    }

    /// Asks a node.
    #[must_use]
    pub fn ask(&self, index: usize, arguments: &[&str]) -> String {
        self.nodes[index].cli(&self.as_user(arguments))
    }

    /// The same, for what may be refused.
    ///
    /// # Errors
    /// What it printed, if the answer was an error or there was none.
    pub fn try_ask(&self, index: usize, arguments: &[&str]) -> Result<String, String> {
        self.nodes[index].try_cli(&self.as_user(arguments))
    }

    /// A connection of its own to a node, for what is no text or must be fast.
    #[must_use]
    pub fn client(&self, index: usize) -> Client {
        let mut client = self.nodes[index].client();
        if let Some(password) = self.options.password {
            client.call(&[b"AUTH", password.as_bytes()]);
        }
        client
    }

    fn info(&self, index: usize, section: &str, field: &str) -> Option<String> {
        let answer = self.try_ask(index, &["INFO", section]).ok()?;
        let value = answer.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(value.trim().to_owned())
    }

    /// The port by which nodes know each other.
    fn known_port(&self, index: usize) -> u16 {
        self.announced[index].unwrap_or_else(|| self.nodes[index].port())
    }

    fn seen_by(&self, index: usize) -> Option<Nodes> {
        self.try_ask(index, &["CLUSTER", "NODES"]).ok().map(|answer| Nodes::read(&answer))
    }

    fn numbered(&self, port: u16) -> Option<usize> {
        (0..self.nodes.len()).find(|index| self.known_port(*index) == port)
    }

    fn as_user<'a>(&self, arguments: &[&'a str]) -> Vec<&'a str> {
        as_user(self.options.password, arguments)
    }
}
