//! `make bench-server`: our server against throttlecrab-server.

use std::process::ExitCode;

use ratekeeper_benches::server::rounds::Plan;
use ratekeeper_benches::{command, server};

fn main() -> ExitCode {
    command::run("server", |quick| {
        let (plan, command) =
            if quick { (Plan::QUICK, "`server --quick`") } else { (Plan::FULL, "`make bench-server`") };
        server::run(plan, command)
    })
}
