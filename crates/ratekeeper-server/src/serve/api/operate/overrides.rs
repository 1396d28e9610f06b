//! Other limits for one project or one organisation.

use ratekeeper::policy::ServiceLimiter;
use ratekeeper::{
    Demand, Field, InvalidInput, Override, OverrideScope, StoreError, StoreErrorKind, Timestamp,
};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::audit::Change;
use super::{in_words, length, read};
use crate::serve::admin::Caller;
use crate::serve::api::object::only_objects;
use crate::serve::api::problem::Problem;
use crate::serve::api::value::{Text, Whole};
use crate::serve::api::{Answer, Api, answered};

/// `/v1/overrides/set`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct SetOverrideCall<'a> {
    #[serde(borrow)]
    endpoint: Text<'a>,
    #[serde(borrow)]
    organisation: Text<'a>,
    #[serde(borrow, default)]
    project: Option<Text<'a>>,
    limit: Whole,
    #[serde(borrow, default)]
    window: Option<Text<'a>>,
    #[serde(borrow, default, rename = "for")]
    life: Option<Text<'a>>,
    #[serde(default)]
    until_us: Option<Whole>,
    #[serde(borrow, default)]
    reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    author: Option<Text<'a>>,
    #[serde(default)]
    relief: Option<bool>,
}

/// `/v1/overrides/get` and `/v1/overrides/delete`: exactly one.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct OneOverrideCall<'a> {
    #[serde(borrow)]
    endpoint: Text<'a>,
    #[serde(borrow)]
    organisation: Text<'a>,
    #[serde(borrow, default)]
    project: Option<Text<'a>>,
}

/// `/v1/overrides/list`: all of a project, of the organisation itself, or of the store.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct ListOverridesCall<'a> {
    #[serde(borrow, default)]
    organisation: Option<Text<'a>>,
    #[serde(borrow, default)]
    project: Option<Text<'a>>,
}

/// `/v1/overrides/clear`: all of a project, or of the organisation itself.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct AllOverridesCall<'a> {
    #[serde(borrow)]
    organisation: Text<'a>,
    #[serde(borrow, default)]
    project: Option<Text<'a>>,
}

only_objects!(SetOverrideCall, OneOverrideCall, ListOverridesCall, AllOverridesCall);

impl Api {
    /// `POST /v1/overrides/set`: another limit for a project or an organisation. For operators.
    pub async fn set_override(&self, caller: &Caller, body: &[u8]) -> Answer {
        let set = async {
            let call: SetOverrideCall<'_> = read(body)?;
            let scope = scope(&call.endpoint, &call.organisation, call.project.as_ref())?;
            let to = self.override_of(&call, caller)?;
            to.validate().map_err(named)?;
            let relief = match call.relief {
                Some(true) => Some(self.relief(scope)?),
                Some(false) | None => None,
            };
            let change = Change::new(caller, "/v1/overrides/set", about(scope));
            let mut change = change.because(call.reason.as_ref(), call.author.as_ref());
            change.before = self.before(scope).await?;
            change.after = shown(scope, &to);
            // The policies say which endpoints an override can be about.
            let set = async { self.limiter.set_override(scope, to.clone()).await.map_err(of_override) };
            self.audited(change, set).await?;
            let mut answer = shown(scope, &to);
            if let Some(relief) = relief {
                answer["relieved"] = json!(relief.reset().await.map_err(Problem::store)?);
            }
            let (endpoint, organisation, project) =
                (scope.endpoint(), scope.organisation_id(), scope.project_id());
            tracing::info!(endpoint, organisation, project, limit = to.limit, author = %to.author, reason = %to.reason, by = caller.name, "an operator set an override");
            Ok(Answer::json(&answer))
        };
        answered(set.await)
    }

