//! What a denied request is answered with.

use std::borrow::Cow;

use ratekeeper_core::{Decision, Labels, Origin, Verdict};

use crate::field;
use crate::member::{effective_window, is_blocked, seconds};
use crate::options::{Body, HttpOptions, SPREAD_SECS_MAX};
use crate::tally::Field;
use crate::text::{Text, whole};

/// The status of a request that is over a limit.
pub const TOO_MANY_REQUESTS: u16 = 429;
/// The status of a request whose limits could not be checked.
pub const SERVICE_UNAVAILABLE: u16 = 503;

// Titles and types as the draft registers them; the rest of the document follows.
const QUOTA_EXCEEDED: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
    r#""title":"Quota Exceeded","#,
    r#""status":"#,
);
const REDUCED_CAPACITY: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
    r#""title":"Temporary Reduced Capacity","#,
    r#""status":"#,
);
const ABNORMAL_USAGE: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","#,
    r#""title":"Abnormal Usage Detected","#,
    r#""status":"#,
);
const DETAIL_BEYOND_BUDGET: &str =
    r#"{"detail": "This request is too much work to be judged.", "reason": "condition_budget"}"#;
const DETAIL_EXCEEDED: &str = r#"{"detail": "Rate limit exceeded. Try again later."}"#;
const DETAIL_UNCHECKED: &str = r#"{"detail": "Rate limits could not be checked. Try again later."}"#;

/// A denial in the words of HTTP, or of gRPC. Nothing is written before it is
/// asked for.
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    decision: &'a Decision,
    options: &'a HttpOptions,
    labels: Labels<'a>,
    /// Nobody counted: the rule denies when its store is away.
    is_outage: bool,
    /// By how many seconds the exact wait is lengthened.
    spread: u64,
    /// Of the response, if somebody else has chosen it.
    status: Option<u16>,
}

impl<'a> Denial<'a> {
    /// The denial in `decision`, if it is one.
    #[must_use]
    pub fn of(decision: &'a Decision, options: &'a HttpOptions) -> Option<Self> {
        if decision.is_allowed() {
            return None;
        }
        // In an outage, a process may count for itself; a quota that denies then is
        // exceeded like any other.
        let counted = decision.verdicts().iter().any(Verdict::is_denied);
        let is_outage = decision.origin() == Origin::Outage && !counted;
        let exact = Self { decision, options, labels: Labels::default(), is_outage, spread: 0, status: None };
        Some(match options.spread_percent {
            0 => exact,
            percent => exact.spread(percent.into()),
        })
    }

    /// The decision that denies.
    #[must_use]
    pub const fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// The same denial, under the names that a caller gave to its raw charges.
    #[must_use]
    pub fn labelled(self, labels: Labels<'a>) -> Self {
        Self { labels, ..self }
    }

