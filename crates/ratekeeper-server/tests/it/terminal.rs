//! Commands at a terminal, which `script` makes: questions and answers, and tables that go on.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use crate::served::Served;
use crate::{command, ratekeeper, text};

const POLICY: &str =
    "service = 'search'\n[[rules]]\nname = 'per-user'\nkeys = 'user:{identity.user}'\nquota = '1/h'\n";
/// What a live table begins with.
const CLEARED: &str = "\u{1b}[H\u{1b}[J";

/// `ratekeeper` at a terminal of its own.
fn at_terminal(words: &str) -> Command {
    let line = format!("{} {words}", env!("CARGO_BIN_EXE_ratekeeper"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RATEKEEPER_"))
    {
        script.env_remove(name);
    }
    script.env("NO_COLOR", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    script
}

/// What is shown to whoever types this, and the status.
fn typed(words: &str, answer: &str) -> (String, Option<i32>) {
    let mut script = at_terminal(words).spawn().expect("script runs");
    script.stdin.take().expect("a pipe").write_all(answer.as_bytes()).expect("it reads");
    let output = script.wait_with_output().expect("it ends");
    (text(&output.stdout), output.status.code())
}

fn served() -> (tempfile::TempDir, Served) {
    let folder = tempfile::tempdir().expect("a folder");
    let policy = folder.path().join("policy.toml");
    std::fs::write(&policy, POLICY).expect("a policy");
    let arguments = ["serve", "--http", "127.0.0.1:0", "--admin-without-token", "--policy"];
    let served = Served::start(command().args(arguments).arg(&policy));
    (folder, served)
}

/// Whatever reaches further than one rule or one project asks, in words that say how far.
#[test]
fn what_is_broad_is_asked_before_it_is_done() {
    let (folder, served) = served();
    let lines = folder.path().join("overrides.jsonl");
    std::fs::write(&lines, "{\"endpoint\": \"a\", \"organisation\": \"7\", \"limit\": 1}\n").expect("a file");
    let everything = "all rules of all services and all charges without a policy";
    // Each undoes what those before it did, or needs it.
    let cases = [
        (
            "overrides set a 5 --organisation 7".to_owned(),
            "set 5 on a for all projects of organisation 7?".to_owned(),
        ),
        (
            format!("overrides import {}", lines.display()),
            "set 1 overrides, also where there are others?".to_owned(),
        ),
        ("overrides clear --organisation 7".to_owned(), "delete all overrides of organisation 7?".to_owned()),
        ("mode set '*' monitor".to_owned(), "switch all rules of all services to monitor?".to_owned()),
        ("mode clear '*'".to_owned(), "take back the mode of all rules of all services?".to_owned()),
        ("mode set 'search/*' off".to_owned(), "switch all rules of search to off?".to_owned()),
        ("mode clear 'search/*'".to_owned(), "take back the mode of all rules of search?".to_owned()),
        ("emergency lift '*' --for 1h".to_owned(), format!("lift {everything}?")),
        ("emergency clear '*'".to_owned(), format!("end the emergency of {everything}?")),
        ("emergency block 'search/*' --for 1h".to_owned(), "block all rules of search?".to_owned()),
        ("emergency clear 'search/*'".to_owned(), "end the emergency of all rules of search?".to_owned()),
        (
            "emergency block '*' --key user:eve --for 1h".to_owned(),
            format!("block user:eve in {everything}?"),
        ),
        ("reset user:ann".to_owned(), "forget what user:ann has used under every rule?".to_owned()),
    ];
    let check = r#"{"identity": {"user": "ann"}}"#;
    assert_eq!(served.ask("POST", "/v1/check", check).0, 200);
    for (words, question) in cases {
        let words = format!("{words} --server {}", served.url());
        for answer in ["n\n", "\n"] {
            let (shown, status) = typed(&words, answer);
            assert_eq!(status, Some(2), "{words}: {shown}");
            assert!(shown.contains(&format!("{question} [y/N]")), "{words}: {shown}");
            assert!(shown.contains("nothing was changed"), "{words}: {shown}");
        }
        let (shown, status) = typed(&words, "y\n");
        assert_eq!(status, Some(0), "{words}: {shown}");
        assert!(shown.contains(&format!("{question} [y/N]")), "{words}: {shown}");
    }
}

/// Nobody can be asked in a script: what is broad needs `--yes` there, and nothing is done without it.
#[test]
fn scripts_say_yes_where_people_are_asked() {
    let (folder, served) = served();
    let lines = folder.path().join("overrides.jsonl");
    std::fs::write(&lines, "{\"endpoint\": \"a\", \"organisation\": \"7\", \"limit\": 1}\n").expect("a file");
    let import = format!("overrides import {}", lines.display());
    let broad = [
        "overrides set a 5 --organisation 7",
        &import,
        "overrides clear --organisation 7",
        "mode set * monitor",
        "mode clear *",
        "emergency lift * --for 1h",
        "emergency clear *",
    ];
    let url = served.url();
    let run = |words: &str, more: &[&str]| {
        let words: Vec<&str> = words.split_whitespace().chain(more.iter().copied()).collect();
        ratekeeper(&words)
    };
    for words in broad {
        let refused = run(words, &["--server", &url]);
        assert_eq!(refused.status.code(), Some(2), "{words}: {}", text(&refused.stdout));
        assert!(text(&refused.stderr).contains("--yes does it without asking"), "{words}");
        let done = run(words, &["--server", &url, "--yes"]);
        assert_eq!(done.status.code(), Some(0), "{words}: {}", text(&done.stderr));
    }
    // One rule, one key, one project: nobody is asked.
    for words in [
        "overrides set a 5 --organisation 7 --project 42",
        "mode set search/per-user monitor",
        "mode clear search/per-user",
        "emergency block search/per-user --key user:eve --for 1h",
        "emergency clear search/per-user --key user:eve",
        "overrides import /dev/null",
    ] {
        let done = run(words, &["--server", &url]);
        assert_eq!(done.status.code(), Some(0), "{words}: {}", text(&done.stderr));
    }
}

/// Reads on until what is shown is as it should be; then nobody looks any more.
fn shown_until(mut command: Command, is_enough: impl Fn(&str) -> bool) -> String {
    let mut child = command.spawn().expect("it runs");
    let mut out = child.stdout.take().expect("a pipe");
    let (mut shown, mut part) = (Vec::new(), [0; 4_096]);
    while !is_enough(&text(&shown)) {
        let count = out.read(&mut part).expect("a pipe");
        assert!(count > 0, "it ended: {}", text(&shown));
        shown.extend_from_slice(&part[..count]);
    }
    drop(out);
    drop(child.stdin.take());
    let _ = child.kill();
    let _ = child.wait();
    text(&shown)
}

#[test]
fn a_live_table_takes_the_place_of_the_one_before() {
    let (_folder, served) = served();
    let check = r#"{"identity": {"user": "ann"}}"#;
    assert_eq!([0; 3].map(|_: i32| served.ask("POST", "/v1/check", check).0), [200, 429, 429]);
    let words = format!("top --every 1 --server {}", served.url());
    let frames = |shown: &str| shown.matches(CLEARED).count();
    let shown = shown_until(at_terminal(&words), |shown| frames(shown) >= 3);
    let all: Vec<&str> = shown.split(CLEARED).skip(1).collect();
    assert!(all[0].contains("PER SECOND") && all[0].contains("user:ann"), "{shown:?}");
    assert!(
        all[1].contains("search/per-user  user:ann  2       0.0"),
        "nobody was denied meanwhile: {shown:?}"
    );
    // Nobody clears what is no terminal.
    let mut piped = command();
    piped.args(words.split_whitespace()).stdout(Stdio::piped());
    let shown = shown_until(piped, |shown| shown.matches("PER SECOND").count() >= 2);
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    // Programs read a line for each look, with how many were denied in a second since the one before.
    let mut json = command();
    json.args(words.split_whitespace()).args(["--format", "json"]).stdout(Stdio::piped());
    let mut denied = 0;
    let shown = shown_until(json, |shown| {
        assert_eq!(served.ask("POST", "/v1/check", check).0, 429);
        shown.lines().count() >= 2 && shown.ends_with('\n')
    });
    let looks = shown.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    for (index, look) in looks.enumerate() {
        let rate = &look["keys"][0]["denied_per_second"];
        assert_eq!(rate.is_null(), index == 0, "{look}");
        assert!(rate.as_f64().is_none_or(|rate| rate >= 0.0), "{look}");
        let now = look["keys"][0]["denied"].as_u64().expect("a number");
        assert!(now >= denied, "{look}");
        denied = now;
    }
}
