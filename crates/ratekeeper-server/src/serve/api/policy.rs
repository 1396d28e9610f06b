//! Calls about requests, which a policy decides on.

use std::time::Duration;

use ratekeeper::policy::{Ask, ServiceLimiter};
use ratekeeper::{Decision, Demand};

use super::call::{CheckCall, PolicyRequest, ToldDecision};
use super::facts::CallFacts;
use super::problem::Problem;
use super::refund::{Refund, Refunded};
use super::told::Decided;
use super::value::{Text, Whole};
use super::{Api, input};
use crate::serve::admin::Caller;

impl Api {
    /// Judges a request and charges it. Nothing here waits on a store that needs no I/O.
    pub(super) async fn check_call(&self, call: &CheckCall<'_>) -> Result<Decided, Problem> {
        self.check_demand(&self.asked(call)?).await
    }

    /// The rules that apply, under an id if the call says one. The call is not needed any more then.
    pub(super) fn asked(&self, call: &CheckCall<'_>) -> Result<Demand<'static>, Problem> {
        under(self.demand(&call.request)?, call.once.said()?)
    }

    pub(super) async fn check_demand(&self, demand: &Demand<'_>) -> Result<Decided, Problem> {
        if !self.waits() {
            return self.check_now(demand);
        }
        let decision = demand.check().await.map_err(input)?;
        self.note(demand, &decision);
        let decided = Decided::new(decision, demand);
        self.receipts.renew(self.limiter.store()).await;
        Ok(decided)
    }

    /// The same on a store that needs no I/O.
    pub(super) fn check_now(&self, demand: &Demand<'_>) -> Result<Decided, Problem> {
        let mut decision = Decision::default();
        demand.now().check_into(&mut decision).map_err(input)?;
        self.note(demand, &decision);
        Ok(Decided::new(decision, demand))
    }

    /// What a request would meet; under an id that is known, what is remembered.
    pub(super) async fn peek_request(
        &self,
        call: &PolicyRequest<'_>,
        once: Option<(&str, Duration)>,
    ) -> Result<Decided, Problem> {
        let demand = under(self.demand(call)?, once)?;
        Ok(Decided::new(demand.peek().await.map_err(input)?, &demand))
    }

    pub(super) async fn reserve_request(
        &self,
        call: &PolicyRequest<'_>,
        id: &str,
        hold: Duration,
    ) -> Result<Decided, Problem> {
        let demand = self.demand(call)?;
        let decision = demand.reserve(id, hold).await.map_err(input)?;
        self.note(&demand, &decision);
        Ok(Decided::new(decision, &demand).without_receipts())
    }

    /// Gives back what was charged.
    pub(super) async fn refund_request<'c>(
        &self,
        call: &PolicyRequest<'_>,
        told: &'c ToldDecision<'_>,
        units: u32,
    ) -> Result<Refunded<'c>, Problem> {
        let demand = self.demand_in_any_mode(call)?;
        let is_known =
            |name: &str| !demand.is_limited() || demand.quotas().any(|known| known.label() == name);
        Refund::read(told, self.judge(&demand).await, is_known)?.give_back(&demand, units).await
    }

    pub(super) async fn reset_request(
        &self,
        caller: &Caller,
        call: &PolicyRequest<'_>,
    ) -> Result<usize, Problem> {
        let demand = self.demand_in_any_mode(call)?;
        let about = demand.rules().map(|rule| (rule.rule.as_str(), rule.subject)).collect();
        self.reset_audited(caller, about, &demand).await
    }

    /// The rules that apply to what a call tells about. The call itself is not needed
    /// any more then, so that nothing of it is kept while a store is asked.
    fn demand(&self, call: &PolicyRequest<'_>) -> Result<Demand<'static>, Problem> {
        let (service, facts) = self.facts(call)?;
        Ok(service.demand(&ask(call, &facts)))
    }

    /// The same whatever the modes of rules are: one that was switched off since has charged all the same.
    fn demand_in_any_mode(&self, call: &PolicyRequest<'_>) -> Result<Demand<'static>, Problem> {
        let (service, facts) = self.facts(call)?;
        Ok(service.demand(&ask(call, &facts).in_any_mode()))
    }

    /// The limits that are asked, and what they are told. A service whose policy is gone is
    /// one that is not limited: whoever withdraws a policy must not stop those it was for.
    pub(super) fn facts<'c>(
        &self,
        call: &'c PolicyRequest<'c>,
    ) -> Result<(ServiceLimiter, CallFacts<'c>), Problem> {
        // Whether or not a rule asks for it.
        call.cost.map_or(Ok(1), |cost| cost.units("cost"))?;
        let service = self.service(call.service.as_ref().map(Text::as_str))?;
        let mut facts = CallFacts::new(call)?;
        if service.needs_of(&facts).body {
            facts.read_body();
        }
        Ok((service, facts))
    }

    /// The limits of the service of that name, or of the only one.
    pub(super) fn service(&self, name: Option<&str>) -> Result<ServiceLimiter, Problem> {
        match name {
            Some(name) => {
                let known = self.limiter.known_service(name);
                known.ok_or_else(|| Problem::wrong("service", "one that has a policy"))
            }
            None => self.limiter.only_service().ok_or_else(|| {
                Problem::wrong("service", "the name of a service that has a policy: there is not exactly one")
            }),
        }
    }

    /// Notes what became of a request.
    pub(super) fn note(&self, demand: &Demand<'_>, decision: &Decision) {
        for rule in demand.rules() {
            let verdict = self.metrics.decided(&rule, decision);
            if !decision.is_allowed() && verdict.is_some_and(ratekeeper::Verdict::is_denied) {
                self.hot.denied(rule.rule.as_str(), rule.subject);
            }
        }
        for verdict in decision.verdicts() {
            self.note_headroom(decision, verdict, || {
                let rule = demand.rules().find(|rule| rule.rule == verdict.name().rule())?;
                Some((rule.rule.as_str().into(), rule.subject))
            });
        }
    }
}

/// The same demand, under the id that the call says. The call is not needed for it.
fn under(demand: Demand<'static>, once: Option<(&str, Duration)>) -> Result<Demand<'static>, Problem> {
    match once {
        Some((id, keep)) => demand.once(id.to_owned(), keep).map_err(input),
        None => Ok(demand),
    }
}

pub(super) fn ask<'c>(call: &'c PolicyRequest<'c>, facts: &'c CallFacts<'c>) -> Ask<'c> {
    let ask = Ask::request(facts).cost(call.cost.map_or(1, |Whole(cost)| cost));
    match &call.key {
        Some(key) => ask.with_key(key.as_str()),
        None => ask,
    }
}
