//! `make bench-http`: a web service with limits, without, and with those of
//! `tower_governor`.

use std::process::ExitCode;

use ratekeeper_benches::{command, http};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    // The services that are measured are this program as well.
    let run: fn(&str) -> ratekeeper_benches::Result<()> = match arguments.next().as_deref() {
        Some(http::SERVE_FLAG) => http::serve,
        Some(http::COUNT_FLAG) => http::count,
        _ => return command::run("http", http::run),
    };
    match arguments.next().ok_or_else(|| "which service?".into()).and_then(|name| run(&name)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("http: {error}");
            ExitCode::FAILURE
        }
    }
}
