//! Why the store does not answer, for whoever asks. Where it is and what exactly it said
//! is for operators, who have the log.

use ratekeeper::StoreErrorKind;

/// The reason, in words that tell nothing of how a server is set up.
pub(super) const fn reason(kind: StoreErrorKind) -> &'static str {
    match kind {
        StoreErrorKind::Timeout => "it did not answer in time",
        StoreErrorKind::Overloaded => "more is asked of it than it can answer",
        StoreErrorKind::Unavailable => "it cannot be reached, or is not ready to answer",
        StoreErrorKind::ReadOnly => "it does not write",
        StoreErrorKind::Capacity => "it has no room left",
        StoreErrorKind::Permission => "it does not let the server in, or not do what it must",
        StoreErrorKind::Unreadable => "what it has at a key is not understood",
        StoreErrorKind::Protocol => "its answer is not understood",
        _ => "it failed",
    }
}
