//! `make bench-redis`: the store on Redis and Valkey against its peers.

use std::process::ExitCode;

use ratekeeper_benches::redis::rounds::Plan;
use ratekeeper_benches::{command, redis};

fn main() -> ExitCode {
    command::run("redis", |quick| {
        let (plan, command) =
            if quick { (Plan::QUICK, "`redis --quick`") } else { (Plan::FULL, "`make bench-redis`") };
        Ok(redis::run(plan, command)?.markdown())
    })
}
