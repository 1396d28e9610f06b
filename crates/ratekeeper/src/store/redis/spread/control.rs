//! Switches over several servers: each has them all.

use std::sync::{Arc, PoisonError, RwLock};

use super::{Spread, SpreadStore, all};
use crate::control::{Control, Switch, Switches};
use crate::store::{StoreError, StoreFuture};

/// The switches of all servers as one, kept for as long as none of them changes.
#[derive(Default)]
pub(super) struct Merged(RwLock<(Vec<Arc<Switches>>, Arc<Switches>)>);

impl Merged {
    /// Of `parts`, the first comes first where two have a switch of the same name.
    fn of(&self, parts: Vec<Arc<Switches>>) -> Arc<Switches> {
        let is_same = |known: &[Arc<Switches>]| {
            known.len() == parts.len()
                && known.iter().zip(&parts).all(|(known, part)| Arc::ptr_eq(known, part))
        };
        {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if is_same(&known.0) {
                return Arc::clone(&known.1);
            }
        }
        let merged = Arc::new(merged(parts.iter().map(|part| &**part)));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (parts, Arc::clone(&merged));
        merged
    }
}

fn merged<'s>(parts: impl DoubleEndedIterator<Item = &'s Switches>) -> Switches {
    let switches = parts.rev().flat_map(Switches::iter);
    switches.map(|(rule, switch)| (rule.to_owned(), *switch)).collect()
}

impl Spread {
    /// On all servers, so that one that is away hides none. Says on which it is not.
    async fn set_switch(&self, rule: &str, switch: Switch) -> Result<(), StoreError> {
        let set = all(self.servers.iter().map(|server| async move {
            server.store.set_switch(rule, switch).await.map_err(|error| server.named(error))
        }));
        self.everywhere(set.await).map(|_| ())
    }

    async fn clear_switch(&self, rule: &str) -> Result<bool, StoreError> {
        let cleared = all(self.servers.iter().map(|server| async move {
            server.store.clear_switch(rule).await.map_err(|error| server.named(error))
        }));
        Ok(self.everywhere(cleared.await)?.contains(&true))
    }

    /// What was done on all servers; else where it was not.
    fn everywhere<T>(&self, outcomes: Vec<Result<T, StoreError>>) -> Result<Vec<T>, StoreError> {
        let (count, mut done, mut failed) = (outcomes.len(), Vec::new(), Vec::new());
        for outcome in outcomes {
            match outcome {
                Ok(outcome) => done.push(outcome),
                Err(error) => failed.push(error),
            }
        }
        let Some(kind) = failed.first().map(StoreError::kind) else { return Ok(done) };
        if failed.len() == 1 && count == 1 {
            return failed.pop().map_or(Ok(done), Err);
        }
        let reasons: Vec<String> = failed.iter().map(ToString::to_string).collect();
        let message = format!(
            "done on {} of {count} servers; do it again when all answer: {}",
            done.len(),
            reasons.join("; ")
        );
        Err(StoreError::new(kind, message))
    }

    async fn read_switches(&self) -> Result<Switches, StoreError> {
        let read = all(self.servers.iter().map(|server| server.store.read_switches()));
        let (mut known, mut failed) = (Vec::new(), None);
        for answer in read.await {
            match answer {
                Ok(switches) => known.push(switches),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if known.is_empty() => Err(error),
            _ => Ok(merged(known.iter())),
        }
    }
}

impl Control for SpreadStore {
    fn switches(&self) -> Option<Arc<Switches>> {
        let servers = self.inner.servers.iter();
        let mut parts: Vec<Arc<Switches>> = servers.filter_map(|server| server.store.switches()).collect();
        if parts.len() > 1 {
            return Some(self.inner.switches.of(parts));
        }
        parts.pop()
    }

    fn read_switches(&self) -> StoreFuture<'_, Switches> {
        StoreFuture::pending(self.inner.read_switches())
    }

    fn set_switch<'a>(&'a self, rule: &'a str, switch: Switch) -> StoreFuture<'a, ()> {
        StoreFuture::pending(self.inner.set_switch(rule, switch))
    }

    fn clear_switch<'a>(&'a self, rule: &'a str) -> StoreFuture<'a, bool> {
        StoreFuture::pending(self.inner.clear_switch(rule))
    }
}
