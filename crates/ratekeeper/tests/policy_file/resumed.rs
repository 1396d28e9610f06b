//! Files that are followed by another watch than the one that read them, as in the child of a fork.

use std::time::Duration;

use ratekeeper::policy::source::file::PolicyFile;

use crate::rig::{Rig, policy};

/// Three policies in force, and nothing that follows them any more.
fn left_behind() -> Rig {
    let rig = Rig::new();
    std::fs::create_dir(rig.path("policies")).unwrap();
    for service in ["a", "b", "c"] {
        rig.write(&format!("policies/{service}.toml"), policy(service, 5));
    }
    drop(rig.watch("policies"));
    rig
}

fn resumed(rig: &Rig) -> PolicyFile {
    PolicyFile::new(rig.path("policies")).debounce(Duration::from_millis(5))
}

#[test]
fn what_is_in_force_stays_whatever_is_wrong_with_the_files() {
    let rig = left_behind();
    rig.write("policies/b.toml", "broken [");
    std::fs::remove_file(rig.path("policies/c.toml")).unwrap();
    let _watch = resumed(&rig).resume(&rig.policies).unwrap();
    // What is gone is gone; what is wrong is refused, and the last good policy stays.
    rig.wait_for_limit("c", None);
    rig.wait(|| rig.refusals() == 1);
    assert_eq!((rig.limit("a"), rig.limit("b")), (Some(5), Some(5)));
    rig.write("policies/b.toml", policy("b", 7));
    rig.wait_for_limit("b", Some(7));
    rig.write("policies/a.toml", policy("a", 9));
    rig.wait_for_limit("a", Some(9));
}

#[test]
fn what_is_not_there_can_be_tried_again() {
    let rig = left_behind();
    std::fs::rename(rig.path("policies"), rig.path("away")).unwrap();
    assert!(resumed(&rig).resume(&rig.policies).is_err());
    assert_eq!(rig.limit("a"), Some(5));
    std::fs::rename(rig.path("away"), rig.path("policies")).unwrap();
    rig.write("policies/a.toml", policy("a", 6));
    let _watch = resumed(&rig).resume(&rig.policies).unwrap();
    rig.wait_for_limit("a", Some(6));
}

#[test]
fn policies_of_elsewhere_are_left_alone() {
    let rig = left_behind();
    rig.write("other.toml", policy("other", 3));
    drop(rig.watch("other.toml"));
    std::fs::remove_file(rig.path("policies/a.toml")).unwrap();
    let _watch = resumed(&rig).resume(&rig.policies).unwrap();
    rig.wait_for_limit("a", None);
    assert_eq!(rig.limit("other"), Some(3));
}
