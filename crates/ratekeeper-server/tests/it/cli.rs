//! What all commands have in common: streams, colours, hints, secrets.

use std::io::Read;
use std::process::Stdio;

use crate::{assert_printed, command, ratekeeper, text};

#[test]
fn what_is_mistyped_is_told_with_what_was_meant() {
    let cases = [
        (&["chekc"][..], "tip: a similar subcommand exists: 'check'"),
        (&["doctor", "--stroe", "memory"], "tip: a similar argument exists: '--store'"),
        (&["version", "--format", "jsn"], "tip: a similar value exists: 'json'"),
        (&["completions", "bsh"], "tip: a similar value exists: 'bash'"),
        (&["check"], "--help"),
        (&["doctor", "--timeout", "0"], "0 is not in 1..=60000"),
    ];
    for (arguments, tip) in cases {
        let output = ratekeeper(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(tip), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn no_error_repeats_a_password() {
    let url = "redis://ann:s3cret@127.0.0.1:1";
    let cases = [
        &["doctor", url][..],
        &["doctor", "--stroe", url],
        &["doctor", &format!("--stroe={url}")],
        &["doctor", "--store", url],
        &["doctor", "--store", url, "--format", "json"],
        &["doctor", "--store", &url.replace("redis:", "http:")],
        &["doctor", "--store", &url.replace("s3cret", "s3cret@/")],
        &["doctor", "--store", "redis+unix:///nowhere?pass=s3cret"],
        &["check", "a", "1/s", "--store", url],
        &["check", "a", "1/s", "--store", url, "--format", "json"],
        &["check", url],
        &["check", "a", "1/s", "--store", url, "--timeout", url],
    ];
    for arguments in cases {
        let output = ratekeeper(arguments);
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!shown.is_empty() && !shown.contains("s3cret"), "{arguments:?}: {shown}");
    }
    let output = command().args(["doctor", "--help"]).env("RATEKEEPER_STORE", url).output().expect("it runs");
    assert!(!text(&output.stdout).contains("s3cret"), "{}", text(&output.stdout));
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    for arguments in [&["check", "a", "1/s"][..], &["doctor"], &["check", "a", "b"], &["nonsense"]] {
        let colours = |environment: &[(&str, &str)]| {
            let output =
                command().args(arguments).envs(environment.iter().copied()).output().expect("it runs");
            (text(&output.stdout) + &text(&output.stderr)).contains('\u{1b}')
        };
        assert!(colours(&[("CLICOLOR_FORCE", "1")]), "{arguments:?}");
        assert!(!colours(&[]), "{arguments:?}: not into a pipe");
        assert!(!colours(&[("NO_COLOR", "1")]), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    for arguments in [&["completions", "zsh"][..], &["demo", "--every", "0", "--requests", "10000"]] {
        let mut child =
            command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut first = [0; 16];
        child.stdout.take().expect("a pipe").read_exact(&mut first).expect("some of it");
        let output = child.wait_with_output().expect("it ends");
        assert_printed(&output, 0, "", "");
    }
}

#[test]
fn a_reader_that_has_gone_changes_nothing_of_what_was_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrong = folder.path().join("policy.toml");
    std::fs::write(&wrong, "service = 's'\n").expect("a file");
    let wrong = wrong.to_str().expect("a path");
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        writer
    };
    let cases = [
        (&["check", "a", "1/s"][..], 0),
        (&["check", "a", "1/s", "--cost", "2"], 1),
        (&["check", "a", "nonsense"], 2),
        (&["doctor"], 0),
        (&["doctor", "--store", "redis://127.0.0.1:1"], 1),
        (&["policy", "check", wrong], 1),
        (&["policy", "check", "/nowhere"], 2),
        (&["chekc"], 2),
    ];
    for (arguments, status) in cases {
        for format in [&[][..], &["--format", "json"]] {
            let arguments = [arguments, format].concat();
            let mut command = command();
            command.args(&arguments).stdout(closed()).stderr(Stdio::piped());
            let output = command.spawn().and_then(std::process::Child::wait_with_output).expect("it runs");
            assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", text(&output.stderr));
            let ended = command.stderr(closed()).status().expect("it runs");
            assert_eq!(ended.code(), Some(status), "{arguments:?}: nobody reads its words either");
        }
    }
}

#[test]
fn versions_are_told_to_people_and_to_programs() {
    let output = ratekeeper(&["version", "--format", "json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(told["version"], version);
    assert_eq!(told["stores"], serde_json::json!(["memory", "redis"]));
    let sha1 = told["script"]["sha1"].as_str().expect("a digest");
    assert!(sha1.len() == 40 && sha1.bytes().all(|byte| byte.is_ascii_hexdigit()), "{sha1}");

    let output = ratekeeper(&["version"]);
    let shown = text(&output.stdout);
    assert!(shown.starts_with(&format!("ratekeeper {version}\n")), "{shown}");
    assert!(shown.contains(&format!("sha1 {sha1}, writes format {}", told["script"]["format"])), "{shown}");
    assert!(output.stderr.is_empty());
    assert_printed(&ratekeeper(&["--version"]), 0, &format!("ratekeeper {version}\n"), "");
}

#[test]
fn every_shell_gets_a_script_that_knows_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = ratekeeper(&["completions", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}");
        for word in [
            "check",
            "completions",
            "demo",
            "doctor",
            "policy",
            "serve",
            "version",
            "claim",
            "admin-token-file",
        ] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn bash_can_read_its_script_and_completes() {
    let script = ratekeeper(&["completions", "bash"]).stdout;
    let ask = "COMP_WORDS=(ratekeeper do); COMP_CWORD=1; _ratekeeper ratekeeper do ratekeeper; echo \"${COMPREPLY[@]}\"";
    let program = text(&script) + "\n" + ask;
    let output =
        std::process::Command::new("bash").args(["--norc", "-c", &program]).output().expect("bash runs");
    assert_eq!(text(&output.stdout), "doctor\n", "{}", text(&output.stderr));
}
