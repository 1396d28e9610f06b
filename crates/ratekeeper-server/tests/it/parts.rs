//! Options of the operators' commands that are about a part: one key, one rule, one page, a share of the keys.

use std::fs;
use std::process::Output;

use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::{Value as Json, json};

use crate::served::{STORE_DEADLINE, Served};
use crate::{command, ratekeeper, text};

const POLICY: &str = "service = 'search'\n\
    [[rules]]\nname = 'per-project'\nkeys = 'project:{identity.project}'\noverrides = true\nquota = '2/h fixed_window'\n\
    plans = { paid = '50/h fixed_window' }\n\
    [[rules]]\nname = 'per-user'\nwhen = \"path == '/user'\"\nkeys = 'user:{identity.user}'\nquota = '5/h'\n";

#[track_caller]
fn is_done(output: &Output, status: i32, words: &[&str]) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{out}{err}");
    for words in words {
        assert!(out.contains(words) || err.contains(words), "{words}: {out}{err}");
    }
}

/// A server, in memory or on a store; where commands go, and where those go that need its policy.
struct Place {
    served: Served,
    at: Vec<String>,
    look: Vec<String>,
    _folder: tempfile::TempDir,
    store: Option<Server>,
}

impl Place {
    fn start(store: Option<Server>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let policy = folder.path().join("policy.toml");
        fs::write(&policy, POLICY).expect("a policy");
        let policy = policy.to_str().expect("text").to_owned();
        let url = store.as_ref().map_or_else(|| "memory".to_owned(), Server::url);
        let arguments = ["serve", "--http", "127.0.0.1:0", "--admin-without-token", "--store", &url];
        let arguments = arguments.into_iter().chain(["--policy", policy.as_str()]);
        let served = Served::start(command().args(arguments).env(STORE_DEADLINE.0, STORE_DEADLINE.1));
        let at = match &store {
            None => vec!["--server".to_owned(), served.url()],
            Some(_) => ["--timeout", "20000", "--store", &url].map(str::to_owned).to_vec(),
        };
        let of_policy = ["--policy".to_owned(), policy];
        let look = at.iter().cloned().chain(of_policy.into_iter().filter(|_| store.is_some())).collect();
        Self { served, at, look, _folder: folder, store }
    }

    fn run(&self, words: &str) -> Output {
        ratekeeper(&words.split_whitespace().chain(self.at.iter().map(String::as_str)).collect::<Vec<_>>())
    }

    fn look(&self, words: &str) -> Output {
        ratekeeper(&words.split_whitespace().chain(self.look.iter().map(String::as_str)).collect::<Vec<_>>())
    }

    fn json(&self, words: &str) -> Json {
        let output = self.run(&format!("{words} --format json"));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{words}: {output:?}"))
    }

    /// The status of a check of this user, who belongs to a project.
    fn check(&self, user: &str, project: &str) -> u16 {
        let call = json!({ "path": "/user", "identity": { "org": "7", "project": project, "user": user } });
        self.served.ask("POST", "/v1/check", &call.to_string()).0
    }

    /// Whether this user would pass. Nothing is charged.
    fn passes(&self, user: &str, project: &str) -> bool {
        let call = json!({ "path": "/user", "identity": { "org": "7", "project": project, "user": user } });
        let (status, body) = self.served.ask("POST", "/v1/peek", &call.to_string());
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Json>(&body).expect("JSON")["allowed"] == true
    }

    /// Waits until it does, or does not: servers of a store follow within a second.
    fn until(&self, user: &str, project: &str, passes: bool) {
        ratekeeper_testkit::wait::until("the server follows", || self.passes(user, project) == passes);
    }
}

/// What is about a part, in memory over HTTP and on the store itself.
fn everywhere(test: impl Fn(&Place)) {
    test(&Place::start(None));
    test(&Place::start(Some(Server::start(Flavour::Valkey9))));
}

#[test]
fn one_key_is_blocked_and_let_go_again() {
    everywhere(|place| {
        let block = "emergency block search/per-user --key user:eve --for 15min --author ann --reason abuse";
        is_done(&place.run(block), 0, &["set: search/per-user for user:eve block, for 1"]);
        is_done(&place.run("mode get"), 0, &["search/per-user for user:eve"]);
        place.until("eve", "1", false);
        assert!(place.passes("ann", "1"), "another key");
        // Why, by whom and until when; of the key alone, and of a request.
        let why = ["denied: per-user is blocked by an operator", "passes again at 20", "emergency (ann)"];
        let who = "search/per-user is blocked for user:eve by ann until 20";
        for words in ["explain --key user:eve", "explain --path /user --claim user=eve"] {
            is_done(&place.look(words), 1, &why);
            is_done(&place.look(words), 1, &[who, "Z, because of abuse"]);
        }
        is_done(
            &place.look("explain --key user:ann"),
            0,
            &["search/per-project", "it counts under other keys"],
        );
        is_done(&place.run("emergency clear search/per-user"), 1, &["none was set"]);
        is_done(&place.run("emergency clear search/per-user --key user:eve"), 0, &["cleared"]);
        is_done(&place.run("emergency clear search/per-user --key user:eve"), 1, &["none was set"]);
        place.until("eve", "1", true);
        let lift = place.run("emergency lift search/per-user --key user:eve --for 1min");
        is_done(&lift, 2, &["one key has an override for more"]);
    });
}

