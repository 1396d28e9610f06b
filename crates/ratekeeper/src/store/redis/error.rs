//! What a server's refusals mean to us.

use redis::{ErrorKind, RedisError};

use crate::store::{StoreError, StoreErrorKind};

/// Parts of a key that logs and errors show: what it is, and the rule.
const KEY_PARTS_SHOWN: usize = 3;

impl StoreError {
    /// What became of a command.
    pub(super) fn from_redis(error: &RedisError) -> Self {
        if error.is_io_error() || error.is_connection_dropped() {
            return Self::new(StoreErrorKind::Unavailable, format!("the connection failed: {error}"));
        }
        let kind = match error.kind() {
            ErrorKind::AuthenticationFailed => StoreErrorKind::Permission,
            _ => kind_of(error.code().unwrap_or_default(), error.detail().unwrap_or_default()),
        };
        Self::new(kind, format!("the server refused: {error}"))
    }

    /// What is at a key is not ours, or of a version that came after this one.
    pub(super) fn unreadable() -> Self {
        let message =
            "a key of this check holds something that is not Ratekeeper's, or is of another version";
        Self::new(StoreErrorKind::Unreadable, message)
    }

    /// The same, with the part of the key that names the rule. The subject may be a secret.
    pub(super) fn unreadable_at(key: &[u8]) -> Self {
        let parts: Vec<&[u8]> = key.splitn(KEY_PARTS_SHOWN + 1, |byte| *byte == b':').collect();
        let shown = parts[..parts.len().min(KEY_PARTS_SHOWN)].join(&b':');
        let message = format!(
            "the key {}:... of {} bytes holds something that is not Ratekeeper's, or is of another version",
            shown.escape_ascii(),
            key.len()
        );
        Self::new(StoreErrorKind::Unreadable, message)
    }

    /// What a script was told when it wanted to write.
    pub(super) fn from_server(reason: &str) -> Self {
        let reason = reason.trim_start_matches('-');
        let (code, rest) = reason.split_once(' ').unwrap_or((reason, ""));
        Self::new(kind_of(code, rest), format!("the server does not write: {reason}"))
    }
}

/// What a code means; where it is only that of a script that failed, what the
/// words after it say about why.
fn kind_of(code: &str, words: &str) -> StoreErrorKind {
    match code {
        "OOM" => StoreErrorKind::Capacity,
        "READONLY" | "MISCONF" | "NOREPLICAS" => StoreErrorKind::ReadOnly,
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => StoreErrorKind::Unavailable,
        "NOAUTH" | "NOPERM" | "WRONGPASS" => StoreErrorKind::Permission,
        "WRONGTYPE" => StoreErrorKind::Unreadable,
        // Redis, then Valkey, on a command that its user may not use in a script.
        _ if words.contains("executing the script can't") || words.contains("ACL failure in script") => {
            StoreErrorKind::Permission
        }
        // Redis 6.2 puts its own words before the code.
        _ => match words.split_once(" -") {
            Some((_, inner)) => {
                let (code, words) = inner.split_once(' ').unwrap_or((inner, ""));
                kind_of(code, words)
            }
            None => StoreErrorKind::Protocol,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_found_wherever_a_server_puts_it() {
        let cases = [
            ("OOM command not allowed when used memory > 'maxmemory'.", StoreErrorKind::Capacity),
            ("-READONLY You can't write against a read only replica.", StoreErrorKind::ReadOnly),
            ("ERR Error running script: @user_script:2: -READONLY You", StoreErrorKind::ReadOnly),
            ("ERR The user executing the script can't run this command", StoreErrorKind::Permission),
            ("ERR ACL failure in script: User u has no permissions", StoreErrorKind::Permission),
            ("ERR something - or other", StoreErrorKind::Protocol),
            ("", StoreErrorKind::Protocol),
        ];
        for (reason, kind) in cases {
            assert_eq!(StoreError::from_server(reason).kind(), kind, "{reason}");
        }
    }
}
