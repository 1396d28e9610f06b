//! What happens beside requests: looked at a few times a second, because a change is what two looks differ in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper::BreakerState;
use serde_json::json;

use super::Notices;
use crate::serve::api::Api;
use crate::serve::health::breaker_word;
use crate::serve::listener::Stop;

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Policies change seldom, and there may be thousands: every so many looks.
const POLICIES_EVERY: u32 = 4;

/// Looks until the server finishes.
pub(super) async fn watch(api: Arc<Api>, stop: Stop, quiet: Duration) {
    let Some(notices) = &api.notices else { return };
    let mut seen = Seen::of(&api);
    for look in 0_u32.. {
        seen.look(&api, notices, quiet);
        if look % POLICIES_EVERY == 0 {
            seen.look_at_policies(&api, notices);
        }
        if tokio::time::timeout(LOOK_EVERY, stop.finishing().wait()).await.is_ok() {
            return;
        }
    }
}

/// What was seen when it was last looked.
struct Seen {
    breaker: BreakerState,
    /// Requests that an outage let through.
    lifted: u64,
    lifting: Option<Lifting>,
    /// Refused documents, by service, or by source.
    refused: HashMap<String, u64>,
}

/// An outage that lets requests through.
struct Lifting {
    begun_us: u64,
    /// How many there were before it.
    before: u64,
    last: Instant,
}

impl Seen {
    fn of(api: &Api) -> Self {
        let mut seen = Self {
            breaker: BreakerState::Closed,
            lifted: api.limiter().outages().allowed,
            lifting: None,
            refused: HashMap::new(),
        };
        for (whose, (count, ..)) in refusals(api) {
            seen.refused.insert(whose, count);
        }
        seen
    }

    fn look(&mut self, api: &Api, notices: &Notices, quiet: Duration) {
        let store = api.limiter().store();
        let at_us = store.now().as_micros();
        let breaker = store.health().breaker;
        if breaker != self.breaker {
            let data = json!({ "from": breaker_word(self.breaker), "to": breaker_word(breaker) });
            notices.leave("breaker.changed", at_us, data);
            self.breaker = breaker;
        }
        let lifted = api.limiter().outages().allowed;
        let more = lifted > std::mem::replace(&mut self.lifted, lifted);
        match &mut self.lifting {
            None if more => {
                notices.leave("limits.lifted", at_us, json!({ "let_through": lifted }));
                let before = lifted;
                self.lifting = Some(Lifting { begun_us: at_us, before, last: Instant::now() });
            }
            Some(lifting) if more => lifting.last = Instant::now(),
            // Without requests, nothing is let through: it is over when the store answers again, too.
            Some(lifting) if breaker == BreakerState::Closed && lifting.last.elapsed() >= quiet => {
                let data = json!({
                    "lifted_for_us": at_us.saturating_sub(lifting.begun_us),
                    "let_through": lifted,
                    "since_lifted": lifted - lifting.before,
                });
                notices.leave("limits.restored", at_us, data);
                self.lifting = None;
            }
            _ => {}
        }
    }

    fn look_at_policies(&mut self, api: &Api, notices: &Notices) {
        let at_us = api.limiter().store().now().as_micros();
        for (whose, (count, service, source, refusal)) in refusals(api) {
            if count > self.refused.insert(whose, count).unwrap_or_default() {
                let data = json!({ "service": service, "source": source, "refusal": refusal });
                notices.leave("policy.refused", at_us, data);
            }
        }
    }
}

/// How many documents were refused, whose, where they came from and what was wrong with the last.
type Refusal = (u64, Option<String>, Option<String>, Option<String>);

/// All refusals, by service; those of documents that did not say whose they are by source.
fn refusals(api: &Api) -> impl Iterator<Item = (String, Refusal)> {
    let policies = api.limiter().policies();
    let services = policies.status().into_iter().map(|status| {
        let last = status.loads.iter().rev().find(|load| load.refusal.is_some());
        let source = last.map(|load| load.source.clone());
        let refusal = (status.refused, Some(status.service.clone()), source, status.last_refusal);
        (format!("service {}", status.service), refusal)
    });
    let sources = policies.sources_status().into_iter().map(|status| {
        let refusal = (status.refused, None, Some(status.source.clone()), status.last_refusal);
        (format!("source {}", status.source), refusal)
    });
    services.chain(sources)
}
