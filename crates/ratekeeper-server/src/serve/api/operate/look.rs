//! What a tenant or a key has used and has left. Nothing is charged.

use futures_util::future::try_join_all;
use ratekeeper::policy::{ServiceLimiter, Whose};
use ratekeeper::store::SERVERS_MAX;
use ratekeeper::{Decision, Demand, Level, StoredFilter, StoredPage, Switches, Timestamp, Verdict};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::audit::Change;
use super::counters::stored_keys;
use super::explain::{blocked_until, switches_behind};
use super::overrides::shown;
use super::read;
use crate::serve::admin::Caller;
use crate::serve::api::object::only_objects;
use crate::serve::api::problem::Problem;
use crate::serve::api::value::Text;
use crate::serve::api::{Answer, Api, answered};

/// Rules that are looked at together.
pub(super) const TOGETHER_MAX: usize = 64;
/// Stored counters that are shown beside those of rules.
const STORED_MAX: usize = 100;
/// Pages of the store that are looked through for them: one for each of as many servers as there can be.
const STORED_PAGES_MAX: usize = SERVERS_MAX;

/// `/v1/usage`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct UsageCall<'a> {
    #[serde(borrow, default)]
    service: Option<Text<'a>>,
    #[serde(borrow, default)]
    organisation: Option<Text<'a>>,
    #[serde(borrow, default)]
    project: Option<Text<'a>>,
    #[serde(borrow, default)]
    plan: Option<Text<'a>>,
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
}

/// `/v1/inspect`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct InspectCall<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow, default)]
    service: Option<Text<'a>>,
    #[serde(borrow, default)]
    rule: Option<Text<'a>>,
}

only_objects!(UsageCall, InspectCall);

/// How much is told of a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// What a tenant may see.
    Tenant,
    /// Overrides and switches, too, with their authors and reasons.
    Operator,
}

impl Api {
    /// `POST /v1/usage`: what a tenant or a key has used and has left under every rule. Takes the role usage, of its
    /// own tenant alone.
    pub async fn usage(&self, caller: &Caller, body: &[u8]) -> Answer {
        let told = async {
            let call: UsageCall<'_> = read(body)?;
            let text = |text: &Option<Text<'_>>| text.as_ref().map(|text| text.as_str().to_owned());
            let (mut organisation, mut project) = (text(&call.organisation), text(&call.project));
            if let Some(tenant) = &caller.tenant {
                let own = (Some(&tenant.organisation), tenant.project.as_ref());
                let is_own = organisation.as_ref().is_none_or(|asked| Some(asked) == own.0)
                    && project.as_ref().is_none_or(|asked| own.1.is_none_or(|own| asked == own));
                if !is_own || call.key.is_some() {
                    return Err(Problem::new(403, "the token is of one tenant; expected what it has used"));
                }
                (organisation, project) = (own.0.cloned(), own.1.cloned().or(project));
            }
            let whose = match (&call.key, &organisation, &project) {
                (Some(key), None, None) => Whose::Key(key.as_str()),
                (None, Some(organisation), project) => Whose::Tenant {
                    organisation,
                    project: project.as_deref(),
                    plan: call.plan.as_ref().map(Text::as_str),
                },
                _ => {
                    return Err(Problem::wrong(
                        "organisation",
                        "an organisation, with a project or without, or a key",
                    ));
                }
            };
            let service = self.service_named(call.service.as_ref())?;
            let (at, rules) = self.rules_of(&service, whose, Detail::Tenant).await?;
            Ok(Answer::json(&json!({
                "organisation": organisation, "project": project, "key": call.key.as_ref().map(Text::as_str),
                "at_us": at.as_micros(), "rules": rules,
            })))
        };
        answered(told.await)
    }

