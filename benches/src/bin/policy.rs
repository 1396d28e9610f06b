//! `make bench-policy`: what it costs to find the rules that apply to a request.

use std::process::ExitCode;

use ratekeeper_benches::measure::Plan;
use ratekeeper_benches::{command, policy};

fn main() -> ExitCode {
    command::run("policy", |quick| policy::run(if quick { Plan::QUICK } else { Plan::FULL }))
}
