//! The limits of a policy, each set once however many keys have it.

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_core::{InvalidInput, Level, Name, Quota};

use crate::engine::LimitSet;
use crate::policy::spec::Limits;

/// The index of the set without any limit.
pub(in crate::policy) const UNLIMITED: u32 = 0;

/// All sets of a policy, found by their number.
#[derive(Debug)]
pub(in crate::policy) struct LimitSets {
    sets: Vec<Arc<LimitSet>>,
    known: HashMap<(Level, Vec<(Name, Quota)>), u32>,
}

impl LimitSets {
    pub(super) fn new() -> Self {
        Self { sets: vec![Arc::default()], known: HashMap::new() }
    }

    #[inline]
    pub(in crate::policy) fn get(&self, index: u32) -> &Arc<LimitSet> {
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
        // A document has less values than a number has room for.
        let index = u32::try_from(self.sets.len()).unwrap_or(UNLIMITED);
        self.sets.push(Arc::new(LimitSet { quotas: quotas.clone().into(), level }));
        self.known.insert((level, quotas), index);
        Ok(index)
    }

    /// The most charges that one of these sets makes.
    pub(super) fn most_charges(&self, sets: impl Iterator<Item = u32>) -> usize {
        sets.map(|set| self.get(set).quotas.len()).max().unwrap_or(0)
    }
}
