//! `make run` once the binary is built: `scripts/run.sh`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::served::Served;
use crate::undisturbed;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/run.sh");
const LIMIT: &str = r#"{"endpoint": "demo/per-caller", "organisation": "7", "limit": 5}"#;
const SCOPE: &str = r#"{"endpoint": "demo/per-caller", "organisation": "7"}"#;

/// Starts it as the Makefile does, in a folder of its own.
fn run(folder: &Path) -> Served {
    let mut run = undisturbed(Command::new(SCRIPT));
    run.arg(env!("CARGO_BIN_EXE_ratekeeper")).current_dir(folder);
    Served::start(run.env("RATEKEEPER_HTTP", "127.0.0.1:0"))
}

/// The token that it shows, if it does.
fn shown(served: &Served) -> Option<String> {
    let line = served.said.iter().find(|line| line.starts_with("token of operators"))?;
    line.rsplit(' ').next().map(str::to_owned)
}

fn stop(served: Served) {
    assert!(served.stop(Duration::from_secs(30)).success());
}

#[test]
fn a_token_is_made_and_shown_once_and_what_is_set_with_it_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("target/run/tokens");
    let served = run(folder.path());
    let token = shown(&served).expect("a token");
    let kept = fs::read_to_string(&file).expect("a file of tokens");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    assert!(kept.lines().count() == 1 && kept.contains("operate") && !kept.contains(&token), "{kept}");

    let page = served.said.iter().find_map(|line| line.trim().strip_prefix("dashboard "));
    let page = page.expect("it says where the dashboard is").trim();
    assert!(page.starts_with(&format!("{}/dashboard ", served.url())), "{page}");
    assert_eq!(served.ask("GET", "/dashboard", "").0, 200);
    let (status, told) = served.ask_as(&token, "GET", "/v1/dashboard", "");
    assert!(status == 200 && told.contains("\"demo\":{"), "it offers its demo load: {told}");
    assert_eq!(served.ask("POST", "/v1/overrides/set", LIMIT).0, 401);
    let (status, told) = served.ask_as(&token, "POST", "/v1/overrides/set", LIMIT);
    assert_eq!(status, 200, "{told}");
    stop(served);

    let served = run(folder.path());
    assert_eq!(shown(&served), None, "only its hash is there");
    assert_eq!(fs::read_to_string(&file).expect("a file of tokens"), kept);
    assert_eq!(served.ask_as(&token, "POST", "/v1/overrides/get", SCOPE).0, 200);
    stop(served);

    fs::remove_file(&file).expect("a file of tokens");
    let served = run(folder.path());
    let other = shown(&served).expect("another token");
    assert_eq!(served.ask_as(&token, "POST", "/v1/overrides/get", SCOPE).0, 401);
    assert_eq!(served.ask_as(&other, "POST", "/v1/overrides/get", SCOPE).0, 200);
}
