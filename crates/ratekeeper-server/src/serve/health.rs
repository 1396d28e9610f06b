//! Whether requests should come here, and why not.

use ratekeeper::policy::{ServiceStatus, SourceStatus};
use ratekeeper::{BreakerState, Charge, Check, Key, Name, Quota};
use serde_json::{Value as Json, json};

use super::api::Api;
use super::outage;

/// Services that are named in a status; there may be thousands.
const NAMED_MAX: usize = 100;

/// What can be said without asking the store: it is not known to be away, and there
/// is a policy.
pub(super) fn is_well(api: &Api) -> bool {
    let limiter = api.limiter();
    limiter.store().health().breaker == BreakerState::Closed && has_policy(&limiter.policies().status())
}

fn has_policy(services: &[ServiceStatus]) -> bool {
    services.iter().any(|service| service.in_force)
}

/// Asks the store, and tells all there is to tell.
pub(super) async fn report(api: &Api, is_stopping: bool) -> (bool, Json) {
    let limiter = api.limiter();
    let (services, sources) = (limiter.policies().status(), limiter.policies().sources_status());
    let store = ask_the_store(api).await;
    let is_ready = !is_stopping && store.is_ok() && has_policy(&services);
    let breaker = match limiter.store().health().breaker {
        BreakerState::Closed => "closed",
        BreakerState::HalfOpen => "probing",
        BreakerState::Open => "open",
    };
    let refused: Vec<&str> =
        named(&services, |service| service.last_refusal.is_some()).chain(unowned(&sources)).collect();
    let report = json!({
        "ready": is_ready,
        "stopping": is_stopping,
        "store": { "answers": store.is_ok(), "breaker": breaker, "failure": store.err() },
        "policies": {
            "in_force": services.iter().filter(|service| service.in_force).count(),
            "refused": refused,
            "unreadable_sources": sources.iter().filter(|source| source.failure.is_some()).count(),
        },
    });
    (is_ready, report)
}

fn named<'s>(
    services: &'s [ServiceStatus],
    which: impl Fn(&ServiceStatus) -> bool + 's,
) -> impl Iterator<Item = &'s str> {
    services
        .iter()
        .filter(move |service| which(service))
        .map(|service| service.service.as_str())
        .take(NAMED_MAX)
}

/// Documents that were refused and did not say whose they are go by where they come from.
fn unowned(sources: &[SourceStatus]) -> impl Iterator<Item = &str> {
    let refused = sources.iter().filter(|source| source.last_refusal.is_some());
    refused.map(|source| source.source.as_str()).take(NAMED_MAX)
}

/// A question that changes nothing. What is answered does not matter, only that it is.
async fn ask_the_store(api: &Api) -> Result<(), String> {
    let answer = async {
        let quota: Quota = "1/s".parse()?;
        let charge = Charge::new(Key::new(Name::new("/ready")?, "ready")?, &quota);
        api.limiter().store().check(&Check::one(&charge).peek()).await
    };
    answer.await.map(drop).map_err(|error: ratekeeper::StoreError| outage::reason(error.kind()).to_owned())
}

/// Everything about policies, for operators.
pub(super) fn policies(api: &Api) -> Json {
    let policies = api.limiter().policies();
    let services: Vec<Json> = policies.status().iter().map(service).collect();
    let sources: Vec<Json> = policies
        .sources_status()
        .iter()
        .map(|source| {
            json!({
                "source": source.source,
                "failure": source.failure,
                "failures": source.failures,
                "refused": source.refused,
                "last_refusal": source.last_refusal,
            })
        })
        .collect();
    json!({ "services": services, "sources": sources })
}

fn service(status: &ServiceStatus) -> Json {
    let since = status.since.and_then(|since| since.duration_since(std::time::UNIX_EPOCH).ok());
    let rules: Vec<Json> = status
        .rules
        .iter()
        .map(|rule| {
            json!({
                "name": rule.name,
                "mode": format!("{:?}", rule.mode).to_lowercase(),
                "denied": rule.denied,
                "over_limit": rule.over_limit,
                "unresolved": rule.unresolved,
                "failed": rule.failed,
                "last_failure": rule.last_failure,
                "penalties": rule.penalties,
            })
        })
        .collect();
    json!({
        "service": status.service,
        "in_force": status.in_force,
        "source": status.source,
        "since_seconds": since.map(|since| since.as_secs()),
        "installed": status.installed,
        "refused": status.refused,
        "last_refusal": status.last_refusal,
        "warnings": status.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "rules": rules,
    })
}
