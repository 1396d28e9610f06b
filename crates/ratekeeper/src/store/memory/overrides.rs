//! Overrides in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ratekeeper_core::{Charge, Override, OverrideScope, Timestamp};

use super::MemoryStore;
use super::fingerprint::{Fingerprint, Fingerprinter};
use crate::store::{Overrides, ScopedOverride, StoreError, StoreFuture};

/// Overrides a store holds at most.
pub(super) const OVERRIDES_MAX: usize = 100_000;

/// All overrides of a store.
pub(super) struct OverrideTable {
    fingerprinter: Fingerprinter,
    /// Whether there are any: checks of a store without overrides, which are
    /// most, need not look further.
    any: AtomicBool,
    entries: RwLock<HashMap<Fingerprint, Entry>>,
}

#[derive(Debug)]
struct Entry {
    endpoint: String,
    organisation: String,
    project: Option<String>,
    to: Override,
}

/// The overrides as they are while it is held.
pub(super) struct Snapshot<'a> {
    fingerprinter: &'a Fingerprinter,
    entries: RwLockReadGuard<'a, HashMap<Fingerprint, Entry>>,
}

impl Snapshot<'_> {
    pub(super) fn find(&self, scope: OverrideScope<'_>) -> Option<&Override> {
        self.entries.get(&self.fingerprinter.scope(scope)).map(|entry| &entry.to)
    }
}

impl OverrideTable {
    pub(super) fn new(fingerprinter: Fingerprinter) -> Self {
        Self { fingerprinter, any: AtomicBool::new(false), entries: RwLock::default() }
    }

    /// Whether a charge follows overrides and there are any.
    #[inline]
    pub(super) fn concern(&self, charge: &Charge<'_>) -> bool {
        charge.is_overridable() && self.any.load(Ordering::Acquire)
    }

    /// The overrides as they are now.
    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot { fingerprinter: &self.fingerprinter, entries: self.read() }
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Fingerprint, Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Fingerprint, Entry>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for an override: those that are over and had to go for it.
    fn make_room(&self, scope: OverrideScope<'_>, now: Timestamp) -> Result<Vec<ScopedOverride>, StoreError> {
        let fingerprint = self.fingerprinter.scope(scope);
        let mut entries = self.write();
        let is_full =
            |entries: &HashMap<_, _>| !entries.contains_key(&fingerprint) && entries.len() >= OVERRIDES_MAX;
        let mut over = Vec::new();
        if is_full(&entries) {
            entries.retain(|_, entry| {
                let is_live = entry.to.is_live(now);
                over.extend((!is_live).then(|| entry.scoped()));
                is_live
            });
        }
        if is_full(&entries) {
            return Err(StoreError::capacity(format!("there are {OVERRIDES_MAX} overrides already")));
        }
        Ok(over)
    }

    /// Adds an override for which there is room, or replaces the one there is.
    pub(super) fn put(&self, scoped: ScopedOverride) {
        let Ok(fingerprint) = scoped.scope().map(|scope| self.fingerprinter.scope(scope)) else { return };
        let ScopedOverride { endpoint, organisation, project, to, server: _ } = scoped;
        self.write().insert(fingerprint, Entry { endpoint, organisation, project, to });
        self.any.store(true, Ordering::Release);
    }

    /// Those of a project, or of an organisation itself.
    fn find_all(&self, organisation: &str, project: Option<&str>) -> Vec<ScopedOverride> {
        let entries = self.read();
        entries.values().filter(|entry| entry.is_of(organisation, project)).map(Entry::scoped).collect()
    }

    fn remove(&self, gone: &[ScopedOverride]) {
        let mut entries = self.write();
        for scope in gone.iter().filter_map(|scoped| scoped.scope().ok()) {
            entries.remove(&self.fingerprinter.scope(scope));
        }
        self.any.store(!entries.is_empty(), Ordering::Release);
    }
}

impl Entry {
    fn is_of(&self, organisation: &str, project: Option<&str>) -> bool {
        self.organisation == organisation && self.project.as_deref() == project
    }

    fn scoped(&self) -> ScopedOverride {
        ScopedOverride {
            endpoint: self.endpoint.clone(),
            organisation: self.organisation.clone(),
            project: self.project.clone(),
            to: self.to.clone(),
            server: None,
        }
    }
}

impl MemoryStore {
    fn set_override(&self, scope: OverrideScope<'_>, to: Override) -> Result<(), StoreError> {
        to.validate()?;
        let _turn = self.operators();
        let over = self.overrides.make_room(scope, self.clock.now())?;
        // What counts is what lasts.
        if let Some(data) = &self.data {
            data.set_override(scope, &to, &over)?;
        }
        self.overrides.put(ScopedOverride {
            endpoint: scope.endpoint().to_owned(),
            organisation: scope.organisation_id().to_owned(),
            project: scope.project_id().map(ToOwned::to_owned),
            to,
            server: None,
        });
        Ok(())
    }

