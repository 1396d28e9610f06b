//! Whether requests should come here, and why not.

mod slow;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper::policy::{ServiceStatus, SourceStatus};
use ratekeeper::{BreakerState, Charge, Check, Health, Key, Mode, Name, Quota, Store, StoreError};
use serde_json::{Value as Json, json};

use self::slow::Slow;
use super::api::{Answer, Api, history};
use super::listener::Stop;
use super::{metrics, outage};

/// Services or rules that are named in a status; there may be thousands.
const NAMED_MAX: usize = 100;
/// How often the store is asked when no request asks it. The store itself logs what it then refuses.
const WATCH_EVERY: Duration = Duration::from_secs(10);
/// The same for the first time: by then it should be connected.
const WATCH_FIRST: Duration = Duration::from_secs(1);
/// What the store is asked to charge: there is always room, so it is always written,
/// and soon nothing is left of it.
const PROBE_QUOTA: &str = "1000000000/s fixed_window";

/// Asks the store now and then, until the server finishes; it has `deadline` to answer.
pub(super) async fn watch(api: Arc<Api>, stop: Stop, deadline: Option<Duration>) {
    let (mut slow, mut wait) = (Slow::default(), WATCH_FIRST);
    while tokio::time::timeout(wait, stop.finishing().wait()).await.is_err() {
        let begun = Instant::now();
        let answer = ask_the_store(&api).await;
        if let Some(deadline) = deadline {
            slow.note(deadline, begun.elapsed(), answer.failure.map(|error| error.kind()));
        }
        wait = WATCH_EVERY;
    }
}

/// Whether requests should come here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    Ready,
    /// The store takes no charges, and some rules decide without it as they want to.
    Degraded,
    Unready,
}

impl Readiness {
    fn of(services: &[ServiceStatus], store: &StoreAnswer, is_stopping: bool) -> Self {
        let has_policy = services.iter().any(|service| service.in_force);
        match () {
            () if is_stopping || !has_policy => Self::Unready,
            () if store.takes_charges() => Self::Ready,
            // Limits hold where the others are.
            () if store.away.len() < store.places => Self::Degraded,
            () if denies_all(services) => Self::Unready,
            () => Self::Degraded,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Unready => "unready",
        }
    }
}

/// Whether every rule in force denies without the store: then others may as well be asked.
fn denies_all(services: &[ServiceStatus]) -> bool {
    let in_force = services.iter().filter(|service| service.in_force).flat_map(|service| &service.rules);
    let mut in_force = in_force.filter(|rule| rule.mode != Mode::Off).peekable();
    in_force.peek().is_some() && in_force.all(|rule| rule.denies_in_outage)
}

/// What metrics say of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wellness {
    /// What `/readyz` says.
    pub(super) is_ready: bool,
    /// What `/readyz/store` says.
    pub(super) takes_charges: bool,
    /// The servers that the store is on.
    pub(super) nodes: Nodes,
}

/// The servers or primaries that a store is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nodes {
    /// None for a store in memory.
    pub(super) all: usize,
    /// How many of them take charges.
    pub(super) taking: usize,
}

impl Wellness {
    pub(super) async fn of(api: &Api, is_stopping: bool) -> Self {
        let store = ask_the_store(api).await;
        let readiness = Readiness::of(&api.limiter().status(), &store, is_stopping);
        Self::told(api, readiness, &store)
    }

    fn told(api: &Api, readiness: Readiness, store: &StoreAnswer) -> Self {
        Self {
            is_ready: readiness != Readiness::Unready,
            takes_charges: store.takes_charges(),
            nodes: store.nodes(&api.limiter().store().health()),
        }
    }
}

/// The answer to `/readyz`.
pub(super) async fn ready(api: &Api, is_stopping: bool) -> Answer {
    let (readiness, _, report) = report(api, is_stopping).await;
    Answer { status: if readiness == Readiness::Unready { 503 } else { 200 }, ..Answer::json(&report) }
}

/// The answer to `/readyz/store`.
pub(super) async fn store_ready(api: &Api) -> Answer {
    let store = ask_the_store(api).await;
    let report = json!({ "ready": store.takes_charges(), "store": store_report(api, &store) });
    Answer { status: if store.takes_charges() { 200 } else { 503 }, ..Answer::json(&report) }
}

/// The answer to `/metrics`.
pub(super) async fn metrics(api: &Api, is_stopping: bool) -> Answer {
    let wellness = Wellness::of(api, is_stopping).await;
    Answer::of(metrics::CONTENT_TYPE, metrics::text(metrics::families(api, wellness)))
}

/// The word for what the breaker does.
pub(super) const fn breaker_word(breaker: BreakerState) -> &'static str {
    match breaker {
        BreakerState::Closed => "closed",
        BreakerState::HalfOpen => "probing",
        BreakerState::Open => "open",
    }
}

