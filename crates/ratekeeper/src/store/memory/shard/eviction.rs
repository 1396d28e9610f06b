//! Which counter goes when a shard is at its bound.
//!
//! The dead go first. Then the rule that holds most counters of the shard loses one: the one that
//! has used least of its quota, and of several the one that ends first. Exhausted counters limit somebody, so
//! they go last. Made-up keys thus push one another out: they use little, or they are most of the shard.
//!
//! To find that counter takes a search of the shard. One search finds the next [`QUEUED_MAX`] victims
//! of a rule, so it is paid for once in so many new keys.

use std::collections::BinaryHeap;

use smallvec::SmallVec;

use super::super::fingerprint::Fingerprint;
use super::super::slot::{Pressure, Rank};
use super::Shard;
use super::rules::RuleNumber;

/// Slots swept for the dead before a live counter goes whose turn is known.
const SWEPT_AT_BOUND: usize = 64;
/// Slots one search looks at: all of a shard of the default size. In a larger shard they are a sample, and
/// nobody can choose who is in it.
const SEARCHED_MAX: usize = 8_192;
/// Victims that one search finds.
const QUEUED_MAX: usize = 64;
/// Rules whose victims are remembered.
const QUEUES_MAX: usize = 8;

/// What it took to find room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Room {
    /// There is none.
    None,
    /// At most counters had to go that limited nobody.
    Found,
    /// So many exhausted counters had to go.
    AtTheExpenseOf(u64),
}

/// A counter that may go: the highest rank goes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Victim {
    rank: Rank,
    fingerprint: Fingerprint,
}

/// The counters of a rule that go next, those that go first at the end. No other counter of the rule ranks below
/// the first entry, unless units were given back to it since.
#[derive(Debug)]
struct Queue {
    rule: RuleNumber,
    victims: Vec<Victim>,
}

impl Queue {
    /// Adds a counter if it is sure to be one of the next.
    fn offer(&mut self, victim: Victim) {
        if self.victims.first().is_none_or(|last| victim > *last) {
            return;
        }
        let place = self.victims.partition_point(|other| *other > victim);
        self.victims.insert(place, victim);
        if self.victims.len() > QUEUED_MAX {
            self.victims.remove(0);
        }
    }
}

/// The queues of the rules that lost a counter of late, the latest at the end.
#[derive(Debug)]
pub(super) struct Queues(Vec<Queue>);

impl Queues {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Considers a new counter.
    #[inline]
    pub(super) fn offer(&mut self, rule: RuleNumber, rank: Rank, fingerprint: Fingerprint) {
        if let Some(queue) = self.0.iter_mut().find(|queue| queue.rule == rule) {
            queue.offer(Victim { rank, fingerprint });
        }
    }

    fn has(&self, rule: RuleNumber) -> bool {
        self.0.iter().any(|queue| queue.rule == rule)
    }

    fn take(&mut self, rule: RuleNumber) -> Option<Queue> {
        let place = self.0.iter().position(|queue| queue.rule == rule);
        place.map(|place| self.0.remove(place))
    }

    fn keep(&mut self, queue: Queue) {
        if self.0.len() == QUEUES_MAX {
            self.0.remove(0);
        }
        self.0.push(queue);
    }
}

impl Shard {
    /// Makes room for new counters of the rules `new`, at the expense of none that is to be kept.
    pub(in super::super) fn make_room(
        &mut self,
        new: &[RuleNumber],
        now: u64,
        keep: impl Fn(Fingerprint) -> bool,
    ) -> Room {
        let mut exhausted = 0;
        while !self.has_room_for(new.len()) {
            let loser = self.rules.loser(new, &[], self.max);
            let is_queued = loser.is_some_and(|rule| self.queues.has(rule));
            self.sweep(if is_queued { SWEPT_AT_BOUND } else { SEARCHED_MAX }, now);
            if self.has_room_for(new.len()) {
                break;
            }
            let Some(victim) = self.victim(new, &keep) else { return Room::None };
            exhausted += u64::from(self.slots[victim].pressure() == Pressure::EXHAUSTED);
            self.remove(victim);
            self.evicted += 1;
        }
        if exhausted > 0 { Room::AtTheExpenseOf(exhausted) } else { Room::Found }
    }

