//! Values of `RateLimit-Policy`, kept: they change with policies and overrides, not with requests.
//!
//! Each thread keeps its own, so that threads do not count references to one value. A value follows from the
//! names and quotas of a decision alone: a policy that is replaced, a plan or an override has other ones.

use std::cell::RefCell;

use http::HeaderValue;
use ratekeeper::{Decision, Name, Quota, Verdict};

/// Values that a thread keeps. One that is new takes the place of another.
const VALUES_MAX: usize = 32;
/// The most policies in a value that is kept; longer ones are written each time.
const POLICIES_MAX: usize = 4;

struct Kept {
    policies: Box<[(Name, Quota)]>,
    value: HeaderValue,
}

thread_local! {
    static KEPT: RefCell<[Option<Kept>; VALUES_MAX]> = const { RefCell::new([const { None }; VALUES_MAX]) };
}

/// The value for a decision, if it is known.
#[inline]
pub(super) fn kept(decision: &Decision) -> Option<HeaderValue> {
    let verdicts = decision.verdicts();
    let place = place_of(verdicts)?;
    let found = KEPT.try_with(|kept| {
        let kept = kept.borrow();
        let known = kept[place].as_ref()?;
        let same = |(policy, verdict): (&(Name, Quota), &Verdict)| {
            policy.0 == verdict.name() && policy.1 == *verdict.quota()
        };
        let is_same = known.policies.len() == verdicts.len() && known.policies.iter().zip(verdicts).all(same);
        is_same.then(|| known.value.clone())
    });
    found.ok().flatten()
}

/// Keeps the value that was written for a decision.
#[cold]
pub(super) fn keep(decision: &Decision, value: &HeaderValue) {
    let verdicts = decision.verdicts();
    let Some(place) = place_of(verdicts) else { return };
    let policies = verdicts.iter().map(|verdict| (verdict.name(), *verdict.quota())).collect();
    let _ = KEPT.try_with(|kept| kept.borrow_mut()[place] = Some(Kept { policies, value: value.clone() }));
}

#[inline]
fn place_of(verdicts: &[Verdict]) -> Option<usize> {
    let (first, others) = verdicts.split_first()?;
    let (name, limit) = (first.name().number() as usize, first.quota().limit() as usize);
    let place = (name * 7 + limit + others.len() * 13) % VALUES_MAX;
    (others.len() < POLICIES_MAX).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper::{Charge, Charges, Key, MemoryStore, Store as _};
    use ratekeeper_http::{HttpOptions, Tally};

    fn decision(quotas: &[(&str, &str)]) -> Decision {
        let named: Vec<(Name, Quota)> =
            quotas.iter().map(|(name, quota)| (Name::new(name).unwrap(), quota.parse().unwrap())).collect();
        let mut charges = Charges::new();
        for (name, quota) in &named {
            charges.push(Charge::new(Key::new(*name, "ann").unwrap(), quota)).unwrap();
        }
        let (store, mut decision) = (MemoryStore::new(), Decision::default());
        store.try_check(&charges.check().unwrap(), &mut decision).unwrap().unwrap();
        decision
    }

    fn told(decision: &Decision) -> (String, bool) {
        let is_kept = kept(decision).is_some();
        let mut headers = http::HeaderMap::new();
        crate::tower::response::tell(&mut headers, decision, &HttpOptions::default());
        (headers["ratelimit-policy"].to_str().unwrap().to_owned(), is_kept)
    }

    #[test]
    fn what_is_kept_is_what_would_be_written() {
        // More than are kept, so that some take the places of others; twice, so that some are found.
        let mut found = 0;
        for _ in 0..2 {
            for limit in 1..=2 * VALUES_MAX {
                let (one, other) = (format!("{limit}/s"), format!("{limit}/min"));
                for quotas in [
                    vec![("a", one.as_str())],
                    vec![("b", one.as_str())],
                    vec![("a", other.as_str())],
                    vec![("a", one.as_str()), ("b", other.as_str())],
                    vec![("a", "1/s"), ("b", "1/s"), ("c", "1/s"), ("d", "1/s"), ("e", &one)],
                ] {
                    let decision = decision(&quotas);
                    let written = Tally::of(&decision).fields(&HttpOptions::default()).next().unwrap().1;
                    for _ in 0..2 {
                        let (told, is_kept) = told(&decision);
                        assert_eq!(told, written);
                        found += usize::from(is_kept);
                    }
                }
            }
        }
        assert!(found >= 4 * 2 * VALUES_MAX, "{found}");
    }
}
