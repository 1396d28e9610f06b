//! Why a request or a key is limited: which rules limit it and which do not, what operators have set for them, and when
//! it passes again. Nothing is charged.

use futures_util::future::try_join_all;
use ratekeeper::policy::{NotApplied, Whose};
use ratekeeper::{
    Decision, Demand, Emergency, Enforcement, Level, Name, Origin, Outcome, Switches, Timestamp, Verdict,
    rule_of_switch,
};
use serde_json::{Value as Json, json};

use super::look::{Detail, TOGETHER_MAX};
use super::switches::shown;
use crate::serve::api::call::{PolicyRequest, Target, TargetCall};
use crate::serve::api::policy::ask;
use crate::serve::api::problem::Problem;
use crate::serve::api::value::Text;
use crate::serve::api::{Answer, Api, answered, read};

/// Emergencies that are followed from the end of one to the end of the next. There are at most six names under which a
/// rule and a key can have one.
const ENDS_MAX: usize = 16;

/// What is asked about: a demand for a request, or one for each rule that counts by a key; and the other rules.
struct Asked {
    demands: Vec<Demand<'static>>,
    others: Vec<(Name, NotApplied)>,
}

/// What one demand meets.
struct Met {
    decision: Decision,
    rules: Vec<Json>,
    /// When it passes; nothing if never.
    passes_at: Option<Timestamp>,
}

impl Api {
    /// `POST /v1/explain/rules`: which rules limit a request or a key, which do not and why, which quota decides, who set
    /// its limit, and what operators have switched. Takes the role read.
    pub async fn explain_rules(&self, body: &[u8]) -> Answer {
        let told = async {
            let call: TargetCall<'_> = read(body)?;
            let Target::Request(request) = call.target()? else {
                return Err(Problem::wrong(
                    "charges",
                    "a request or a key: charges have no rules; /v1/explain explains them",
                ));
            };
            // As the store has them now: whoever explains may ask a moment after another server was told.
            self.limiter.store().control().read_switches().await.map_err(Problem::store)?;
            let asked = self.asked_about(request)?;
            let mut met = Vec::with_capacity(asked.demands.len());
            for some in asked.demands.chunks(TOGETHER_MAX) {
                met.extend(try_join_all(some.iter().map(|demand| self.met_by(demand))).await?);
            }
            let mut others = self.told_others(&asked.others);
            self.tell_who_set(met.iter_mut().flat_map(|met| &mut met.rules).chain(&mut others)).await?;
            Ok(Answer::json(&self.explained(met, &others)))
        };
        answered(told.await)
    }

    /// What is read of the request is not kept while a store is asked.
    fn asked_about(&self, request: &PolicyRequest<'_>) -> Result<Asked, Problem> {
        let Some(key) = request.key_alone() else {
            let (service, facts) = self.facts(request)?;
            let ask = ask(request, &facts);
            return Ok(Asked { demands: vec![service.demand(&ask)], others: service.not_applied(&ask) });
        };
        let units = request.cost.map_or(Ok(1), |cost| cost.units("cost"))?;
        let service = self.service(request.service.as_ref().map(Text::as_str))?;
        let mut asked = Asked { demands: Vec::new(), others: Vec::new() };
        for (rule, demand) in service.by_rule(Whose::Key(key), units.into()) {
            match demand {
                Ok(demand) => asked.demands.push(demand),
                Err(why) => asked.others.push((rule, why)),
            }
        }
        Ok(asked)
    }

    async fn met_by(&self, demand: &Demand<'_>) -> Result<Met, Problem> {
        let decision = demand.strict().peek().await.map_err(Problem::store)?;
        let rules = self.told_rules(demand, &decision, Detail::Operator).await?;
        let passes_at = self.passes_at(demand, &decision).await?;
        Ok(Met { decision, rules, passes_at })
    }

