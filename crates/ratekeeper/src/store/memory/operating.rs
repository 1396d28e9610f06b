//! What operators set and did: switches and the audit log, in this process.

use std::sync::Arc;

use super::MemoryStore;
use crate::audit::Audit;
use crate::control::{Control, SWITCHES_MAX, Switch, Switches, validated};
use crate::store::{StoreError, StoreFuture};

impl Control for MemoryStore {
    #[inline]
    fn switches(&self) -> Option<Arc<Switches>> {
        self.control.get()
    }

    fn read_switches(&self) -> StoreFuture<'_, Switches> {
        StoreFuture::ready(Ok(self.control.get().map(|switches| (*switches).clone()).unwrap_or_default()))
    }

    fn set_switch<'a>(&'a self, rule: &'a str, switch: Switch) -> StoreFuture<'a, ()> {
        let set = |switch| {
            self.control.update(|switches| {
                if switches.len() >= SWITCHES_MAX && !switches.contains_key(rule) {
                    let now = self.clock.now();
                    switches.retain(|_, switch| switch.is_live(now));
                }
                if switches.len() >= SWITCHES_MAX && !switches.contains_key(rule) {
                    return Err(StoreError::capacity(format!("there are {SWITCHES_MAX} switches already")));
                }
                switches.insert(rule.to_owned(), switch);
                Ok(())
            })
        };
        StoreFuture::ready(validated(rule, switch).map_err(Into::into).and_then(set))
    }

    fn clear_switch<'a>(&'a self, rule: &'a str) -> StoreFuture<'a, bool> {
        StoreFuture::ready(Ok(self.control.update(|switches| switches.remove(rule).is_some())))
    }
}

impl Audit for MemoryStore {
    fn append<'a>(&'a self, line: &'a str) -> StoreFuture<'a, ()> {
        StoreFuture::ready(self.audit.append(line).map_err(Into::into))
    }

    fn latest(&self, skip: usize, count: usize) -> StoreFuture<'_, Vec<String>> {
        StoreFuture::ready(Ok(self.audit.latest(skip, count)))
    }
}
