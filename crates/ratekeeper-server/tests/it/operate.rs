//! `ratekeeper overrides`, `mode` and `emergency`: on a server, and on the store itself.

use std::process::Output;

use ratekeeper_testkit::servers::{Cluster, Flavour, Server};
use serde_json::{Value as Json, json};

use crate::served::{STORE_DEADLINE, Served};
use crate::{command, ratekeeper, text};

const TOKEN: &str = "0123456789abcdef";
const POLICY: &str = "service = 'search'\n[[rules]]\nname = 'per-project'\nkeys = 'project:{identity.project}'\n\
                      overrides = true\nquota = '2/h fixed_window'\n";

/// Words and the place where they go.
fn at(words: &str, place: &[&str]) -> Output {
    let words = words.split_whitespace().chain(place.iter().copied());
    command().args(words).env("RATEKEEPER_ADMIN_TOKEN", TOKEN).output().expect("the binary runs")
}

#[track_caller]
fn is_done(output: &Output, status: i32, words: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{out}{err}");
    assert!(out.contains(words) || err.contains(words), "{words}: {out}{err}");
}

fn passed(served: &Served) -> usize {
    let call = r#"{"service": "search", "identity": {"org": "7", "project": "42"}}"#;
    (0..5).filter(|_| served.ask("POST", "/v1/check", call).0 == 200).count()
}

/// All commands, one after the other; `place` says where.
fn all_of(place: &[&str], served: &Served) {
    let scope = "search/per-project --organisation 7 --project 42";
    is_done(&at(&format!("overrides get {scope}"), place), 1, "there is no override of exactly this");
    let set = "overrides set search/per-project 4 --organisation 7 --project 42 --for 1d --author ann";
    is_done(&at(set, place), 0, "set: project 42 of organisation 7 has 4 on search/per-project, for ");
    assert_eq!(passed(served), 4);
    is_done(&at(&format!("overrides get {scope}"), place), 0, "by ann");
    let listed = at("overrides list --organisation 7 --project 42", place);
    is_done(&listed, 0, "ENDPOINT");
    assert!(
        text(&listed.stdout)
            .lines()
            .nth(1)
            .expect("a row")
            .starts_with("search/per-project  7             42       4 "),
        "{listed:?}"
    );
    copied(place);
    is_done(&at("overrides clear --organisation 7 --project 42", place), 2, "--yes does it without asking");
    is_done(&at("overrides clear --organisation 7 --project 42 --yes", place), 0, "deleted");
    is_done(&at(&format!("overrides delete {scope}"), place), 1, "there was none");
    assert_eq!(passed(served), 0, "two were enough");

    is_done(&at("mode get", place), 0, "nothing is set");
    is_done(
        &at("mode set search/per-project monitor --for 1h", place),
        0,
        "set: search/per-project monitor, for ",
    );
    ratekeeper_testkit::wait::until("the mode reaches the server", || passed(served) == 5);
    let told: Json = serde_json::from_slice(&at("mode get --format json", place).stdout).expect("JSON");
    assert_eq!((&told["modes"][0]["mode"], &told["emergencies"]), (&json!("monitor"), &json!([])));
    is_done(&at("mode clear search/per-project", place), 0, "cleared");
    is_done(&at("emergency lift search/per-project --for 15min", place), 0, "lift");
    ratekeeper_testkit::wait::until("the lift reaches the server", || passed(served) == 5);
    is_done(&at("emergency clear search/per-project", place), 0, "cleared");
    is_done(&at("emergency block search/* --for 15min", place), 2, "all rules of search");
    is_done(&at("emergency block search/* --for 15min --yes", place), 0, "block");
    ratekeeper_testkit::wait::until("the block reaches the server", || passed(served) == 0);
    let told: Json = serde_json::from_slice(&at("mode get --format json", place).stdout).expect("JSON");
    assert_eq!((&told["modes"], &told["emergencies"][0]["rule"]), (&json!([]), &json!("search/*")));
    is_done(&at("mode get", place), 0, "RULE");
    is_done(&at("emergency clear search/* --yes", place), 0, "cleared");
    is_done(&at("emergency clear search/* --yes", place), 1, "none was set");
    ratekeeper_testkit::wait::until("the end reaches the server", || passed(served) == 0);
}

