//! The switches that operators throw, for a store of one process.

use std::sync::Arc;

use super::MemoryStore;
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
