//! Our `Limiter::check_now` with one rule: what a rule costs on top of a store.

use std::sync::Arc;

use ratekeeper::{Limiter, Rule};

use crate::Result;
use crate::key::KeyText;
use crate::measure::{Contestant, Tally, Work};
use crate::ours;
use crate::scenario::Load;

/// A limiter with one rule, whose request is the key itself.
#[derive(Debug)]
struct OneRule(Limiter<str>);

impl Contestant for OneRule {
    fn run(&self, work: &Work<'_>) -> Tally {
        work.drive(|_, key| self.0.check_now(key).map(|decision| decision.is_allowed()))
    }
}

/// The limiter with the counters of all `keys`.
///
/// # Errors
/// If the store is too small, or its counters are not those of the rule.
pub fn contestant(load: Load, keys: u32) -> Result<Option<Box<dyn Contestant>>> {
    let store = Arc::new(ours::filled_store(load, keys)?);
    let (name, quota) = ours::one_quota(load)?;
    let rule = Rule::new(name.as_str(), |key: &str| Some(key.into())).quota(quota);
    let limiter = OneRule(Limiter::builder_on(store.clone()).rule(rule).build()?);
    // A rule under another name would count on counters of its own.
    let mut key = KeyText::new("user");
    key.set(0);
    limiter.0.check_now(key.text())?;
    ours::expect_counters(&store, keys.into())?;
    Ok(Some(Box::new(limiter)))
}
