//! `--format json`: whatever a command can print so is an object on a line of its own, also what it could not do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Output;

use serde_json::Value as Json;

use crate::help::collect;
use crate::served::Served;
use crate::{command, ratekeeper, text};

const POLICY: &str = "service = 'search'\n[[rules]]\nname = 'per-user'\nkeys = 'user:{identity.user}'\noverrides = true\nquota = '1/h'\n";
/// A command that cannot fail.
const NEVER_FAILS: &str = "version";
/// One that says of each file what is wrong with it.
const BY_FILE: &str = "policy check";

/// All commands that take `--format`.
fn commands() -> BTreeSet<String> {
    let mut help = BTreeMap::new();
    collect(&[], &mut help);
    let takes_format = help.iter().filter(|(_, text)| text.contains("--format <FORMAT>"));
    takes_format.map(|(name, _)| name.trim_end_matches(".txt").replace('-', " ")).collect()
}

fn run(words: &str, more: &[&str]) -> Output {
    let words = words.split_whitespace().chain(more.iter().copied()).chain(["--format", "json"]);
    ratekeeper(&words.collect::<Vec<_>>())
}

fn objects(output: &Output) -> Vec<Json> {
    let lines = text(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{lines}"))).collect()
}

#[test]
fn what_could_not_be_done_is_one_object() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = folder.path().join("overrides.jsonl");
    fs::write(&lines, "{\"endpoint\": \"a\", \"organisation\": \"7\", \"limit\": 1}\n").expect("a file");
    let lines = lines.to_str().expect("text");
    // Nobody listens there.
    let nobody = ["--server", "http://127.0.0.1:1"];
    let at_nobody = [
        ("overrides set", "overrides set a 5 --organisation 7 --project 42"),
        ("overrides get", "overrides get a --organisation 7"),
        ("overrides list", "overrides list"),
        ("overrides delete", "overrides delete a --organisation 7"),
        ("overrides clear", "overrides clear --organisation 7 --yes"),
        ("overrides export", "overrides export"),
        ("overrides import", &format!("overrides import {lines} --yes")),
        ("mode get", "mode get"),
        ("mode set", "mode set search/per-user off"),
        ("mode clear", "mode clear search/per-user"),
        ("emergency lift", "emergency lift search/per-user --for 1min"),
        ("emergency block", "emergency block search/per-user --for 1min"),
        ("emergency clear", "emergency clear search/per-user"),
        ("inspect", "inspect user:ann"),
        ("reset", "reset user:ann --yes"),
        ("counters", "counters"),
        ("usage", "usage --key user:ann"),
        ("explain", "explain --key user:ann"),
        ("top", "top --once"),
        ("policies", "policies"),
        ("audit", "audit"),
    ];
    let others = [
        ("check", "check a 1/s --store redis://127.0.0.1:1"),
        ("doctor", "doctor --store nonsense://127.0.0.1:1"),
        ("policy test", "policy test /nowhere/cases.toml"),
        ("token new", "token new --role usage"),
        // Before a server is asked at all.
        ("explain", "explain --claim nonsense --server http://127.0.0.1:1"),
        ("overrides import", "overrides import /nowhere --server http://127.0.0.1:1"),
        ("overrides clear", "overrides clear --organisation 7 --server http://127.0.0.1:1"),
        ("top", "top"),
    ];
    let all = at_nobody.iter().map(|(name, words)| (*name, *words, &nobody[..]));
    let all: Vec<_> = all.chain(others.iter().map(|(name, words)| (*name, *words, &[][..]))).collect();
    let mut tried: BTreeSet<String> = all.iter().map(|(name, ..)| (*name).to_owned()).collect();
    tried.extend([NEVER_FAILS, BY_FILE].map(str::to_owned));
    assert_eq!(tried, commands());
    for (_, words, place) in all {
        let output = run(words, place);
        let (told, err) = (objects(&output), text(&output.stderr));
        assert_eq!((output.status.code(), told.len(), err.as_str()), (Some(2), 1, ""), "{words}: {told:?}");
        let members = told[0].as_object().expect("an object");
        assert_eq!(members.keys().collect::<Vec<_>>(), ["error", "hint"], "{words}: {told:?}");
        assert!(members["error"].as_str().is_some_and(|error| error.len() > 10), "{words}: {told:?}");
    }
}