    fn victim(&mut self, new: &[RuleNumber], keep: &impl Fn(Fingerprint) -> bool) -> Option<usize> {
        // At most as many as the check has counters: all counters of such a rule are the check's own.
        let mut passed_over: SmallVec<[RuleNumber; 4]> = SmallVec::new();
        while let Some(rule) = self.rules.loser(new, &passed_over, self.max) {
            if let Some(victim) = self.victim_of(rule, keep) {
                return Some(victim);
            }
            passed_over.push(rule);
        }
        None
    }

    fn victim_of(&mut self, rule: RuleNumber, keep: &impl Fn(Fingerprint) -> bool) -> Option<usize> {
        let queue = self.queues.take(rule);
        let mut queue = queue.unwrap_or(Queue { rule, victims: Vec::new() });
        let mut victim = self.next_of(&mut queue, keep);
        if victim.is_none() {
            queue.victims = self.search(rule, &|_| false);
            victim = self.next_of(&mut queue, keep);
        }
        if victim.is_none() {
            // All that were found are the check's own.
            queue.victims = self.search(rule, keep);
            victim = self.next_of(&mut queue, keep);
        }
        if !queue.victims.is_empty() {
            self.queues.keep(queue);
        }
        victim
    }

    /// The first of a queue that is still what it was. One that has been used since may no longer be the next.
    fn next_of(&self, queue: &mut Queue, keep: &impl Fn(Fingerprint) -> bool) -> Option<usize> {
        let mut kept = 0;
        while let Some(place) = queue.victims.len().checked_sub(kept + 1) {
            let victim = queue.victims[place];
            let slot = self.find(victim.fingerprint).filter(|slot| self.slots[*slot].rule() == queue.rule);
            let rank = slot.map(|slot| self.slots[slot].rank());
            if rank == Some(victim.rank) && !keep(victim.fingerprint) {
                return slot;
            }
            if rank == Some(victim.rank) {
                kept += 1;
                continue;
            }
            queue.victims.remove(place);
            if let Some(rank) = rank {
                queue.offer(Victim { rank, ..victim });
            }
        }
        None
    }

