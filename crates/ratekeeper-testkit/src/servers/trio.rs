//! A primary, its replica, and three sentinels that watch them.

use std::time::{Duration, Instant};

use super::{Flavour, Server, SlowWay, as_user};
use crate::wait::until;

/// The name under which the sentinels of a [`Trio`] know their primary.
pub const SERVICE: &str = "counters";
/// So many sentinels must find a primary away before it is replaced.
const QUORUM: u32 = 2;
const SENTINELS: usize = 3;
/// No primary is given up unless a test wants it, however busy the machine is, ...
const DOWN_AFTER_MILLIS: &str = "60000";
/// ... and then soon.
const DOWN_SOON_MILLIS: &str = "300";
/// How long one failover may take; the next one waits for twice as long.
const FAILOVER_MILLIS: &str = "10000";
/// After this long, a failover that has not moved the service never will.
const FAILOVER_GIVEN_UP: Duration = Duration::from_secs(25);
/// So that sentinels find each other, and look at servers, within a second and not within ten. What they know of a replica
/// counts for a few of these periods: shorter ones would have no failover on a busy machine. A sentinel that has not heard of
/// a failover within four periods of publishing takes the new primary for one that has gone astray, and demotes it: so
/// these are not short.
const HASTE: [&str; 6] = ["SENTINEL", "DEBUG", "INFO-PERIOD", "1000", "PUBLISH-PERIOD", "1000"];

/// Two servers and three sentinels. Dropping it ends them all.
#[derive(Debug)]
pub struct Trio {
    /// The primary at the start, and its replica.
    pub servers: [Server; 2],
    pub sentinels: Vec<Server>,
    /// By which everybody goes to the servers, in the same order, if that was wanted.
    pub ways: Vec<SlowWay>,
    options: TrioOptions,
}

/// What servers and sentinels want of those who ask.
#[derive(Debug, Clone, Default)]
pub struct TrioOptions {
    /// The password of the servers.
    pub password: Option<&'static str>,
    /// The password of the sentinels.
    pub sentinel_password: Option<&'static str>,
    /// Whether there is a way in front of each server.
    pub ways: bool,
}