    fn override_of(&self, call: &SetOverrideCall<'_>, caller: &Caller) -> Result<Override, Problem> {
        let text = |text: Option<&Text<'_>>, otherwise: &str| {
            text.map_or_else(|| otherwise.to_owned(), |text| text.as_str().to_owned())
        };
        // Who has a token has a name.
        let author = if caller.has_token { caller.name.as_str() } else { "" };
        let window = call.window.as_ref().map(|window| length("window", window)).transpose()?;
        let expires_at = self.end(call.life.as_ref(), call.until_us)?;
        let (reason, author) = (text(call.reason.as_ref(), ""), text(call.author.as_ref(), author));
        Ok(Override { limit: call.limit.0, window, expires_at, reason, author })
    }

    /// What there is, for the audit log.
    async fn before(&self, scope: OverrideScope<'_>) -> Result<Json, Problem> {
        match self.limiter.store().overrides().get(scope).await {
            Ok(found) => Ok(found.map_or(Json::Null, |found| shown(scope, &found))),
            // What others spoilt can be replaced.
            Err(error) if error.kind() == StoreErrorKind::Unreadable => Ok(json!("unreadable")),
            Err(error) => Err(Problem::store(error)),
        }
    }

    /// What an override with relief resets. Without its policy nobody knows the key that a tenant counts under.
    fn relief(&self, scope: OverrideScope<'_>) -> Result<Demand<'static>, Problem> {
        let service = self.service_of(scope.endpoint()).or_else(|| self.limiter.only_service());
        let service = service.ok_or_else(|| {
            Problem::got(
                "relief",
                "it where the policy is not known",
                "a server that has the policy (--server), or /v1/reset with the request or key whose counters it is about",
            )
        })?;
        service.relief(scope).map_err(|error| Problem::of_input("relief", &error))
    }

    fn service_of(&self, endpoint: &str) -> Option<ServiceLimiter> {
        let (service, _) = endpoint.split_once('/')?;
        self.limiter.known_service(service)
    }

    /// `POST /v1/overrides/get`: the override of exactly one project or organisation. For operators.
    pub async fn get_override(&self, body: &[u8]) -> Answer {
        let found = async {
            let call: OneOverrideCall<'_> = read(body)?;
            let scope = scope(&call.endpoint, &call.organisation, call.project.as_ref())?;
            let found = self.limiter.store().overrides().get(scope).await.map_err(Problem::store)?;
            let found = found.ok_or_else(|| Problem::new(404, "there is no override of exactly this"))?;
            Ok(Answer::json(&shown(scope, &found)))
        };
        answered(found.await)
    }

    /// `POST /v1/overrides/list`: all overrides of a project, of an organisation itself, or of the store. For operators.
    pub async fn list_overrides(&self, body: &[u8]) -> Answer {
        let listed = async {
            let call: ListOverridesCall<'_> = read(body)?;
            let list = self.listed(&call).await?;
            Ok(Answer::json(&json!({ "overrides": list })))
        };
        answered(listed.await)
    }

    async fn listed(&self, call: &ListOverridesCall<'_>) -> Result<Vec<Json>, Problem> {
        let overrides = self.limiter.store().overrides();
        let project = call.project.as_ref().map(Text::as_str);
        let Some(organisation) = call.organisation.as_ref().map(Text::as_str) else {
            if project.is_some() {
                return Err(Problem::got(
                    "project",
                    "it without an organisation",
                    "an organisation beside it",
                ));
            }
            return self.all_overrides().await;
        };
        let list = overrides.list(organisation, project).await.map_err(Problem::store)?;
        let shown = list.iter().filter_map(|(endpoint, found)| {
            let scope = OverrideScope::organisation(endpoint, organisation);
            let scope =
                project.map_or(scope, |project| OverrideScope::project(endpoint, organisation, project));
            Some(shown(scope.ok()?, found))
        });
        Ok(shown.collect())
    }

    /// All overrides of the store.
    pub(in crate::serve) async fn all_overrides(&self) -> Result<Vec<Json>, Problem> {
        let all = self.limiter.store().overrides().all().await.map_err(Problem::store)?;
        Ok(all.iter().filter_map(|found| Some(shown(found.scope().ok()?, &found.to))).collect())
    }

    /// `POST /v1/overrides/delete`: back to the limits of the rule. For operators.
    pub async fn delete_override(&self, caller: &Caller, body: &[u8]) -> Answer {
        let deleted = async {
            let call: OneOverrideCall<'_> = read(body)?;
            let scope = scope(&call.endpoint, &call.organisation, call.project.as_ref())?;
            let before = self.before(scope).await?;
            let change = Change { before, ..Change::new(caller, "/v1/overrides/delete", about(scope)) };
            let delete =
                async { self.limiter.store().overrides().delete(scope).await.map_err(Problem::store) };
            let deleted = self.audited(change, delete).await?;
            let (endpoint, organisation, project) =
                (scope.endpoint(), scope.organisation_id(), scope.project_id());
            tracing::info!(
                endpoint,
                organisation,
                project,
                deleted,
                by = caller.name,
                "an operator deleted an override"
            );
            Ok(Answer::json(&json!({ "deleted": usize::from(deleted) })))
        };
        answered(deleted.await)
    }

    /// `POST /v1/overrides/clear`: the same for all that `list` lists. For operators.
    pub async fn clear_overrides(&self, caller: &Caller, body: &[u8]) -> Answer {
        let cleared = async {
            let call: AllOverridesCall<'_> = read(body)?;
            let (organisation, project) = call.owner();
            let overrides = self.limiter.store().overrides();
            let before = overrides.list(organisation, project).await.map_err(Problem::store)?;
            let before =
                before.iter().map(|(endpoint, of)| json!({ "endpoint": endpoint, "limit": of.limit }));
            let about = json!({ "organisation": organisation, "project": project });
            let change =
                Change { before: before.collect(), ..Change::new(caller, "/v1/overrides/clear", about) };
            let clear = async { overrides.clear(organisation, project).await.map_err(Problem::store) };
            let deleted = self.audited(change, clear).await?;
            tracing::info!(organisation, project, deleted, by = caller.name, "an operator cleared overrides");
            Ok(Answer::json(&json!({ "deleted": deleted })))
        };
        answered(cleared.await)
    }
}

