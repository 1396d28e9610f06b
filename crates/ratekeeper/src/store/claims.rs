//! Limits that would share a counter with other numbers are refused while they are set up.
//!
//! Application Kit has one counter for a project on an endpoint, whatever limit counts there. Two limits with
//! different quotas would count each request twice and end each other's windows.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ratekeeper_core::{Field, InvalidInput, Quota};

/// Claims on a store that are held at a time.
pub const CLAIMS_MAX: usize = 4_096;

/// The counters of Application Kit that a limit uses: of one endpoint, or of every route it is put in front of.
///
/// A claim ends when it is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterClaim {
    endpoint: Option<String>,
    suffix: String,
    quota: Quota,
}

impl CounterClaim {
    /// The counters of `endpoint`, or with `None` of any route, with a suffix that makes them others.
    #[must_use]
    pub fn new(endpoint: Option<&str>, suffix: &str, quota: Quota) -> Self {
        Self { endpoint: endpoint.map(str::to_owned), suffix: suffix.to_owned(), quota }
    }

    fn conflicts_with(&self, other: &Self) -> bool {
        let same_counters = match (&self.endpoint, &other.endpoint) {
            (Some(one), Some(two)) => {
                one.len() + self.suffix.len() == two.len() + other.suffix.len()
                    && one.chars().chain(self.suffix.chars()).eq(two.chars().chain(other.suffix.chars()))
            }
            // The routes of a limit that names none are known only when requests come.
            _ => self.suffix == other.suffix,
        };
        same_counters && self.quota != other.quota
    }

    fn shown(&self) -> String {
        let endpoint = self.endpoint.as_deref().unwrap_or("{route}");
        format!("{} on {endpoint}{}", self.quota, self.suffix)
    }
}

/// Who uses which counters of Application Kit on a store.
#[derive(Debug, Default)]
pub struct CounterClaims(Mutex<Vec<Weak<CounterClaim>>>);

impl CounterClaims {
    /// Claims counters for as long as the claim is kept.
    ///
    /// # Errors
    /// If another limit with another quota has them, or if there are [`CLAIMS_MAX`] claims.
    pub fn claim(&self, claim: CounterClaim) -> Result<Arc<CounterClaim>, InvalidInput> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|held| held.strong_count() > 0);
        if held.len() >= CLAIMS_MAX {
            return Err(InvalidInput::new(
                Field::Check,
                format!("limit {} by project on one store", CLAIMS_MAX + 1),
                format!("at most {CLAIMS_MAX}; make each once, and clone its layer"),
            ));
        }
        let other = held.iter().filter_map(Weak::upgrade).find(|held| held.conflicts_with(&claim));
        if let Some(other) = other {
            return Err(conflict(&other, &claim));
        }
        let claim = Arc::new(claim);
        held.push(Arc::downgrade(&claim));
        Ok(claim)
    }
}

fn conflict(first: &CounterClaim, second: &CounterClaim) -> InvalidInput {
    let got = format!("{} beside {}", second.shown(), first.shown());
    let expected = "the same numbers, because Application Kit has one counter for a project on an endpoint; or another \
        counter (`key_suffix`), or for both limits the `endpoint` that each is about";
    InvalidInput::new(Field::Check, got, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(endpoint: Option<&str>, suffix: &str, limit: u32) -> CounterClaim {
        let quota = format!("{limit}/min fixed_window");
        CounterClaim::new(endpoint, suffix, quota.parse().expect("a quota"))
    }

    #[test]
    fn other_numbers_on_the_same_counters_are_refused() {
        let claims = CounterClaims::default();
        let _first = claims.claim(claim(Some("/a"), "", 10)).expect("the first");
        let refused = claims.claim(claim(Some("/a"), "", 20)).expect_err("the same endpoint");
        assert_eq!(refused.got, "20/min fixed_window on /a beside 10/min fixed_window on /a");
        assert!(claims.claim(claim(None, "", 20)).is_err(), "its routes may be the same");
        assert!(claims.claim(claim(Some("/"), "a", 20)).is_err(), "the same together with its suffix");
        for other in [claim(Some("/b"), "", 20), claim(None, "/x", 20), claim(Some("/a"), "/x", 30)] {
            claims.claim(other).expect("another counter");
        }
        claims.claim(claim(None, "", 10)).expect("the same numbers");
    }

    #[test]
    fn a_claim_ends_with_its_limit_and_their_number_is_bounded() {
        let claims = CounterClaims::default();
        let first = claims.claim(claim(None, "", 10)).expect("the first");
        assert!(claims.claim(claim(None, "", 20)).is_err());
        drop(first);
        let many: Vec<_> =
            (0..CLAIMS_MAX).map(|_| claims.claim(claim(None, "", 20)).expect("room")).collect();
        let refused = claims.claim(claim(None, "", 20)).expect_err("too many").to_string();
        assert!(refused.contains("at most 4096"), "{refused}");
        drop(many);
        claims.claim(claim(None, "", 10)).expect("room again");
    }
}