    /// The same denial in a response whose status somebody else chooses, such as a proxy that has one for all: a problem
    /// document says the status of its response.
    #[must_use]
    pub fn answered_with(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    /// 429, or 503 if limits could not be checked and the rule denies then.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self.status {
            Some(status) => status,
            None if self.is_outage => SERVICE_UNAVAILABLE,
            None => TOO_MANY_REQUESTS,
        }
    }

    /// The same with a wait that is longer by a random share. Drawn once: every field of an answer says the same.
    #[cold]
    fn spread(self, percent: u64) -> Self {
        let most = self.exact().unwrap_or(0).saturating_mul(percent).div_ceil(100).min(SPREAD_SECS_MAX);
        Self { spread: fastrand::u64(0..=most), ..self }
    }

    /// Seconds until the same request passes, rounded up, and lengthened if
    /// [the options](HttpOptions::retry_after_spread) say so; nothing if it never does.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        Some(self.exact()?.saturating_add(self.spread))
    }

    fn exact(&self) -> Option<u64> {
        let wait = seconds(self.decision.retry_after().as_micros()?);
        let windows = self.violated().filter_map(effective_window).map(seconds);
        let least = if self.is_outage || wait == 0 { self.options.outage_retry_secs } else { wait };
        Some(windows.fold(least.max(wait), u64::max))
    }

    /// What the body is.
    #[must_use]
    pub const fn content_type(&self) -> &'static str {
        self.options.content_type()
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> Cow<'static, str> {
        match (self.options.body, self.is_outage) {
            (Body::Problem, _) => self.problem().into(),
            (Body::Detail, _) if self.decision.reason().is_some() => DETAIL_BEYOND_BUDGET.into(),
            (Body::Detail, false) => DETAIL_EXCEEDED.into(),
            (Body::Detail, true) => DETAIL_UNCHECKED.into(),
        }
    }

    /// The fields of the response: `Content-Type`, `Cache-Control` and, unless the
    /// request can never pass, `Retry-After`. Those about limits are
    /// [`Tally::fields`](crate::Tally::fields).
    pub fn fields(&self) -> impl Iterator<Item = Field> + use<> {
        let fields = [
            Some((field::CONTENT_TYPE, self.content_type().into())),
            // RFC 6585, section 4: a 429 must not be stored by a cache.
            Some((field::CACHE_CONTROL, field::NO_STORE.into())),
            self.retry_after().map(|secs| (field::RETRY_AFTER, whole(secs).into())),
        ];
        fields.into_iter().flatten()
    }

    /// The status of a gRPC call: 8, `RESOURCE_EXHAUSTED`, or 14, `UNAVAILABLE`.
    #[must_use]
    pub const fn grpc_status(&self) -> &'static str {
        if self.is_outage { "14" } else { "8" }
    }

    /// The sentence that goes with it, percent-encoded.
    #[must_use]
    pub fn grpc_message(&self) -> String {
        let mut message = Text::default();
        self.write_detail(&mut message, Text::push);
        message.percent_encoded().finish()
    }

    /// The fields of a gRPC response that is nothing but trailers (HTTP status 200,
    /// no body), in place of [`Denial::fields`].
    pub fn grpc_fields(&self) -> impl Iterator<Item = Field> + use<> {
        let fields = [
            Some((field::CONTENT_TYPE, "application/grpc".into())),
            // Its HTTP status is 200, which caches like.
            Some((field::CACHE_CONTROL, field::NO_STORE.into())),
            Some((field::GRPC_STATUS, self.grpc_status().into())),
            Some((field::GRPC_MESSAGE, self.grpc_message().into())),
            self.retry_after().map(|secs| (field::RETRY_AFTER, whole(secs).into())),
        ];
        fields.into_iter().flatten()
    }

    fn violated(&self) -> impl Iterator<Item = &'a Verdict> {
        self.decision.verdicts().iter().filter(|verdict| verdict.is_denied())
    }

    fn problem(&self) -> String {
        let mut text = Text::default();
        let reason = self.decision.reason();
        text.push(match reason {
            Some(_) => ABNORMAL_USAGE,
            None if self.is_outage => REDUCED_CAPACITY,
            None => QUOTA_EXCEEDED,
        });
        text.integer(self.status().into());
        text.push(r#","detail":""#);
        self.write_detail(&mut text, Text::escaped);
        if let Some(reason) = reason {
            text.push(r#"","reason":""#);
            text.push(reason);
        }
        text.push(r#"","violated-policies":["#);
        for (index, verdict) in self.violated().enumerate() {
            let label = self.labels.of(verdict);
            // One policy may deny several keys at once.
            if self.violated().take(index).any(|other| self.labels.of(other) == label) {
                continue;
            }
            text.push(if index > 0 { "," } else { "" });
            text.quoted(label);
        }
        text.push("]}");
        text.finish()
    }

    /// One sentence: which policy, and when to come back. It has no key and nothing
    /// of the request in it.
    fn write_detail(&self, text: &mut Text, name: impl Fn(&mut Text, &str)) {
        if self.is_outage {
            text.push("The limits of this service could not be checked");
            return self.write_when(text, "; try again in ");
        }
        if self.decision.reason().is_some() {
            return text.push("This request is too much work to be judged, and never passes as it is.");
        }
        let Some(verdict) = self.decision.strictest().filter(|verdict| verdict.is_denied()) else {
            // Nobody's queue is full, but whoever asked would not wait that long.
            text.push("There is no room for this request at present");
            return self.write_when(text, "; the same request passes in ");
        };
        let label = self.labels.of(verdict);
        if verdict.retry_after().is_never() && !is_blocked(verdict) {
            text.push("This request asks for more than the policy '");
            name(text, label);
            return text.push("' can ever allow.");
        }
        text.push("The policy '");
        name(text, label);
        if is_blocked(verdict) {
            return text.push("' lets nothing pass at present.");
        }
        text.push("' has no room for this request");
        let at_most = "; the same request passes in at most ";
        self.write_when(text, if verdict.is_at_latest() { at_most } else { "; the same request passes in " });
    }

    fn write_when(&self, text: &mut Text, words: &str) {
        if let Some(secs) = self.exact() {
            text.push(words);
            text.integer(secs);
            text.push(if secs == 1 { " second" } else { " seconds" });
        }
        text.push(".");
    }
}
