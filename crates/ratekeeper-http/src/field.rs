//! The names of the fields. All in lower case, as HTTP/2 wants them and as
//! header types take them without a copy.

/// The policies that were checked.
pub const RATELIMIT_POLICY: &str = "ratelimit-policy";
/// What is left of each.
pub const RATELIMIT: &str = "ratelimit";
/// When a denied request may come back.
pub const RETRY_AFTER: &str = "retry-after";
/// Denials are not to be kept by caches (RFC 6585).
pub const CACHE_CONTROL: &str = "cache-control";
/// What `Cache-Control` says then.
pub const NO_STORE: &str = "no-store";
/// What the body is.
pub const CONTENT_TYPE: &str = "content-type";
/// The status of a gRPC call.
pub const GRPC_STATUS: &str = "grpc-status";
/// The sentence that goes with it, percent-encoded.
pub const GRPC_MESSAGE: &str = "grpc-message";

/// The limit, what is left of it, when it is reset.
pub const LEGACY: [&str; 3] = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
/// The same with the prefix of experiments.
pub const LEGACY_X: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

/// Every field about limits that can be sent, whatever the options: the value of
/// `Access-Control-Expose-Headers`, without which browsers hide them from scripts
/// of other origins.
///
/// ```
/// assert!(ratekeeper_http::field::EXPOSE.starts_with("ratelimit-policy, ratelimit, retry-after, "));
/// ```
pub const EXPOSE: &str = "ratelimit-policy, ratelimit, retry-after, \
    ratelimit-limit, ratelimit-remaining, ratelimit-reset, \
    x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exposed_is_what_can_be_sent() {
        let mut names = vec![RATELIMIT_POLICY, RATELIMIT, RETRY_AFTER];
        names.extend(LEGACY);
        names.extend(LEGACY_X);
        assert_eq!(EXPOSE, names.join(", "));
        assert_eq!(EXPOSE, EXPOSE.to_ascii_lowercase());
    }
}