#[test]
fn what_could_not_be_done_is_told_to_people_beside_the_answer() {
    for words in ["overrides export", "top --once", "explain --key a", "audit"] {
        let words: Vec<&str> = words.split_whitespace().chain(["--server", "http://127.0.0.1:1"]).collect();
        let output = ratekeeper(&words);
        assert!(output.stdout.is_empty(), "{words:?}: {}", text(&output.stdout));
        let err = text(&output.stderr);
        assert!(err.starts_with("error: --server ") && err.contains("\nhint: "), "{words:?}: {err}");
    }
}

/// Each answer, its status, and a member that only it has.
#[test]
fn answers_are_objects_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let policy = folder.path().join("policy.toml");
    fs::write(&policy, POLICY).expect("a policy");
    let arguments = ["serve", "--http", "127.0.0.1:0", "--admin-without-token", "--policy"];
    let served = Served::start(command().args(arguments).arg(&policy));
    for status in [200, 429] {
        assert_eq!(served.ask("POST", "/v1/check", r#"{"identity": {"user": "ann"}}"#).0, status);
    }
    let url = served.url();
    let lines = folder.path().join("overrides.jsonl");
    let lines = lines.to_str().expect("text").to_owned();
    let own = "search/per-user --organisation 7 --project 42";
    let cases = [
        ("overrides set search/per-user 5 --organisation 7 --project 42".to_owned(), 0, "/limit"),
        (format!("overrides get {own}"), 0, "/limit"),
        ("overrides list".to_owned(), 0, "/overrides/0/limit"),
        ("overrides export".to_owned(), 0, "/endpoint"),
        (format!("overrides import {lines} --yes"), 0, "/set"),
        (format!("overrides delete {own}"), 0, "/deleted"),
        (format!("overrides get {own}"), 1, "/detail"),
        ("overrides clear --organisation 7 --yes".to_owned(), 1, "/deleted"),
        ("overrides export".to_owned(), 0, ""),
        ("mode set search/* monitor --yes".to_owned(), 0, "/mode"),
        ("mode get".to_owned(), 0, "/modes/0/rule"),
        ("mode clear search/* --yes".to_owned(), 0, "/cleared"),
        ("emergency lift * --for 1min --yes".to_owned(), 0, "/until_us"),
        ("emergency block search/per-user --key user:eve --for 1min".to_owned(), 0, "/key"),
        ("emergency clear * --yes".to_owned(), 0, "/cleared"),
        ("emergency clear *".to_owned(), 2, "/hint"),
        ("inspect user:ann".to_owned(), 0, "/rules/0/limits/0/used"),
        ("usage --key user:ann".to_owned(), 0, "/rules/0/limits/0/used"),
        ("explain --key user:ann".to_owned(), 1, "/decided_by"),
        ("explain --key user:bob".to_owned(), 0, "/rules/0/limits/0/used"),
        ("counters".to_owned(), 0, "/names_are_kept"),
        ("top --once".to_owned(), 0, "/keys/0/denied"),
        ("reset user:ann --yes".to_owned(), 0, "/forgotten"),
        ("policies".to_owned(), 0, "/rules/0/quotas"),
        ("audit".to_owned(), 0, "/entries/0/call"),
        ("audit --by nobody".to_owned(), 1, "/entries"),
    ];
    for (words, status, member) in cases {
        let output = run(&words, &["--server", &url]);
        if words == "overrides export" && member == "/endpoint" {
            fs::write(&lines, &output.stdout).expect("a file");
        }
        let told = objects(&output);
        assert_eq!(output.status.code(), Some(status), "{words}: {told:?}{}", text(&output.stderr));
        assert!(output.stderr.is_empty(), "{words}: {}", text(&output.stderr));
        assert_eq!(told.len(), usize::from(!member.is_empty()), "{words}: {told:?}");
        assert!(told.iter().all(|told| told.pointer(member).is_some()), "{words}: {told:?}");
    }
}
