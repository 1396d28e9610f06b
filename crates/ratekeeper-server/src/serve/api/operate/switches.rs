//! Modes of rules and emergencies, for all servers of a store within a second.

use std::borrow::Cow;

use ratekeeper::bounds::BLOCKED_KEY_BYTES_MAX;
use ratekeeper::{
    ALL_RULES, Emergency, Mode, StoreError, Switch, Timestamp, emergency_of, emergency_of_key, key_of_switch,
    rule_of_switch,
};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::audit::Change;
use super::read;
use crate::serve::admin::Caller;
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
    #[serde(borrow, default)]
    reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    author: Option<Text<'a>>,
}

/// `/v1/emergencies/set`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct SetEmergencyCall<'a> {
    #[serde(borrow)]
    rule: Text<'a>,
    #[serde(borrow)]
    emergency: Text<'a>,
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(borrow, default, rename = "for")]
    life: Option<Text<'a>>,
    #[serde(default)]
    until_us: Option<Whole>,
    #[serde(borrow, default)]
    reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    author: Option<Text<'a>>,
}

/// `/v1/modes/clear` and `/v1/emergencies/clear`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct ClearCall<'a> {
    #[serde(borrow)]
    rule: Text<'a>,
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
}

only_objects!(SetModeCall, SetEmergencyCall, ClearCall);

impl Api {
    /// `GET /v1/switches`: modes and emergencies that operators have set. For operators.
    pub async fn switches(&self) -> Answer {
        answered(self.all_switches().await.map(|switches| Answer::json(&switches)))
    }

    /// Modes and emergencies that are set.
    pub(in crate::serve) async fn all_switches(&self) -> Result<Json, Problem> {
        let store = self.limiter.store();
        let switches = store.control().read_switches().await.map_err(Problem::store)?;
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
        Ok(json!({ "modes": told(is_mode), "emergencies": told(is_emergency) }))
    }

