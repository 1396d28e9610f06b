//! Servers, however many, behind one URL, and what can be done to them.

mod cluster;
mod several;
mod single;
mod trio;

use std::thread::sleep;
use std::time::Duration;

use clap::ValueEnum;
use ratekeeper_testkit::servers::{Flavour, Server, SlowWay};

use crate::fault::Fault;

/// What the load asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Topology {
    /// One Valkey behind a proxy, whose clock is stepped as well
    Single,
    /// One Redis behind a proxy
    SingleRedis,
    /// A primary, its replica and three sentinels, on Redis
    Sentinel,
    /// The same on Valkey
    SentinelValkey,
    /// Three primaries and a replica of each, on Redis
    Cluster,
    /// The same on Valkey
    ClusterValkey,
    /// Three independent servers, on Valkey, whose clocks are stepped as well
    Several,
}

/// A topology that runs.
pub(crate) trait Servers {
    /// What the store is opened with.
    fn url(&self) -> String;
    /// What can be done to it.
    fn faults(&self) -> &'static [Fault];
    /// Does it, for about so long, and returns when all is well again.
    fn suffer(&mut self, fault: Fault, during: Duration, random: &mut fastrand::Rng);
}

impl Topology {
    /// Those that are run unless others are named.
    pub(crate) const ALL: [Self; 4] = [Self::Single, Self::Sentinel, Self::Cluster, Self::Several];

    pub(crate) fn start(self) -> Box<dyn Servers> {
        match self {
            Self::Single => Box::new(single::Single::start(Flavour::Valkey9)),
            Self::SingleRedis => Box::new(single::Single::start(Flavour::Redis7)),
            Self::Sentinel => Box::new(trio::Watched::start(Flavour::Redis7)),
            Self::SentinelValkey => Box::new(trio::Watched::start(Flavour::Valkey9)),
            Self::Cluster => Box::new(cluster::Six::start(Flavour::Redis7)),
            Self::ClusterValkey => Box::new(cluster::Six::start(Flavour::Valkey9)),
            Self::Several => Box::new(several::Several::start(Flavour::Valkey9)),
        }
    }

    /// Whether the counters of one check may be in several places.
    pub(crate) const fn is_parted(self) -> bool {
        matches!(self, Self::Cluster | Self::ClusterValkey | Self::Several)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::SingleRedis => "single-redis",
            Self::Sentinel => "sentinel",
            Self::SentinelValkey => "sentinel-valkey",
            Self::Cluster => "cluster",
            Self::ClusterValkey => "cluster-valkey",
            Self::Several => "several",
        }
    }
}

/// How far a clock is stepped.
pub(crate) const STEP: Duration = Duration::from_secs(5);

/// What happens to a way for a while; not if the fault is none of a way.
fn disturb(way: &SlowWay, fault: Fault, during: Duration) -> bool {
    match fault {
        Fault::Sever => way.sever(),
        Fault::HoldAll => way.hold(true, true),
        Fault::HoldAnswers => way.hold(false, true),
        _ => return false,
    }
    sleep(during);
    way.mend();
    way.hold(false, false);
    true
}

/// Takes the scripts from a server again and again.
fn flush_scripts(servers: &[&Server], during: Duration) {
    for _ in 0..5 {
        for server in servers {
            assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
        }
        sleep(during / 5);
    }
}

/// Lets servers have no memory left for a while.
fn fill_memory(servers: &[&Server], during: Duration) {
    let set = |bytes: &str| {
        for server in servers {
            assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", bytes]), "OK");
        }
    };
    set("1");
    sleep(during);
    set("0");
}