impl AllOverridesCall<'_> {
    fn owner(&self) -> (&str, Option<&str>) {
        (self.organisation.as_str(), self.project.as_ref().map(Text::as_str))
    }
}

fn scope<'c>(
    endpoint: &'c Text<'_>,
    organisation: &'c Text<'_>,
    project: Option<&'c Text<'_>>,
) -> Result<OverrideScope<'c>, Problem> {
    let (endpoint, organisation) = (endpoint.as_str(), organisation.as_str());
    match project {
        Some(project) => OverrideScope::project(endpoint, organisation, project.as_str()),
        None => OverrideScope::organisation(endpoint, organisation),
    }
    .map_err(named)
}

/// What is wrong with an override, under the names that this call has for it; or with the store.
fn of_override(error: StoreError) -> Problem {
    if error.kind() != StoreErrorKind::Input {
        return Problem::store(error);
    }
    error.into_input().map_or_else(|| Problem::new(422, "the override cannot be set"), named)
}

#[allow(clippy::needless_pass_by_value, reason = "what `map_err` wants")]
fn named(error: InvalidInput) -> Problem {
    let field = match error.field {
        Field::Limit => "limit",
        Field::Window => "window",
        _ => "endpoint",
    };
    Problem::of_input(field, &error)
}

fn about(scope: OverrideScope<'_>) -> Json {
    json!({
        "endpoint": scope.endpoint(), "organisation": scope.organisation_id(), "project": scope.project_id(),
    })
}

pub(super) fn shown(scope: OverrideScope<'_>, of: &Override) -> Json {
    json!({
        "endpoint": scope.endpoint(),
        "organisation": scope.organisation_id(),
        "project": scope.project_id(),
        "limit": of.limit,
        "window": of.window.map(in_words),
        "until_us": of.expires_at.map(Timestamp::as_micros),
        "reason": of.reason,
        "author": of.author,
    })
}