/// What is exported can be imported, and is then the same.
fn copied(place: &[&str]) {
    is_done(&at("overrides set search/other 9 --organisation 8 --yes", place), 0, "organisation 8 has 9");
    let exported = at("overrides export", place);
    assert_eq!(text(&exported.stdout).lines().count(), 2, "{exported:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("overrides.jsonl");
    let file = file.to_str().expect("text");
    std::fs::write(file, &exported.stdout).expect("a file");
    is_done(&at("overrides clear --organisation 8 --yes", place), 0, "deleted");
    is_done(&at(&format!("overrides import {file} --yes"), place), 0, "set 2");
    assert_eq!(at("overrides export", place).stdout, exported.stdout);
    let wrong = [exported.stdout.as_slice(), b"{\"endpoint\": 7}\n"].concat();
    std::fs::write(file, wrong).expect("a file");
    is_done(&at(&format!("overrides import {file} --yes"), place), 2, ":3: endpoint: ");
    std::fs::write(file, "[]\n").expect("a file");
    is_done(
        &at(&format!("overrides import {file} --yes"), place),
        2,
        ":1: expected an object; nothing was set",
    );
    let ended = r#"{"endpoint": "a", "organisation": "8", "limit": 1, "until_us": 1}"#;
    std::fs::write(file, ended).expect("a file");
    is_done(
        &at(&format!("overrides import {file} --yes"), place),
        0,
        "set 0; 1 have ended and were left out",
    );
    is_done(&at("overrides clear --organisation 8 --yes", place), 0, "deleted");
}

/// Services on Application Kit have their overrides under its own names, which a cluster cannot have.
#[test]
fn overrides_of_application_kit_are_copied_to_a_cluster() {
    let (old, cluster) = (Server::start(Flavour::Redis7), Cluster::start(Flavour::Redis7));
    let set = |key: &str, limit: &str| {
        assert_eq!(old.cli(&["HSET", key, "max_requests", limit, "expiry", "60"]), "2");
    };
    set("ratelimit_override:/datasets/{dataset_id}/search:7:42", "500");
    set("ratelimit_org_override:search/per-project:7", "50");
    let (from, to) = (old.url(), cluster.url());
    let (from, to) = (["--store", from.as_str()], ["--store", to.as_str()]);
    let exported = at("overrides export", &from);
    is_done(&exported, 0, "dataset_id");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("overrides.jsonl");
    std::fs::write(&file, &exported.stdout).expect("a file");
    is_done(&at(&format!("overrides import {} --yes", file.display()), &to), 0, "set 2");
    let copied = at("overrides export", &to);
    let sorted = |output: &Output| {
        let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&copied), sorted(&exported));
    let of_project = "overrides get /datasets/{dataset_id}/search --organisation 7 --project 42";
    is_done(&at(of_project, &to), 0, "has 500 per 60s");
    let listed = text(&at("overrides list", &to).stdout);
    let rows: Vec<&str> = listed.lines().collect();
    assert!(rows[0].ends_with("SERVER"), "{listed}");
    // Both are of one organisation.
    let owner = &cluster.nodes[cluster.owner(cluster.slot_of(b"{7}")).expect("an owner")];
    let port = owner.port().to_string();
    assert!(rows.len() == 3 && rows[1..].iter().all(|row| row.ends_with(&port)), "{port}: {listed}");
    let json = at("overrides list --organisation 7 --project 42 --format json", &to);
    let told: Json = serde_json::from_slice(&json.stdout).expect("JSON");
    let server = told["overrides"][0]["server"].as_str().expect("a node");
    assert!(server.ends_with(&port), "{told}");
}

fn serve(policy: &std::path::Path, store: &str) -> Served {
    let arguments = ["serve", "--http", "127.0.0.1:0", "--store", store, "--policy"];
    Served::start(
        command()
            .args(arguments)
            .arg(policy)
            .env("RATEKEEPER_ADMIN_TOKEN", TOKEN)
            .env(STORE_DEADLINE.0, STORE_DEADLINE.1),
    )
}

fn policy() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("policy.toml");
    std::fs::write(&path, POLICY).expect("a file");
    (folder, path)
}

#[test]
fn a_server_in_memory_is_changed_over_http() {
    let (_folder, policy) = policy();
    let served = serve(&policy, "memory");
    all_of(&["--server", &served.url()], &served);
}

#[test]
fn a_store_is_changed_itself_and_its_servers_follow() {
    let (_folder, policy) = policy();
    let server = Server::start(Flavour::Valkey9);
    let served = serve(&policy, &server.url());
    let here = ["--timeout", "20000", "--store", &server.url()];
    all_of(&here, &served);
    // Under another prefix, it is another store.
    let elsewhere = [&here[..], &["--store-prefix", "live:"]].concat();
    is_done(&at("mode set search/per-project off", &elsewhere), 0, "set: ");
    is_done(&at("mode get", &elsewhere), 0, "search/per-project");
    is_done(&at("mode get", &here), 0, "nothing is set");
}

#[test]
fn what_cannot_be_done_is_said_with_what_to_do() {
    let (_folder, policy) = policy();
    let served = serve(&policy, "memory");
    let url = served.url();
    let deeper = format!("{url}/v2");
    let cases = [
        (vec!["mode", "get"], "expected one of them"),
        (vec!["mode", "get", "--store", "memory"], "--server http://127.0.0.1:8080"),
        (vec!["mode", "get", "--store", "redis://127.0.0.1:1", "--server", &url], "expected one of them"),
        (vec!["mode", "get", "--server", "127.0.0.1"], "expected http://HOST:PORT"),
        (vec!["mode", "get", "--server", "http://user:secret@127.0.0.1"], "never in the address"),
        (vec!["mode", "get", "--server", "http://127.0.0.1:1"], "is `ratekeeper serve` running there?"),
        (vec!["mode", "get", "--server", &url], "--admin-token-file FILE"),
        (vec!["mode", "set", "search/none", "off", "--server", &url], "--admin-token-file FILE"),
        (vec!["emergency", "lift", "*"], "--for"),
        (vec!["mode", "get", "--server", &deeper], "there is no such call"),
        (vec!["emergency", "lift", "a/b", "--for", "1min", "--server", &deeper], "there is no such call"),
    ];
    for (words, expected) in cases {
        let output = ratekeeper(&words);
        is_done(&output, 2, expected);
        assert!(!text(&output.stderr).contains("secret"), "{words:?}");
    }
    is_done(
        &at("mode set search/none off", &["--server", &url]),
        2,
        "the policy of `search` has no such rule",
    );
    is_done(
        &at("overrides set a 5 --organisation 7 --yes --for soon", &["--server", &url]),
        2,
        "a length of time",
    );
}
