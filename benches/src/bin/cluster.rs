//! `make bench-cluster`: the store on three primaries against the same on one server.

use std::process::ExitCode;

use ratekeeper_benches::cluster::{self, Plan};
use ratekeeper_benches::command;

fn main() -> ExitCode {
    command::run("cluster", |quick| {
        let (plan, command) =
            if quick { (Plan::QUICK, "`cluster --quick`") } else { (Plan::FULL, "`make bench-cluster`") };
        cluster::run(plan, command)
    })
}
