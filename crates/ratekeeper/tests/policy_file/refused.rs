//! What is wrong or cannot be read, and what becomes of it.

use std::fs;

use ratekeeper::bounds::BYTES_MAX;
use ratekeeper::policy::Format;
use ratekeeper::policy::source::file::{FileError, PolicyFile};

use crate::rig::{Rig, policy, source};

#[test]
fn a_bad_policy_is_told_once_and_the_good_one_stays() {
    let rig = Rig::new();
    rig.write("policy.toml", policy("search", 1));
    let watch = rig.watch("policy.toml");
    rig.write("policy.toml", policy("search", 2).replace("quota", "qouta"));
    rig.wait(|| rig.refusals() == 1);
    let error = watch.refresh().unwrap_err().to_string();
    assert!(error.contains("policy.toml:6:1: rules[0].qouta: got an unknown field"), "{error}");
    assert_eq!((rig.limit("search"), rig.refusals()), (Some(1), 1));
    rig.write("policy.toml", policy("search", 3));
    rig.wait_for_limit("search", Some(3));
    watch.refresh().unwrap();
}

#[test]
fn going_back_to_the_good_one_clears_the_refusal() {
    let rig = Rig::new();
    rig.write("policy.toml", policy("search", 1));
    let watch = rig.watch("policy.toml");
    rig.write("policy.toml", "service = ");
    rig.wait(|| rig.refusals() == 1);
    rig.write("policy.toml", policy("search", 1));
    rig.wait(|| rig.installs() == 2);
    watch.refresh().unwrap();
}

#[test]
fn a_bad_policy_at_the_start_is_an_error_with_every_problem() {
    let rig = Rig::new();
    rig.write("policy.toml", "service = 7\nmode = 'maybe'\n");
    let error = source(&rig.path("policy.toml")).start(&rig.policies).unwrap_err();
    assert!(matches!(&error, FileError::Wrong(wrong) if wrong[0].count() == 3), "{error}");
    assert_eq!(error.to_string().lines().count(), 3, "{error}");
    rig.write("good.toml", policy("search", 1));
    let error = source(&rig.path("")).start(&rig.policies).unwrap_err();
    assert!(matches!(&error, FileError::Wrong(wrong) if wrong.len() == 1), "{error}");
    assert_eq!(rig.limit("search"), None, "all or nothing");
}

#[test]
fn what_is_not_there_is_told() {
    let rig = Rig::new();
    let error = source(&rig.path("policy.toml")).start(&rig.policies).unwrap_err().to_string();
    assert!(error.ends_with("policy.toml: no such file"), "{error}");
}

#[test]
fn an_ending_that_says_no_format_needs_a_format() {
    let rig = Rig::new();
    rig.write("policy.conf", policy("search", 1));
    let error = source(&rig.path("policy.conf")).start(&rig.policies).unwrap_err().to_string();
    assert!(error.contains("expected .toml, .yaml, .yml or .json"), "{error}");
    let file = PolicyFile::new(rig.path("policy.conf")).format(Format::Toml);
    let _watch = file.start(&rig.policies).unwrap();
    assert_eq!(rig.limit("search"), Some(1));
}

#[test]
fn what_is_too_large_is_refused() {
    let rig = Rig::new();
    let file = fs::File::create(rig.path("policy.toml")).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = source(&rig.path("policy.toml")).start(&rig.policies).unwrap_err().to_string();
    assert!(error.contains(&format!("at most {BYTES_MAX} bytes")), "{error}");
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    use std::os::unix::fs::symlink;
    let rig = Rig::new();
    let pipe = std::process::Command::new("mkfifo").arg(rig.path("pipe.toml")).status().unwrap();
    assert!(pipe.success());
    symlink("/dev/zero", rig.path("zero.toml")).unwrap();
    for name in ["pipe.toml", "zero.toml", ""] {
        let error = source(&rig.path(name)).start(&rig.policies).unwrap_err().to_string();
        assert!(error.ends_with(".toml: is not a regular file"), "{error}");
    }
}
