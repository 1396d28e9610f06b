//! `ratekeeper check`: one decision, and its exit status.

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

use ratekeeper_testkit::servers::{BlackHole, Flavour, Server};
use serde_json::Value;
use tempfile::TempDir;

use crate::served::{STORE_DEADLINE, Served};
use crate::{assert_printed, command, ratekeeper, text};

const POLICY: &str = "\
service = 'search'

[[rules]]
name = 'per-user'
keys = 'user:{identity.user}'
quota = '2/min'

[[rules]]
name = 'tenant'
when = \"route == '/matrix' && method == 'POST'\"
keys = ['tenant:{body.tenant_id}', 'key:{header.x-api-key}', 'ip:{client.ip}']
quota = '100/min'
cost = 'size(body.origins)'
";

/// A folder with that policy.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("policy.toml"), POLICY).expect("a file");
    folder
}

/// For decisions of a store that must have answered, however busy the machine is.
const PATIENT: [&str; 4] = ["--timeout", "20000", "--format", "json"];

fn check(arguments: &[&str]) -> Output {
    ratekeeper(&[&["check"], arguments].concat())
}

/// The decision as programs read it, and the status.
#[track_caller]
fn json(output: &Output) -> (Value, i32) {
    assert_eq!(text(&output.stderr), "");
    let told = serde_json::from_slice(&output.stdout);
    let told = told.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)));
    (told, output.status.code().expect("a status"))
}

#[track_caller]
fn refused(output: &Output, message: &str, hint: &str) {
    let shown = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{shown}");
    assert!(shown.contains(message) && shown.contains(hint), "{shown}");
    assert!(output.stdout.is_empty());
}

#[test]
fn one_decision_is_one_line() {
    let note = "note: counted in memory, which ends with this command; --store URL counts on a server\n";
    let line = "allowed: limit has 99 of 100 left (100/min), full again in 600ms\n";
    assert_printed(&check(&["user:42", "100/60s"]), 0, line, note);
    let line = "denied by limit: a cost of 101 can never pass 100/min\n";
    assert_printed(&check(&["user:42", "100/60s", "--cost", "101"]), 1, line, note);
    let line = "allowed: limit has 100 of 100 left (100/min)\n";
    assert_printed(&check(&["user:42", "100/60s", "--peek"]), 0, line, "");
}

#[test]
fn an_id_is_charged_once() {
    let (folder, server) = (folder(), Server::start(Flavour::Redis7));
    let policy = folder.path().join("policy.toml").to_str().expect("a path").to_owned();
    fs::write(&policy, POLICY.replace("2/min", "2/h")).expect("a file");
    let (url, last) = (server.url(), ["--format", "json"]);
    for what in [&["user:42", "2/h"][..], &["--policy", &policy, "--claim", "user=ann"]] {
        let asked = |id: &str, more: &[&str]| {
            json(&check(&[what, &["--store", &url, "--id", id], more, &last].concat())).0
        };
        let told =
            |decision: &Value| (decision["origin"].clone(), decision["limits"][0]["remaining"].clone());
        let (store, repeat) = (Value::from("store"), Value::from("repeat"));
        assert_eq!(told(&asked("a", &[])), (store.clone(), 1.into()), "{what:?}");
        assert_eq!(told(&asked("a", &[])), (repeat.clone(), 1.into()), "{what:?}: again");
        assert_eq!(told(&asked("b", &["--peek"])), (store.clone(), 1.into()), "{what:?}: an id nobody knows");
        assert_eq!(told(&asked("b", &[])), (store, 0.into()), "{what:?}: a peek keeps no id");
        assert_eq!(told(&asked("a", &["--peek"])), (repeat, 1.into()), "{what:?}: what is remembered");
        assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    }
    let long = "i".repeat(129);
    refused(&check(&["user:42", "2/h", "--id", &long]), "an id of 129 bytes", "error: ");
}

