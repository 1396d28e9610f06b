//! What is charged and given back after a decision, on the same counters.

use ratekeeper_core::{Charge, Charges, Decision, Field, InvalidInput};

use super::outage::Share;
use super::{Demand, Scope};
use crate::store::Store;

impl Demand<'_> {
    /// What its quotas have left now. It asks for nothing, so every quota has room, and nothing changes.
    ///
    /// # Errors
    /// As [`Demand::check`].
    pub async fn standing(&self) -> Result<Decision, InvalidInput> {
        let mut demand = self.clone();
        demand.once = None;
        for asked in &mut demand.rules {
            asked.cost = 0;
        }
        demand.peek().await
    }

    /// The demand for `units` more of the rules that do not say themselves what a request costs; the others have counted
    /// the request, and count it once.
    ///
    /// # Errors
    /// If it has rules, and all of them say themselves what a request costs: nothing would be charged.
    pub fn further(&self, units: u64) -> Result<Self, InvalidInput> {
        let mut demand = self.clone();
        demand.once = None;
        demand.rules.retain(|asked| !asked.is_flat);
        if demand.rules.is_empty() && !self.rules.is_empty() {
            let (got, expected) =
                ("rules that all say themselves what a request costs", "one that takes the cost it is given");
            return Err(InvalidInput::new(Field::Cost, got, expected));
        }
        Ok(demand.cost(units))
    }

    /// Whether a decision may be one on this demand: it has charged nothing, or at least one of its counters is asked here.
    pub(super) fn is_about(&self, decision: &Decision) -> Result<(), InvalidInput> {
        let mut charged = decision.verdicts().iter().filter(|verdict| verdict.receipt().is_some()).peekable();
        if !decision.is_allowed() || charged.peek().is_none() {
            return Ok(());
        }
        let engine = &*self.engine;
        let share = Share::of(self);
        let (own, shared, local) =
            (self.charges(Scope::Process)?, self.charges(Scope::Shared)?, share.charges(self)?);
        let parts: [(&Charges<'_>, &dyn Store); 3] =
            [(&own, &*engine.process), (&shared, &*engine.store), (&local, &*engine.process)];
        let is_asked = |counter: u64| {
            let is_it = |store: &dyn Store, charge: &Charge<'_>| store.number_of(charge) == counter;
            let in_part = |(charges, store): &(&Charges<'_>, &dyn Store)| {
                charges.check().is_ok_and(|check| check.charges().iter().any(|charge| is_it(*store, charge)))
            };
            parts.iter().any(in_part)
        };
        if charged.any(|verdict| is_asked(verdict.counter())) {
            return Ok(());
        }
        let names: Vec<String> = self.quotas().map(|name| name.to_string()).collect();
        let got = match names.is_empty() {
            true => "a request that no rule applies to".to_owned(),
            false => format!("a request with other keys in `{}`", names.join("`, `")),
        };
        let expected = "the request that the decision is about, or the decision on this request (rules that are switched \
                        off do not apply: `in_any_mode`, `demand_in_any_mode`)";
        Err(InvalidInput::new(Field::Key, got, expected))
    }
}
