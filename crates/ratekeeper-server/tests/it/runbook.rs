//! `docs/runbook.md`: every alert has a section, and every command in it does what it should.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use ratekeeper_testkit::servers::{Cluster, Flavour, Server};

use crate::served::{STORE_DEADLINE, Served};
use crate::{command, text};

const RUNBOOK: &str = include_str!("../../../../docs/runbook.md");
const ALERTS: &str = include_str!("../../../../deploy/prometheus/ratekeeper.rules.yml");
const METRICS: &str = include_str!("../../../../docs/server.md");
const POLICY: &str = include_str!("../../../../deploy/policy/policy.toml");
const TOKEN: &str = "0123456789abcdef";

/// Names of the alerts, in the order of the rules.
fn alerts() -> Vec<&'static str> {
    ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

/// Sections about alerts: the name, and what is in it.
fn sections() -> Vec<(&'static str, &'static str)> {
    let (_, of_alerts) = RUNBOOK.split_once("\n## Alerts\n").expect("a part about alerts");
    let (of_alerts, _) = of_alerts.split_once("\n## ").expect("parts after it");
    let parts = of_alerts.split("\n### ").skip(1);
    parts.map(|part| part.split_once('\n').expect("a name and a text")).collect()
}

/// The lines of blocks that are run.
fn lines() -> impl Iterator<Item = &'static str> {
    let blocks = RUNBOOK.split("\n```sh\n").skip(1).map(|rest| rest.split_once("\n```").expect("an end").0);
    blocks.flat_map(str::lines).filter(|line| !line.is_empty())
}

#[test]
fn every_alert_has_its_section_and_leads_there() {
    let named: Vec<&str> = sections().into_iter().map(|(name, _)| name).collect();
    assert_eq!(named, alerts(), "in the order of the rules");
    for (name, section) in sections() {
        for part in ["**Means.** ", "**Look at.** ", "**Do.** ", "\n```sh\n"] {
            assert_eq!(section.matches(part).count(), 1, "{name}: {part}");
        }
        let url = format!(
            "runbook_url: https://github.com/ratekeeper/ratekeeper/blob/main/docs/runbook.md#{}",
            name.to_lowercase()
        );
        assert_eq!(ALERTS.matches(&format!("{url}\n")).count(), 1, "{url}");
    }
}

#[test]
fn metrics_and_links_of_the_runbook_exist() {
    let words = RUNBOOK.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let metrics: BTreeSet<&str> = words.filter(|word| word.starts_with("ratekeeper_")).collect();
    assert!(metrics.len() > 10, "{metrics:?}");
    for metric in metrics {
        // Or the beginning of several that belong together.
        assert!(METRICS.contains(&format!("`{metric}")), "{metric}");
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let links = RUNBOOK.split("](").skip(1).map(|rest| rest.split_once(')').expect("an end").0);
    for link in links {
        let (file, part) = link.split_once('#').unwrap_or((link, ""));
        let page = if file.is_empty() {
            RUNBOOK.to_owned()
        } else {
            fs::read_to_string(docs.join(file)).unwrap_or_else(|error| panic!("{link}: {error}"))
        };
        let headings = page.lines().filter(|line| line.starts_with('#'));
        let mut anchors = headings.map(|line| {
            line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-").replace(',', "")
        });
        assert!(part.is_empty() || anchors.any(|anchor| anchor == part), "{link}");
    }
}

/// Every command is run where it would be: on a server, its store and a cluster.
#[test]
fn every_command_of_the_runbook_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("policy.toml"), POLICY).expect("a policy");
    let store = Server::start_with(Flavour::Redis7, &[("appendonly", "yes"), ("maxmemory", "100mb")]);
    let cluster = Cluster::start(Flavour::Redis7);
    let served = Served::start(
        command()
            .args(["serve", "--http", "127.0.0.1:0", "--store", &store.url(), "--policy"])
            .arg(folder.path().join("policy.toml"))
            .env("RATEKEEPER_ADMIN_TOKEN", TOKEN)
            .env(STORE_DEADLINE.0, STORE_DEADLINE.1),
    );
    // Something to look at.
    for _ in 0..30 {
        served.ask("POST", "/v1/check", r#"{"client": "192.0.2.1"}"#);
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_ratekeeper")).parent().expect("a folder");
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers");
    let run = |line: &str| {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("set -o pipefail; {line}")]).current_dir(folder.path());
        bash.env("PATH", format!("{}:{}:{path}", binary.display(), servers.display()));
        bash.env("SERVER", served.url()).env("STORE", store.url()).env("CLUSTER", cluster.url());
        bash.env("DEADLINE", STORE_DEADLINE.1).env("RATEKEEPER_ADMIN_TOKEN", TOKEN).stdin(Stdio::null());
        bash.output().expect("bash runs")
    };
    let set = "ratekeeper overrides set api/per-caller 50 --organisation 7 --for 1d --author ann --yes --store \"$STORE\"";
    assert!(run(set).status.success());
    // What somebody keeps under version control, and the server does not have any more.
    let kept = r#"{"endpoint": "api/per-caller", "organisation": "8", "limit": 61}"#;
    fs::write(folder.path().join("overrides.jsonl"), kept).expect("a file");
    let mut seen = BTreeSet::new();
    for line in lines() {
        // Blocks repeat the commands that a reader of one section needs.
        if !seen.insert(line) && !line.contains("import") {
            continue;
        }
        let output = run(line);
        assert_eq!(
            output.status.code(),
            Some(0),
            "$ {line}\n{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
    }
    assert!(seen.len() > 30, "only {} commands were found", seen.len());
    let moved = text(&run("ratekeeper overrides list --store \"$CLUSTER\"").stdout);
    assert!(moved.contains("api/per-caller") && moved.contains("50"), "{moved}");
    assert!(moved.contains("61"), "what was kept was set again, before anything wrote over it: {moved}");
}
