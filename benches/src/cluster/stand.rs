//! The servers: one by itself, three primaries, and three primaries with a replica each.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::store::open;
use ratekeeper::{OpenOptions, Store};
use ratekeeper_testkit::servers::{Cluster, Flavour, Server};
use tokio::runtime::Runtime;

use crate::Result;
use crate::cluster::shape::Shape;
use crate::machine::Pinning;

/// Longer than a busy machine makes a call: what is late should show in the figures.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many of the nodes of a cluster are primaries.
pub const PRIMARIES: usize = 3;

/// Where counters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On one server.
    Server,
    /// On three primaries without replicas.
    Cluster,
    /// On three primaries with a replica each, ...
    Replicated,
    /// ... which has a charge before it is answered.
    Confirmed,
}

impl Place {
    /// What the tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Place::Server => "one server",
            Place::Cluster => "three primaries",
            Place::Replicated => "three primaries, a replica each",
            Place::Confirmed => "three primaries, a replica each, which confirms (`WAIT`)",
        }
    }
}

/// Everything that can be asked.
#[derive(Debug)]
pub struct Stand {
    /// Before the servers: stores go first.
    pub runtime: Arc<Runtime>,
    server: Server,
    cluster: Cluster,
    replicated: Cluster,
    /// What the servers are.
    pub about: String,
}

/// What a server has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Its time on a processor, and that of its replicas.
    pub cpu: Duration,
    /// What was read from and written to clients, in bytes.
    pub bytes: u64,
}

impl Stand {
    /// Starts all servers.
    ///
    /// # Errors
    /// If one cannot be put on its core.
    pub fn start(pinning: Pinning) -> Result<Self> {
        let flavour = Flavour::Redis7;
        let server = Server::start(flavour);
        let (mut cluster, replicated) = (Cluster::start(flavour), Cluster::start(flavour));
        // One server has no replica to write to either.
        cluster.nodes[PRIMARIES..].iter_mut().for_each(Server::kill);
        let nodes = cluster.nodes[..PRIMARIES].iter().chain(&replicated.nodes);
        for server in nodes.chain([&server]) {
            pinning.apply(server.pid())?;
        }
        let version = server.info("redis_version").unwrap_or_else(|| "unknown".into());
        let runtime = Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
        Ok(Self { runtime, server, cluster, replicated, about: format!("Redis {version}, no persistence") })
    }

    /// A store with connections of its own.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub fn store(&self, place: Place, shape: Shape) -> Result<Arc<dyn Store>> {
        let url = match place {
            Place::Server => self.server.url(),
            Place::Cluster => self.cluster.url(),
            Place::Replicated | Place::Confirmed => self.replicated.url(),
        };
        let options = OpenOptions::new().redis(|redis| {
            let redis = redis.deadline(PATIENCE).replicas(usize::from(place == Place::Confirmed));
            if shape.has_one_tag() { redis.one_tag("all").prefix("one:") } else { redis }
        });
        self.runtime.block_on(async {
            let opened = open(&url.parse()?, &options)?;
            opened.ping().await?;
            Ok(opened.store())
        })
    }

    /// What the servers of a place have done so far.
    #[must_use]
    pub fn work(&self, place: Place) -> Work {
        let (servers, primaries) = match place {
            Place::Server => (std::slice::from_ref(&self.server), 1),
            Place::Cluster => (&self.cluster.nodes[..PRIMARIES], PRIMARIES),
            Place::Replicated | Place::Confirmed => (&self.replicated.nodes[..], PRIMARIES),
        };
        let bytes = servers[..primaries].iter().map(|server| {
            let of = |field| server.info(field).and_then(|value| value.parse().ok()).unwrap_or(0_u64);
            of("total_net_input_bytes") + of("total_net_output_bytes")
        });
        Work { cpu: servers.iter().map(Server::cpu_time).sum(), bytes: bytes.sum() }
    }
}
