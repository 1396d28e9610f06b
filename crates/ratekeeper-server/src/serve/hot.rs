//! The keys that are limited most, in constant memory.
//!
//! Space-saving (Metwally et al., 2005): as many counters as there are places. A key
//! that has none takes over that of the key with the fewest denials, and its count,
//! which is then too high by at most that. Whoever was denied more often than that is
//! in the list.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// Keys that are remembered.
pub const HOT_KEYS_MAX: usize = 256;

/// The keys that are limited most.
#[derive(Debug, Default)]
pub(crate) struct HotKeys(Mutex<Sketch>);

#[derive(Debug, Default)]
struct Sketch {
    places: Vec<Place>,
    by_key: HashMap<(Box<str>, Box<str>), usize>,
}

#[derive(Debug)]
struct Place {
    key: (Box<str>, Box<str>),
    count: u64,
    error: u64,
}

/// A key in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HotKey {
    /// Whose rule or name it was denied by, with its service.
    pub(crate) rule: String,
    pub(crate) key: String,
    /// Denials, ...
    pub(crate) denied: u64,
    /// ... of which at most so many may be those of others.
    pub(crate) at_most_too_many: u64,
}

impl HotKeys {
    /// Counts a denial.
    #[cold]
    pub(crate) fn denied(&self, rule: &str, key: &str) {
        self.lock().count((rule.into(), key.into()));
    }

    /// The list, the most limited first.
    pub(crate) fn list(&self) -> Vec<HotKey> {
        let sketch = self.lock();
        let mut keys: Vec<HotKey> = sketch
            .places
            .iter()
            .map(|place| HotKey {
                rule: place.key.0.to_string(),
                key: place.key.1.to_string(),
                denied: place.count,
                at_most_too_many: place.error,
            })
            .collect();
        drop(sketch);
        keys.sort_by(|one, other| other.denied.cmp(&one.denied).then_with(|| one.key.cmp(&other.key)));
        keys
    }

    fn lock(&self) -> MutexGuard<'_, Sketch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sketch {
    fn count(&mut self, key: (Box<str>, Box<str>)) {
        if let Some(place) = self.by_key.get(&key) {
            self.places[*place].count += 1;
            return;
        }
        if self.places.len() < HOT_KEYS_MAX {
            self.by_key.insert(key.clone(), self.places.len());
            self.places.push(Place { key, count: 1, error: 0 });
            return;
        }
        let least = self.places.iter().enumerate().min_by_key(|(_, place)| place.count);
        let Some((index, count)) = least.map(|(index, place)| (index, place.count)) else { return };
        let old = std::mem::replace(
            &mut self.places[index],
            Place { key: key.clone(), count: count + 1, error: count },
        );
        self.by_key.remove(&old.key);
        self.by_key.insert(key, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_denied_most_is_found_among_any_number_of_others() {
        let (hot, rule) = (HotKeys::default(), "hot");
        for round in 0..100_u32 {
            for _ in 0..300 {
                hot.denied(rule, "eve");
            }
            for other in 0..1_000 {
                hot.denied(rule, &format!("passer-by:{round}:{other}"));
            }
        }
        let list = hot.list();
        assert_eq!(list.len(), HOT_KEYS_MAX);
        let eve = &list[0];
        assert_eq!(eve.key, "eve");
        assert!(eve.denied >= 30_000 && eve.denied - eve.at_most_too_many <= 30_000, "{eve:?}");
        let total: u64 = list.iter().map(|key| key.denied).sum();
        assert_eq!(total, 130_000, "every denial is in somebody's count");
    }
}