#[test]
fn a_rule_is_enforced_for_a_share_of_the_keys() {
    everywhere(|place| {
        assert_eq!([0; 3].map(|_: i32| place.check("ann", "42")), [200, 200, 429]);
        let none = "mode set search/per-project on --enforce-percent 0 --for 1h --author bob";
        is_done(&place.run(none), 0, &["set: search/per-project on for 0 % of the keys, for "]);
        place.until("ann", "42", true);
        let why = "search/per-project is switched to on and enforced for 0 % of the keys by bob until 20";
        is_done(&place.look("explain --claim org=7 --claim project=42"), 0, &[why]);
        is_done(&place.look("inspect project:42"), 0, &[why]);
        is_done(
            &place.run("mode set search/per-project --enforce-percent 101 on"),
            2,
            &["101 is not in 0..=100"],
        );
        is_done(
            &place.run("mode set search/per-project on --enforce-percent 100"),
            0,
            &["100 % of the keys"],
        );
        place.until("ann", "42", false);
        is_done(&place.run("mode set search/per-project off --author bob --reason trial"), 0, &["off"]);
        let off =
            ["it is switched off", "search/per-project is switched to off by bob until it is taken back"];
        is_done(&place.look("explain --claim org=7 --claim project=42"), 0, &off);
    });
}

#[test]
fn usage_is_told_by_key_and_by_plan() {
    everywhere(|place| {
        assert_eq!(place.check("ann", "42"), 200);
        let of_key = place.look("usage --key user:ann");
        is_done(&of_key, 0, &["search/per-user", "user:ann", "5/h"]);
        assert!(!text(&of_key.stdout).contains("per-project"), "{of_key:?}");
        is_done(&place.look("usage --key planet:mars"), 1, &["no rule counts by this alone"]);
        let of_tenant = "usage --organisation 7 --project 42";
        is_done(&place.look(of_tenant), 0, &["search/per-project", "2/h fixed_window"]);
        is_done(&place.look(&format!("{of_tenant} --plan paid")), 0, &["50/h fixed_window", "plan"]);
        is_done(&place.look("usage --key user:ann --plan paid"), 2, &["cannot be used with"]);
    });
}

#[test]
fn the_newest_lines_of_the_log_can_be_left_out() {
    everywhere(|place| {
        for mode in ["off", "monitor", "on"] {
            is_done(&place.run(&format!("mode set search/per-user {mode}")), 0, &["set: "]);
        }
        let modes = |words: &str| -> Vec<String> {
            let entries = place.json(words)["entries"].as_array().expect("entries").clone();
            entries.iter().map(|entry| entry["after"]["mode"].as_str().expect("a mode").to_owned()).collect()
        };
        assert_eq!(modes("audit"), ["on", "monitor", "off"]);
        assert_eq!(modes("audit --skip 1 --count 1"), ["monitor"]);
        assert_eq!(modes("audit --skip 2"), ["off"]);
        is_done(&place.run("audit --skip 3"), 1, &["nothing was changed"]);
        is_done(&place.run("audit --skip 10001"), 2, &["10001 is not in 0..=10000"]);
    });
}

/// Names of counters: on a server alone, because a store in memory keeps none.
#[test]
fn counters_are_listed_by_rule_by_key_by_tenant_and_by_page() {
    let place = Place::start(Some(Server::start(Flavour::Redis7)));
    for user in ["ann", "bob"] {
        assert_eq!(place.check(user, "42"), 200);
    }
    let keys = |words: &str| -> Vec<String> {
        let listed = place.json(words)["counters"].as_array().expect("counters").clone();
        let mut keys: Vec<String> =
            listed.iter().map(|found| found["key"].as_str().expect("a key").to_owned()).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys("counters --rule search/per-user"), ["user:ann", "user:bob"]);
    assert_eq!(keys("counters --rule search/per-user --key user:ann"), ["user:ann"]);
    assert_eq!(keys("counters --key user:a*"), ["user:ann"]);
    is_done(&place.run("counters --key user:zoe"), 1, &["there are none"]);
    // One of Application Kit's, which has a number and no limit.
    let kit = place.store.as_ref().expect("a store");
    assert_eq!(kit.cli(&["SET", "ratelimit:/datasets:7:42", "3", "EX", "3600"]), "OK");
    is_done(&place.run("counters --organisation 7"), 0, &["LIMIT", "/datasets", "7:42"]);
    assert_eq!(keys("counters --organisation 7 --project 42"), ["7:42"]);
    is_done(&place.run("counters --organisation 7 --project 43"), 1, &["there are none"]);
    is_done(&place.run("counters --organisation 7 --rule search/per-user"), 2, &["cannot be used with"]);
    for many in 0..3 {
        let charge =
            |number: u32| json!({ "charges": [{ "key": format!("k{many}:{number}"), "quota": "9/h" }] });
        let checks: Vec<Json> = (0..1_000).map(charge).collect();
        assert_eq!(
            place.served.ask("POST", "/v1/limit/batch", &json!({ "checks": checks }).to_string()).0,
            200
        );
    }
    let first = place.run("counters --rule /limit/limit --count 100");
    is_done(&first, 0, &["there are more: --cursor "]);
    let (mut cursor, mut found, mut pages) = (String::new(), std::collections::BTreeSet::new(), 0);
    loop {
        let page = place.json(&format!("counters --rule /limit/limit --count 100{cursor}"));
        let keys = page["counters"].as_array().expect("counters");
        found.extend(keys.iter().map(|key| key["key"].as_str().expect("a key").to_owned()));
        pages += 1;
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!(" --cursor {next}");
    }
    assert!(found.len() == 3_000 && pages > 1, "{} in {pages} pages", found.len());
    is_done(&place.run("counters --cursor x"), 2, &["cursor"]);
}
