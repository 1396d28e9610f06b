//! The URL of the server, which may hold a password: it is never printed.

use std::fmt;

use ::mongodb::options::{ConnectionString, HostInfo};
use ratekeeper_core::printable;

/// How much of a reason is repeated, in characters.
const REASON_CHARS_MAX: usize = 500;
const HIDDEN: &str = "***";

/// What must not be shown of a URL.
#[derive(Clone, Default)]
pub(super) struct Secret(Vec<String>);

impl Secret {
    pub(super) fn of(url: &str, parsed: &ConnectionString) -> Self {
        let decoded = parsed.credential.as_ref().and_then(|credential| credential.password.clone());
        let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        let written = user.split_once(':').map(|(_, password)| password.to_owned());
        Self(decoded.into_iter().chain(written).filter(|secret| !secret.is_empty()).collect())
    }

    /// A reason as it can be logged: short, on one line, without the secret.
    pub(super) fn hidden(&self, reason: &str) -> String {
        let hidden = self.0.iter().fold(reason.to_owned(), |text, secret| text.replace(secret, HIDDEN));
        printable(&hidden, REASON_CHARS_MAX)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// The servers of a URL, without users, passwords and options.
pub(super) fn servers(url: &ConnectionString) -> String {
    match &url.host_info {
        HostInfo::HostIdentifiers(hosts) => {
            hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        }
        HostInfo::DnsRecord(name) => name.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_hidden_as_it_is_written_and_as_it_is_meant() {
        let url = "mongodb://ann:se%2Fcret@one.example:1,two.example/?authSource=admin";
        let parsed = ConnectionString::parse(url).unwrap();
        let secret = Secret::of(url, &parsed);
        assert_eq!(secret.hidden("a se/cret\nof se%2Fcret"), "a ***\\nof ***");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(servers(&parsed), "one.example:1,two.example:27017");
        assert!(secret.hidden(&"x".repeat(10_000)).len() < 600);
    }
}
