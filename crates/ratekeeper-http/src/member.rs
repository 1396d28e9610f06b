//! One policy in the fields: what a verdict comes to for a client.

use std::cmp::{Ordering, Reverse};

use ratekeeper_core::{Algorithm, Enforcement, Level, Name, Quota, Timestamp, Verdict, Wait};

use crate::options::Draft;
use crate::text::Text;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// Whole seconds, rounded up: a client that believes them never comes too early.
pub(crate) const fn seconds(micros: u64) -> u64 {
    micros.div_ceil(MICROS_PER_SECOND)
}

/// Whether an operator lets nothing pass.
pub(crate) fn is_blocked(verdict: &Verdict) -> bool {
    verdict.level() == Level::Emergency && verdict.retry_after().is_never()
}

/// How long what is left must last, or until the same request passes if there is
/// no room for it. Nothing if no wait helps: a client that waited for it would ask in a loop.
pub(crate) fn effective_window(verdict: &Verdict) -> Option<u64> {
    if verdict.retry_after().is_never() && (verdict.is_denied() || is_blocked(verdict)) {
        return None;
    }
    match verdict.retry_after().as_micros() {
        // Of a rule that only watches, a request that can never pass is its own problem: the quota has its window.
        None | Some(0) => u64::try_from(verdict.reset_after().as_micros()).ok(),
        waits => waits,
    }
}

/// A policy, and what is left of it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    name: Name,
    /// The caller's own name for it, if it was a raw charge.
    label: Option<Box<str>>,
    quota: Quota,
    partition: Option<Box<[u8]>>,
    wait: Wait,
    /// Microseconds from `at`.
    window: Option<u64>,
    at: Timestamp,
    remaining: u32,
    cost: u32,
    is_denied: bool,
    is_enforced: bool,
}

impl Member {
    pub(crate) fn new(
        verdict: &Verdict,
        label: Option<Box<str>>,
        at: Timestamp,
        partition: Option<Box<[u8]>>,
    ) -> Self {
        Self {
            name: verdict.name(),
            label,
            quota: *verdict.quota(),
            partition,
            wait: verdict.retry_after(),
            window: effective_window(verdict),
            at,
            remaining: if is_blocked(verdict) { 0 } else { verdict.remaining() },
            cost: verdict.cost(),
            is_denied: verdict.is_denied(),
            is_enforced: verdict.enforcement() == Enforcement::Enforce,
        }
    }

    pub(crate) fn is_same_policy(&self, other: &Self) -> bool {
        let same_name = self.name == other.name && self.label == other.label;
        same_name && self.quota == other.quota && self.partition == other.partition
    }

    fn label(&self) -> &str {
        self.label.as_deref().unwrap_or_else(|| self.name.label())
    }

    /// Whether `other`, the same policy and found later, is to be told instead: unless it is
    /// better off. They may be two keys, and whoever believed the better news would be denied;
    /// of one key, what is found later is mostly worse.
    pub(crate) fn yields_to(&self, other: &Self) -> bool {
        // What denied comes first: `Retry-After` must not be earlier than its window.
        let harshness = |of: &Self| (of.is_denied, of.wait, Reverse(of.remaining));
        harshness(self) <= harshness(other)
    }

    /// Greater if it matters more: what denies, by its wait, before what does not; what is enforced before what only
    /// watches; then what has the least share of its quota left.
    pub(crate) fn by_strictness(&self, other: &Self) -> Ordering {
        let wait =
            |of: &Self| (of.is_denied, if of.is_denied { of.wait } else { Wait::default() }, of.is_enforced);
        let share = |of: &Self, whole: &Self| u64::from(of.remaining) * u64::from(whole.quota.capacity());
        wait(self).cmp(&wait(other)).then_with(|| share(other, self).cmp(&share(self, other)))
    }

    /// Writes `"api";q=100;w=60`.
    pub(crate) fn write_policy(&self, text: &mut Text) {
        text.quoted(self.label());
        text.parameter(";q=", self.limit());
        match self.quota.algorithm() {
            // Its window is a lease: how long one may be under way, not in how
            // long so many may come.
            Algorithm::Concurrency => text.push(r#";qu="concurrent-requests""#),
            _ => text.parameter(";w=", seconds(self.quota.window_micros()).max(1)),
        }
        match self.quota.algorithm() {
            Algorithm::TokenBucket if self.quota.capacity() != self.quota.limit() => {
                text.parameter(";ratekeeper-burst=", self.quota.capacity().into());
            }
            Algorithm::LeakyBucket if self.quota.queue() > 0 => {
                text.parameter(";ratekeeper-queue=", self.quota.queue().into());
            }
            _ => {}
        }
        self.write_partition(text);
    }

    /// Writes `"api";r=82;t=45`.
    pub(crate) fn write_status(&self, text: &mut Text, draft: Draft) {
        let (available, window) = match draft {
            Draft::V11 => (";r=", ";t="),
            Draft::Next => (";a=", ";w="),
        };
        text.quoted(self.label());
        text.parameter(available, self.remaining());
        if let Some(after) = self.after() {
            text.parameter(window, after);
        }
        if draft == Draft::Next {
            text.parameter(";c=", self.cost.into());
        }
        self.write_partition(text);
    }

    fn write_partition(&self, text: &mut Text) {
        if let Some(partition) = &self.partition {
            text.push(";pk=");
            text.byte_sequence(partition);
        }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.quota.limit().into()
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.remaining.into()
    }

    /// The effective window, in seconds from now.
    pub(crate) fn after(&self) -> Option<u64> {
        self.window.map(seconds)
    }

    /// Its end, in seconds since the epoch.
    pub(crate) fn ends_at(&self) -> Option<u64> {
        self.window.map(|window| seconds(self.at.as_micros().saturating_add(window)))
    }
}
