//! The limits of a policy, each set once however many keys have it.

use std::collections::HashMap;
use std::num::NonZeroU32;

use ratekeeper_core::{InvalidInput, Level, Name, Quota};

use crate::limiter::share_of;
use crate::policy::spec::Limits;

/// The index of the set without any limit.
pub(in crate::policy) const UNLIMITED: u32 = 0;

/// Quotas that hold together.
#[derive(Debug, Default)]
pub(in crate::policy) struct LimitSet {
    pub(in crate::policy) quotas: Box<[(Name, Quota)]>,
    /// This process's share of them, for an outage of the store.
    pub(in crate::policy) share: Box<[(Name, Quota)]>,
    pub(in crate::policy) level: Level,
}

/// All sets of a policy, found by their number.
#[derive(Debug)]
pub(in crate::policy) struct LimitSets {
    sets: Vec<LimitSet>,
    known: HashMap<(Level, Vec<(Name, Quota)>), u32>,
    instances: u32,
}

impl LimitSets {
    pub(super) fn new(instances: NonZeroU32) -> Self {
        Self { sets: vec![LimitSet::default()], known: HashMap::new(), instances: instances.get() }
    }

    #[inline]
    pub(in crate::policy) fn get(&self, index: u32) -> &LimitSet {
        &self.sets[index as usize]
    }

    /// The number of the set of a rule's limits.
    pub(super) fn add(&mut self, rule: Name, limits: &Limits, level: Level) -> Result<u32, InvalidInput> {
        let Limits::Quotas(named) = limits else { return Ok(UNLIMITED) };
        let mut quotas = Vec::with_capacity(named.len());
        for quota in named {
            let name = if quota.name.is_empty() { rule } else { Name::joined(rule, &quota.name)? };
            quotas.push((name, quota.quota));
        }
        if let Some(known) = self.known.get(&(level, quotas.clone())) {
            return Ok(*known);
        }
        let share = quotas.iter().map(|(name, quota)| (*name, share_of(*quota, self.instances))).collect();
        // A document has less values than a number has room for.
        let index = u32::try_from(self.sets.len()).unwrap_or(UNLIMITED);
        self.sets.push(LimitSet { quotas: quotas.clone().into(), share, level });
        self.known.insert((level, quotas), index);
        Ok(index)
    }

    /// The most charges that one of these sets makes.
    pub(super) fn most_charges(&self, sets: impl Iterator<Item = u32>) -> usize {
        sets.map(|set| self.get(set).quotas.len()).max().unwrap_or(0)
    }
}
