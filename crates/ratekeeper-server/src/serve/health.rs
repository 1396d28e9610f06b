//! Whether requests should come here, and why not.

mod slow;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratekeeper::policy::{ServiceStatus, SourceStatus};
use ratekeeper::{BreakerState, Charge, Check, Key, Name, Quota, StoreError};
use serde_json::{Value as Json, json};

use self::slow::Slow;
use super::api::{Answer, Api};
use super::listener::Stop;
use super::{metrics, outage};

/// Services that are named in a status; there may be thousands.
const NAMED_MAX: usize = 100;
/// How often the store is asked when nobody else asks it, so that the log tells of it.
const WATCH_EVERY: Duration = Duration::from_secs(10);
/// The same for the first time: by then it should be connected.
const WATCH_FIRST: Duration = Duration::from_secs(1);
/// What the store is asked to charge: there is always room, so it is always written,
/// and soon nothing is left of it.
const PROBE_QUOTA: &str = "1000000000/s fixed_window";

/// Whether the store took the last charge that was asked of it to see whether it would.
#[derive(Debug, Default)]
pub(crate) struct StoreWatch {
    refuses: AtomicBool,
}

impl StoreWatch {
    /// A line when it begins to refuse and one when that is over, not one every time.
    fn note(&self, answer: Result<(), &StoreError>) {
        match (self.refuses.swap(answer.is_err(), Ordering::Relaxed), answer) {
            (false, Err(error)) => {
                let reason = error.to_string();
                tracing::warn!(?reason, "not ready: the store takes no charges, failure policies decide");
            }
            (true, Ok(())) => tracing::info!("the store takes charges again"),
            _ => {}
        }
    }
}

/// Asks the store now and then, until the server finishes; it has `deadline` to answer.
pub(super) async fn watch(api: Arc<Api>, stop: Stop, deadline: Option<Duration>) {
    let (mut slow, mut wait) = (Slow::default(), WATCH_FIRST);
    while tokio::time::timeout(wait, stop.finishing().wait()).await.is_err() {
        let begun = Instant::now();
        let answer = ask_the_store(&api).await;
        if let Some(deadline) = deadline {
            slow.note(deadline, begun.elapsed(), answer.err().map(|error| error.kind()));
        }
        wait = WATCH_EVERY;
    }
}

/// The answer to `/readyz`.
pub(super) async fn ready(api: &Api, is_stopping: bool) -> Answer {
    let (is_ready, report) = report(api, is_stopping).await;
    Answer { status: if is_ready { 200 } else { 503 }, ..Answer::json(&report) }
}

/// The answer to `/metrics`.
pub(super) async fn metrics(api: &Api, is_stopping: bool) -> Answer {
    let is_ready = is_well(api).await && !is_stopping;
    Answer::of(metrics::CONTENT_TYPE, metrics::text(metrics::families(api, is_ready)))
}

/// What `/readyz` would say, in a word.
pub(super) async fn is_well(api: &Api) -> bool {
    ask_the_store(api).await.is_ok() && has_policy(&api.limiter().policies().status())
}

fn has_policy(services: &[ServiceStatus]) -> bool {
    services.iter().any(|service| service.in_force)
}

/// Asks the store, and tells all there is to tell.
async fn report(api: &Api, is_stopping: bool) -> (bool, Json) {
    let limiter = api.limiter();
    let (services, sources) = (limiter.policies().status(), limiter.policies().sources_status());
    let store = ask_the_store(api).await;
    let is_ready = !is_stopping && store.is_ok() && has_policy(&services);
    let failure = store.as_ref().err().map(|error| outage::reason(error.kind()));
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
        "store": { "answers": store.is_ok(), "breaker": breaker, "failure": failure },
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

/// Whether the store can do what it is there for: a store that only reads, or has no
/// memory left, answers every question and takes no charge. So a charge is what it is asked.
/// One in memory may have room for this charge and not for the ids or larger checks of others.
async fn ask_the_store(api: &Api) -> Result<(), StoreError> {
    let answer = async {
        let quota: Quota = PROBE_QUOTA.parse()?;
        let charge = Charge::new(Key::new(Name::new("/ready")?, "ready")?, &quota);
        api.limiter().store().check(&Check::one(&charge)).await
    };
    let full = || StoreError::capacity("had no room for a check or an id within the last minute");
    let answer: Result<(), StoreError> = match answer.await {
        Ok(_) if api.limiter().store().health().is_full => Err(full()),
        answer => answer.map(drop),
    };
    api.store_watch.note(answer.as_ref().copied());
    answer
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
