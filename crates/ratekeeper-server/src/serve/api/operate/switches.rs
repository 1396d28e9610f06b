//! Modes of rules and emergencies, for all servers of a store within a second.

use ratekeeper::{ALL_RULES, Emergency, Mode, StoreError, Switch, Timestamp, emergency_of, rule_of_switch};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::read;
use crate::serve::api::object::only_objects;
use crate::serve::api::problem::Problem;
use crate::serve::api::value::{Text, Whole};
use crate::serve::api::{Answer, Api, answered};

/// What a rule may be called in these calls.
const A_RULE: &str = "`service/rule`, `service/*` for all rules of a service, or `*` for all rules";
/// What an emergency can be.
const AN_EMERGENCY: &str = "lift (everything passes) or block (nothing passes)";

/// `/v1/modes/set`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct SetModeCall<'a> {
    #[serde(borrow)]
    rule: Text<'a>,
    #[serde(borrow, default)]
    mode: Option<Text<'a>>,
    #[serde(default)]
    enforce_percent: Option<Whole>,
    #[serde(borrow, default, rename = "for")]
    life: Option<Text<'a>>,
    #[serde(default)]
    until_us: Option<Whole>,
}

/// `/v1/emergencies/set`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct SetEmergencyCall<'a> {
    #[serde(borrow)]
    rule: Text<'a>,
    #[serde(borrow)]
    emergency: Text<'a>,
    #[serde(borrow, default, rename = "for")]
    life: Option<Text<'a>>,
    #[serde(default)]
    until_us: Option<Whole>,
}

/// `/v1/modes/clear` and `/v1/emergencies/clear`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct ClearCall<'a> {
    #[serde(borrow)]
    rule: Text<'a>,
}

only_objects!(SetModeCall, SetEmergencyCall, ClearCall);

impl Api {
    /// `GET /v1/switches`: modes and emergencies that operators have set. For operators.
    pub async fn switches(&self) -> Answer {
        let store = self.limiter.store();
        let switches = match store.control().read_switches().await {
            Ok(switches) => switches,
            Err(error) => return Problem::store(error).into(),
        };
        let now = store.now();
        let live = switches.iter().filter(|(_, switch)| switch.is_live(now));
        let mut live: Vec<_> = live.collect();
        live.sort_by_key(|(name, _)| *name);
        // Programs may have set an emergency as a part of the switch.
        let is_emergency = |switch: &Switch| switch.emergency != Emergency::Off;
        let told = |of_kind: fn(&Switch) -> bool| {
            let of_kind = live.iter().filter(move |(_, switch)| of_kind(switch));
            of_kind.map(|(name, switch)| shown(rule_of_switch(name).0, switch)).collect::<Vec<_>>()
        };
        let is_mode = |switch: &Switch| (switch.mode, switch.enforce_percent) != (None, None);
        Answer::json(&json!({ "modes": told(is_mode), "emergencies": told(is_emergency) }))
    }

    /// `POST /v1/modes/set`: switches a rule, a service or everything on, off, or to monitoring. For operators.
    pub async fn set_mode(&self, body: &[u8]) -> Answer {
        let set = async {
            let call: SetModeCall<'_> = read(body)?;
            let mode = call.mode.as_ref().map(|mode| mode.as_str().parse::<Mode>());
            let mode = mode.transpose().map_err(|_| Problem::wrong("mode", "on, monitor or off"))?;
            let enforce_percent = call.enforce_percent.map(percent).transpose()?;
            if (mode, enforce_percent) == (None, None) {
                return Err(Problem::wrong("mode", "mode or enforce_percent, or both"));
            }
            let until = self.end(call.life.as_ref(), call.until_us)?;
            let switch = Switch { mode, enforce_percent, until, ..Switch::default() };
            self.keep_emergency(call.rule.as_str()).await.map_err(Problem::store)?;
            self.put(call.rule.as_str(), call.rule.as_str(), switch).await
        };
        answered(set.await)
    }

    /// `POST /v1/emergencies/set`: lifts or blocks a rule, a service or everything, for a while. For operators.
    pub async fn set_emergency(&self, body: &[u8]) -> Answer {
        let set = async {
            let call: SetEmergencyCall<'_> = read(body)?;
            let emergency = match call.emergency.as_str() {
                "lift" => Emergency::Lift,
                "block" => Emergency::Block,
                _ => return Err(Problem::wrong("emergency", AN_EMERGENCY)),
            };
            // What is forgotten must end by itself.
            let until = self.end(call.life.as_ref(), call.until_us)?.ok_or_else(|| {
                Problem::wrong("for", "how long it holds, such as \"15min\": an emergency has an end")
            })?;
            let switch = Switch { emergency, until: Some(until), ..Switch::default() };
            self.put(call.rule.as_str(), &emergency_of(call.rule.as_str()), switch).await
        };
        answered(set.await)
    }