fn store_report(api: &Api, store: &StoreAnswer) -> Json {
    let failure = store.failure.as_ref().map(|error| outage::reason(error.kind()));
    let health = api.limiter().store().health();
    let breaker = breaker_word(health.breaker);
    let mut report = json!({ "answers": store.takes_charges(), "breaker": breaker, "failure": failure });
    // Of one server, `answers` says it all.
    let nodes = store.nodes(&health);
    if nodes.all > 1 {
        report["nodes"] = json!({ "all": nodes.all, "take_charges": nodes.taking });
    }
    // The servers of a cluster have no name of their own.
    if store.places > 1 {
        report["nodes"]["away"] = json!(store.away);
    }
    report
}

/// What `/readyz` and what metrics say, of the same moment.
pub(super) async fn of_now(api: &Api, is_stopping: bool) -> (Json, Wellness) {
    let (readiness, store, report) = report(api, is_stopping).await;
    (report, Wellness::told(api, readiness, &store))
}

/// Asks the store, and tells all there is to tell.
async fn report(api: &Api, is_stopping: bool) -> (Readiness, StoreAnswer, Json) {
    let limiter = api.limiter();
    let (services, sources) = (limiter.status(), limiter.policies().sources_status());
    let store = ask_the_store(api).await;
    let readiness = Readiness::of(&services, &store, is_stopping);
    let denying: Vec<String> = if store.takes_charges() { Vec::new() } else { denying(&services).collect() };
    let refused: Vec<&str> =
        named(&services, |service| service.last_refusal.is_some()).chain(unowned(&sources)).collect();
    let report = json!({
        "ready": readiness != Readiness::Unready,
        "status": readiness.word(),
        "stopping": is_stopping,
        "store": store_report(api, &store),
        "policies": {
            "denying": denying,
            "in_force": services.iter().filter(|service| service.in_force).count(),
            "refused": refused,
            "unreadable_sources": sources.iter().filter(|source| source.failure.is_some()).count(),
        },
    });
    (readiness, store, report)
}

/// The rules that deny without the store.
fn denying(services: &[ServiceStatus]) -> impl Iterator<Item = String> {
    let in_force = services.iter().filter(|service| service.in_force);
    let rules = in_force.flat_map(|service| service.rules.iter().map(move |rule| (service, rule)));
    let denying = rules.filter(|(_, rule)| rule.denies_in_outage);
    denying.map(|(service, rule)| format!("{}/{}", service.service, rule.name)).take(NAMED_MAX)
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

/// What the store said when it was asked to charge something.
struct StoreAnswer {
    /// Why it does not, or one of its servers.
    failure: Option<StoreError>,
    /// How many servers it is on, each of which was asked; 1 if it is in one place.
    places: usize,
    /// Those that do not.
    away: Vec<String>,
}

impl StoreAnswer {
    fn takes_charges(&self) -> bool {
        self.failure.is_none()
    }

    /// Several servers were asked each; of one server, and of the nodes of a cluster, its connections know.
    fn nodes(&self, health: &Health) -> Nodes {
        match self.places {
            2.. => Nodes { all: self.places, taking: self.places - self.away.len() },
            _ => Nodes { all: health.nodes, taking: health.nodes_up },
        }
    }
}

/// Whether the store can do what it is there for, wherever it is: a store that only reads, or has no
/// memory left, answers every question and takes no charge. So a charge is what it is asked.
async fn ask_the_store(api: &Api) -> StoreAnswer {
    let store = api.limiter().store();
    let mut places = store.places();
    if places.is_empty() {
        places.push(("", store));
    }
    let asked = places.iter().map(|(name, store)| async move { (*name, ask(*store).await.err()) });
    let mut answer = StoreAnswer { failure: None, places: places.len(), away: Vec::new() };
    for (name, failure) in futures_util::future::join_all(asked).await {
        if let Some(failure) = failure {
            answer.away.push(name.to_owned());
            answer.failure.get_or_insert(failure);
        }
    }
    answer
}

/// One in memory may have room for this charge and not for the ids or larger checks of others.
async fn ask(store: &dyn Store) -> Result<(), StoreError> {
    let answer = async {
        let quota: Quota = PROBE_QUOTA.parse()?;
        let charge = Charge::new(Key::new(Name::new("/ready")?, "ready")?, &quota);
        store.check(&Check::one(&charge)).await
    };
    let full = || StoreError::capacity("had no room for a check or an id within the last minute");
    match answer.await {
        Ok(_) if store.health().is_full => Err(full()),
        answer => answer.map(drop),
    }
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
                "beyond_budget": rule.beyond_budget,
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
        "history": history(status),
        "warnings": status.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "rules": rules,
    })
}