#[test]
fn several_quotas_are_one_decision() {
    let output = check(&[
        "user:42",
        "{rps=5, rpm=100}",
        "day=1000/d",
        "--and",
        "ip:192.0.2.7",
        "3/s",
        "--cost",
        "4",
        "--peek",
    ]);
    let lines = "\
denied by limit: a cost of 4 can never pass 3/s
  limit.rps: 5 of 5 left (5/s)
  limit.rpm: 100 of 100 left (100/min)
  day: 1000 of 1000 left (1000/d)
  limit: 3 of 3 left (3/s), which never suffices
";
    assert_printed(&output, 1, lines, "");
}

#[test]
fn servers_count_across_commands() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let url = server.url();
        let ask = |arguments: &[&str]| json(&check(&[&PATIENT[..], &["--store", &url], arguments].concat()));
        for left in [1, 0] {
            let (told, status) = ask(&["user:42", "2/h fixed_window"]);
            assert_eq!((&told["limits"][0]["remaining"], status), (&left.into(), 0), "{flavour}: {told}");
            assert_eq!((&told["allowed"], &told["origin"]), (&true.into(), &"store".into()), "{flavour}");
        }
        // Nothing of a denied decision is charged.
        let (told, status) = ask(&["user:43", "2/h fixed_window", "--and", "user:42", "2/h fixed_window"]);
        assert_eq!((&told["allowed"], status), (&false.into(), 1), "{flavour}: {told}");
        assert!(told["retry_after_us"].as_u64().expect("a wait") > 3_500_000_000, "{flavour}: {told}");
        assert!(
            told["explanation"].as_str().expect("a sentence").starts_with("denied by limit: 0 of 2 left"),
            "{told}"
        );
        for _ in 0..2 {
            let (told, status) = ask(&["user:43", "2/h fixed_window", "--peek"]);
            assert_eq!((&told["limits"][0]["remaining"], status), (&2.into(), 0), "{flavour}: {told}");
        }
        let output = command()
            .args(["check", "user:42", "2/h fixed_window", "--timeout", "20000"])
            .env("RATEKEEPER_STORE", &url)
            .output();
        let output = output.expect("it runs");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), String::new()), "{flavour}");
        assert!(
            text(&output.stdout).starts_with("denied by limit: 0 of 2 left (2/h fixed_window), 1 asked for"),
            "{flavour}"
        );
    }
}

#[test]
fn keys_do_not_meet_counters_of_others() {
    let server = Server::start(Flavour::Redis7);
    let _ = server.cli(&["SET", "ratelimit:/search:7:42", "5", "EX", "60"]);
    let (told, status) = json(&check(
        &[&PATIENT[..], &["/search:7:42", "5/min fixed_window", "--store", &server.url()]].concat(),
    ));
    assert_eq!((&told["limits"][0]["remaining"], status), (&4.into(), 0), "{told}");
    assert_eq!(server.cli(&["GET", "ratelimit:/search:7:42"]), "5");
}

#[test]
fn the_http_api_counts_on_the_same_counters_and_answers_alike() {
    let store = Server::start(Flavour::Redis62);
    let mut serve = command();
    serve
        .args(["serve", "--http", "127.0.0.1:0", "--store", &store.url()])
        .env(STORE_DEADLINE.0, STORE_DEADLINE.1);
    let served = Served::start(&mut serve);
    let body = r#"{"charges": [{"key": "user:42", "quota": "5/h fixed_window"}, {"key": "user:42", "name": "hour", "quota": "9/h"}]}"#;
    let (status, told) = served.ask("POST", "/v1/limit", body);
    let mut told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((status, &told["limits"][0]["remaining"]), (200, &4.into()), "{told}");
    // Receipts are for the server that signed them.
    let limit = told["limits"][0].as_object_mut().expect("an object");
    assert!(limit.remove("receipt").is_some());
    let arguments = ["user:42", "5/h fixed_window", "hour=9/h", "--store", &store.url()];
    let (mut ours, status) = json(&check(&[&PATIENT[..], &arguments].concat()));
    assert_eq!((status, &ours["limits"][0]["remaining"]), (0, &3.into()), "{ours}");
    assert_eq!(ours["limits"][1]["remaining"], 7, "{ours}");
    // The command explains itself without being asked to.
    assert!(ours.as_object_mut().expect("an object").remove("explanation").is_some());
    let names = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!((names(&ours), names(&ours["limits"][0])), (names(&told), names(&told["limits"][0])));
}