    /// The counters of a rule that go next, the first at the end. Goes on beyond [`SEARCHED_MAX`] slots only
    /// if it has found none.
    fn search(&self, rule: RuleNumber, keep: &impl Fn(Fingerprint) -> bool) -> Vec<Victim> {
        let mut found: BinaryHeap<Victim> = BinaryHeap::with_capacity(QUEUED_MAX + 1);
        let mut index = self.hand;
        for searched in 1..=self.slots.len() {
            index = self.after(index);
            let slot = &self.slots[index];
            if slot.is_of(rule) && !keep(slot.fingerprint) {
                let victim = Victim { rank: slot.rank(), fingerprint: slot.fingerprint };
                if found.len() < QUEUED_MAX {
                    found.push(victim);
                } else if let Some(mut last) = found.peek_mut().filter(|last| victim < **last) {
                    *last = victim;
                }
            }
            if searched % SEARCHED_MAX == 0 && !found.is_empty() {
                break;
            }
        }
        let mut found = found.into_sorted_vec();
        found.reverse();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::shard::Counter;
    use super::*;
    use ratekeeper_core::State;
    use ratekeeper_core::algorithm::{Bucket, TokenBucket};

    const RULE: RuleNumber = RuleNumber::from_bits(1);

    /// Spread over the table like real ones: with one home for all, each insert would search everything.
    fn fingerprint(number: u64) -> Fingerprint {
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Fingerprint { high: spread, low: number }
    }

    /// Adds a counter of a rule that is full again at `end`, with `left` of 16 units.
    fn add(shard: &mut Shard, rule: RuleNumber, number: u64, left: u32, end: u64) {
        let state =
            State::TokenBucket(TokenBucket(Bucket { full_at: end, remainder: 0, denominator: 1, ahead: 0 }));
        let counter = Counter { fingerprint: fingerprint(number), rule };
        shard.insert(counter, state, Pressure::left(left, &"16/h".parse().unwrap()), 0);
    }

    fn gone(shard: &Shard, numbers: impl Iterator<Item = u64>) -> Vec<u64> {
        numbers.filter(|number| shard.find(fingerprint(*number)).is_none()).collect()
    }

    #[test]
    fn the_one_that_has_used_least_goes_and_the_checks_own_never() {
        let mut shard = Shard::new(4);
        for (number, left) in [(1, 1), (2, 15), (3, 4), (4, 0)] {
            add(&mut shard, RULE, number, left, 1_000);
        }
        let own = |other| other == fingerprint(2);
        assert_eq!(shard.make_room(&[RULE], 0, own), Room::Found);
        assert_eq!(gone(&shard, 1..=4), [3], "the second has used less, but is part of the check");
        assert_eq!(shard.make_room(&[RULE; 2], 0, |_| false), Room::Found);
        assert_eq!(gone(&shard, 1..=4), [2, 3]);
        assert_eq!(shard.make_room(&[RULE; 3], 0, |_| false), Room::Found);
        assert_eq!(gone(&shard, 1..=4), [1, 2, 3]);
        assert_eq!(shard.make_room(&[RULE; 4], 0, |_| true), Room::None);
        assert_eq!(shard.make_room(&[RULE; 4], 0, |_| false), Room::AtTheExpenseOf(1));
        assert_eq!(shard.evicted(), 4);
    }

    #[test]
    fn the_dead_go_before_the_living() {
        let mut shard = Shard::new(1_000);
        for number in 0..1_000 {
            add(&mut shard, RULE, number, 0, if number == 500 { 10 } else { 1_000 });
        }
        assert_eq!(shard.make_room(&[RULE], 10, |_| false), Room::Found);
        assert_eq!((gone(&shard, 0..1_000), shard.evicted()), (vec![500], 0));
    }

    #[test]
    fn of_exhausted_counters_the_one_that_ends_first_goes() {
        let mut shard = Shard::new(1_000);
        let order: Vec<u64> = (0..1_000).map(|number| number * 7 % 1_000).collect();
        order.iter().for_each(|number| add(&mut shard, RULE, *number, 0, 1_000 + number));
        for first in 0..999 {
            assert_eq!(
                shard.make_room(&[RULE; 2], 0, |_| false),
                Room::AtTheExpenseOf(1 + u64::from(first == 0))
            );
            assert_eq!(gone(&shard, 0..1_000), (0..first + 2).collect::<Vec<_>>());
            add(&mut shard, RULE, 10_000 + first, 0, 100_000);
        }
    }

    /// Against a plain search of everything, while counters are used, come and go.
    #[test]
    fn a_queue_never_passes_over_a_better_victim() {
        let (mut shard, mut random) = (Shard::new(300), fastrand::Rng::with_seed(9));
        let rules = [1, 2, 3].map(RuleNumber::from_bits);
        for number in 0..20_000 {
            let rule = rules[random.usize(..3) * random.usize(..2)];
            let best = |shard: &Shard, rule| {
                let of_rule = shard.slots.iter().filter(|slot| slot.is_of(rule));
                of_rule.map(|slot| (slot.rank(), slot.fingerprint)).min()
            };
            if !shard.has_room_for(1) {
                let loser = shard.rules.loser(&[rule], &[], 300).unwrap();
                let (_, expected) = best(&shard, loser).unwrap();
                assert_ne!(shard.make_room(&[rule], 0, |_| false), Room::None);
                assert_eq!(shard.find(expected), None, "step {number}");
            }
            add(&mut shard, rule, number, random.u32(..17), 1 + random.u64(..1_000));
            // Somebody uses a counter: it has less left from then on.
            let used = random.usize(..shard.slots.len());
            if !shard.slots[used].is_vacant() {
                let state = shard.take(used, ratekeeper_core::Algorithm::TokenBucket);
                shard.put(used, state, Pressure::EXHAUSTED);
            }
        }
        assert!(shard.evicted() > 15_000);
    }

    #[test]
    fn a_rule_of_a_large_shard_is_found_wherever_it_is() {
        let (mut shard, few) = (Shard::new(40_000), RuleNumber::from_bits(2));
        (0..39_999).for_each(|number| add(&mut shard, RULE, number, 1, 1_000));
        add(&mut shard, few, 39_999, 1, 1_000);
        for _ in 0..10 {
            assert_eq!(shard.search(few, &|_| false).len(), 1);
            shard.sweep(5_000, 0);
        }
    }
}
