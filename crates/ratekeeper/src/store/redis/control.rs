//! Switches in a hash that every instance reads twice a second.
//!
//! Polled, not pushed: a message can be lost, and one small read every half
//! second costs a server nothing. While the server is away, the last switches
//! stand.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::redis::Cmd;

use super::{Inner, RedisStore};
use crate::control::{Control, SWITCHES_MAX, Switch, Switches, validated};
use crate::store::{StoreError, StoreFuture};

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
            // An outage is the breaker's to tell of.
            if let Ok(found) =
                store.send::<HashMap<String, String>>(Cmd::hgetall(store.layout.control())).await
            {
                let (switches, wrong) = read(found);
                if let Some(wrong) = wrong.as_ref().filter(|_| !complained) {
                    tracing::warn!(reason = wrong, "a switch in the store is not obeyed");
                }
                complained = wrong.is_some();
                store.control.replace(switches);
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The switches that can be read, and what is wrong with another, if it is.
fn read(found: HashMap<String, String>) -> (Switches, Option<String>) {
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
    async fn set_switch(&self, rule: &str, switch: Switch) -> Result<(), StoreError> {
        let switch = validated(rule, switch)?;
        let key = self.layout.control();
        let count: usize = self.send(Cmd::hlen(&key)).await?;
        if count >= SWITCHES_MAX {
            return Err(StoreError::capacity(format!("there are {SWITCHES_MAX} switches already")));
        }
        let _: usize = self.send(Cmd::hset(&key, rule, switch.to_string())).await?;
        self.control.update(|switches| switches.insert(rule.to_owned(), switch));
        Ok(())
    }

    async fn clear_switch(&self, rule: &str) -> Result<bool, StoreError> {
        let removed: usize = self.send(Cmd::hdel(self.layout.control(), rule)).await?;
        self.control.update(|switches| switches.remove(rule));
        Ok(removed > 0)
    }
}

impl Control for RedisStore {
    fn switches(&self) -> Option<Arc<Switches>> {
        self.inner.control.get()
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
