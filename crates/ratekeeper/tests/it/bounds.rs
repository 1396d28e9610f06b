//! Every bound that callers may meet is in `ratekeeper::bounds`.

use std::path::{Path, PathBuf};

/// The source files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .collect()
}

/// The names of the public constants of modules in `text` that are bounds. What is `pub` can be reached from outside, or
/// the compiler warns.
fn bounds_in(text: &str) -> impl Iterator<Item = &str> {
    let constants = text.lines().filter_map(|line| line.strip_prefix("pub const "));
    let names = constants.filter_map(|rest| rest.split(':').next());
    names.filter(|name| name.split('_').any(|word| word == "MAX" || word == "MIN"))
}

#[test]
fn every_public_bound_is_in_one_module() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let listed = std::fs::read_to_string(crates.join("ratekeeper/src/bounds.rs")).unwrap();
    let listed: Vec<&str> = listed.split(|other: char| !other.is_ascii_uppercase() && other != '_').collect();
    let mut found = 0;
    for folder in ["ratekeeper/src", "ratekeeper-core/src"] {
        for path in sources(&crates.join(folder)) {
            let text = std::fs::read_to_string(&path).unwrap();
            for name in bounds_in(&text) {
                found += 1;
                assert!(listed.contains(&name), "{name} of {} is not in bounds.rs", path.display());
            }
        }
    }
    assert!(found > 50, "only {found} bounds");
}
