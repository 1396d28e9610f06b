//! Stores that ask sentinels where their server is: through failovers, and when something is wrong with who is asked.

mod failover;
mod input;

use ratekeeper::RedisStoreBuilder;
use ratekeeper_testkit::servers::{SERVICE, Server};

/// Stands in every URL with a password, and must not stand anywhere else.
const SECRET: &str = "hunter2";

/// The URL of a server that these sentinels watch.
fn url(sentinels: &[&Server]) -> String {
    url_at(&sentinels.iter().map(|sentinel| sentinel.port()).collect::<Vec<_>>(), SERVICE)
}

fn url_at(ports: &[u16], service: &str) -> String {
    let places: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+sentinel://{}/{service}", places.join(","))
}

/// How often a server was sent a command by anybody.
fn calls(stats: &str, command: &str) -> u64 {
    let name = format!("cmdstat_{command}:calls=");
    let count = stats.lines().find_map(|line| line.strip_prefix(&name)?.split(',').next());
    count.map_or(0, |count| count.parse().unwrap())
}

/// As a service would ask.
fn usual(url: &str) -> RedisStoreBuilder {
    ratekeeper::RedisStore::builder(url)
}