    /// `POST /v1/modes/set`: switches a rule, a service or everything on, off, or to monitoring. For operators.
    pub async fn set_mode(&self, caller: &Caller, body: &[u8]) -> Answer {
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
            let rule = self.known_rule(call.rule.as_str())?;
            let change = Change::new(caller, "/v1/modes/set", json!({ "rule": rule }));
            let change = change.because(call.reason.as_ref(), call.author.as_ref());
            self.put(change, rule, rule, switch).await
        };
        answered(set.await)
    }

    /// `POST /v1/emergencies/set`: lifts or blocks a rule, a service or everything, for a while. For operators.
    pub async fn set_emergency(&self, caller: &Caller, body: &[u8]) -> Answer {
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
            let (rule, key) = (self.known_rule(call.rule.as_str())?, key_in(call.key.as_ref())?);
            if key.is_some() && emergency == Emergency::Lift {
                return Err(Problem::got("key", "it in a lift", "a block: one key has an override for more"));
            }
            let change = Change::new(caller, "/v1/emergencies/set", json!({ "rule": rule, "key": key }));
            let change = change.because(call.reason.as_ref(), call.author.as_ref());
            let named = about(rule, key);
            self.put(change, &named, &emergency_of(&named), switch).await
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

    async fn put(
        &self,
        change: Change<'_>,
        rule: &str,
        name: &str,
        switch: Switch,
    ) -> Result<Answer, Problem> {
        let (before, after, by) =
            (self.set_now(rule, name).await?, shown(rule, &switch), &change.caller.name);
        let change = Change { before, after: after.clone(), ..change };
        let control = self.limiter.store().control();
        let set = async {
            if name == rule {
                self.keep_emergency(rule).await.map_err(Problem::store)?;
            }
            control.set_switch(name, switch).await.map_err(Problem::store)
        };
        self.audited(change, set).await?;
        // Keys are in the audit log alone.
        let rule = key_of_switch(rule).0;
        tracing::info!(rule, switch = %switch, by, "an operator set a switch");
        Ok(Answer::json(&after))
    }

    /// What is set under a name, for the audit log.
    async fn set_now(&self, rule: &str, name: &str) -> Result<Json, Problem> {
        let switches = self.limiter.store().control().read_switches().await.map_err(Problem::store)?;
        let found = switches.iter().find(|(known, _)| *known == name);
        Ok(found.map_or(Json::Null, |(_, switch)| shown(rule, switch)))
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
    pub async fn clear_mode(&self, caller: &Caller, body: &[u8]) -> Answer {
        let cleared = async {
            let call: ClearCall<'_> = read(body)?;
            if call.key.is_some() {
                return Err(Problem::got("key", "it for a mode", "a rule: modes are not of keys"));
            }
            let rule = call.rule.as_str();
            let change = Change::new(caller, "/v1/modes/clear", json!({ "rule": rule }));
            let change = Change { before: self.set_now(rule, rule).await?, ..change };
            let clear = async {
                self.keep_emergency(rule).await.map_err(Problem::store)?;
                self.limiter.store().control().clear_switch(rule).await.map_err(Problem::store)
            };
            let cleared = self.audited(change, clear).await?;
            Ok(told_cleared(caller, rule, cleared))
        };
        answered(cleared.await)
    }

    /// `POST /v1/emergencies/clear`: ends an emergency before its time. For operators.
    pub async fn clear_emergency(&self, caller: &Caller, body: &[u8]) -> Answer {
        let cleared = async {
            let call: ClearCall<'_> = read(body)?;
            let (of_rule, key) = (call.rule.as_str(), key_in(call.key.as_ref())?);
            let named = about(of_rule, key);
            let rule = &*named;
            let change = Change::new(caller, "/v1/emergencies/clear", json!({ "rule": of_rule, "key": key }));
            let change = Change { before: self.set_now(rule, &emergency_of(rule)).await?, ..change };
            let clear = async {
                let own = self.limiter.store().control().clear_switch(&emergency_of(rule)).await;
                let within = self.end_emergency_within(rule).await.map_err(Problem::store)?;
                Ok(own.map_err(Problem::store)? || within)
            };
            let cleared = self.audited(change, clear).await?;
            Ok(told_cleared(caller, rule, cleared))
        };
        answered(cleared.await)
    }
}

fn told_cleared(caller: &Caller, rule: &str, cleared: bool) -> Answer {
    let rule = key_of_switch(rule).0;
    tracing::info!(rule, cleared, by = caller.name, "an operator cleared a switch");
    Answer::json(&json!({ "cleared": cleared }))
}

fn percent(Whole(percent): Whole) -> Result<u8, Problem> {
    let percent = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| Problem::wrong("enforce_percent", "0 to 100"))
}

/// What the name of a switch says of a rule, or of one key of it.
fn about<'r>(rule: &'r str, key: Option<&str>) -> Cow<'r, str> {
    let Some(key) = key else { return Cow::Borrowed(rule) };
    let name = emergency_of_key(rule, key);
    Cow::Owned(rule_of_switch(&name).0.to_owned())
}

/// A key that can be blocked.
fn key_in<'c>(key: Option<&'c Text<'_>>) -> Result<Option<&'c str>, Problem> {
    let key = key.map(Text::as_str);
    let is_key =
        |key: &str| (1..=BLOCKED_KEY_BYTES_MAX).contains(&key.len()) && !key.contains(char::is_control);
    if key.is_some_and(|key| !is_key(key)) {
        return Err(Problem::wrong("key", format!("1 to {BLOCKED_KEY_BYTES_MAX} printable bytes")));
    }
    Ok(key)
}

pub(super) fn shown(rule: &str, switch: &Switch) -> Json {
    let (rule, key) = key_of_switch(rule);
    let emergency = match switch.emergency {
        Emergency::Off => None,
        Emergency::Lift => Some("lift"),
        Emergency::Block => Some("block"),
    };
    json!({
        "rule": rule,
        "key": key,
        "mode": switch.mode.map(Mode::as_str),
        "enforce_percent": switch.enforce_percent,
        "emergency": emergency,
        "until_us": switch.until.map(Timestamp::as_micros),
    })
}
