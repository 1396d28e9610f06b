//! One limit, in the words of a document.

use std::fmt::Write as _;

use ratekeeper::policy::EndpointLimits;
use ratekeeper::{Algorithm, Quota};
use serde_json::{Value, json};
use utoipa::openapi::extensions::Extensions;

const LIMIT: &str = "x-ratelimit-limit";
const WINDOW: &str = "x-ratelimit-window-seconds";
const POLICIES: &str = "x-ratelimit-policies";
/// What the readable paragraph begins with, and is found again by.
const MARK: &str = "**Ratelimit:** ";
const BREAK: &str = "\n\n";

/// One quota of an operation.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    name: &'static str,
    quota: Quota,
    /// Whether it applies to every request, or may.
    pub(super) is_certain: bool,
}

impl Limit {
    pub(super) fn all_of(limits: EndpointLimits) -> impl Iterator<Item = Self> {
        let is_certain = limits.is_certain;
        limits.quotas.into_iter().map(move |(name, quota)| Self { name, quota, is_certain })
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.quota == other.quota
    }

    /// Seconds, rounded up; none for how many may be under way, which has no window.
    fn window_seconds(&self) -> Option<u64> {
        let is_rate = self.quota.algorithm() != Algorithm::Concurrency;
        is_rate.then(|| self.quota.window_micros().div_ceil(1_000_000))
    }

    /// `100/60s`.
    fn text(&self) -> String {
        let limit = self.quota.limit();
        let millis = self.quota.window_micros() / 1_000;
        match self.window_seconds() {
            None => format!("{limit} at once"),
            Some(_) if !millis.is_multiple_of(1_000) => format!("{limit}/{millis}ms"),
            Some(seconds) => format!("{limit}/{seconds}s"),
        }
    }

    fn json(&self) -> Value {
        let mut object = json!({ "name": self.name, "limit": self.quota.limit() });
        match self.window_seconds() {
            Some(seconds) => object["window-seconds"] = seconds.into(),
            None => object["unit"] = "concurrent-requests".into(),
        }
        if !self.is_certain {
            object["conditional"] = true.into();
        }
        object
    }
}

/// The description with the limits at its end: `**Ratelimit:** 100/60s`.
pub(super) fn described(description: Option<&str>, limits: &[Limit]) -> String {
    let mut text = description.map(without_mark).unwrap_or_default();
    if !text.is_empty() {
        text.push_str(BREAK);
    }
    text.push_str(MARK);
    for (index, limit) in limits.iter().enumerate() {
        text.push_str(if index > 0 { ", " } else { "" });
        text.push_str(&limit.text());
        // Names tell several apart; with one there is nothing to tell.
        let _ = match (limits.len() > 1, limit.is_certain) {
            (false, true) => Ok(()),
            (false, false) => write!(text, " (may apply)"),
            (true, true) => write!(text, " ({})", limit.name),
            (true, false) => write!(text, " ({}, may apply)", limit.name),
        };
    }
    text
}

/// The description without the paragraphs about limits that it has.
fn without_mark(description: &str) -> String {
    if !description.contains(MARK) {
        return description.to_owned();
    }
    let others = description.split(BREAK).filter(|paragraph| !paragraph.starts_with(MARK));
    others.collect::<Vec<_>>().join(BREAK)
}

/// The fields for programs: the first limit that applies to every request in two of
/// them, and all limits in a third if there is more to tell.
pub(super) fn extend(extensions: &mut Extensions, limits: &[Limit]) {
    for name in [LIMIT, WINDOW, POLICIES] {
        extensions.remove(name);
    }
    let first = limits.iter().filter(|limit| limit.is_certain);
    let first = first.filter_map(|limit| Some((limit.quota.limit(), limit.window_seconds()?))).next();
    if let Some((limit, seconds)) = first {
        extensions.insert(LIMIT.to_owned(), limit.into());
        extensions.insert(WINDOW.to_owned(), seconds.into());
    }
    if first.is_none() || limits.len() > 1 {
        extensions.insert(POLICIES.to_owned(), limits.iter().map(Limit::json).collect());
    }
}