    /// When the same request passes. A block has an end, and the counters under it are looked at as they are without
    /// it.
    async fn passes_at(
        &self,
        demand: &Demand<'_>,
        decision: &Decision,
    ) -> Result<Option<Timestamp>, Problem> {
        let switches = self.limiter.store().control().switches();
        let is_blocked = |verdict: &Verdict| verdict.is_denied() && verdict.level() == Level::Emergency;
        let is_blocked = decision.verdicts().iter().any(is_blocked);
        let Some(switches) = switches.filter(|_| is_blocked) else { return Ok(passes(decision)) };
        let mut at = decision.at();
        for _ in 0..ENDS_MAX {
            let Some(over) = unblocked(demand, decision, &switches, at) else { return Ok(None) };
            let then = |rule: Name, key: &str| emergency_at(&switches, rule, key, over);
            let later = demand.clone().in_emergencies(then).strict().peek().await;
            let Some(passes) = passes(&later.map_err(Problem::store)?) else { return Ok(None) };
            at = passes.max(over);
            // Another emergency may begin to count when one before it ends.
            let mut rules = demand.rules();
            if rules.all(|of| emergency_at(&switches, of.rule, of.subject, at) == then(of.rule, of.subject)) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// The rules that limit nothing here, why, and what operators have switched: one of them may be off.
    fn told_others(&self, others: &[(Name, NotApplied)]) -> Vec<Json> {
        let store = self.limiter.store();
        let (switches, now) = (store.control().switches(), store.now());
        let told = others.iter().map(|(rule, why)| {
            let behind = switches_behind(switches.as_deref(), rule.as_str(), None, now);
            json!({ "rule": rule.as_str(), "why": why.as_str(), "switches": behind })
        });
        told.collect()
    }

    fn explained(&self, met: Vec<Met>, others: &[Json]) -> Json {
        let (mut decision, mut rules) = (None::<Decision>, Vec::new());
        let mut passes_at = Some(Timestamp::from_micros(0));
        for one in met {
            rules.extend(one.rules);
            passes_at = passes_at.and_then(|before| Some(before.max(one.passes_at?)));
            decision = Some(match decision {
                Some(before) => before.joined(&one.decision),
                None => one.decision,
            });
        }
        let decision = decision.unwrap_or_else(|| {
            Decision::without_store(Outcome::Allow, Origin::Unlimited, self.limiter.store().now())
        });
        let at = decision.at();
        let passes_at = passes_at.map(|then| then.max(at).as_micros());
        let deciding = decision.verdicts().iter().filter(|verdict| verdict.is_denied());
        let deciding = deciding.max_by_key(|verdict| verdict.retry_after());
        json!({
            "allowed": decision.is_allowed(),
            "at_us": at.as_micros(),
            "passes_at_us": passes_at,
            "retry_after_us": passes_at.map(|then| then - at.as_micros()),
            "decided_by": deciding.map(|verdict| verdict.name().as_str()),
            "explanation": decision.explain(),
            "rules": rules,
            "not_applied": others,
        })
    }
}

/// When a request that was decided so passes, if nobody else asks.
fn passes(decision: &Decision) -> Option<Timestamp> {
    let wait = decision.retry_after().as_micros()?;
    Some(Timestamp::from_micros(decision.at().as_micros().saturating_add(wait)))
}

fn emergency_at(switches: &Switches, rule: Name, key: &str, at: Timestamp) -> Emergency {
    switches.emergency(rule.as_str(), Some(key), at).map_or(Emergency::Off, |(_, switch)| switch.emergency)
}

/// From when on no block denies this; nothing if one has no end. Blocks of rules that only watch deny nothing.
fn unblocked(
    demand: &Demand<'_>,
    decision: &Decision,
    switches: &Switches,
    mut at: Timestamp,
) -> Option<Timestamp> {
    let is_enforced = |verdict: &Verdict| verdict.enforcement() == Enforcement::Enforce;
    let enforced: Vec<Name> =
        decision.verdicts().iter().filter(|it| is_enforced(it)).map(|it| it.name().rule()).collect();
    for _ in 0..ENDS_MAX {
        let mut over = at;
        for rule in demand.rules().filter(|rule| enforced.contains(&rule.rule)) {
            over = over.max(blocked_until(switches, rule.rule.as_str(), rule.subject, at)?);
        }
        if over == at {
            return Some(at);
        }
        at = over;
    }
    None
}

/// From when on a rule, or this key of it, is in no block; nothing if one has no end. Under a block that ends may lie
/// another.
pub(super) fn blocked_until(
    switches: &Switches,
    rule: &str,
    key: &str,
    mut at: Timestamp,
) -> Option<Timestamp> {
    for _ in 0..ENDS_MAX {
        match switches.emergency(rule, Some(key), at) {
            Some((_, switch)) if switch.emergency == Emergency::Block => at = switch.until?,
            _ => return Some(at),
        }
    }
    None
}

/// What operators have set for a rule and this key of it.
pub(super) fn switches_behind(
    switches: Option<&Switches>,
    rule: &str,
    key: Option<&str>,
    at: Timestamp,
) -> Vec<Json> {
    let behind = switches.map(|switches| switches.behind(rule, key, at));
    let behind = behind.into_iter().flatten();
    behind.map(|(name, switch)| shown(rule_of_switch(name).0, &switch)).collect()
}
