//! The table of `testdata/store_urls.toml`: URLs of stores, right and wrong.

use std::slice;
use std::vec;

use serde::Deserialize;
use tempfile::TempDir;

/// What stands for a password in the table; no message repeats it.
pub const SECRET: &str = "SECRET";

/// A URL, and what is to come of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub url: String,
    /// Of a right one.
    pub place: Option<Place>,
    /// Of a wrong one: how an error begins to say what it was.
    pub got: Option<String>,
}

/// Where a URL leads.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Memory,
    Server,
    /// Several.
    Servers,
}

impl Case {
    /// Asserts that `message` says of a wrong URL what was wrong, and what would be right, behind
    /// the name of the `field`; and that no message repeats the password.
    #[track_caller]
    pub fn assert_said(&self, field: &str, message: &str) {
        assert!(!message.contains(SECRET), "{message}");
        let Some(got) = &self.got else { return };
        let start = format!("{field}: got {got}");
        assert!(message.contains(&start), "{}: expected {start:?} in {message}", self.url);
        assert!(message.contains("; expected "), "{}: {message}", self.url);
    }
}

/// The whole table, and a folder for as long as it is looked at.
#[derive(Debug)]
pub struct Cases {
    cases: Vec<Case>,
    folder: TempDir,
}

impl Cases {
    pub fn iter(&self) -> slice::Iter<'_, Case> {
        self.cases.iter()
    }
}

impl<'a> IntoIterator for &'a Cases {
    type Item = &'a Case;
    type IntoIter = slice::Iter<'a, Case>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Cases {
    type Item = Case;
    type IntoIter = OwnedCases;

    fn into_iter(self) -> OwnedCases {
        OwnedCases { cases: self.cases.into_iter(), _folder: self.folder }
    }
}

/// Cases one by one.
#[derive(Debug)]
pub struct OwnedCases {
    cases: vec::IntoIter<Case>,
    _folder: TempDir,
}

impl Iterator for OwnedCases {
    type Item = Case;

    fn next(&mut self) -> Option<Case> {
        self.cases.next()
    }
}

/// What stands for the path of a directory in the table.
const DIRECTORY: &str = "DIRECTORY";

/// The whole table.
///
/// # Panics
/// If it is not there, or a case is neither right nor wrong.
#[must_use]
pub fn cases() -> Cases {
    #[derive(Deserialize)]
    struct Table {
        url: Vec<Case>,
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/store_urls.toml");
    let text = std::fs::read_to_string(path).expect("the table is there");
    let table: Table = toml::from_str(&text).expect("the table is well formed");
    let folder = TempDir::new().expect("room for a folder");
    let mut cases = table.url;
    for case in &mut cases {
        assert_ne!(case.place.is_some(), case.got.is_some(), "{}: right or wrong", case.url);
        case.url = case.url.replace(DIRECTORY, &folder.path().join("data").display().to_string());
    }
    Cases { cases, folder }
}
