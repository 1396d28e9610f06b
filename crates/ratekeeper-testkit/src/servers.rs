//! Real servers, started for a test and gone with it.
//!
//! `make servers` puts the executables in place. Whatever goes wrong here panics: a
//! test without its server has failed.

mod black_hole;
mod certificates;
mod client;
mod cluster;
mod faketime;
mod mongo;
mod process;
mod server;
mod slow;
mod trio;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use black_hole::BlackHole;
pub use client::{Answer, Client, Command};
pub use cluster::{Cluster, ClusterOptions, SLOTS, SlotMove};
pub use mongo::MongoServer;
pub use server::Server;
pub use slow::SlowWay;
pub use trio::{SERVICE, Trio, TrioOptions};

/// How often to look whether something has happened.
const POLL: Duration = Duration::from_millis(2);
/// Below the ports that the kernel gives to connections. A client that keeps trying a dead
/// server in that range would one day be given its port, and the server could not come back.
const PORTS: Range<u16> = 20_000..32_000;

/// The servers we promise to work with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavour {
    Redis7,
    Redis62,
    Valkey9,
}

impl Flavour {
    pub const ALL: [Self; 3] = [Self::Redis7, Self::Redis62, Self::Valkey9];

    /// Whether the executable we have of it was built with TLS.
    #[must_use]
    pub const fn has_tls(self) -> bool {
        matches!(self, Self::Redis7)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Redis7 => "redis-7",
            Self::Redis62 => "redis-6.2",
            Self::Valkey9 => "valkey-9",
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An executable that `make servers` set up.
///
/// The variable `RATEKEEPER_SERVERS` names another folder, for a copy of the tree that
/// has none of its own.
#[must_use]
pub fn executable(name: &str) -> PathBuf {
    let beside_the_code = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers");
    let folder = std::env::var_os("RATEKEEPER_SERVERS").map_or_else(beside_the_code, PathBuf::from);
    let path = folder.join(name);
    assert!(path.is_file(), "there is no {}: run make servers", path.display());
    path
}

/// Listens on a loopback port that nobody else listens on.
fn listen() -> TcpListener {
    loop {
        let span = u64::from(PORTS.end - PORTS.start);
        let offset = RandomState::new().hash_one(()) % span;
        let port = PORTS.start + u16::try_from(offset).expect("less than the span");
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return listener,
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => panic!("listen on loopback: {error}"),
        }
    }
}

/// A port nobody listens on at the moment.
///
/// # Panics
/// If the system gives none.
#[must_use]
pub fn free_port() -> u16 {
    listen().local_addr().expect("the address just bound").port()
}

/// Arguments for `redis-cli` with a password before them, if there is one.
fn as_user<'a>(password: Option<&'static str>, arguments: &[&'a str]) -> Vec<&'a str> {
    let login = password.map(|password| ["--no-auth-warning", "-a", password]);
    login.into_iter().flatten().chain(arguments.iter().copied()).collect()
}
