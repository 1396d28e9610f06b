//! Every way in which a file is replaced.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use crate::rig::{NEVER, Rig, policy, source};

#[test]
fn a_file_that_is_rewritten_in_place() {
    let rig = Rig::new();
    rig.write("policy.toml", policy("search", 1));
    let _watch = rig.watch("policy.toml");
    assert_eq!(rig.limit("search"), Some(1));
    rig.write("policy.toml", policy("search", 2));
    rig.wait_for_limit("search", Some(2));
    let mut file = fs::OpenOptions::new().append(true).open(rig.path("policy.toml")).unwrap();
    file.write_all(b"\n[[rules]]\nname = 'more'\nkeys = 'more'\nquota = '1/s'\n").unwrap();
    rig.wait(|| rig.rules("search") == 2);
}

#[test]
fn a_file_that_is_replaced_by_another_as_editors_do() {
    let rig = Rig::new();
    rig.write("policy.toml", policy("search", 1));
    let _watch = rig.watch("policy.toml");
    for limit in 2..5 {
        rig.write(".policy.toml.new", policy("search", limit));
        fs::rename(rig.path(".policy.toml.new"), rig.path("policy.toml")).unwrap();
        rig.wait_for_limit("search", Some(limit));
    }
    // With a copy of the old one, as others do.
    fs::rename(rig.path("policy.toml"), rig.path("policy.toml~")).unwrap();
    rig.write("policy.toml", policy("search", 5));
    rig.wait_for_limit("search", Some(5));
    rig.write("policy.toml", policy("search", 6));
    rig.wait_for_limit("search", Some(6));
}

#[test]
fn a_file_that_is_deleted_and_made_again() {
    let rig = Rig::new();
    rig.write("policy.toml", policy("search", 1));
    let _watch = rig.watch("policy.toml");
    fs::remove_file(rig.path("policy.toml")).unwrap();
    rig.wait(|| rig.failure("policy.toml").is_some());
    assert_eq!(rig.failure("policy.toml").as_deref(), Some("no such file"));
    assert_eq!(rig.limit("search"), Some(1), "what is in force stays in force");
    rig.write("policy.toml", policy("search", 2));
    rig.wait_for_limit("search", Some(2));
    assert_eq!(rig.failure("policy.toml"), None);
}

#[test]
fn a_file_that_comes_back_as_it_was_is_not_put_into_force_again() {
    let rig = Rig::new();
    rig.write("policy.toml", policy("search", 1));
    let watch = rig.watch("policy.toml");
    fs::remove_file(rig.path("policy.toml")).unwrap();
    rig.wait(|| rig.failure("policy.toml").is_some());
    rig.write("policy.toml", policy("search", 1));
    rig.wait(|| rig.failure("policy.toml").is_none());
    rig.write("policy.toml", policy("search", 1));
    watch.refresh().unwrap();
    assert_eq!(rig.installs(), 1);
}

#[test]
fn a_folder_that_is_renamed_and_made_again() {
    let rig = Rig::new();
    fs::create_dir(rig.path("etc")).unwrap();
    rig.write("etc/policy.toml", policy("search", 1));
    let _watch = rig.watch("etc/policy.toml");
    fs::rename(rig.path("etc"), rig.path("old")).unwrap();
    rig.wait(|| rig.failure("etc/policy.toml").is_some());
    fs::create_dir(rig.path("etc")).unwrap();
    rig.write("etc/policy.toml", policy("search", 2));
    rig.wait_for_limit("search", Some(2));
    rig.write("etc/policy.toml", policy("search", 3));
    rig.wait_for_limit("search", Some(3));
}

#[test]
fn a_hundred_quick_writes_end_with_the_last_and_never_with_half_of_one() {
    let rig = Rig::new();
    rig.write("policy.toml", long_policy(1));
    // A writer that the machine holds up for as long as this looks as if it were done.
    let patient = source(&rig.path("policy.toml")).debounce(Duration::from_secs(2));
    let _watch = patient.start(&rig.policies).unwrap();
    for limit in 2..=100 {
        let mut file = fs::File::create(rig.path("policy.toml")).unwrap();
        for piece in long_policy(limit).as_bytes().chunks(4_096) {
            file.write_all(piece).unwrap();
            assert_eq!(rig.rules("search"), LONG);
        }
    }
    rig.wait(|| {
        assert_eq!(rig.rules("search"), LONG);
        rig.limit("search") == Some(100)
    });
    assert_eq!(rig.refusals(), 0);
}

const LONG: usize = 60;

/// Every part of it that ends with a rule is a policy too.
fn long_policy(limit: u64) -> String {
    let padding = "x".repeat(1_000);
    let rule = |n| format!("[[rules]]\nname = 'r{n}'\nkeys = 'k{n}'\nquota = '{limit}/s'\n# {padding}\n");
    policy("search", limit) + &(1..LONG).map(rule).collect::<String>()
}

