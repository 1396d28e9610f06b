//! Who may use a directory, and what is said to those who may not.

use std::path::Path;

use ratekeeper::store::open as open_url;
use ratekeeper::{MemoryStore, OpenOptions, OpenedStore, StoreUrl};
use tempfile::TempDir;

use crate::rig::{charge, clock, open};

fn refused(directory: &Path) -> String {
    MemoryStore::builder().open(directory).unwrap_err().to_string()
}

#[test]
fn a_second_store_is_refused_with_a_way_to_share() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path(), &clock());
    let error = refused(directory.path());
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    assert!(error.contains("one ratekeeper server, or a Redis"), "{error}");
    drop(store);
    assert!(MemoryStore::builder().open(directory.path()).is_ok(), "the first is gone");
}

#[test]
fn a_directory_of_another_version_is_left_alone() {
    let directory = TempDir::new().unwrap();
    drop(open(directory.path(), &clock()));
    let version = directory.path().join("version");
    assert_eq!(std::fs::read_to_string(&version).unwrap(), "1\n");
    std::fs::write(&version, "2\n").unwrap();
    let before = std::fs::read(directory.path().join("ratekeeper.redb")).unwrap();
    let error = refused(directory.path());
    assert!(error.contains("of version \"2\"; expected version 1"), "{error}");
    assert_eq!(std::fs::read(directory.path().join("ratekeeper.redb")).unwrap(), before);
    std::fs::remove_file(&version).unwrap();
    let error = refused(directory.path());
    assert!(error.contains("without the file `version`"), "{error}");
}

#[test]
fn what_cannot_be_a_directory_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = refused(&file);
    assert!(
        error.starts_with("store: got ") && error.contains("expected a directory on a local disk"),
        "{error}"
    );
}

#[cfg(unix)]
#[test]
fn its_owner_alone_may_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("made/for it");
    drop(open(&directory, &clock()));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    let file = directory.join("ratekeeper.redb");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(open(&directory, &clock()));
    assert_eq!(mode(&file), 0o600, "who could read it may not any more");
}

#[test]
fn a_url_opens_it() {
    let folder = TempDir::new().unwrap();
    let url: StoreUrl = format!("memory+dir://{}/a b@c?d", folder.path().display()).parse().unwrap();
    for left in [Some(4), Some(3)] {
        let opened = open_url(&url, &OpenOptions::new()).unwrap();
        let OpenedStore::Memory(store) = &opened else { panic!("{opened:?}") };
        assert_eq!(charge(store, "ann", "5/d"), left);
        opened.flush().unwrap();
    }
    assert!(folder.path().join("a b@c?d/ratekeeper.redb").exists());
}
