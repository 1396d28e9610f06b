//! `make bench-http`: a web service with limits, without, and with those of
//! `tower_governor`.

use std::process::ExitCode;

use ratekeeper_benches::{command, http};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    // The services that are measured are this program as well.
    if arguments.next().as_deref() == Some(http::SERVE_FLAG) {
        let served =
            arguments.next().ok_or_else(|| "which service?".into()).and_then(|kind| http::serve(&kind));
        return match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("http: {error}");
                ExitCode::FAILURE
            }
        };
    }
    command::run("http", http::run)
}
