//! Counters as they are stored, and the policies in force.

use std::time::Duration;

use ratekeeper::policy::{RuleLimits, ServiceStatus};
use ratekeeper::{Name, Quota, StoredFilter, StoredPage};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::audit::within;
use super::{in_words, read};
use crate::serve::api::object::only_objects;
use crate::serve::api::problem::Problem;
use crate::serve::api::value::{Text, Whole};
use crate::serve::api::{Answer, Api, answered};

/// The most counters in one answer.
pub const COUNTERS_SHOWN_MAX: usize = 1_000;
/// Counters in an answer, unless the call says otherwise.
const COUNTERS_DEFAULT: usize = 100;
/// The most entries for exactly one key that are shown of each rule.
pub const CUSTOM_SHOWN_MAX: usize = 1_000;

/// `/v1/counters/list`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct CountersCall<'a> {
    #[serde(borrow, default)]
    service: Option<Text<'a>>,
    #[serde(borrow, default)]
    rule: Option<Text<'a>>,
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(borrow, default)]
    organisation: Option<Text<'a>>,
    #[serde(borrow, default)]
    project: Option<Text<'a>>,
    #[serde(borrow, default)]
    cursor: Option<Text<'a>>,
    #[serde(default)]
    count: Option<Whole>,
}

/// `/v1/policies/get`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct PolicyCall<'a> {
    #[serde(borrow, default)]
    service: Option<Text<'a>>,
    #[serde(default)]
    custom: Option<Whole>,
}

only_objects!(CountersCall, PolicyCall);

impl Api {
    /// `POST /v1/counters/list`: the counters of a service or a tenant, a page at a time. Takes the role read.
    pub async fn list_counters(&self, body: &[u8]) -> Answer {
        let listed = async {
            let call: CountersCall<'_> = read(body)?;
            let filter = call.filter()?;
            let count = within("count", call.count, COUNTERS_DEFAULT, COUNTERS_SHOWN_MAX)?;
            let cursor = call.cursor.as_ref().map_or(Ok(0), |cursor| {
                cursor.as_str().parse().map_err(|_| Problem::wrong("cursor", "one that an answer had"))
            })?;
            let page = self.limiter.store().stored(&filter, cursor, count).await.map_err(Problem::store)?;
            let told = match page {
                Some(page) => json!({
                    "counters": stored_keys(&page), "cursor": page.cursor.map(|at| at.to_string()),
                    "names_are_kept": true,
                }),
                // Keys that were limited lately are all that a store in memory has by name.
                None => json!({
                    "counters": self.hot_of(&filter), "cursor": null, "names_are_kept": false,
                }),
            };
            Ok(Answer::json(&told))
        };
        answered(listed.await)
    }

    fn hot_of(&self, filter: &StoredFilter) -> Vec<Json> {
        let hot = self.hot.list();
        let wanted = hot.iter().filter(|hot| filter.takes(&hot.rule, &hot.key));
        wanted
            .map(|hot| json!({ "rule": hot.rule, "key": hot.key, "denied": hot.denied }))
            .take(COUNTERS_SHOWN_MAX)
            .collect()
    }

    /// `POST /v1/policies/get`: the policy in force with its quotas, plans and custom limits, and its history. Takes the
    /// role read.
    pub async fn get_policy(&self, body: &[u8]) -> Answer {
        let told = || {
            let call: PolicyCall<'_> = read(body)?;
            let custom = within("custom", call.custom, CUSTOM_SHOWN_MAX, CUSTOM_SHOWN_MAX)?;
            let service = self.service_named(call.service.as_ref())?;
            let policy = service.policy().ok_or_else(|| Problem::new(404, "no policy is in force"))?;
            let status = self.limiter.policies().status_of(policy.service());
            let rules: Vec<Json> = policy.limits(custom).iter().map(rule).collect();
            Ok(Answer::json(&json!({
                "service": policy.service(),
                "source": status.as_ref().and_then(|status| status.source.clone()),
                "rules": rules,
                "history": status.as_ref().map(history),
            })))
        };
        answered(told())
    }
}

impl CountersCall<'_> {
    fn filter(&self) -> Result<StoredFilter, Problem> {
        let text = |text: &Option<Text<'_>>| text.as_ref().map(|text| text.as_str().to_owned());
        if let Some(organisation) = text(&self.organisation) {
            if self.service.is_some() || self.rule.is_some() || self.key.is_some() {
                let expected = "an organisation, of whose projects Application Kit's counters are listed, or a rule, \
                                a service or a key";
                return Err(Problem::wrong("organisation", expected));
            }
            return Ok(StoredFilter::kit(&organisation, text(&self.project).as_deref()));
        }
        if self.project.is_some() {
            return Err(Problem::wrong("project", "an organisation beside it"));
        }
        let rule = match (text(&self.service), text(&self.rule)) {
            (Some(_), Some(_)) => return Err(Problem::wrong("rule", "a service or a rule, not both")),
            (Some(service), None) => Some(format!("{service}/*")),
            (None, rule) => rule,
        };
        Ok(StoredFilter::own(rule.as_deref(), text(&self.key).as_deref()))
    }
}

pub(super) fn stored_keys(page: &StoredPage) -> Vec<Json> {
    let keys = page.keys.iter().map(|found| {
        let counters = found.counters.iter().map(|counter| {
            json!({
                "name": counter.quota, "algorithm": counter.algorithm.as_str(), "limit": counter.burst,
                "window": in_words(counter.window), "used": counter.burst.saturating_sub(counter.remaining),
                "remaining": counter.remaining,
                "reset_after_us": in_micros(counter.reset_after),
            })
        });
        let lists = found.lists.iter().map(|list| {
            json!({
                "algorithm": list.algorithm.as_str(), "window": in_words(list.window), "used": list.used,
                "ends_after_us": in_micros(list.ends_after),
            })
        });
        json!({
            "rule": found.rule, "quota": found.quota, "key": found.subject,
            "counters": counters.collect::<Vec<_>>(), "lists": lists.collect::<Vec<_>>(), "used": found.used,
            "server": found.server,
            "ends_after_us": found.ends_after.map(in_micros),
        })
    });
    keys.collect()
}

fn in_micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

pub(in crate::serve) fn rule(of: &RuleLimits) -> Json {
    let quotas = |quotas: &[(Name, Quota)]| -> Json {
        quotas
            .iter()
            .map(|(name, quota)| (name.as_str().to_owned(), json!(quota.to_string())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let named = |list: &[(String, Vec<(Name, Quota)>)]| -> Vec<Json> {
        list.iter().map(|(of, limits)| json!({ "of": of, "quotas": quotas(limits) })).collect()
    };
    json!({
        "rule": of.rule, "keys": of.keys, "quotas": quotas(&of.general), "plans": named(&of.plans),
        "custom": named(&of.custom), "custom_count": of.custom_count,
    })
}

/// What was put into force and refused lately, the newest first.
pub(in crate::serve) fn history(status: &ServiceStatus) -> Vec<Json> {
    let seconds = |at: std::time::SystemTime| {
        at.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    };
    let loads = status.loads.iter().rev().map(|load| {
        json!({
            "at_seconds": seconds(load.at), "source": load.source, "digest": load.digest,
            "in_force": load.refusal.is_none(), "refusal": load.refusal,
        })
    });
    loads.collect()
}
