//! A quota beside the rules of a policy, which whoever asks spells out.

use std::borrow::Cow;
use std::sync::Arc;

use ratekeeper_core::{Emergency, Enforcement, InvalidInput, Key, Level, Name, Quota};

use super::limiter::ServiceLimiter;
use crate::control::{Mode, Switched};
use crate::engine::{Asked, Demand, Held, LimitSet, Limits, OnOutage, Terms};

impl ServiceLimiter {
    /// Asks for `cost` units of a quota that no rule has, for `subject`, under a name that belongs to this service. Modes,
    /// ramps and emergencies that are set for the service, or for a rule of this name, hold for it; in an outage it
    /// lets pass. Names are kept for the life of the process, so they must not come from requests.
    ///
    /// # Errors
    /// If the name is none, or there are too many.
    pub fn demand_beside(
        &self,
        name: &str,
        subject: impl Into<String>,
        quota: Quota,
        cost: u64,
    ) -> Result<Demand<'static>, InvalidInput> {
        let (subject, rule) = (subject.into(), Name::within(self.name(), name)?);
        let engine = Held::Owned(Arc::clone(&self.engine));
        let switches = self.engine.store().control().switches();
        let now = self.engine.store().now();
        let switch = switches.as_ref().map(|all| all.of_rule(rule.as_str(), now)).unwrap_or_default();
        let outside = self.policy().and_then(|policy| policy.outside_mode);
        let service_mode = switch.service_mode.or(outside);
        let mode = Switched { service_mode, ..switch }.mode(None, Mode::On);
        if mode == Mode::Off {
            return Ok(Demand::new(engine, cost, []));
        }
        let is_blocked = switches.as_ref().is_some_and(|all| all.blocks_key(rule.as_str(), &subject, now));
        let within = |percent| Key::new(rule, &subject).is_ok_and(|key| key.is_within(percent));
        let is_enforced = mode == Mode::On && switch.enforce_percent.is_none_or(within);
        let set = LimitSet { quotas: [(rule, quota)].into(), level: Level::Custom };
        let asked = Asked {
            terms: Held::Owned(Arc::new(Terms::new(rule, OnOutage::Allow, 1))),
            limits: Limits::Set(Held::Owned(Arc::new(set))),
            plan: None,
            subject: Cow::Owned(subject),
            owner: None,
            cost,
            is_flat: false,
            enforcement: if is_enforced { Enforcement::Enforce } else { Enforcement::Shadow },
            emergency: if is_blocked { Emergency::Block } else { switch.emergency },
            index: 0,
        };
        Ok(Demand::new(engine, cost, [asked]))
    }
}
