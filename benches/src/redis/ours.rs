//! Our store on Redis.

use std::time::Duration;

use ratekeeper::{
    Algorithm, Charge, Charges, Check, Key, Name, Override, OverrideScope, Quota, RedisStore, Store,
};

use crate::Result;
use crate::redis::load::{Failure, PATIENCE, Peer};
use crate::redis::scenario::{Scenario, Setting, organisation, subject};

/// The store, and the quotas of a setting.
#[derive(Debug)]
pub struct Ours {
    store: RedisStore,
    setting: Setting,
    quotas: Vec<(Name, Quota)>,
    endpoint: String,
}

impl Ours {
    /// Connects, and sets the overrides the setting has.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn new(url: &str, setting: Setting) -> Result<Self> {
        let store = RedisStore::builder(url).deadline(PATIENCE).build()?;
        let (quotas, endpoint) = (quotas(setting)?, setting.endpoint());
        let ours = Self { store, setting, quotas, endpoint };
        if let Some(limit) = setting.override_limit() {
            for project in 0..setting.keys() {
                let [organisation, project] = [organisation(project), project].map(|id| id.to_string());
                let scope = OverrideScope::project(&ours.endpoint, &organisation, &project)?;
                ours.store.overrides().set(scope, Override::limit(limit.into())).await?;
            }
        }
        Ok(ours)
    }

    async fn decide(&self, check: &Check<'_>) -> Result<bool, Failure> {
        Ok(self.store.check(check).await?.is_allowed())
    }
}

/// The quotas of a setting under their names.
fn quotas(setting: Setting) -> Result<Vec<(Name, Quota)>> {
    let (rule, tiers) = (setting.rule()?, setting.tiers());
    let quota = |tier: &crate::redis::scenario::Tier| match setting.scenario {
        Scenario::OneQuota => Ok((rule, tier.bucket()?)),
        Scenario::FourTiers => Ok((Name::joined(rule, tier.name)?, tier.bucket()?)),
        Scenario::NoOverride | Scenario::ProjectOverride => {
            let window = Duration::from_secs(tier.seconds);
            Ok((rule, Quota::new(Algorithm::FixedWindow, tier.limit.into(), window)?))
        }
    };
    tiers.iter().map(quota).collect()
}

impl Peer for Ours {
    async fn check(&self, index: u32, cost: u32) -> Result<bool, Failure> {
        let [(name, quota), ..] = self.quotas.as_slice() else { return Err("no quota".into()) };
        match self.setting.scenario {
            Scenario::OneQuota => {
                let subject = subject(index);
                let charge = Charge::new(Key::new(*name, &subject)?, quota).cost(cost.into())?;
                self.decide(&Check::one(&charge)).await
            }
            Scenario::FourTiers => {
                let subject = subject(index);
                let mut charges = Charges::new();
                for (name, quota) in &self.quotas {
                    charges.push(Charge::new(Key::new(*name, &subject)?, quota).cost(cost.into())?)?;
                }
                self.decide(&charges.check()?).await
            }
            Scenario::NoOverride | Scenario::ProjectOverride => {
                let [organisation, project] = [organisation(index), index].map(|id| id.to_string());
                let scope = OverrideScope::project(&self.endpoint, &organisation, &project)?;
                let subject = format!("{organisation}:{project}");
                let charge = Charge::new(Key::new(*name, &subject)?, quota).cost(cost.into())?;
                self.decide(&Check::one(&charge.overridable(scope))).await
            }
        }
    }
}

/// How many checks are in a batch, from the head of its first argument: the instant, then the
/// number of items. See `script/contract.lua`.
#[must_use]
pub fn checks_in(batch: &[u8]) -> Option<usize> {
    let items = batch.get(8..10)?;
    Some(u16::from_le_bytes([items[0], items[1]]).into())
}