    /// `POST /v1/inspect`: the counters of a key. Takes the role read.
    pub async fn inspect(&self, body: &[u8]) -> Answer {
        let told = async {
            let call: InspectCall<'_> = read(body)?;
            let (key, rule) = (call.key.as_str(), call.rule.as_ref().map(Text::as_str));
            let service = match (&call.service, rule.and_then(|rule| rule.split_once('/'))) {
                (None, Some((service, _))) => self.limiter.known_service(service),
                (None, None) if self.limiter.policies().status().is_empty() => None,
                (named, _) => Some(self.service_named(named.as_ref())?),
            };
            let store = self.limiter.store();
            let (at, mut rules) = match &service {
                Some(service) => self.rules_of(service, Whose::Key(key), Detail::Operator).await?,
                None => (store.now(), Vec::new()),
            };
            rules.retain(|told| rule.is_none_or(|rule| told["rule"] == rule));
            self.tell_who_set(rules.iter_mut()).await?;
            let filter = StoredFilter::own(rule, Some(key));
            let page = self.stored_of(&filter).await?;
            let is_kept = page.is_some();
            let page: StoredPage = page.unwrap_or_default();
            Ok(Answer::json(&json!({
                "key": key, "at_us": at.as_micros(), "rules": rules,
                "stored": is_kept.then(|| stored_keys(&page)), "cursor": page.cursor.map(|at| at.to_string()),
            })))
        };
        answered(told.await)
    }

    /// `POST /v1/counters/reset`: forgets what a key has used under every rule. Takes the role operate.
    pub async fn reset_key(&self, caller: &Caller, body: &[u8]) -> Answer {
        let forgotten = async {
            let call: InspectCall<'_> = read(body)?;
            let (key, rule) = (call.key.as_str(), call.rule.as_ref().map(Text::as_str));
            let of_rule = rule.and_then(|rule| self.limiter.known_service(rule.split_once('/')?.0));
            let service = match (of_rule, &call.service) {
                (Some(service), None) => service,
                (_, named) => self.service_named(named.as_ref())?,
            };
            let mut demands = service.demands_of(Whose::Key(key));
            demands
                .retain(|demand| rule.is_none_or(|rule| demand.rules().any(|own| own.rule.as_str() == rule)));
            let about = demands.iter().flat_map(Demand::rules);
            let about: Vec<Json> =
                about.map(|rule| json!({ "rule": rule.rule.as_str(), "key": rule.subject })).collect();
            if about.is_empty() {
                return Err(Problem::wrong("key", "a key under which a rule counts, such as `user:42`"));
            }
            let change = Change::new(caller, "/v1/counters/reset", about.into());
            let reset = async {
                let mut forgotten = 0;
                for demand in &demands {
                    forgotten += demand.reset().await.map_err(Problem::store)?;
                }
                Ok(forgotten)
            };
            Ok(Answer::json(&json!({ "forgotten": self.audited(change, reset).await? })))
        };
        answered(forgotten.await)
    }

    /// The first that are stored, wherever they are: a page is of one of several servers, and may be empty.
    async fn stored_of(&self, filter: &StoredFilter) -> Result<Option<StoredPage>, Problem> {
        let (store, mut cursor) = (self.limiter.store(), 0);
        let mut found: Option<StoredPage> = None;
        for _ in 0..STORED_PAGES_MAX {
            let page = store.stored(filter, cursor, STORED_MAX).await.map_err(Problem::store)?;
            let Some(page) = page else { break };
            let all = found.get_or_insert_default();
            all.keys.extend(page.keys);
            all.cursor = page.cursor;
            match page.cursor {
                Some(next) if all.keys.len() < STORED_MAX => cursor = next,
                _ => break,
            }
        }
        Ok(found)
    }

    /// The service that a call names, or the only one.
    pub(super) fn service_named(&self, name: Option<&Text<'_>>) -> Result<ServiceLimiter, Problem> {
        let found = match name {
            Some(name) => self.limiter.known_service(name.as_str()),
            None => self.limiter.only_service(),
        };
        found.ok_or_else(|| Problem::wrong("service", "the name of a service that has a policy"))
    }

