//! Independent servers, over which the library spreads counters, each reached through a proxy.

use std::thread::sleep;
use std::time::Duration;

use ratekeeper_testkit::servers::{Flavour, Server, SlowWay};

use super::{STEP, Servers, disturb, fill_memory, flush_scripts};
use crate::fault::Fault;

const SERVERS: usize = 3;

pub(super) struct Several {
    ways: Vec<SlowWay>,
    servers: Vec<Server>,
}

impl Several {
    pub(super) fn start(flavour: Flavour) -> Self {
        let servers: Vec<Server> = (0..SERVERS).map(|_| Server::start_stepped(flavour, &[])).collect();
        let ways = servers.iter().map(|server| SlowWay::to(server.port(), Duration::ZERO)).collect();
        Self { ways, servers }
    }
}

impl Servers for Several {
    fn url(&self) -> String {
        let urls: Vec<String> = self.ways.iter().map(SlowWay::url).collect();
        urls.join(",")
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::KillAndRestart,
            Fault::Pause,
            Fault::Sever,
            Fault::HoldAll,
            Fault::HoldAnswers,
            Fault::FlushScripts,
            Fault::FillMemory,
            Fault::StepClock,
        ]
    }

    fn suffer(&mut self, fault: Fault, during: Duration, random: &mut fastrand::Rng) {
        let index = random.usize(..SERVERS);
        if disturb(&self.ways[index], fault, during) {
            return;
        }
        let one = &mut self.servers[index];
        match fault {
            Fault::KillAndRestart => {
                one.kill();
                sleep(during);
                one.restart();
            }
            Fault::Pause => {
                one.pause();
                sleep(during);
                one.resume();
            }
            Fault::FlushScripts => flush_scripts(&self.servers.iter().collect::<Vec<_>>(), during),
            Fault::FillMemory => fill_memory(&[one], during),
            Fault::StepClock => {
                one.step_clock(i64::try_from(STEP.as_secs()).unwrap_or_default());
                sleep(during);
                one.step_clock(0);
            }
            other => unreachable!("{other:?} is no fault of several servers"),
        }
    }
}