    /// Deletes the overrides that `find` finds; how many of them counted.
    fn delete_overrides(
        &self,
        find: impl FnOnce(&OverrideTable) -> Vec<ScopedOverride>,
    ) -> Result<usize, StoreError> {
        let _turn = self.operators();
        let gone = find(&self.overrides);
        if gone.is_empty() {
            return Ok(0);
        }
        if let Some(data) = &self.data {
            data.delete_overrides(&gone)?;
        }
        self.overrides.remove(&gone);
        let now = self.clock.now();
        Ok(gone.iter().filter(|scoped| scoped.to.is_live(now)).count())
    }
}

impl Overrides for MemoryStore {
    fn set<'a>(&'a self, scope: OverrideScope<'a>, to: Override) -> StoreFuture<'a, ()> {
        StoreFuture::ready(self.set_override(scope, to))
    }

    fn get<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, Option<Override>> {
        let entries = self.overrides.read();
        let found = entries.get(&self.fingerprinter.scope(scope)).map(|entry| &entry.to);
        StoreFuture::ready(Ok(found.filter(|found| found.is_live(self.clock.now())).cloned()))
    }

    fn delete<'a>(&'a self, scope: OverrideScope<'a>) -> StoreFuture<'a, bool> {
        let deleted = self.delete_overrides(|table| {
            table.read().get(&table.fingerprinter.scope(scope)).map(Entry::scoped).into_iter().collect()
        });
        StoreFuture::ready(deleted.map(|deleted| deleted > 0))
    }

    fn list<'a>(
        &'a self,
        organisation: &'a str,
        project: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<(String, Override)>> {
        let now = self.clock.now();
        let entries = self.overrides.read();
        let own =
            entries.values().filter(|entry| entry.is_of(organisation, project) && entry.to.is_live(now));
        let mut list: Vec<_> = own.map(|entry| (entry.endpoint.clone(), entry.to.clone())).collect();
        list.sort_by(|left, right| left.0.cmp(&right.0));
        StoreFuture::ready(Ok(list))
    }

    fn all(&self) -> StoreFuture<'_, Vec<ScopedOverride>> {
        let now = self.clock.now();
        let entries = self.overrides.read();
        let live = entries.values().filter(|entry| entry.to.is_live(now));
        let mut all: Vec<_> = live.map(Entry::scoped).collect();
        all.sort_by(|left, right| left.by().cmp(&right.by()));
        StoreFuture::ready(Ok(all))
    }

    fn clear<'a>(&'a self, organisation: &'a str, project: Option<&'a str>) -> StoreFuture<'a, usize> {
        StoreFuture::ready(self.delete_overrides(|table| table.find_all(organisation, project)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organisations_do_not_see_each_others_overrides() {
        let store = MemoryStore::with_max_keys(1);
        for organisation in ["one", "two"] {
            let scope = OverrideScope::organisation("/a", organisation).unwrap();
            Overrides::set(&store, scope, Override::limit(5)).now().unwrap().unwrap();
        }
        let listed = |organisation| store.list(organisation, None).now().unwrap().unwrap().len();
        let cleared = |organisation| store.clear(organisation, None).now().unwrap().unwrap();
        assert_eq!((listed("one"), cleared("one")), (1, 1));
        assert_eq!((listed("one"), listed("two")), (0, 1));
        let all = store.all().now().unwrap().unwrap();
        let of =
            |found: &ScopedOverride| (found.endpoint.clone(), found.organisation.clone(), found.to.limit);
        assert_eq!(all.iter().map(of).collect::<Vec<_>>(), [("/a".to_owned(), "two".to_owned(), 5)]);
    }
    /// Whether there are any is looked at without a lock.
    #[test]
    fn the_last_override_may_be_deleted_while_others_ask() {
        let store = MemoryStore::with_max_keys(10);
        let scope = OverrideScope::project("/a", "one", "two").unwrap();
        let quota = "1000000000/s".parse().unwrap();
        let key = ratekeeper_core::Key::new(ratekeeper_core::Name::new("raced").unwrap(), "ann").unwrap();
        let charge = Charge::new(key, &quota).overridable(scope);
        std::thread::scope(|threads| {
            let changes = threads.spawn(|| {
                for _ in 0..50_000 {
                    Overrides::set(&store, scope, Override::limit(7)).now().unwrap().unwrap();
                    assert!(Overrides::delete(&store, scope).now().unwrap().unwrap());
                }
            });
            while !changes.is_finished() {
                store.decide(&ratekeeper_core::Check::one(&charge)).unwrap();
            }
            changes.join().unwrap();
        });
    }
}
