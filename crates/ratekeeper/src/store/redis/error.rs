//! What a server's refusals mean to us.

use redis::RedisError;

use crate::store::{StoreError, StoreErrorKind};

impl StoreError {
    /// What became of a command.
    pub(super) fn from_redis(error: &RedisError) -> Self {
        if error.is_io_error() || error.is_connection_dropped() {
            return Self::new(StoreErrorKind::Unavailable, format!("the connection failed: {error}"));
        }
        let kind = kind_of(error.code().unwrap_or_default());
        Self::new(kind, format!("the server refused: {error}"))
    }

    /// What is at a key is not ours, or of a version that came after this one.
    pub(super) fn unreadable() -> Self {
        let message =
            "a key of this check holds something that is not Ratekeeper's, or is of another version";
        Self::new(StoreErrorKind::Unreadable, message)
    }

    /// What a script was told when it wanted to write.
    pub(super) fn from_server(reason: &str) -> Self {
        // Redis 6.2 puts its own words before the code.
        let code = reason.trim_start_matches('-').split_whitespace().next().unwrap_or_default();
        Self::new(kind_of(code), format!("the server does not write: {}", reason.trim_start_matches('-')))
    }
}

fn kind_of(code: &str) -> StoreErrorKind {
    match code {
        "OOM" => StoreErrorKind::Capacity,
        "READONLY" | "MISCONF" | "NOREPLICAS" => StoreErrorKind::ReadOnly,
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => StoreErrorKind::Unavailable,
        "NOAUTH" | "NOPERM" | "WRONGPASS" => StoreErrorKind::Permission,
        "WRONGTYPE" => StoreErrorKind::Unreadable,
        _ => StoreErrorKind::Protocol,
    }
}
