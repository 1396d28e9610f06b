//! What is told, and in whose words.

use std::time::Duration;

use crate::field;

/// Which revision of draft-ietf-httpapi-ratelimit-headers is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Draft {
    /// 10 and 11, which look the same on the wire: `r` and `t`.
    #[default]
    V11,
    /// What its editors prepare: `a`, `w` and `c`, the cost of this request.
    /// It may change with them.
    Next,
}

/// Which fields of old are sent beside the standard ones, about the policy that denies, or
/// else about the one with the least left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Legacy {
    /// None.
    #[default]
    Off,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`.
    RateLimit,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset`.
    XRateLimit,
}

/// What the `Reset` of the legacy fields counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reset {
    /// Seconds from now.
    #[default]
    Delta,
    /// Seconds since 1970-01-01T00:00:00Z, by the clock of the store.
    Epoch,
}

/// What the body of a denial looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Body {
    /// A problem document (RFC 9457), `application/problem+json`.
    #[default]
    Problem,
    /// `{"detail": "Rate limit exceeded. Try again later."}`, as Application Kit
    /// sends it, `application/json`.
    Detail,
}

/// What clients are told. By default: the standard fields on every response,
/// no legacy fields, and a problem document with a denial.
///
/// ```
/// use ratekeeper_http::{Body, HttpOptions, Legacy, Reset};
///
/// let as_before =
///     HttpOptions::default().legacy(Legacy::XRateLimit).legacy_reset(Reset::Epoch).body(Body::Detail);
/// assert_ne!(as_before, HttpOptions::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HttpOptions {
    pub(crate) draft: Option<Draft>,
    pub(crate) legacy: Legacy,
    pub(crate) legacy_reset: Reset,
    pub(crate) body: Body,
    pub(crate) outage_retry_secs: u64,
    pub(crate) spread_percent: u8,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            draft: Some(Draft::V11),
            legacy: Legacy::Off,
            legacy_reset: Reset::Delta,
            body: Body::Problem,
            outage_retry_secs: 1,
            spread_percent: 0,
        }
    }
}

impl HttpOptions {
    /// No field about limits on any response. A denial is still a denial, with
    /// its status, `Retry-After` and body.
    #[must_use]
    pub fn without_fields() -> Self {
        Self { draft: None, ..Self::default() }
    }

    /// Sends the standard fields, as this revision has them.
    #[must_use]
    pub const fn draft(self, draft: Draft) -> Self {
        Self { draft: Some(draft), ..self }
    }

    /// Sends no standard fields, only what else is switched on.
    #[must_use]
    pub const fn without_standard(self) -> Self {
        Self { draft: None, ..self }
    }

    /// Which legacy fields are sent.
    #[must_use]
    pub const fn legacy(self, legacy: Legacy) -> Self {
        Self { legacy, ..self }
    }

    /// What their `Reset` counts.
    #[must_use]
    pub const fn legacy_reset(self, legacy_reset: Reset) -> Self {
        Self { legacy_reset, ..self }
    }

    /// What the body of a denial looks like.
    #[must_use]
    pub const fn body(self, body: Body) -> Self {
        Self { body, ..self }
    }

    /// When to come back if limits could not be checked and the rule denies then:
    /// nobody knows, so it is a setting. Whole seconds, rounded up, at least one.
    #[must_use]
    pub fn outage_retry_after(self, after: Duration) -> Self {
        let started = u64::from(after.subsec_nanos() > 0);
        Self { outage_retry_secs: after.as_secs().saturating_add(started).clamp(1, RETRY_SECS_MAX), ..self }
    }

    /// Lengthens each `Retry-After` by a random share of it, at most so many percent (up to 100) and an hour, so that
    /// requests that were denied together do not return together. It is never shorter than the exact wait,
    /// which bodies still say. In whole seconds, rounded up: short waits are lengthened by up to a second. 0, the
    /// default, sends the exact one.
    #[must_use]
    pub const fn retry_after_spread(self, percent: u8) -> Self {
        let spread_percent = if percent > SPREAD_PERCENT_MAX { SPREAD_PERCENT_MAX } else { percent };
        Self { spread_percent, ..self }
    }
}

// For those who send it, and for documents that describe it.
impl HttpOptions {
    /// Whether any field about limits is sent.
    #[must_use]
    pub const fn has_fields(&self) -> bool {
        self.draft.is_some() || !matches!(self.legacy, Legacy::Off)
    }

    /// Whether the standard fields are sent.
    #[must_use]
    pub const fn has_standard(&self) -> bool {
        self.draft.is_some()
    }

    /// The most fields about limits that a response has.
    #[must_use]
    pub const fn field_count(&self) -> usize {
        let standard = if self.draft.is_some() { 2 } else { 0 };
        standard + if matches!(self.legacy, Legacy::Off) { 0 } else { 3 }
    }

    /// What the body of a denial is.
    #[must_use]
    pub const fn content_type(&self) -> &'static str {
        match self.body {
            Body::Problem => "application/problem+json",
            Body::Detail => "application/json",
        }
    }

    /// The names of the fields about limits that are sent.
    pub fn field_names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let standard = self.draft.is_some().then_some([field::RATELIMIT_POLICY, field::RATELIMIT]);
        let legacy = match self.legacy {
            Legacy::Off => None,
            Legacy::RateLimit => Some(field::LEGACY),
            Legacy::XRateLimit => Some(field::LEGACY_X),
        };
        standard.into_iter().flatten().chain(legacy.into_iter().flatten())
    }
}

/// The longest wait that is told: a year. Longer ones of a setting are cut.
const RETRY_SECS_MAX: u64 = 366 * 86_400;
/// The largest share by which a wait is lengthened.
pub const SPREAD_PERCENT_MAX: u8 = 100;
/// The most by which a wait is lengthened.
pub const SPREAD_SECS_MAX: u64 = 3_600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_can_be_listed() {
        let names = |options: HttpOptions| options.field_names().collect::<Vec<_>>().join(" ");
        assert_eq!(names(HttpOptions::default()), "ratelimit-policy ratelimit");
        assert_eq!(names(HttpOptions::without_fields()), "");
        let old = HttpOptions::without_fields().legacy(Legacy::XRateLimit);
        assert_eq!(names(old), "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset");
        for options in [HttpOptions::default(), HttpOptions::without_fields(), old] {
            assert_eq!(options.has_fields(), !names(options).is_empty());
            assert_eq!(options.field_count(), options.field_names().count());
            assert_eq!(options.has_standard(), names(options).starts_with("ratelimit-policy"));
        }
    }

    #[test]
    fn the_wait_of_an_outage_is_whole_seconds_and_never_none() {
        let cases = [
            (Duration::ZERO, 1),
            (Duration::from_millis(1), 1),
            (Duration::from_millis(2_001), 3),
            (Duration::MAX, RETRY_SECS_MAX),
        ];
        for (after, secs) in cases {
            assert_eq!(HttpOptions::default().outage_retry_after(after).outage_retry_secs, secs);
        }
    }
}
