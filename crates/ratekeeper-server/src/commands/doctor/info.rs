//! What a server says about itself.

use std::collections::HashMap;
use std::str::FromStr;

/// The answer to `INFO`.
#[derive(Debug)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    pub(super) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.trim().split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    pub(super) fn number<T: FromStr>(&self, field: &str) -> Option<T> {
        self.text(field)?.parse().ok()
    }
}
