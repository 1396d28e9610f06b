//! Notices when rules with different quotas meet on one counter.
//!
//! Application Kit has one counter for a project on an endpoint, whatever rule
//! counts there. Two rules on it, which no two gates of a service know of each
//! other, count every request twice and end each other's windows: nobody
//! wants that, so it is told.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use ratekeeper_core::{Charge, Check};

/// Endpoints that are remembered at most; of those that share a place, the latest.
const PLACES: usize = 1_024;
/// Warnings of one store at most.
const WARNINGS_MAX: u8 = 16;

/// Who counts on the counters of an endpoint: 32 bits of a digest of the endpoint,
/// 16 of the rule's name, 16 of its quota.
pub(super) struct Meetings {
    places: Box<[AtomicU64]>,
    warnings: AtomicU8,
}

impl Meetings {
    pub(super) fn new() -> Self {
        Self { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(), warnings: AtomicU8::new(0) }
    }

    /// Tells, once for an endpoint, of another rule with another quota on a counter of
    /// `check`. One rule may have many quotas: they may depend on the request.
    #[inline]
    pub(super) fn note(&self, check: &Check<'_>) {
        for charge in check.charges().iter().filter(|charge| charge.is_overridable()) {
            if let Some(scope) = charge.shared_scope() {
                self.note_one(charge, scope.endpoint());
            }
        }
    }

    fn note_one(&self, charge: &Charge<'_>, endpoint: &str) {
        let quota = digest((charge.quota().limit(), charge.quota().window_micros()));
        if self.is_first_meeting(digest(endpoint), charge.key().scope().id(), quota) {
            warn(charge, endpoint);
        }
    }

    fn is_first_meeting(&self, endpoint: u64, rule: u64, quota: u64) -> bool {
        const ENDPOINT: u64 = !0 << 32;
        const RULE: u64 = 0xffff_0000;
        const QUOTA: u64 = 0xffff;
        /// In the place of rule and quota: it was told.
        const TOLD: u64 = RULE | QUOTA;
        let place = &self.places[endpoint as usize % PLACES];
        let own = (endpoint & ENDPOINT) | (rule & RULE) | (quota & QUOTA);
        let known = place.load(Ordering::Relaxed);
        let differs = |part: u64| (known ^ own) & part != 0;
        if !differs(!0) {
            return false;
        }
        if differs(ENDPOINT) || !differs(RULE) {
            place.store(own, Ordering::Relaxed);
            return false;
        }
        if !differs(QUOTA) || known & TOLD == TOLD {
            return false;
        }
        place.store(own | TOLD, Ordering::Relaxed);
        let count = |told: u8| (told < WARNINGS_MAX).then_some(told + 1);
        self.warnings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }
}

fn digest(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cold]
fn warn(charge: &Charge<'_>, endpoint: &str) {
    tracing::warn!(
        rule = %charge.key().scope(),
        quota = %charge.quota(),
        ?endpoint,
        "another rule with another quota counts on the same counters of Application Kit: \
         give one of them an endpoint of its own"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const TELLS: bool = true;

    #[test]
    fn two_quotas_on_a_counter_are_told_once() {
        let meetings = Meetings::new();
        let meet = |endpoint: &str, rule: &str, limit: u32| {
            meetings.is_first_meeting(digest(endpoint), digest(rule), digest((limit, 60u64)))
        };
        assert_ne!(meet("/a", "second", 10), TELLS);
        assert_ne!(meet("/a", "second", 20), TELLS, "a limit that depends on the request");
        assert_ne!(meet("/a", "again", 20), TELLS, "the same limit under another name");
        assert_ne!(meet("/b", "minute", 100), TELLS, "somewhere else");
        assert_eq!(meet("/a", "minute", 100), TELLS);
        for rule in ["second", "minute"] {
            assert_ne!(meet("/a", rule, 20), TELLS, "once is enough");
        }
    }

    #[test]
    fn warnings_come_to_an_end() {
        let meetings = Meetings::new();
        let meet =
            |endpoint: u64, rule: u64| meetings.is_first_meeting(endpoint << 32 | endpoint, rule << 16, rule);
        let told = (1..100).filter(|endpoint| meet(*endpoint, 1) || meet(*endpoint, 2)).count();
        assert_eq!(told, usize::from(WARNINGS_MAX));
    }
}
