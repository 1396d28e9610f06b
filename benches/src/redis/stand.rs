//! A running server and everything that can be asked about it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ratekeeper_testkit::servers::{Flavour, Server};
use tokio::runtime::Runtime;

use crate::Result;
use crate::machine::Pinning;
use crate::redis::bare::Bare;
use crate::redis::cells::{CALLERS_MAIN, Candidate};
use crate::redis::child::{Process, Remote};
use crate::redis::contestant::{Contestant, Job, Work};
use crate::redis::limitador::Limitador;
use crate::redis::load::{self, InProcess};
use crate::redis::ours::Ours;
use crate::redis::plain::Plain;
use crate::redis::scenario::{Room, Setting};

/// A server and its clients.
#[derive(Debug)]
pub struct Stand {
    // Before the server: clients go first.
    limits: Rc<RefCell<Process>>,
    flexible: Rc<RefCell<Process>>,
    runtime: Arc<Runtime>,
    /// The server.
    pub server: Server,
    /// What the server is, and what batches our store sends it.
    pub about: String,
}

impl Stand {
    /// Starts a server and the peers that are processes.
    ///
    /// # Errors
    /// If a peer cannot be started.
    pub fn start(flavour: Flavour, pinning: Pinning) -> Result<Self> {
        let server = Server::start(flavour);
        pinning.apply(server.pid())?;
        let said = |field| server.info(field).unwrap_or_else(|| "unknown".into());
        let version = match flavour {
            Flavour::Valkey9 => format!("Valkey {}", said("valkey_version")),
            Flavour::Redis7 | Flavour::Redis62 => format!("Redis {}", said("redis_version")),
        };
        let about = format!("{version} ({}, no persistence)", said("mem_allocator"));
        let url = server.url();
        Ok(Self {
            limits: Rc::new(RefCell::new(Process::limits(&url)?)),
            flexible: Rc::new(RefCell::new(Process::flexible(&url)?)),
            runtime: load::runtime()?,
            server,
            about,
        })
    }

    /// What the peers that are processes say they are.
    pub fn peers(&self) -> impl Iterator<Item = String> {
        [&self.limits, &self.flexible].into_iter().map(|process| process.borrow().about.clone())
    }

    /// A candidate set up for a setting, with its counters in use where there is ample room.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub fn contestant(&mut self, candidate: Candidate, setting: Setting) -> Result<Box<dyn Contestant>> {
        if candidate == Candidate::Bare {
            let bare = Bare::new(self.server.port(), setting, CALLERS_MAIN)?;
            let batches = &bare.batches;
            self.about += &format!(
                "; for {CALLERS_MAIN} callers our store sends {:.1} checks in a batch on average, most of \
                 them in batches of {}, of which {} are replayed, {} at a time",
                batches.mean,
                batches.checks,
                batches.requests.len(),
                bare.window
            );
            return Ok(Box::new(bare));
        }
        let mut contestant = self.connect(candidate, setting)?;
        if setting.room == Room::Ample {
            let outcome = contestant.run(Job { work: Work::Fill, callers: CALLERS_MAIN })?;
            if outcome.admitted != u64::from(setting.keys()) {
                return Err(format!("{} cannot make its counters: {outcome:?}", candidate.name()).into());
            }
        }
        Ok(contestant)
    }

    /// A candidate that is connected and has no counters yet.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub fn connect(&self, candidate: Candidate, setting: Setting) -> Result<Box<dyn Contestant>> {
        let (url, runtime) = (self.server.url(), &self.runtime);
        Ok(match candidate {
            Candidate::Ours => {
                let peer = runtime.block_on(Ours::new(&url, setting))?;
                Box::new(InProcess::new(runtime, peer, setting))
            }
            Candidate::Plain => {
                let peer = runtime.block_on(Plain::new(&url, setting))?;
                Box::new(InProcess::new(runtime, peer, setting))
            }
            Candidate::Limitador => {
                let peer = runtime.block_on(Limitador::new(&url, setting))?;
                Box::new(InProcess::new(runtime, peer, setting))
            }
            Candidate::Limits => Box::new(Remote::new(&self.limits, setting)),
            Candidate::Flexible => Box::new(Remote::new(&self.flexible, setting)),
            Candidate::Bare => return Err("the bare load generator needs a recording".into()),
        })
    }
}