impl Trio {
    #[must_use]
    pub fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, TrioOptions::default())
    }

    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start_with(flavour: Flavour, options: TrioOptions) -> Self {
        let mut directives = vec![("repl-diskless-sync-delay", "0")];
        if let Some(password) = options.password {
            directives.extend([("requirepass", password), ("masterauth", password)]);
        }
        let primary = Server::start_with(flavour, &directives);
        let mut ways = Vec::new();
        if options.ways {
            ways.push(SlowWay::to(primary.port(), Duration::ZERO));
        }
        let place = format!("127.0.0.1 {}", primary.port());
        if !options.ways {
            directives.push(("replicaof", &place));
        }
        let replica = Server::start_with(flavour, &directives);
        if options.ways {
            ways.push(SlowWay::to(replica.port(), Duration::ZERO));
        }
        for (server, way) in [&primary, &replica].into_iter().zip(&ways) {
            say_announced(server, &options, way);
        }
        if let Some(way) = ways.first() {
            // Not before: it says where it is as it begins to follow.
            let follow = ["REPLICAOF", "127.0.0.1", &way.port().to_string()];
            assert_eq!(ask(&replica, options.password, &follow), "OK");
        }
        until("a replica that follows", || {
            ask(&replica, options.password, &["INFO", "replication"]).contains("master_link_status:up")
        });
        let sentinels = (0..SENTINELS).map(|_| sentinel(&primary, ways.first(), &options)).collect();
        let trio = Self { servers: [primary, replica], sentinels, ways, options };
        trio.sentinels.iter().for_each(|sentinel| assert_eq!(trio.sentinel(sentinel, &HASTE), "OK"));
        until("sentinels that know each other and the replica", || trio.is_settled());
        trio
    }

    /// Whether every sentinel knows the others, and the replica as one that could take over.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.sentinels.iter().all(|sentinel| {
            let service = self.sentinel(sentinel, &["SENTINEL", "MASTER", SERVICE]);
            let replicas = self.sentinel(sentinel, &["SENTINEL", "REPLICAS", SERVICE]);
            field(&service, "num-other-sentinels") == Some("2")
                && field(&replicas, "master-link-status") == Some("ok")
        })
    }

    /// The URL of the service.
    #[must_use]
    pub fn url(&self) -> String {
        let Self { options, sentinels, .. } = self;
        let places: Vec<String> =
            sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        let login = options.password.map_or_else(String::new, |password| format!(":{password}@"));
        let query =
            options.sentinel_password.map_or_else(String::new, |word| format!("?sentinel_password={word}"));
        format!("redis+sentinel://{login}{}/{SERVICE}{query}", places.join(","))
    }

    /// The number in [`Self::servers`] of the primary, if all sentinels name the same.
    #[must_use]
    pub fn primary(&self) -> Option<usize> {
        let mut all = self.sentinels.iter().map(|sentinel| self.named_by(sentinel));
        let first = all.next()??;
        all.all(|other| other == Some(first)).then_some(first)
    }

    fn named_by(&self, sentinel: &Server) -> Option<usize> {
        let place = self.sentinel(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]);
        let port = place.lines().nth(1)?.parse().ok()?;
        (0..self.servers.len()).find(|index| self.known_port(*index) == port)
    }

    /// The port by which sentinels and servers know a server.
    fn known_port(&self, index: usize) -> u16 {
        self.ways.get(index).map_or_else(|| self.servers[index].port(), SlowWay::port)
    }

    /// Starts a server again that was killed, empty.
    pub fn restart(&mut self, index: usize) {
        self.servers[index].restart();
        if let Some(way) = self.ways.get(index) {
            say_announced(&self.servers[index], &self.options, way);
        }
    }

    /// Makes the replica the primary, while both run; returns when all sentinels say so.
    pub fn fail_over(&self) {
        let before = self.primary().expect("sentinels that agree");
        let first = &self.sentinels[0];
        let mut accepted: Option<Instant> = None;
        until("a failover", || {
            // Refused while nobody has looked at the replica of late. Sent again after one that succeeded, it would make
            // the old primary one again; only one that was given up is asked for again.
            if accepted.is_none_or(|at| at.elapsed() > FAILOVER_GIVEN_UP) {
                let asked = first.try_cli(&self.as_user(&["SENTINEL", "FAILOVER", SERVICE]));
                accepted = asked.is_ok_and(|answer| answer.trim() == "OK").then(Instant::now);
            }
            self.named_by(first) == Some(1 - before)
        });
        until("a failover that all have heard of", || self.primary() == Some(1 - before));
    }

    /// Waits until a primary that was killed is replaced. A busy machine is no reason to replace another one later.
    pub fn replace_the_dead(&self, primary: usize) {
        self.set_patience(DOWN_SOON_MILLIS);
        until("another primary", || self.primary() == Some(1 - primary));
        self.set_patience(DOWN_AFTER_MILLIS);
    }

    fn set_patience(&self, millis: &str) {
        let set = ["SENTINEL", "SET", SERVICE, "down-after-milliseconds", millis];
        self.sentinels.iter().for_each(|sentinel| assert_eq!(self.sentinel(sentinel, &set), "OK"));
    }

    /// Asks a server.
    #[must_use]
    pub fn server(&self, index: usize, arguments: &[&str]) -> String {
        ask(&self.servers[index], self.options.password, arguments)
    }

    /// Whether a server says that it is a replica. As it becomes one, sentinels end its connections.
    #[must_use]
    pub fn is_demoted(&self, index: usize) -> bool {
        let role = self.servers[index].try_cli(&as_user(self.options.password, &["ROLE"]));
        role.is_ok_and(|role| role.starts_with("slave"))
    }

    fn sentinel(&self, sentinel: &Server, arguments: &[&str]) -> String {
        sentinel.cli(&self.as_user(arguments))
    }

    fn as_user<'a>(&self, arguments: &[&'a str]) -> Vec<&'a str> {
        as_user(self.options.sentinel_password, arguments)
    }
}

/// Lets a server say that it is where the way to it is, as a replica.
fn say_announced(server: &Server, options: &TrioOptions, way: &SlowWay) {
    let set = ["CONFIG", "SET", "replica-announce-port", &way.port().to_string()];
    assert_eq!(ask(server, options.password, &set), "OK");
}

fn sentinel(primary: &Server, way: Option<&SlowWay>, options: &TrioOptions) -> Server {
    let down = format!("down-after-milliseconds {SERVICE} {DOWN_AFTER_MILLIS}");
    let failover = format!("failover-timeout {SERVICE} {FAILOVER_MILLIS}");
    let login = options.password.map(|password| format!("auth-pass {SERVICE} {password}"));
    let mut directives = vec![("sentinel", &*down), ("sentinel", &*failover)];
    directives.extend(login.iter().map(|login| ("sentinel", login.as_str())));
    // With it they ask each other, too.
    directives.extend(options.sentinel_password.map(|password| ("requirepass", password)));
    match way {
        Some(way) => primary.sentinel_at(way.port(), QUORUM, &directives),
        None => primary.sentinel(QUORUM, &directives),
    }
}

fn ask(server: &Server, password: Option<&'static str>, arguments: &[&str]) -> String {
    server.cli(&as_user(password, arguments))
}

/// The line behind that of a name.
fn field<'t>(answer: &'t str, name: &str) -> Option<&'t str> {
    answer.lines().skip_while(|line| *line != name).nth(1)
}
