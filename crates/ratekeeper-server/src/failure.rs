//! What could not be done, why, and what to try.

use std::fmt;

/// An error that people can do something about.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> serde_json::Value {
        let hint = self.hint.as_deref().map(without_secrets);
        serde_json::json!({ "error": without_secrets(&self.message), "hint": hint })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// As it stands where an error says what would be right.
const EXAMPLE: &str = "user:password";

/// A text in which no URL has a user or a password. Whatever is printed about what
/// somebody typed goes through here: it may end up in the log of a build.
pub(crate) fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let end =
            after.find(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`')).unwrap_or(after.len());
        let (url, behind) = after.split_at(end);
        shown.push_str(before);
        let url = without_pass(url);
        // The last one: a password that should have been escaped is a password, too.
        match url.rsplit_once('@') {
            Some((user, host)) if user != EXAMPLE => {
                shown.push_str("***@");
                shown.push_str(host);
            }
            _ => shown.push_str(&url),
        }
        rest = behind;
    }
    shown + rest
}

/// URLs of sockets and sentinels have passwords in the query.
fn without_pass(url: &str) -> String {
    ["pass=", "password="].iter().fold(url.to_owned(), |url, name| match url.split_once(name) {
        Some((before, after)) => {
            let behind = after.find('&').map_or("", |end| &after[end..]);
            format!("{before}{name}***{behind}")
        }
        None => url,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_url_shows_its_user_or_password() {
        let cases = [
            ("nothing here", "nothing here"),
            ("redis://host:6379/1", "redis://host:6379/1"),
            ("got 'redis://ann:s3cret@host' and more", "got 'redis://***@host' and more"),
            ("redis://:s3/cr@et@host x://a:b@c", "redis://***@host x://***@c"),
            ("redis+unix:///run/s?user=u&pass=s3cret&db=1", "redis+unix:///run/s?user=u&pass=***&db=1"),
            (
                "redis+sentinel://a:b@h/s?sentinel_password=s3@cret",
                "redis+sentinel://***@h/s?sentinel_password=***",
            ),
            ("such as redis://user:password@host", "such as redis://user:password@host"),
            ("://", "://"),
        ];
        for (text, expected) in cases {
            assert_eq!(without_secrets(text), expected);
        }
    }
}
