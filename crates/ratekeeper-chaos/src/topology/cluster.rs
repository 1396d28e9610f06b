//! Three primaries and a replica of each, each reached through a proxy.

use std::thread::sleep;
use std::time::Duration;

use ratekeeper_testkit::servers::{Answer, Cluster, Flavour, Server, SlowWay};

use super::{Servers, disturb, fill_memory, flush_scripts};
use crate::fault::Fault;

/// So many slots move in a fault.
const SLOTS_MOVED: u32 = 8;

pub(super) struct Six {
    ways: Vec<SlowWay>,
    cluster: Cluster,
}

impl Six {
    pub(super) fn start(flavour: Flavour) -> Self {
        let mut cluster = Cluster::start(flavour);
        let ways: Vec<SlowWay> =
            cluster.nodes.iter().map(|node| SlowWay::to(node.port(), Duration::ZERO)).collect();
        ways.iter().enumerate().for_each(|(index, way)| cluster.announce(index, way.port()));
        cluster.until_settled();
        Self { ways, cluster }
    }

    fn primary(&self, random: &mut fastrand::Rng) -> usize {
        let primaries = self.cluster.primaries();
        primaries[random.usize(..primaries.len())]
    }

    fn all(&self) -> Vec<&Server> {
        self.cluster.nodes.iter().collect()
    }

    /// Moves slots that have counters, each with a rest when half of its keys are on either side.
    fn reshard(&self, during: Duration, random: &mut fastrand::Rng) {
        let Self { cluster, .. } = self;
        for _ in 0..SLOTS_MOVED {
            let primaries = cluster.primaries();
            let from = primaries[random.usize(..primaries.len())];
            let Answer::Text(Some(key)) = cluster.client(from).call(&[b"RANDOMKEY"]) else { continue };
            let others: Vec<usize> = primaries.into_iter().filter(|other| *other != from).collect();
            let moving = cluster.begin_move(cluster.slot_of(&key), others[random.usize(..others.len())]);
            sleep(during / SLOTS_MOVED);
            cluster.move_keys(&moving, 1);
            sleep(during / SLOTS_MOVED);
            cluster.end_move(moving);
        }
    }
}

impl Servers for Six {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::KillPrimary,
            Fault::PausePrimary,
            Fault::HandOver,
            Fault::Pause,
            Fault::Sever,
            Fault::HoldAll,
            Fault::HoldAnswers,
            Fault::KillReplica,
            Fault::Reshard,
            Fault::FlushScripts,
            Fault::FillMemory,
        ]
    }

    fn suffer(&mut self, fault: Fault, during: Duration, random: &mut fastrand::Rng) {
        let primary = self.primary(random);
        if disturb(&self.ways[primary], fault, during) {
            return self.cluster.until_settled();
        }
        match fault {
            Fault::KillPrimary => {
                self.cluster.nodes[primary].kill();
                self.cluster.replace_the_dead(primary);
                sleep(during);
                self.cluster.restart(primary);
            }
            Fault::PausePrimary => {
                self.cluster.nodes[primary].pause();
                self.cluster.replace_the_dead(primary);
                sleep(during);
                self.cluster.nodes[primary].resume();
            }
            Fault::HandOver => {
                self.cluster.fail_over(primary);
            }
            Fault::Pause => {
                self.cluster.nodes[primary].pause();
                sleep(during);
                self.cluster.nodes[primary].resume();
            }
            Fault::KillReplica => {
                let replica = self.cluster.replica_of(primary).expect("a replica that runs");
                self.cluster.nodes[replica].kill();
                sleep(during);
                self.cluster.restart(replica);
            }
            Fault::Reshard => self.reshard(during, random),
            Fault::FlushScripts => flush_scripts(&self.all(), during),
            Fault::FillMemory => fill_memory(&self.all(), during),
            other => unreachable!("{other:?} is no fault of a cluster"),
        }
        self.cluster.until_settled();
    }
}