    /// An emergency that a program has set as a part of the switch gets its own place, so that a mode does not replace it.
    async fn keep_emergency(&self, rule: &str) -> Result<(), StoreError> {
        let control = self.limiter.store().control();
        let switches = control.read_switches().await?;
        let Some((_, switch)) = switches.iter().find(|(name, _)| *name == rule) else { return Ok(()) };
        if switch.emergency == Emergency::Off || !switch.is_live(self.limiter.store().now()) {
            return Ok(());
        }
        let emergency = Switch { mode: None, enforce_percent: None, ..*switch };
        control.set_switch(&emergency_of(rule), emergency).await
    }

    /// Takes an emergency out of a switch in which a program has set it; says whether there was one.
    async fn end_emergency_within(&self, rule: &str) -> Result<bool, StoreError> {
        let control = self.limiter.store().control();
        let switches = control.read_switches().await?;
        let Some((_, switch)) = switches.iter().find(|(name, _)| *name == rule) else { return Ok(false) };
        match switch {
            Switch { emergency: Emergency::Off, .. } => Ok(false),
            Switch { mode: None, enforce_percent: None, .. } => control.clear_switch(rule).await,
            switch => {
                control.set_switch(rule, Switch { emergency: Emergency::Off, ..*switch }).await?;
                Ok(true)
            }
        }
    }

    async fn put(&self, rule: &str, name: &str, switch: Switch) -> Result<Answer, Problem> {
        let rule = self.known_rule(rule)?;
        self.limiter.store().control().set_switch(name, switch).await.map_err(Problem::store)?;
        tracing::info!(rule, switch = %switch, "an operator set a switch");
        Ok(Answer::json(&shown(rule, &switch)))
    }

    /// A name that no rule has would be obeyed by nothing, and nobody would notice. A server knows the rules of its
    /// policies; services that it does not serve may have others.
    fn known_rule<'r>(&self, rule: &'r str) -> Result<&'r str, Problem> {
        let Some((service, own)) = rule.split_once('/') else {
            return if rule == ALL_RULES { Ok(rule) } else { Err(Problem::wrong("rule", A_RULE)) };
        };
        let policy = self.limiter.known_service(service).and_then(|service| service.policy());
        let is_known =
            own == ALL_RULES || policy.is_none_or(|policy| policy.rules().any(|known| known == own));
        if service.is_empty() || service == ALL_RULES || own.is_empty() || !is_known {
            return Err(Problem::wrong(
                "rule",
                format!("{A_RULE}; the policy of `{service}` has no such rule"),
            ));
        }
        Ok(rule)
    }

    /// `POST /v1/modes/clear`: back to what policies say. For operators.
    pub async fn clear_mode(&self, body: &[u8]) -> Answer {
        let cleared = async {
            let call: ClearCall<'_> = read(body)?;
            let rule = call.rule.as_str();
            self.keep_emergency(rule).await.map_err(Problem::store)?;
            let cleared = self.limiter.store().control().clear_switch(rule).await.map_err(Problem::store)?;
            Ok(told_cleared(rule, cleared))
        };
        answered(cleared.await)
    }

    /// `POST /v1/emergencies/clear`: ends an emergency before its time. For operators.
    pub async fn clear_emergency(&self, body: &[u8]) -> Answer {
        let cleared = async {
            let call: ClearCall<'_> = read(body)?;
            let rule = call.rule.as_str();
            let own = self.limiter.store().control().clear_switch(&emergency_of(rule)).await;
            let within = self.end_emergency_within(rule).await.map_err(Problem::store)?;
            Ok(told_cleared(rule, own.map_err(Problem::store)? || within))
        };
        answered(cleared.await)
    }
}

fn told_cleared(rule: &str, cleared: bool) -> Answer {
    tracing::info!(rule, cleared, "an operator cleared a switch");
    Answer::json(&json!({ "cleared": cleared }))
}

fn percent(Whole(percent): Whole) -> Result<u8, Problem> {
    let percent = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| Problem::wrong("enforce_percent", "0 to 100"))
}

fn shown(rule: &str, switch: &Switch) -> Json {
    let emergency = match switch.emergency {
        Emergency::Off => None,
        Emergency::Lift => Some("lift"),
        Emergency::Block => Some("block"),
    };
    json!({
        "rule": rule,
        "mode": switch.mode.map(Mode::as_str),
        "enforce_percent": switch.enforce_percent,
        "emergency": emergency,
        "until_us": switch.until.map(Timestamp::as_micros),
    })
}
