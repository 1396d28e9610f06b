//! How many counters of a shard each rule holds.

#[cfg(feature = "data-dir")]
use ratekeeper_core::Name;
use ratekeeper_core::{Key, NAMES_MAX};

/// The rule that a counter belongs to. All raw charges are one rule, whatever names they carry:
/// otherwise a caller who makes up names would make up rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct RuleNumber(u32);

impl RuleNumber {
    /// How wide a number is.
    pub(in super::super) const BITS: u32 = 17;

    #[inline]
    pub(in super::super) fn of(key: Key<'_>) -> Self {
        Self(key.scope().rule().number())
    }

    #[cfg(feature = "data-dir")]
    pub(in super::super) fn of_name(rule: Name) -> Self {
        Self(rule.number())
    }

    pub(in super::super) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(in super::super) const fn bits(self) -> u32 {
        self.0
    }
}

const _: () = assert!(NAMES_MAX < 1 << RuleNumber::BITS, "every rule has a number");

/// Counters by rule, sorted by rule. Rules without a counter are not listed, so the list is never longer than the
/// shard.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RuleCounts(Vec<(RuleNumber, u32)>);

impl RuleCounts {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    fn place(&self, rule: RuleNumber) -> Result<usize, usize> {
        self.0.binary_search_by_key(&rule, |(rule, _)| *rule)
    }

    pub(super) fn add(&mut self, rule: RuleNumber) {
        match self.place(rule) {
            Ok(place) => self.0[place].1 += 1,
            Err(place) => self.0.insert(place, (rule, 1)),
        }
    }

    pub(super) fn remove(&mut self, rule: RuleNumber) {
        let Ok(place) = self.place(rule) else { return };
        self.0[place].1 -= 1;
        if self.0[place].1 == 0 {
            self.0.remove(place);
        }
    }

    /// The rule that loses a counter of a shard of `max` if counters of the rules `new` are added:
    /// the one that would hold most then, those `passed_over` aside.
    ///
    /// A rule below its equal share loses nothing to others. Between equals, a new counter costs its own
    /// rule.
    pub(super) fn loser(
        &self,
        new: &[RuleNumber],
        passed_over: &[RuleNumber],
        max: usize,
    ) -> Option<RuleNumber> {
        let shares = self.0.len() + self.unlisted(new);
        let added = |rule| new.iter().filter(|new| **new == rule).count();
        let candidates = self.0.iter().filter(|(rule, _)| !passed_over.contains(rule));
        let candidates = candidates.filter_map(|(rule, count)| {
            let (count, added) = (*count as usize, added(*rule));
            (added > 0 || count.saturating_mul(shares) >= max).then_some((count + added, added, *rule))
        });
        candidates.max().map(|(_, _, rule)| rule)
    }

    /// How many rules `new` has that hold nothing yet.
    fn unlisted(&self, new: &[RuleNumber]) -> usize {
        let is_first = |index: usize| !new[..index].contains(&new[index]);
        (0..new.len()).filter(|index| is_first(*index) && self.place(new[*index]).is_err()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn rule(number: u32) -> RuleNumber {
        RuleNumber::from_bits(number)
    }

    fn counts(of: &[(u32, u32)]) -> RuleCounts {
        let mut counts = RuleCounts::new();
        of.iter().for_each(|(number, count)| (0..*count).for_each(|_| counts.add(rule(*number))));
        counts
    }

    #[test]
    fn rules_without_counters_are_not_listed() {
        let mut counts = counts(&[(3, 2), (1, 1)]);
        [1, 3, 9].map(rule).into_iter().for_each(|rule| counts.remove(rule));
        assert_eq!(counts.0, [(rule(3), 1)]);
    }

    #[test]
    fn the_rule_that_holds_most_loses() {
        let counts = counts(&[(1, 2), (2, 6), (3, 2)]);
        let loser = |new: &[u32], passed_over: &[u32]| {
            let numbers = |of: &[u32]| of.iter().copied().map(rule).collect::<Vec<_>>();
            counts.loser(&numbers(new), &numbers(passed_over), 10).map(RuleNumber::bits)
        };
        for new in [1, 2, 3, 4] {
            assert_eq!(loser(&[new], &[]), Some(2), "{new}");
        }
        assert_eq!(loser(&[4], &[2]), Some(3).filter(|_| 2 * 4 >= 10), "the others are below their share");
        assert_eq!(loser(&[3], &[2]), Some(3), "but may lose to themselves");
    }

    #[test]
    fn between_equals_a_rule_loses_to_itself() {
        let counts = counts(&[(1, 5), (2, 5)]);
        for new in [1, 2] {
            assert_eq!(counts.loser(&[rule(new)], &[], 10), Some(rule(new)));
        }
    }
}
