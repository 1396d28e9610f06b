//! `ratekeeper inspect`, `counters`, `usage`, `explain`, `top`, `audit`, `token` and `policy test`.

use std::fs;
use std::process::Output;

use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::Value as Json;

use crate::served::{STORE_DEADLINE, Served};
use crate::{command, ratekeeper, text};

const POLICY: &str = "service = 'search'\n[[rules]]\nname = 'per-project'\nkeys = 'project:{identity.project}'\n\
    overrides = true\nquota = '2/h'\n\
    [[rules]]\nname = 'rare'\nwhen = \"path == '/rare'\"\nkeys = 'ip:{client.ip}'\nquota = '1/h'\n";

#[track_caller]
fn is_done(output: &Output, status: i32, words: &[&str]) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{out}{err}");
    for words in words {
        assert!(out.contains(words) || err.contains(words), "{words}: {out}{err}");
    }
}

/// Words and the place where they go.
fn at(words: &str, place: &[&str]) -> Output {
    ratekeeper(&words.split_whitespace().chain(place.iter().copied()).collect::<Vec<_>>())
}

/// A folder with the policy, and its path.
fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("policy.toml");
    fs::write(&path, POLICY).expect("a file");
    let path = path.to_str().expect("text").to_owned();
    (folder, path)
}

/// Two requests passed and one was denied. `look` says where policies are looked at, `place` where all else is.
fn looked_at(look: &[&str], place: &[&str], served: &Served) {
    is_done(&at("inspect project:42", look), 0, &["search/per-project", "project:42", "2/h"]);
    is_done(&at("usage --organisation 7 --project 42", look), 0, &["LEFT", "search/per-project"]);
    // Before the relief: of what was reset, nothing is limited.
    is_done(&at("top --once", place), 0, &["RULE"]);
    let usage = at("usage --organisation 7 --project 42 --format json", look);
    let told: Json = serde_json::from_slice(&usage.stdout).expect("JSON");
    assert_eq!(told["rules"][0]["limits"][0]["used"], 2, "{told}");
    let explain = "explain --claim org=7 --claim project=42";
    is_done(
        &at(explain, look),
        1,
        &["decided by search/per-project", "passes again at 20", "search/rare", "its condition "],
    );
    is_done(&at("explain --claim project=43", look), 0, &["search/per-project"]);
    is_done(
        &at(
            "overrides set search/per-project 1 --organisation 7 --project 42 --author ann --reason abuse",
            place,
        ),
        0,
        &["set: "],
    );
    is_done(&at(explain, look), 1, &["project (ann)", "because of abuse"]);
    is_done(
        &at("overrides set search/per-project 9 --organisation 7 --project 42 --relief", look),
        0,
        &["counters that were reset: 1"],
    );
    is_done(&at(explain, look), 0, &["9 of 9 left"]);
    is_done(&at("audit", place), 0, &["overrides/set", "abuse"]);
    is_done(&at("audit --by nobody", place), 1, &["nothing was changed"]);
    is_done(
        &at("policies", look),
        0,
        &["service search", "search/per-project", "2/h", "project:{identity.project}"],
    );
    is_done(&at("reset project:42", look), 2, &["--yes does it without asking"]);
    is_done(&at("reset planet:mars --yes", look), 2, &["a key under which a rule counts"]);
    let call = r#"{"identity": {"org": "7", "project": "42"}}"#;
    assert_eq!(served.ask("POST", "/v1/check", call).0, 200);
    is_done(&at("reset project:42 --yes", look), 0, &["counters that were forgotten: 1"]);
    is_done(&at("reset project:42 --rule search/per-project", look), 1, &["nothing was counted"]);
    is_done(&at("audit", place), 0, &["counters/reset"]);
}

#[test]
fn a_server_in_memory_is_looked_at() {
    let (_folder, policy) = folder();
    let arguments = ["serve", "--http", "127.0.0.1:0", "--admin-without-token", "--policy", &policy];
    let served = Served::start(command().args(arguments));
    let call = r#"{"identity": {"org": "7", "project": "42"}}"#;
    assert_eq!([0; 3].map(|_: i32| served.ask("POST", "/v1/check", call).0), [200, 200, 429]);
    let url = served.url();
    let place = ["--server", url.as_str()];
    let top = at("top --once --format json", &place);
    let told: Json = serde_json::from_slice(&top.stdout).expect("JSON");
    assert_eq!(
        (&told["keys"][0]["key"], &told["keys"][0]["denied"]),
        (&"project:42".into(), &1.into()),
        "{told}"
    );
    assert_eq!(told["rules"][0]["rule"], "search/per-project");
    is_done(&at("counters", &place), 0, &["a store in memory keeps no names", "project:42"]);
    looked_at(&place, &place, &served);
}

#[test]
fn a_store_is_looked_at_by_a_policy() {
    let (_folder, policy) = folder();
    let server = Server::start(Flavour::Valkey9);
    let url = server.url();
    let arguments = ["serve", "--http", "127.0.0.1:0", "--store", &url, "--policy", &policy];
    let served = Served::start(command().args(arguments).env(STORE_DEADLINE.0, STORE_DEADLINE.1));
    let call = r#"{"identity": {"org": "7", "project": "42"}}"#;
    assert_eq!([0; 3].map(|_: i32| served.ask("POST", "/v1/check", call).0), [200, 200, 429]);
    let place = ["--store", url.as_str(), "--timeout", "20000"];
    is_done(&at("inspect project:42", &place), 0, &["as it is stored", "search/per-project"]);
    is_done(&at("inspect nobody", &place), 1, &["nothing is counted under this key"]);
    is_done(&at("counters --service search", &place), 0, &["project:42", "token_bucket"]);
    let look = ["--store", url.as_str(), "--timeout", "20000", "--policy", policy.as_str()];
    looked_at(&look, &place, &served);
}

