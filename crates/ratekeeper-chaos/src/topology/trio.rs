//! A primary, its replica and three sentinels, who all go to the servers through proxies.

use std::thread::sleep;
use std::time::Duration;

use ratekeeper_testkit::servers::{Flavour, SERVICE, Server, Trio, TrioOptions};
use ratekeeper_testkit::wait::until;

use super::{Servers, disturb, fill_memory, flush_scripts};
use crate::fault::Fault;

/// From one failover to the next sentinels wait for twice as long.
const FAILOVER_MILLIS: &str = "3000";

pub(super) struct Watched(Trio);

impl Watched {
    pub(super) fn start(flavour: Flavour) -> Self {
        let trio = Trio::start_with(flavour, TrioOptions { ways: true, ..TrioOptions::default() });
        for sentinel in &trio.sentinels {
            let set = ["SENTINEL", "SET", SERVICE, "failover-timeout", FAILOVER_MILLIS];
            assert_eq!(sentinel.cli(&set), "OK");
        }
        Self(trio)
    }

    fn primary(&self) -> usize {
        self.0.primary().expect("sentinels that agree")
    }

    /// Waits until the other server follows the primary, and sentinels know it.
    fn until_settled(&self) {
        let Self(trio) = self;
        until("a replica that follows the primary, and sentinels that know", || {
            let replica = 1 - self.primary();
            let role = trio.server(replica, &["INFO", "replication"]);
            role.contains("role:slave") && role.contains("master_link_status:up") && trio.is_settled()
        });
    }

    fn all(&self) -> Vec<&Server> {
        self.0.servers.iter().collect()
    }
}

impl Servers for Watched {
    fn url(&self) -> String {
        self.0.url()
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::KillPrimary,
            Fault::PausePrimary,
            Fault::FailOver,
            Fault::Pause,
            Fault::Sever,
            Fault::HoldAll,
            Fault::HoldAnswers,
            Fault::KillReplica,
            Fault::KillSentinel,
            Fault::FlushScripts,
            Fault::FillMemory,
        ]
    }

    fn suffer(&mut self, fault: Fault, during: Duration, random: &mut fastrand::Rng) {
        let primary = self.primary();
        if disturb(&self.0.ways[primary], fault, during) {
            return self.until_settled();
        }
        match fault {
            Fault::KillPrimary => {
                self.0.servers[primary].kill();
                self.0.replace_the_dead(primary);
                sleep(during);
                self.0.restart(primary);
            }
            Fault::PausePrimary => {
                self.0.servers[primary].pause();
                self.0.replace_the_dead(primary);
                sleep(during);
                self.0.servers[primary].resume();
            }
            Fault::FailOver => self.0.fail_over(),
            Fault::Pause => {
                self.0.servers[primary].pause();
                sleep(during);
                self.0.servers[primary].resume();
            }
            Fault::KillReplica => {
                self.0.servers[1 - primary].kill();
                sleep(during);
                self.0.restart(1 - primary);
            }
            Fault::KillSentinel => {
                let sentinel = random.usize(..self.0.sentinels.len());
                self.0.sentinels[sentinel].pause();
                sleep(during);
                self.0.sentinels[sentinel].resume();
            }
            Fault::FlushScripts => flush_scripts(&self.all(), during),
            Fault::FillMemory => fill_memory(&self.all(), during),
            other => unreachable!("{other:?} is no fault of a primary with sentinels"),
        }
        self.until_settled();
    }
}
