//! A file that is damaged is set aside, and never taken for a good one.

use std::path::{Path, PathBuf};

use ratekeeper::{MemoryStore, Override, OverrideScope, Overrides as _, Store as _};
use tempfile::TempDir;

use crate::rig::{charge, clock, now, open};

fn file(directory: &Path) -> PathBuf {
    directory.join("ratekeeper.redb")
}

/// A directory with counters and an override, of a store that ended well.
fn filled() -> TempDir {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), &clock());
    (0..2_000).for_each(|key| assert!(charge(&store, &key.to_string(), "5/d").is_some()));
    let scope = OverrideScope::organisation("/search", "acme").unwrap();
    now(store.set(scope, Override::limit(7))).unwrap();
    directory
}

fn set_aside(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains(".damaged-")).collect()
}

/// Opens a directory whose file is `damaged`: it is set aside as it is, and the store works.
fn opened_after(damaged: &[u8], what: &str) {
    let directory = filled();
    std::fs::write(file(directory.path()), damaged).unwrap();
    let store = open(directory.path(), &clock());
    assert!(store.health().data.unwrap().was_damaged, "{what}");
    let aside = set_aside(directory.path());
    assert_eq!(aside.len(), 1, "{what}: {aside:?}");
    assert_eq!(std::fs::metadata(&aside[0]).unwrap().len(), damaged.len() as u64, "{what}");
    assert_eq!(charge(&store, "1", "5/d"), Some(4), "{what}: it begins anew");
    drop(store);
    let store = open(directory.path(), &clock());
    assert!(!store.health().data.unwrap().was_damaged, "{what}: once");
    assert_eq!(charge(&store, "1", "5/d"), Some(3), "{what}");
}

#[test]
fn files_that_are_cut_off_or_something_else_are_set_aside() {
    let whole = std::fs::read(file(filled().path())).unwrap();
    for keep in [0, 1, 100, 4_096, whole.len() / 2, whole.len() - 4_096] {
        opened_after(&whole[..keep], &format!("{keep} bytes"));
    }
    opened_after(b"something else altogether", "a text");
    opened_after(&vec![0; whole.len()], "zeros");
    opened_after(&vec![0xff; whole.len()], "ones");
}

/// Wherever a page is overwritten, either nothing of it is in use or it is noticed; nothing panics, and no counter that was
/// never counted is made up.
#[test]
fn pages_that_are_overwritten_are_noticed_or_not_in_use() {
    let directory = filled();
    let whole = std::fs::read(file(directory.path())).unwrap();
    let mut noticed = 0;
    for page in 0..whole.len() / 4_096 {
        let mut damaged = whole.clone();
        damaged[page * 4_096 + 40..page * 4_096 + 400].fill(0xa5);
        std::fs::write(file(directory.path()), &damaged).unwrap();
        let store =
            MemoryStore::builder().clock(std::sync::Arc::new(clock())).open(directory.path()).unwrap();
        let data = store.health().data.unwrap();
        noticed += usize::from(data.was_damaged);
        if !data.was_damaged {
            let scope = OverrideScope::organisation("/search", "acme").unwrap();
            let found = now(store.get(scope)).unwrap();
            assert_eq!(found.map(|found| found.limit), Some(7), "page {page}");
            assert_eq!(charge(&store, "1", "5/d"), Some(3), "page {page}");
        }
    }
    assert!(noticed > 10, "{noticed} of {} pages", whole.len() / 4_096);
}
