//! The switches that operators throw, for a store of one process.

use std::sync::Arc;

use super::MemoryStore;
use crate::control::{Control, SWITCHES_MAX, Switch, Switches, validated};
use crate::store::{StoreError, StoreFuture};

impl MemoryStore {
    fn set_switch_now(&self, rule: &str, switch: Switch) -> Result<(), StoreError> {
        let switch = validated(rule, switch)?;
        let _turn = self.operators();
        let over = self.make_room_for_switch(rule)?;
        // What counts is what lasts.
        if let Some(data) = &self.data {
            data.set_switch(rule, switch, &over)?;
        }
        self.control.update(|switches| switches.insert(rule.to_owned(), switch));
        Ok(())
    }

    /// Makes room for the switch of a rule: those that are over and had to go for it.
    fn make_room_for_switch(&self, rule: &str) -> Result<Vec<String>, StoreError> {
        let now = self.clock.now();
        self.control.update(|switches| {
            let mut over = Vec::new();
            if switches.len() >= SWITCHES_MAX && !switches.contains_key(rule) {
                switches.retain(|rule, switch| {
                    let is_live = switch.is_live(now);
                    over.extend((!is_live).then(|| rule.clone()));
                    is_live
                });
            }
            if switches.len() >= SWITCHES_MAX && !switches.contains_key(rule) {
                return Err(StoreError::capacity(format!("there are {SWITCHES_MAX} switches already")));
            }
            Ok(over)
        })
    }

    fn clear_switch_now(&self, rule: &str) -> Result<bool, StoreError> {
        let _turn = self.operators();
        if let Some(data) = &self.data {
            data.clear_switch(rule)?;
        }
        Ok(self.control.update(|switches| switches.remove(rule).is_some()))
    }
}

impl Control for MemoryStore {
    #[inline]
    fn switches(&self) -> Option<Arc<Switches>> {
        self.control.get()
    }

    fn read_switches(&self) -> StoreFuture<'_, Switches> {
        StoreFuture::ready(Ok(self.control.get().map(|switches| (*switches).clone()).unwrap_or_default()))
    }

    fn set_switch<'a>(&'a self, rule: &'a str, switch: Switch) -> StoreFuture<'a, ()> {
        StoreFuture::ready(self.set_switch_now(rule, switch))
    }

    fn clear_switch<'a>(&'a self, rule: &'a str) -> StoreFuture<'a, bool> {
        StoreFuture::ready(self.clear_switch_now(rule))
    }
}