#[test]
fn a_policy_judges_a_request() {
    let folder = folder();
    let policy = folder.path().join("policy.toml");
    let ask = |arguments: &[&str]| {
        let mut command = command();
        command.args(["check", "--policy"]).arg(&policy).args(["--format", "json"]).args(arguments);
        json(&command.current_dir(&folder).output().expect("it runs"))
    };
    let (told, status) = ask(&["--claim", "user=ann"]);
    assert_eq!((status, &told["limits"][0]["name"]), (0, &"per-user".into()), "{told}");
    assert_eq!(told["limits"].as_array().map(Vec::len), Some(1), "{told}");
    let (told, status) = ask(&[]);
    assert_eq!((status, &told["origin"]), (0, &"unlimited".into()), "nobody's quota: {told}");

    let matrix = ["--method", "POST", "--route", "/matrix", "--path", "/matrix?x=1"];
    fs::write(folder.path().join("body.json"), r#"{"tenant_id": 7, "origins": [1, 2, 3]}"#).expect("a file");
    let bodies = [
        (&["--body", r#"{"tenant_id": 7, "origins": [1, 2, 3]}"#][..], 3),
        (&["--body", "@body.json"], 3),
        (&["--body", r#"{"origins": [1]}"#, "--header", "X-Api-Key: abc"], 1),
        (&["--body", r#"{"origins": [1, 2]}"#, "--peer", "192.0.2.7"], 2),
    ];
    for (arguments, cost) in bodies {
        let (told, status) = ask(&[&matrix[..], arguments].concat());
        assert_eq!((status, &told["limits"][0]["cost"]), (0, &cost.into()), "{arguments:?}: {told}");
        assert_eq!(told["limits"][0]["name"], "tenant", "{arguments:?}");
    }
    let (told, status) = ask(&[&matrix[..], &["--body", r#"{"origins": [1]}"#]].concat());
    assert_eq!((status, &told["origin"]), (0, &"unlimited".into()), "no key: {told}");
}

/// What strangers send to confuse a condition, from the command line.
#[test]
fn what_cannot_be_told_is_judged_all_the_same() {
    const RULES: &str = "service = 's'\n\
        [[rules]]\nname = 'rows'\nwhen = 'body.rows > 100'\nkeys = 'all'\nquota = '9/min'\n\
        [[rules]]\nname = 'tags'\nwhen = \"has(body.tags) && body.tags.exists(t, t == 'x')\"\nkeys = 'all'\nquota = '9/min'\n\
        [[rules]]\nname = 'path'\nwhen = \"path == '/expensive'\"\nkeys = 'all'\nquota = '9/min'\n";
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("policy.toml"), RULES).expect("a file");
    let deep = format!("{}1{}", "[".repeat(128), "]".repeat(128));
    let zeros = format!("{{\"rows\": 1, \"tags\": [{}0]}}", "0,".repeat(30_000));
    fs::write(folder.path().join("zeros.json"), zeros).expect("a file");
    let judged = |arguments: &[&str]| {
        let mut command = command();
        command.args(["check", "--policy", "policy.toml", "--format", "json", "--method", "POST"]);
        let output = command.args(arguments).current_dir(&folder).output().expect("it runs");
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let limits = told["limits"].as_array().expect("a list");
        let names: Vec<&str> = limits.iter().filter_map(|limit| limit["name"].as_str()).collect();
        (names.join(" "), told.clone(), output.status.code(), text(&output.stderr))
    };
    for (body, applied) in [
        (r#"{"rows": "200"}"#, "rows"),
        (r#"{"rows": 1e999}"#, "rows tags"),
        (r#"{"rows": "\ud800"}"#, "rows tags"),
        (deep.as_str(), "rows tags"),
        (r#"{"rows": 1}"#, ""),
        ("{}", ""),
    ] {
        let (names, _, status, note) = judged(&["--body", body]);
        assert_eq!((names.as_str(), status), (applied, Some(0)), "{body}");
        assert_eq!(note.contains("no JSON that can be read"), applied == "rows tags", "{note}");
    }
    for path in ["/expensive", "/%65xpensive", "/e%78pensive?x=1"] {
        assert_eq!(judged(&["--path", path]).0, "path", "{path}");
    }
    let (_, told, status, _) = judged(&["--body", "@zeros.json"]);
    assert_eq!((&told["reason"], &told["origin"]), (&"condition_budget".into(), &"budget".into()), "{told}");
    assert_eq!((&told["retry_after_us"], status), (&Value::Null, Some(1)), "{told}");
}

#[test]
fn a_body_comes_from_standard_input() {
    let folder = folder();
    let mut command = command();
    command.args(["check", "--policy", "policy.toml", "--method", "POST", "--route", "/matrix", "--peek"]);
    command.args(["--body", "@-"]).current_dir(&folder);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    child.stdin.take().expect("a pipe").write_all(br#"{"tenant_id": 7, "origins": [1]}"#).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_printed(
        &output,
        0,
        "allowed: tenant has 100 of 100 left (100/min)\n  tenant counts tenant:7\n  \
         per-user does not apply: none of its keys resolves\n",
        "",
    );
}

#[test]
fn a_policy_brings_its_store() {
    let (folder, server) = (folder(), Server::start(Flavour::Valkey9));
    let path = folder.path().join("policy.toml");
    fs::write(&path, format!("store = '{}'\n{POLICY}", server.url())).expect("a file");
    let policy = path.to_str().expect("a path");
    let status = |arguments: &[&str]| {
        check(&[&PATIENT[..], &["--policy", policy, "--claim", "user=ann"], arguments].concat()).status.code()
    };
    let statuses = [&[][..], &[], &[], &["--peek"], &["--store", "memory"]].map(status);
    assert_eq!(statuses, [Some(0), Some(0), Some(1), Some(1), Some(0)]);
}

#[test]
fn a_folder_of_policies_needs_a_service() {
    let folder = folder();
    fs::write(folder.path().join("b.toml"), POLICY.replace("'search'", "'other'")).expect("a file");
    let path = folder.path().to_str().expect("a path");
    refused(&check(&["--policy", path]), "has 2 policies", "hint: --service says which: other, search");
    refused(
        &check(&["--policy", path, "--service", "serach"]),
        "no policy of that name",
        "hint: there are other, search",
    );
    let output = check(&["--policy", path, "--service", "other", "--claim", "user=ann", "--peek"]);
    assert_printed(
        &output,
        0,
        "allowed: per-user has 2 of 2 left (2/min)\n  per-user counts user:ann\n  \
         tenant does not apply: its condition does not hold\n",
        "",
    );
}

#[test]
fn what_cannot_be_asked_is_refused_with_a_hint() {
    let folder = folder();
    let policy = folder.path().join("policy.toml").to_str().expect("a path").to_owned();
    let key = "k".repeat(2_000);
    let cases: [(&[&str], &str, &str); 14] = [
        (&["100/60s", "user:42"], "quota: got `user:42`", "hint: `100/60s` is a quota: the key comes first"),
        (&["user:42", "10", "s"], "quota: got `10`", "hint: blanks and braces need quotation marks"),
        (&["user:42", "1000000001/s"], "limit: got 1000000001; expected a whole number from 0", ""),
        (
            &["user:42", "1/s", "2/s"],
            "limit on one key as 1/s and as 2/s",
            "hint: name the quotas of one key",
        ),
        (&["", "1/s"], "key: got 0 bytes", ""),
        (&[&key, "1/s"], "key: got 2001 bytes", ""),
        (&["user:42", "1/s", "--cost", "2000000000"], "cost: got 2000000000", ""),
        (
            &["user:42", "1/s", "--policy", &policy],
            "got quotas and --policy",
            "hint: a policy has quotas of its own",
        ),
        (&["user:42", "1/s", "--claim", "user=ann"], "--policy <FILE>", ""),
        (
            &["--policy", "missing.toml"],
            "missing.toml: no such file",
            "hint: `ratekeeper policy check missing.toml`",
        ),
        (&["--policy", &policy, "--claim", "ann"], "--claim: got `ann`", "hint: such as --claim user=ann"),
        (
            &["--policy", &policy, "--header", "x-api-key"],
            "--header: got `x-api-key`",
            "hint: such as --header",
        ),
        (&["--policy", &policy, "--body", "@/nowhere"], "--body @/nowhere: ", ""),
        (&["--policy", &policy, "--peer", "nowhere"], "invalid value 'nowhere' for '--peer", ""),
    ];
    for (arguments, message, hint) in cases {
        refused(&check(arguments), message, hint);
    }
    assert_eq!(check(&["user:42", "0/s"]).status.code(), Some(1), "a limit of 0 denies");
    fs::write(&policy, POLICY.replace("quota = '2/min'", "qouta = '2/min'")).expect("a file");
    refused(
        &check(&["--policy", &policy]),
        "policy.toml:6:1: rules[0].qouta",
        "hint: `ratekeeper policy check ",
    );
}

#[test]
fn a_store_that_does_not_answer_decides_nothing() {
    let folder = folder();
    let policy = folder.path().join("policy.toml").to_str().expect("a path").to_owned();
    let mut server = Server::start_with(Flavour::Redis7, &[("requirepass", "s3cret")]);
    let password = folder.path().join("password").to_str().expect("a path").to_owned();
    std::fs::write(&password, "s3cret\n").expect("write");
    let (url, hole) = (server.url(), BlackHole::start());
    for what in [&["user:42", "1/s"][..], &["--policy", &policy, "--claim", "user=ann"]] {
        let ask = |arguments: &[&str]| check(&[what, arguments].concat());
        refused(&ask(&["--store", &url]), "NOAUTH", "hint: correct user and password");
        let allowed = ask(&["--store", &url, "--store-password-file", &password, "--timeout", "20000"]);
        assert_eq!(allowed.status.code(), Some(0), "{allowed:?}");
        refused(&ask(&["--store", &hole.url(), "--timeout", "100"]), "the store: ", "hint: ");
        refused(
            &ask(&["--store", "nonsense"]),
            "--store: got",
            "hint: `memory` counts in this process alone",
        );
    }
    server.kill();
    refused(&check(&["user:42", "1/s", "--store", &url]), "Connection refused", "hint: start the server");
    let (told, status) = json(&check(&["user:42", "1/s", "--store", &url, "--format", "json"]));
    assert!(told["error"].as_str().expect("a reason").contains("Connection refused"), "{told}");
    assert!(told["hint"].as_str().expect("a hint").starts_with("start the server"), "{told}");
    assert_eq!(status, 2);
}

#[test]
fn a_hint_is_about_what_is_wrong() {
    let names = "name the quotas of one key";
    refused(&check(&["a", "1/s", "2/s"]), "check: got limit on one key", names);
    let output = check(&["a", "1/s", "--cost", "99999999999"]);
    refused(&output, "cost: got 99999999999", "error: ");
    assert!(!text(&output.stderr).contains(names), "{}", text(&output.stderr));
}