    /// What all rules say of a tenant or key, and when that was.
    async fn rules_of(
        &self,
        service: &ServiceLimiter,
        whose: Whose<'_>,
        detail: Detail,
    ) -> Result<(Timestamp, Vec<Json>), Problem> {
        let demands = service.demands_of(whose);
        let (mut at, mut told) = (self.limiter.store().now(), Vec::with_capacity(demands.len()));
        for some in demands.chunks(TOGETHER_MAX) {
            let decisions = try_join_all(some.iter().map(async |demand| {
                let decision = demand.strict().peek().await.map_err(Problem::store)?;
                let rules = self.told_rules(demand, &decision, detail).await?;
                Ok::<_, Problem>((decision.at(), rules))
            }));
            for (then, rules) in decisions.await? {
                at = then;
                told.extend(rules);
            }
        }
        Ok((at, told))
    }

    /// Each rule of a demand with its limits; to operators with its switches, of which nobody says yet who set them.
    pub(super) async fn told_rules(
        &self,
        demand: &Demand<'_>,
        decision: &Decision,
        detail: Detail,
    ) -> Result<Vec<Json>, Problem> {
        let switches = self.limiter.store().control().switches();
        let (switches, at) = (switches.as_deref(), decision.at());
        let mut told = Vec::new();
        for rule in demand.rules() {
            let mut limits = Vec::new();
            for verdict in decision.verdicts().iter().filter(|verdict| verdict.name().rule() == rule.rule) {
                let mut limit = told_limit(verdict, at);
                if verdict.level() == Level::Emergency && !verdict.is_admitted() {
                    limit["passes_at_us"] =
                        json!(end_of_block(switches, rule.rule.as_str(), rule.subject, at));
                }
                if detail == Detail::Operator {
                    limit["override"] = self.override_behind(demand, verdict).await?;
                }
                limits.push(limit);
            }
            let mut of_rule = json!({
                "rule": rule.rule.as_str(), "key": rule.subject, "plan": rule.plan, "limits": limits,
            });
            if detail == Detail::Operator {
                of_rule["switches"] =
                    switches_behind(switches, rule.rule.as_str(), Some(rule.subject), at).into();
            }
            told.push(of_rule);
        }
        Ok(told)
    }

    /// The override that set the limit, if one did.
    async fn override_behind(&self, demand: &Demand<'_>, verdict: &Verdict) -> Result<Json, Problem> {
        let scope = demand.override_scopes().find(|(name, _)| *name == verdict.name());
        let scope = match (verdict.level(), scope) {
            (Level::Project, Some((_, scope))) => scope,
            (Level::Organisation, Some((_, scope))) => scope.without_project(),
            _ => return Ok(Json::Null),
        };
        let found = self.limiter.store().overrides().get(scope).await.map_err(Problem::store)?;
        Ok(found.map_or(Json::Null, |found| shown(scope, &found)))
    }
}

/// When a rule that is blocked, or this key of it, is so no longer.
fn end_of_block(switches: Option<&Switches>, rule: &str, key: &str, at: Timestamp) -> Option<u64> {
    Some(blocked_until(switches?, rule, key, at)?.as_micros())
}

fn told_limit(verdict: &Verdict, at: Timestamp) -> Json {
    let (quota, remaining) = (verdict.quota(), verdict.remaining());
    let passes_at = verdict.retry_after().as_micros().map(|wait| at.as_micros().saturating_add(wait));
    json!({
        "name": verdict.name().as_str(),
        "quota": quota.to_string(),
        "level": verdict.level().as_str(),
        "enforced": verdict.enforcement() == ratekeeper::Enforcement::Enforce,
        "limit": quota.capacity(),
        "used": quota.capacity().saturating_sub(remaining),
        "remaining": remaining,
        "reset_after_us": u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX),
        "passes_at_us": passes_at,
    })
}
