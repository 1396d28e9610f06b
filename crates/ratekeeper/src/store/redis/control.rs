//! Switches in a hash that every instance reads twice a second.
//!
//! Polled, not pushed: a message can be lost, and one small read every half
//! second costs a server nothing. While the server is away, the last switches
//! stand.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::redis::Cmd;
use tokio::time::Instant;

use super::{Inner, RedisStore};
use crate::control::{Control, SWITCHES_MAX, Switch, Switches, validated};
use crate::store::{BreakerState, StoreError, StoreFuture};

/// How often the switches are read; "everywhere within a second" holds with a
/// poll lost.
const POLL: Duration = Duration::from_millis(450);
const _: () = assert!(2 * POLL.as_millis() < 1_000);

/// Reads the switches until the store is gone.
pub(super) async fn follow(store: Weak<Inner>) {
    let mut complained = false;
    loop {
        {
            let Some(store) = store.upgrade() else { return };
            store.failures.settle();
            let since = store.control.changes();
            match store.read_switches().await {
                Ok((switches, wrong)) => {
                    if let Some(wrong) = wrong.as_ref().filter(|_| !complained) {
                        tracing::warn!(reason = wrong, "a switch in the store is not obeyed");
                    }
                    complained = wrong.is_some();
                    store.control.replace(since, switches);
                }
                // An outage is the breaker's to log.
                Err(error) if error.is_transient() || store.is_away() => {}
                Err(error) => {
                    if !complained {
                        tracing::warn!(%error, "the switches in the store cannot be read; those before stand");
                    }
                    complained = true;
                }
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The switches that can be read, and what is wrong with another, if it is.
fn read(found: BTreeMap<String, String>) -> (Switches, Option<String>) {
    let mut wrong = None;
    let switches = found.into_iter().take(SWITCHES_MAX).filter_map(|(rule, text)| {
        let read = text.parse::<Switch>().and_then(|switch| validated(&rule, switch));
        match read {
            Ok(switch) => Some((rule, switch)),
            Err(error) => {
                wrong = Some(format!("{rule}: {error}"));
                None
            }
        }
    });
    (switches.collect(), wrong)
}

impl Inner {
    fn is_away(&self) -> bool {
        self.route.health().breaker != BreakerState::Closed
    }

    async fn read_switches(&self) -> Result<(Switches, Option<String>), StoreError> {
        Ok(read(self.switches_at(self.end_of_call(), &self.layout.control()).await?))
    }

    /// By name, in an order that all instances have. Names that are no text are nobody's rule.
    async fn switches_at(&self, end: Instant, key: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let found: HashMap<Vec<u8>, Vec<u8>> =
            self.send_until(end, self.layout.part_of_name(key), Cmd::hgetall(key)).await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(found.into_iter().map(|(name, value)| (text(name), text(value))).collect())
    }

    async fn set_switch(&self, rule: &str, switch: Switch) -> Result<(), StoreError> {
        let switch = validated(rule, switch)?;
        let key = self.layout.control();
        let end = self.end_of_call();
        let count: usize = self.send_until(end, self.layout.part_of_name(&key), Cmd::hlen(&key)).await?;
        if count >= SWITCHES_MAX {
            self.make_room(end, &key, rule).await?;
        }
        let part = self.layout.part_of_name(&key);
        let _: usize = self.send_until(end, part, Cmd::hset(&key, rule, switch.to_string())).await?;
        self.control.update(|switches| switches.insert(rule.to_owned(), switch));
        Ok(())
    }

    /// Drops switches that are over, unless the one of `rule` exists: that can be changed all the same.
    async fn make_room(&self, end: Instant, key: &str, rule: &str) -> Result<(), StoreError> {
        let found = self.switches_at(end, key).await?;
        if found.contains_key(rule) {
            return Ok(());
        }
        let now = self.route.now();
        let is_over = |text: &String| text.parse::<Switch>().is_ok_and(|switch| !switch.is_live(now));
        let over: Vec<&String> =
            found.iter().filter(|(_, text)| is_over(text)).map(|(name, _)| name).collect();
        if over.is_empty() {
            return Err(StoreError::capacity(format!("there are {SWITCHES_MAX} switches already")));
        }
        let _: usize = self.send_until(end, self.layout.part_of_name(key), Cmd::hdel(key, over)).await?;
        Ok(())
    }

    async fn clear_switch(&self, rule: &str) -> Result<bool, StoreError> {
        let key = self.layout.control();
        let removed: usize = self.send(self.layout.part_of_name(&key), Cmd::hdel(&key, rule)).await?;
        self.control.update(|switches| switches.remove(rule));
        Ok(removed > 0)
    }
}

impl Control for RedisStore {
    fn switches(&self) -> Option<Arc<Switches>> {
        self.inner.control.get()
    }

    fn read_switches(&self) -> StoreFuture<'_, Switches> {
        StoreFuture::pending(async {
            let since = self.inner.control.changes();
            let switches = self.inner.read_switches().await?.0;
            // What was looked at is what decides from here on, not half a second later.
            self.inner.control.replace(since, switches.clone());
            Ok(switches)
        })
    }

    fn set_switch<'a>(&'a self, rule: &'a str, switch: Switch) -> StoreFuture<'a, ()> {
        StoreFuture::pending(self.inner.set_switch(rule, switch))
    }

    fn clear_switch<'a>(&'a self, rule: &'a str) -> StoreFuture<'a, bool> {
        StoreFuture::pending(self.inner.clear_switch(rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_that_cannot_be_read_leaves_the_others_alone() {
        let pairs = [("api", "mode=monitor"), ("other", "mode=sideways")];
        let found = pairs.map(|(rule, text)| (rule.to_owned(), text.to_owned())).into_iter().collect();
        let (switches, wrong) = read(found);
        assert_eq!(switches.iter().map(|(rule, _)| rule).collect::<Vec<_>>(), ["api"]);
        assert!(wrong.unwrap().starts_with("other: switch: got `mode=sideways`"));
    }
}
