//! One server, which is reached through a proxy.

use std::thread::sleep;
use std::time::Duration;

use ratekeeper_testkit::servers::{Flavour, Server, SlowWay};

use super::{STEP, Servers, disturb, fill_memory, flush_scripts};
use crate::fault::Fault;

pub(super) struct Single {
    way: SlowWay,
    server: Server,
}

impl Single {
    pub(super) fn start(flavour: Flavour) -> Self {
        let server =
            if has_clock(flavour) { Server::start_stepped(flavour, &[]) } else { Server::start(flavour) };
        Self { way: SlowWay::to(server.port(), Duration::ZERO), server }
    }

    fn step_clock(&self, during: Duration) {
        self.server.step_clock(i64::try_from(STEP.as_secs()).unwrap_or_default());
        sleep(during);
        self.server.step_clock(0);
    }
}

/// Whether libfaketime works with a server: not with the allocator of Debian's Redis, which looks at the clock first.
fn has_clock(flavour: Flavour) -> bool {
    flavour == Flavour::Valkey9
}

/// What can happen to any server; the last only to one whose clock can be set.
const FAULTS: [Fault; 8] = [
    Fault::KillAndRestart,
    Fault::Pause,
    Fault::Sever,
    Fault::HoldAll,
    Fault::HoldAnswers,
    Fault::FlushScripts,
    Fault::FillMemory,
    Fault::StepClock,
];

impl Servers for Single {
    fn url(&self) -> String {
        self.way.url()
    }

    fn faults(&self) -> &'static [Fault] {
        let count = FAULTS.len() - usize::from(!has_clock(self.server.flavour()));
        &FAULTS[..count]
    }

    fn suffer(&mut self, fault: Fault, during: Duration, _: &mut fastrand::Rng) {
        if disturb(&self.way, fault, during) {
            return;
        }
        match fault {
            Fault::KillAndRestart => {
                self.server.kill();
                sleep(during);
                self.server.restart();
            }
            Fault::Pause => {
                self.server.pause();
                sleep(during);
                self.server.resume();
            }
            Fault::FlushScripts => flush_scripts(&[&self.server], during),
            Fault::FillMemory => fill_memory(&[&self.server], during),
            Fault::StepClock => self.step_clock(during),
            other => unreachable!("{other:?} is no fault of one server"),
        }
    }
}
