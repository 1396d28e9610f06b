//! The table of `testdata/paths.toml`: spellings of paths.

use serde::Deserialize;

/// A spelling, and what policies see of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spelling {
    /// What stands in the request line.
    pub sent: String,
    /// What policies see.
    pub path: String,
    /// The same where paths are decoded before they are routed.
    pub decoded: Option<String>,
    pub actix: Option<String>,
    pub asgi: Option<String>,
    pub wsgi: Option<String>,
}

impl Spelling {
    /// What policies see on actix-web.
    #[must_use]
    pub fn on_actix(&self) -> &str {
        self.actix.as_ref().unwrap_or(&self.path)
    }
}

/// The whole table.
///
/// # Panics
/// If it is not there, or not well formed.
#[must_use]
pub fn spellings() -> Vec<Spelling> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        path: Vec<Spelling>,
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/paths.toml");
    let text = std::fs::read_to_string(path).expect("the table is there");
    toml::from_str::<Table>(&text).expect("the table is well formed").path
}
