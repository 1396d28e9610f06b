//! Independent servers, over which the library spreads counters.

use std::thread::sleep;
use std::time::Duration;

use ratekeeper_testkit::servers::{Flavour, Server};

use super::{Servers, fill_memory, flush_scripts};
use crate::fault::Fault;

const SERVERS: usize = 3;

pub(super) struct Several(Vec<Server>);

impl Several {
    pub(super) fn start(flavour: Flavour) -> Self {
        Self((0..SERVERS).map(|_| Server::start(flavour)).collect())
    }
}

impl Servers for Several {
    fn url(&self) -> String {
        let urls: Vec<String> = self.0.iter().map(Server::url).collect();
        urls.join(",")
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::KillAndRestart, Fault::Pause, Fault::FlushScripts, Fault::FillMemory]
    }

    fn suffer(&mut self, fault: Fault, during: Duration, random: &mut fastrand::Rng) {
        let one = &mut self.0[random.usize(..SERVERS)];
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
            Fault::FlushScripts => flush_scripts(&self.0.iter().collect::<Vec<_>>(), during),
            Fault::FillMemory => fill_memory(&[one], during),
            other => unreachable!("{other:?} is no fault of several servers"),
        }
    }
}
