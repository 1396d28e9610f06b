//! Which keys are near their limits, in constant memory.
//!
//! Only what has used half of a quota or more is looked at: every other request pays one comparison. A request never
//! waits here: where another thread is noting something, this one is left out, and the next of the same key is not.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ratekeeper::Verdict;
use serde::Serialize;

/// Keys that are remembered.
pub const NEAR_KEYS_MAX: usize = 256;
/// For how long a key counts that does not ask again.
const SEEN_FOR: Duration = Duration::from_secs(60);

/// How much of a quota is used once a request has been decided, in percent; what has no room left for the request has
/// used all of it. A key that an operator blocks has used no more than before.
pub(crate) fn used_percent(verdict: &Verdict) -> u64 {
    if !verdict.is_admitted() && verdict.cost() > verdict.remaining() {
        return 100;
    }
    match u64::from(verdict.quota().capacity()) {
        0 => 0,
        capacity => capacity.saturating_sub(verdict.remaining().into()) * 100 / capacity,
    }
}

/// Whether half of a quota is used, or more: what is less is not looked at.
#[inline]
pub(crate) fn is_near(verdict: &Verdict) -> bool {
    u64::from(verdict.remaining()) * 2 <= verdict.quota().capacity().into() || !verdict.is_admitted()
}

/// The keys that are near their limits.
#[derive(Debug, Default)]
pub(crate) struct NearKeys(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    hasher: RandomState,
    by_key: HashMap<u64, Last>,
}

/// A key, when it asked last.
#[derive(Debug)]
struct Last {
    rule: Box<str>,
    key: Box<str>,
    quota: String,
    limit: u32,
    remaining: u32,
    percent: u64,
    at: Instant,
}

/// A key in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NearKey {
    pub(crate) rule: String,
    pub(crate) key: String,
    pub(crate) quota: String,
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    pub(crate) used_percent: u64,
    pub(crate) seconds_ago: u64,
}

impl NearKeys {
    /// Notes what a request left of a quota.
    #[cold]
    pub(crate) fn note(&self, rule: &str, key: &str, verdict: &Verdict) {
        if let Ok(mut seen) = self.0.try_lock() {
            seen.note(rule, key, verdict, Instant::now());
        }
    }

    /// The keys that asked lately, the nearest first.
    pub(crate) fn list(&self) -> Vec<NearKey> {
        let now = Instant::now();
        let mut list: Vec<NearKey> = {
            let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = seen.by_key.values().filter(|last| !last.is_over(now));
            fresh.map(|last| last.told(now)).collect()
        };
        list.sort_by(|one, other| {
            let nearest = other.used_percent.cmp(&one.used_percent);
            nearest.then_with(|| (&one.rule, &one.key).cmp(&(&other.rule, &other.key)))
        });
        list
    }

    /// What is left to the nearest key of each rule, in percent.
    pub(crate) fn by_rule(&self) -> Vec<(String, u64)> {
        let mut rules: Vec<(String, u64)> = Vec::new();
        // The nearest come first.
        for near in self.list() {
            if rules.iter().all(|(rule, _)| *rule != near.rule) {
                rules.push((near.rule, 100 - near.used_percent.min(100)));
            }
        }
        rules
    }
}

impl Seen {
    fn note(&mut self, rule: &str, key: &str, verdict: &Verdict, now: Instant) {
        let place = self.hasher.hash_one((rule, key, verdict.name().as_str()));
        let percent = used_percent(verdict);
        if let Some(last) = self.by_key.get_mut(&place) {
            (last.limit, last.remaining) = (verdict.quota().capacity(), verdict.remaining());
            (last.percent, last.at) = (percent, now);
            return;
        }
        if self.by_key.len() >= NEAR_KEYS_MAX && !self.make_room(percent, now) {
            return;
        }
        let last = Last {
            rule: rule.into(),
            key: key.into(),
            quota: verdict.quota().to_string(),
            limit: verdict.quota().capacity(),
            remaining: verdict.remaining(),
            percent,
            at: now,
        };
        self.by_key.insert(place, last);
    }

    /// Forgets the keys that are over, or else the one that is furthest from its limit, unless this one is.
    fn make_room(&mut self, percent: u64, now: Instant) -> bool {
        self.by_key.retain(|_, last| !last.is_over(now));
        if self.by_key.len() < NEAR_KEYS_MAX {
            return true;
        }
        let furthest = self.by_key.iter().min_by_key(|(_, last)| (last.percent, last.at));
        let Some((place, known)) = furthest.map(|(place, last)| (*place, last.percent)) else { return true };
        if known <= percent {
            self.by_key.remove(&place);
        }
        known <= percent
    }
}

impl Last {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) > SEEN_FOR
    }

    fn told(&self, now: Instant) -> NearKey {
        NearKey {
            rule: self.rule.to_string(),
            key: self.key.to_string(),
            quota: self.quota.clone(),
            limit: self.limit,
            remaining: self.remaining,
            used_percent: self.percent,
            seconds_ago: now.saturating_duration_since(self.at).as_secs(),
        }
    }
}
