//! A folder with a policy for each service.

use std::fs;

use ratekeeper::policy::source::file::FILES_MAX;

use crate::rig::{Rig, policy, source};

/// Two services.
fn two() -> Rig {
    let rig = Rig::new();
    rig.write("maps.toml", policy("maps", 1));
    rig.write("search.json", json("search", 2));
    rig
}

fn json(service: &str, limit: u64) -> String {
    format!(r#"{{"service": "{service}", "rules": [{{"name": "{limit}", "keys": "all", "quota": "1/s"}}]}}"#)
}

#[test]
fn every_file_is_the_policy_of_a_service() {
    let rig = two();
    rig.write(".hidden.toml", "not a policy");
    rig.write("README.md", "not a policy");
    fs::create_dir(rig.path("sub.toml")).unwrap();
    let _watch = rig.watch("");
    assert_eq!((rig.limit("maps"), rig.limit("search"), rig.installs()), (Some(1), Some(2), 2));
    rig.write("images.yaml", "service: images\nrules: [{name: '3', keys: all, quota: 3/s}]\n");
    rig.wait_for_limit("images", Some(3));
    rig.write("maps.toml", policy("maps", 4));
    rig.wait_for_limit("maps", Some(4));
    assert_eq!((rig.limit("search"), rig.installs()), (Some(2), 4), "only what has changed");
}

#[test]
fn a_file_that_is_deleted_takes_its_policy_with_it() {
    let rig = two();
    let _watch = rig.watch("");
    fs::remove_file(rig.path("maps.toml")).unwrap();
    rig.wait_for_limit("maps", None);
    assert_eq!(rig.limit("search"), Some(2));
    rig.write("maps.toml", policy("maps", 1));
    rig.wait_for_limit("maps", Some(1));
}

#[test]
fn a_file_that_is_renamed_keeps_its_policy() {
    let rig = two();
    let _watch = rig.watch("");
    fs::rename(rig.path("maps.toml"), rig.path("z.toml")).unwrap();
    rig.wait(|| rig.installs() == 3);
    assert_eq!(rig.limit("maps"), Some(1));
    rig.write("z.toml", policy("maps", 2));
    rig.wait_for_limit("maps", Some(2));
}

#[test]
fn a_folder_that_is_gone_takes_nothing_with_it() {
    let rig = Rig::new();
    fs::create_dir(rig.path("etc")).unwrap();
    rig.write("etc/maps.toml", policy("maps", 1));
    let _watch = rig.watch("etc");
    fs::rename(rig.path("etc"), rig.path("old")).unwrap();
    rig.wait(|| rig.failure("etc").is_some());
    assert_eq!(rig.limit("maps"), Some(1));
    fs::create_dir(rig.path("etc")).unwrap();
    rig.write("etc/maps.toml", policy("maps", 2));
    rig.wait_for_limit("maps", Some(2));
    // Noted right after the policy is in force.
    rig.wait(|| rig.failure("etc").is_none());
}

#[test]
fn one_bad_file_does_not_keep_the_others_from_it() {
    let rig = two();
    let watch = rig.watch("");
    rig.write("maps.toml", "service = ");
    rig.write("search.json", json("search", 5));
    rig.wait_for_limit("search", Some(5));
    rig.wait(|| rig.refusals() == 1);
    assert_eq!(rig.limit("maps"), Some(1));
    let error = watch.refresh().unwrap_err().to_string();
    assert!(error.contains("maps.toml:1:"), "{error}");
}

#[test]
fn the_second_file_for_a_service_is_refused_until_the_first_is_gone() {
    let rig = two();
    let watch = rig.watch("");
    rig.write("more.toml", policy("maps", 7));
    rig.wait(|| rig.refusals() == 1);
    let error = watch.refresh().unwrap_err().to_string();
    let (first, second) = (rig.path("maps.toml"), rig.path("more.toml"));
    let expected = format!(
        "{}: service: got \"maps\", which has its policy in {}; expected a service without one: one file for each. Put all rules of the service into one of the two files, or remove one",
        second.display(),
        first.display()
    );
    assert_eq!(error, expected);
    assert_eq!(rig.limit("maps"), Some(1));
    fs::remove_file(first).unwrap();
    rig.wait_for_limit("maps", Some(7));
    watch.refresh().unwrap();
}

#[test]
fn the_first_by_name_has_the_service_whenever_it_came() {
    let rig = two();
    let watch = rig.watch("");
    rig.write("a.toml", policy("maps", 9));
    rig.wait_for_limit("maps", Some(9));
    let error = watch.refresh().unwrap_err().to_string();
    assert!(error.starts_with(&rig.path("maps.toml").display().to_string()), "{error}");
    fs::remove_file(rig.path("a.toml")).unwrap();
    rig.wait_for_limit("maps", Some(1));
    watch.refresh().unwrap();
}

#[test]
fn two_files_that_swap_their_services() {
    let rig = Rig::new();
    rig.write("a.toml", policy("maps", 1));
    rig.write("b.toml", policy("search", 2));
    let watch = rig.watch("");
    rig.write("a.toml", policy("search", 3));
    rig.write("b.toml", policy("maps", 4));
    rig.wait(|| (rig.limit("maps"), rig.limit("search")) == (Some(4), Some(3)));
    watch.refresh().unwrap();
}

#[test]
fn a_folder_is_bounded() {
    let rig = Rig::new();
    for n in 0..=FILES_MAX {
        rig.write(&format!("{n}.toml"), "");
    }
    let error = source(&rig.path("")).start(&rig.policies).unwrap_err().to_string();
    assert!(error.ends_with(&format!("has more than {FILES_MAX} policies")), "{error}");
}

/// A file of envoyproxy/ratelimit with limits of these names in one domain.
fn sheet(domain: &str, limits: &[u64]) -> String {
    let limit = |limit: &u64| {
        format!(
            "- key: k{limit}\n  rate_limit: {{ name: '{limit}', unit: hour, requests_per_unit: {limit} }}\n"
        )
    };
    format!("domain: {domain}\ndescriptors:\n{}", limits.iter().map(limit).collect::<String>())
}

#[test]
fn files_of_one_domain_are_one_policy() {
    let rig = Rig::new();
    rig.write("a.yaml", sheet("shop", &[1]));
    rig.write("b.yaml", sheet("shop", &[2, 3]));
    rig.write("c.yaml", sheet("other", &[9]));
    let watch = rig.watch("");
    assert_eq!((rig.rules("shop"), rig.limit("shop"), rig.limit("other")), (3, Some(1), Some(9)));
    rig.write("b.yaml", sheet("shop", &[2]));
    rig.wait(|| rig.rules("shop") == 2);
    rig.write("c.yaml", sheet("shop", &[9]));
    rig.wait(|| rig.rules("shop") == 3 && rig.limit("other").is_none());
    fs::remove_file(rig.path("a.yaml")).unwrap();
    rig.wait(|| rig.rules("shop") == 2 && rig.limit("shop") == Some(2));
    watch.refresh().unwrap();
    fs::remove_file(rig.path("b.yaml")).unwrap();
    fs::remove_file(rig.path("c.yaml")).unwrap();
    rig.wait(|| rig.limit("shop").is_none());
}

#[test]
fn a_domain_with_a_bad_file_stays_as_it_is() {
    let rig = Rig::new();
    rig.write("a.yaml", sheet("shop", &[1]));
    rig.write("b.yaml", sheet("shop", &[2]));
    let watch = rig.watch("");
    rig.write("b.yaml", "domain: shop\ndescriptors: 7\n");
    rig.wait(|| rig.refusals() == 1);
    assert_eq!(rig.rules("shop"), 2);
    let told = |error: String| {
        let expected = format!(
            "{}:2:14: descriptors: got \"7\"; expected a list of descriptors",
            rig.path("b.yaml").display()
        );
        assert_eq!(error, expected);
    };
    told(watch.refresh().unwrap_err().to_string());
    rig.write("a.yaml", sheet("shop", &[1, 5]));
    rig.wait(|| rig.refusals() == 2);
    assert_eq!(rig.rules("shop"), 2, "half of a policy limits half of what it should");
    rig.write("b.yaml", sheet("shop", &[2]));
    rig.wait(|| rig.rules("shop") == 3);
    watch.refresh().unwrap();
    rig.write("b.yaml", "service: shop\nrules: [{name: '4', keys: all, quota: 4/s}]\n");
    rig.wait(|| rig.refusals() == 3 && rig.rules("shop") == 2);
    assert!(watch.refresh().unwrap_err().to_string().contains("which has its policy in"));
}