#[test]
fn what_no_event_tells_is_found_by_polling() {
    let rig = Rig::new();
    for (folder, limit) in [("a", 1), ("other", 2)] {
        fs::create_dir_all(rig.path(folder).join("etc")).unwrap();
        rig.write(&format!("{folder}/etc/policy.toml"), policy("search", limit));
    }
    let path = rig.path("a/etc/policy.toml");
    let _watch = source(&path).poll_every(Duration::from_millis(10)).start(&rig.policies).unwrap();
    // Folders further up are not watched: too much else happens there.
    fs::rename(rig.path("a"), rig.path("old")).unwrap();
    fs::rename(rig.path("other"), rig.path("a")).unwrap();
    rig.wait_for_limit("search", Some(2));
}

#[test]
fn nothing_is_followed_after_the_watch_is_dropped() {
    let rig = Rig::new();
    rig.write("policy.toml", policy("search", 1));
    drop(rig.watch("policy.toml"));
    rig.write("policy.toml", policy("search", 2));
    // The thread has ended when drop returns, so there is nothing to wait for.
    assert_eq!((rig.limit("search"), rig.installs()), (Some(1), 1));
}

#[test]
fn a_watch_can_be_dropped_while_it_waits_for_a_file_to_settle() {
    let rig = Rig::new();
    rig.write("policy.toml", policy("search", 1));
    for limit in 2..20 {
        let file = source(&rig.path("policy.toml")).debounce(NEVER);
        let watch = file.start(&rig.policies).unwrap();
        rig.write("policy.toml", policy("search", limit));
        // Sometimes before the event, sometimes after it.
        (0..limit).for_each(|_| std::thread::yield_now());
        drop(watch);
    }
}

#[test]
fn another_service_in_the_same_file_replaces_the_first() {
    let rig = Rig::new();
    rig.write("policy.toml", policy("search", 1));
    let _watch = rig.watch("policy.toml");
    rig.write("policy.toml", policy("maps", 2));
    rig.wait_for_limit("search", None);
    assert_eq!(rig.limit("maps"), Some(2));
}

#[cfg(unix)]
mod links {
    use super::*;
    use std::os::unix::fs::symlink;

    /// The exact layout in which Kubernetes mounts a `ConfigMap`, and how it
    /// replaces the content: all files at once, by renaming one link.
    fn mount(rig: &Rig, date: &str, limit: u64) {
        let folder = format!("..{date}");
        fs::create_dir(rig.path(&folder)).unwrap();
        rig.write(&format!("{folder}/policy.toml"), policy("search", limit));
        let before = fs::read_link(rig.path("..data")).ok();
        symlink(&folder, rig.path("..data_tmp")).unwrap();
        fs::rename(rig.path("..data_tmp"), rig.path("..data")).unwrap();
        match before {
            None => symlink("..data/policy.toml", rig.path("policy.toml")).unwrap(),
            Some(before) => fs::remove_dir_all(rig.path(before.to_str().unwrap())).unwrap(),
        }
    }

    #[test]
    fn a_config_map_that_is_swapped() {
        let rig = Rig::new();
        mount(&rig, "2026_01_01_10_00_00.123456789", 1);
        let _watch = rig.watch("policy.toml");
        assert_eq!(rig.limit("search"), Some(1));
        mount(&rig, "2026_01_01_10_01_00.987654321", 2);
        rig.wait_for_limit("search", Some(2));
        mount(&rig, "2026_01_01_10_02_00.555555555", 3);
        rig.wait_for_limit("search", Some(3));
        assert_eq!((rig.installs(), rig.refusals()), (3, 0));
    }

    #[test]
    fn a_config_map_that_is_mounted_as_a_folder() {
        let rig = Rig::new();
        mount(&rig, "2026_01_01_10_00_00.123456789", 1);
        let _watch = rig.watch("");
        assert_eq!(rig.limit("search"), Some(1));
        mount(&rig, "2026_01_01_10_01_00.987654321", 2);
        rig.wait_for_limit("search", Some(2));
        mount(&rig, "2026_01_01_10_02_00.555555555", 3);
        rig.wait_for_limit("search", Some(3));
    }

    #[test]
    fn a_link_on_the_way_that_leads_elsewhere() {
        let rig = Rig::new();
        for (release, limit) in [("one", 1), ("two", 2)] {
            fs::create_dir_all(rig.path(&format!("releases/{release}/etc"))).unwrap();
            rig.write(&format!("releases/{release}/etc/policy.toml"), policy("search", limit));
        }
        symlink("releases/one", rig.path("current")).unwrap();
        let _watch = rig.watch("current/etc/policy.toml");
        for (release, limit) in [("two", 2), ("one", 1), ("two", 2)] {
            symlink(rig.path("releases").join(release), rig.path("next")).unwrap();
            fs::rename(rig.path("next"), rig.path("current")).unwrap();
            rig.wait_for_limit("search", Some(limit));
        }
        rig.write("releases/two/etc/policy.toml", policy("search", 3));
        rig.wait_for_limit("search", Some(3));
    }
}
