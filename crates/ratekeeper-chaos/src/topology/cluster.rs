//! Three primaries and a replica of each.

use std::thread::sleep;
use std::time::Duration;

use ratekeeper_testkit::servers::{Answer, Cluster, Flavour, Server};

use super::{Servers, fill_memory, flush_scripts};
use crate::fault::Fault;

/// So many slots move in a fault.
const SLOTS_MOVED: u32 = 8;

pub(super) struct Six(Cluster);

impl Six {
    pub(super) fn start(flavour: Flavour) -> Self {
        Self(Cluster::start(flavour))
    }

    fn primary(&self, random: &mut fastrand::Rng) -> usize {
        let primaries = self.0.primaries();
        primaries[random.usize(..primaries.len())]
    }

    fn all(&self) -> Vec<&Server> {
        self.0.nodes.iter().collect()
    }

    /// Moves slots that have counters, each with a rest when half of its keys are on either side.
    fn reshard(&self, during: Duration, random: &mut fastrand::Rng) {
        let Self(cluster) = self;
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
        self.0.url()
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::KillPrimary,
            Fault::PausePrimary,
            Fault::HandOver,
            Fault::Pause,
            Fault::KillReplica,
            Fault::Reshard,
            Fault::FlushScripts,
            Fault::FillMemory,
        ]
    }

    fn suffer(&mut self, fault: Fault, during: Duration, random: &mut fastrand::Rng) {
        let primary = self.primary(random);
        match fault {
            Fault::KillPrimary => {
                self.0.nodes[primary].kill();
                self.0.replace_the_dead(primary);
                sleep(during);
                self.0.restart(primary);
            }
            Fault::PausePrimary => {
                self.0.nodes[primary].pause();
                self.0.replace_the_dead(primary);
                sleep(during);
                self.0.nodes[primary].resume();
            }
            Fault::HandOver => {
                self.0.fail_over(primary);
            }
            Fault::Pause => {
                self.0.nodes[primary].pause();
                sleep(during);
                self.0.nodes[primary].resume();
            }
            Fault::KillReplica => {
                let replica = self.0.replica_of(primary).expect("a replica that runs");
                self.0.nodes[replica].kill();
                sleep(during);
                self.0.restart(replica);
            }
            Fault::Reshard => self.reshard(during, random),
            Fault::FlushScripts => flush_scripts(&self.all(), during),
            Fault::FillMemory => fill_memory(&self.all(), during),
            other => unreachable!("{other:?} is no fault of a cluster"),
        }
        self.0.until_settled();
    }
}
