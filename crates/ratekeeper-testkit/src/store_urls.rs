//! The table of `testdata/store_urls.toml`: URLs of stores, right and wrong.

use serde::Deserialize;

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

/// The whole table.
///
/// # Panics
/// If it is not there, or a case is neither right nor wrong.
#[must_use]
pub fn cases() -> Vec<Case> {
    #[derive(Deserialize)]
    struct Table {
        url: Vec<Case>,
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/store_urls.toml");
    let text = std::fs::read_to_string(path).expect("the table is there");
    let table: Table = toml::from_str(&text).expect("the table is well formed");
    for case in &table.url {
        assert_ne!(case.place.is_some(), case.got.is_some(), "{}: right or wrong", case.url);
    }
    table.url
}
