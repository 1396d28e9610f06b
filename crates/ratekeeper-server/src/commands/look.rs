//! `ratekeeper inspect`, `counters`, `usage`, `explain`, `policies`, `top` and `audit`, which only look; and `reset`,
//! which forgets what was looked at.
//!
//! Each is a call of the HTTP API, sent to a server or answered in this process on the store itself, as those that
//! change something are.

mod body;
mod report;
mod top;
mod why;

use std::process::ExitCode;

use serde_json::{Value as Json, json};

use super::operate::Operation;
use super::operate::report::shown;
use crate::cli::look::{
    AuditOptions, CountersOptions, ExplainOptions, InspectOptions, LookOptions, PoliciesOptions,
    ResetOptions, UsageOptions,
};
pub(crate) use top::top;

/// A call that only looks, by the policy that is named for a store.
fn look<'o>(
    path: &'static str,
    body: Json,
    options: &'o LookOptions,
    words: fn(&Json) -> String,
    is_good: fn(&Json) -> bool,
) -> Operation<'o> {
    let policy = options.policy.as_deref();
    Operation { path, body: Some(body), target: &options.target, policy, words, is_good, question: None }
}

/// Whether there is something in any of these lists.
fn has_any(answer: &Json, lists: &[&str]) -> bool {
    lists.iter().any(|list| answer[list].as_array().is_some_and(|list| !list.is_empty()))
}

pub(crate) fn inspect(options: &InspectOptions) -> anyhow::Result<ExitCode> {
    let body = json!({ "key": options.key, "rule": options.rule, "service": options.service });
    let is_good = |answer: &Json| has_any(answer, &["rules", "stored"]);
    look("/v1/inspect", body, &options.look, report::inspected, is_good).run()
}

pub(crate) fn reset(options: &ResetOptions) -> anyhow::Result<ExitCode> {
    let of = &options.of;
    let body = json!({ "key": of.key, "rule": of.rule, "service": of.service });
    let is_good = |answer: &Json| answer["forgotten"].as_u64().is_some_and(|count| count > 0);
    let is_broad = of.rule.is_none() && !options.yes;
    let question =
        is_broad.then(|| format!("forget what {} has used under every rule?", shown(&json!(of.key))));
    let operation = look("/v1/counters/reset", body, &of.look, report::forgotten, is_good);
    Operation { question, ..operation }.run()
}

pub(crate) fn policies(options: &PoliciesOptions) -> anyhow::Result<ExitCode> {
    let body = json!({ "service": options.service });
    look("/v1/policies/get", body, &options.look, report::policy, |answer| has_any(answer, &["rules"])).run()
}

pub(crate) fn usage(options: &UsageOptions) -> anyhow::Result<ExitCode> {
    let body = json!({
        "organisation": options.organisation, "project": options.project, "plan": options.plan,
        "key": options.key, "service": options.service,
    });
    look("/v1/usage", body, &options.look, report::usage, |answer| has_any(answer, &["rules"])).run()
}

pub(crate) fn explain(options: &ExplainOptions) -> anyhow::Result<ExitCode> {
    let body = body::of(options)?;
    let is_good = |answer: &Json| answer["allowed"] == json!(true);
    look("/v1/explain/rules", body, &options.look, why::explained, is_good).run()
}

pub(crate) fn counters(options: &CountersOptions) -> anyhow::Result<ExitCode> {
    let operation = Operation {
        path: "/v1/counters/list",
        body: Some(json!({
            "service": options.service, "rule": options.rule, "key": options.key,
            "organisation": options.organisation, "project": options.project, "cursor": options.cursor,
            "count": options.count,
        })),
        target: &options.target,
        policy: None,
        words: report::counters,
        is_good: |answer| has_any(answer, &["counters"]),
        question: None,
    };
    operation.run()
}

pub(crate) fn audit(options: &AuditOptions) -> anyhow::Result<ExitCode> {
    let operation = Operation {
        path: "/v1/audit",
        body: Some(json!({ "by": options.by, "count": options.count, "skip": options.skip })),
        target: &options.target,
        policy: None,
        words: report::audited,
        is_good: |answer| has_any(answer, &["entries"]),
        question: None,
    };
    operation.run()
}