#[test]
fn a_token_is_shown_once_and_its_line_lets_it_in() {
    let made = ratekeeper(&["token", "new", "--name", "ann", "--role", "operate", "--format", "json"]);
    let told: Json = serde_json::from_slice(&made.stdout).expect("JSON");
    let (token, line) = (told["token"].as_str().expect("text"), told["line"].as_str().expect("text"));
    assert!(line.starts_with("ann operate blake3:") && !line.contains(token), "{line}");
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, format!("# operators\n{line}\n")).expect("a file");
    let tokens = tokens.to_str().expect("text");
    let served = Served::start(command().args(["serve", "--http", "127.0.0.1:0", "--tokens", tokens]));
    let url = served.url();
    let with = |token: &str| {
        let words = ["mode", "get", "--server", &url];
        command().args(words).env("RATEKEEPER_ADMIN_TOKEN", token).output().expect("it runs")
    };
    is_done(&with(token), 0, &["nothing is set"]);
    is_done(&with("rk_0123456789abcdef"), 2, &["the token is not known"]);
    is_done(&ratekeeper(&["token", "new", "--role", "usage"]), 2, &["expected organisation=ID"]);
    is_done(&ratekeeper(&["token", "new", "--role", "read", "--name", "a b"]), 2, &["without spaces"]);
    let usage = ratekeeper(&["token", "new", "--role", "usage", "--organisation", "7", "--project", "42"]);
    is_done(&usage, 0, &["operator usage organisation=7 project=42 blake3:"]);
}

const CASES: &str = "policy = 'policy.toml'\n[request]\nidentity = { org = '7', project = '42' }\n\
    [[cases]]\nname = 'two an hour'\n\
    [[cases.steps]]\ntimes = 2\nexpect = 'allow'\nremaining = { per-project = 0 }\nlimits = ['per-project']\n\
    [[cases.steps]]\nexpect = 'deny'\ndenied_by = 'per-project'\nretry_after = '30min'\n\
    [[cases.steps]]\nat = '30min'\nexpect = 'allow'\n\
    [[cases]]\nname = 'another begins anew'\n[[cases.steps]]\nrequest = { path = '/rare', client = '192.0.2.7' }\n\
    expect = 'allow'\nremaining = { rare = 0 }\n";

#[test]
fn cases_are_decided_in_virtual_time() {
    let (folder, _) = folder();
    let file = folder.path().join("cases.toml");
    let run = |cases: &str, more: &[&str]| {
        fs::write(&file, cases).expect("a file");
        let words = [&["policy", "test", "cases.toml"][..], more].concat();
        command().args(words).current_dir(&folder).output().expect("it runs")
    };
    is_done(&run(CASES, &[]), 0, &["ok    two an hour", "2 passed, 0 failed"]);
    let wrong = [
        (
            "times = 2",
            "times = 3",
            vec!["FAIL  two an hour", "step 1, request 3: decision", "- allow", "+ deny: "],
        ),
        ("at = '30min'", "at = '29min'", vec!["step 3, request 1: decision", "1 passed, 1 failed"]),
        ("retry_after = '30min'", "retry_after = '31min'", vec!["retry_after", "- 1860s", "+ 1800s"]),
        ("remaining = { rare = 0 }", "remaining = { rare = 1 }", vec!["remaining.rare", "- 1", "+ 0"]),
        ("limits = ['per-project']", "limits = ['rare']", vec!["- rare", "+ per-project"]),
        ("denied_by = 'per-project'", "denied_by = 'rare'", vec!["denied_by", "- rare", "+ per-project"]),
    ];
    for (right, broken, words) in wrong {
        is_done(&run(&CASES.replacen(right, broken, 1), &[]), 1, &words);
    }
    let json = run(&CASES.replacen("times = 2", "times = 3", 1), &["--format", "json"]);
    let lines: Vec<Json> =
        text(&json.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["passed"], &lines[0]["differences"][0]["request"]), (&false.into(), &3.into()));
    let unusable = [
        ("expect = 'deny'", "expect = 'refuse'", "cases.toml:12: unknown variant"),
        ("policy = 'policy.toml'\n", "", "got no policy"),
        ("policy = 'policy.toml'", "policy = 'none.toml'", "none.toml"),
        ("times = 2", "times = 0", "times: got 0"),
        ("at = '30min'", "at = 'soon'", "step 3: at: got `soon`"),
        ("identity =", "idenity =", "idenity"),
    ];
    for (right, broken, words) in unusable {
        is_done(&run(&CASES.replacen(right, broken, 1), &[]), 2, &[words]);
    }
    is_done(
        &run(&CASES.replacen("policy = 'policy.toml'\n", "", 1), &["--policy", "policy.toml"]),
        0,
        &["2 passed"],
    );
}
