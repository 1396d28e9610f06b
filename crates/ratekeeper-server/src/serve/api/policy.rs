//! Calls about requests, which a policy decides on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratekeeper::policy::{Ask, Matched, ServiceLimiter};
use ratekeeper::{Decision, LIMIT_MAX, Name, Quota};

use super::call::{CheckCall, PolicyRequest, ToldDecision};
use super::charges::cost_out_of_range;
use super::facts::CallFacts;
use super::problem::Problem;
use super::refund::charged;
use super::value::{Few, Text};
use super::{Api, input};

/// What became of a request at once.
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub(super) enum Checked {
    Done(Decision),
    /// The rules that apply, and the id under which they are to decide once.
    Waits(Matched, Option<(String, Duration)>),
}

impl Api {
    /// Judges a request and charges it, or has what is left to do when the store has to be waited for.
    pub(super) fn check_at_once(&self, call: &CheckCall<'_>) -> Result<Checked, Problem> {
        let once = call.once.said()?.map(|(id, keep)| (id.to_owned(), keep));
        let matched = self.matched(&call.request)?;
        let mut decision = Decision::default();
        let answer = if once.is_some() { None } else { matched.try_check(&mut decision) };
        let Some(answer) = answer else { return Ok(Checked::Waits(matched, once)) };
        answer.map_err(input)?;
        self.note(&matched, &decision);
        Ok(Checked::Done(decision))
    }

    /// The same, with the wait. Nothing here waits on a store that needs no I/O.
    pub(super) async fn check_call(&self, call: &CheckCall<'_>) -> Result<Decision, Problem> {
        match self.check_at_once(call)? {
            Checked::Done(decision) => Ok(decision),
            Checked::Waits(matched, once) => self.check_waiting(&matched, once).await,
        }
    }

    /// The rest of a call that could not be answered at once.
    pub(super) async fn check_waiting(
        &self,
        matched: &Matched,
        once: Option<(String, Duration)>,
    ) -> Result<Decision, Problem> {
        let decision = match once {
            Some((id, keep)) => matched.check_once(&id, keep).await,
            None => matched.check().await,
        };
        let decision = decision.map_err(input)?;
        self.note(matched, &decision);
        Ok(decision)
    }

    pub(super) async fn peek_request(&self, call: &PolicyRequest<'_>) -> Result<Decision, Problem> {
        self.matched(call)?.peek().await.map_err(input)
    }

    pub(super) async fn reserve_request(
        &self,
        call: &PolicyRequest<'_>,
        id: &str,
        hold: Duration,
    ) -> Result<Decision, Problem> {
        let matched = self.matched(call)?;
        let decision = matched.reserve(id, hold).await.map_err(input)?;
        self.note(&matched, &decision);
        Ok(decision)
    }

    /// Gives back what was charged; says whether there was anything.
    pub(super) async fn refund_request(
        &self,
        call: &PolicyRequest<'_>,
        told: &ToldDecision<'_>,
        units: u32,
    ) -> Result<bool, Problem> {
        let (matched, has_policy) = {
            let (service, facts) = self.facts(call)?;
            (service.matched(&ask(call, &facts)), service.policy().is_some())
        };
        let Few(limits) = &told.limits;
        told.check_limits()?;
        let Some(origin) = told.counted_by()?.filter(|_| units > 0 && has_policy) else { return Ok(false) };
        let (found, given_back) = (AtomicBool::new(false), AtomicBool::new(false));
        let told = |name: Name, _: &Quota| {
            let limit = limits.iter().find(|limit| limit.name.as_str() == name.label())?;
            found.store(true, Ordering::Relaxed);
            given_back.fetch_or(limit.is_charged(), Ordering::Relaxed);
            charged(limit).ok().map(|charged| charged.under(name))
        };
        matched.refund_told(told, origin, units).await.map_err(Problem::store)?;
        if !found.into_inner() {
            return Err(Problem::wrong(
                "decision.limits",
                "what the decision on this request told of its limits",
            ));
        }
        Ok(given_back.into_inner())
    }

    pub(super) async fn reset_request(&self, call: &PolicyRequest<'_>) -> Result<usize, Problem> {
        self.matched(call)?.reset().await.map_err(Problem::store)
    }

    /// The rules that apply to what a call tells about. The call itself is not needed
    /// any more then, so that nothing of it is kept while a store is asked.
    fn matched(&self, call: &PolicyRequest<'_>) -> Result<Matched, Problem> {
        let (service, facts) = self.facts(call)?;
        Ok(service.matched(&ask(call, &facts)))
    }

    /// The limits that are asked, and what they are told. A service whose policy is gone is
    /// one that is not limited: whoever withdraws a policy must not stop those it was for.
    fn facts<'c>(&self, call: &'c PolicyRequest<'c>) -> Result<(ServiceLimiter, CallFacts<'c>), Problem> {
        // Whether or not a rule asks for it.
        if call.cost.is_some_and(|cost| cost > LIMIT_MAX.into()) {
            return Err(cost_out_of_range());
        }
        let service = match call.service.as_ref().map(Text::as_str) {
            Some(name) => {
                let known = self.limiter.known_service(name);
                known.ok_or_else(|| Problem::wrong("service", "one that has a policy"))?
            }
            None => self.limiter.only_service().ok_or_else(|| {
                Problem::wrong("service", "the name of a service that has a policy: there is not exactly one")
            })?,
        };
        let mut facts = CallFacts::new(call)?;
        if service.needs_of(&facts).body {
            facts.read_body()?;
        }
        Ok((service, facts))
    }

    /// Notes what became of a request.
    fn note(&self, matched: &Matched, decision: &Decision) {
        for rule in matched.rules() {
            let of_rule = decision.verdicts().iter().filter(|verdict| verdict.name().rule() == rule.rule);
            // Of several quotas, the one that had no room speaks for the rule.
            let verdict = of_rule.max_by_key(|verdict| verdict.retry_after());
            self.metrics.decided(&rule, decision, verdict);
            if !decision.is_allowed() && verdict.is_some_and(ratekeeper::Verdict::is_denied) {
                self.hot.denied(rule.rule, rule.subject);
            }
        }
    }
}

fn ask<'c>(call: &'c PolicyRequest<'c>, facts: &'c CallFacts<'c>) -> Ask<'c> {
    let ask = Ask::request(facts).cost(call.cost.unwrap_or(1));
    match &call.key {
        Some(key) => ask.with_key(key.as_str()),
        None => ask,
    }
}
