//! What the first requests give away about how a service is set up.
//!
//! Mistakes that no document shows: a proxy in front that nobody trusts, one
//! address for everybody, rules about routes where nobody says which route it
//! is. Each is told once, and after some requests nobody looks any more.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ratekeeper::policy::{Facts, Policy, ServiceLimiter};

use crate::gate::OnMissingAddress;

/// How many requests are looked at.
const REQUESTS_MAX: u32 = 1_000;
/// The headers of proxies.
const PROXY_HEADERS: [&str; 3] = ["x-forwarded-for", "forwarded", "x-real-ip"];

#[derive(Debug, Default)]
pub(crate) struct Observations {
    seen: AtomicU32,
    first: OnceLock<IpAddr>,
    several: AtomicBool,
    routed: AtomicBool,
    told_untrusted: AtomicBool,
    told_nowhere: AtomicBool,
}

impl Observations {
    #[inline]
    pub(crate) fn look(&self, facts: &dyn Facts, service: &ServiceLimiter, missing: OnMissingAddress) {
        if self.seen.load(Ordering::Relaxed) < REQUESTS_MAX {
            self.look_closely(facts, service, missing);
        }
    }

    #[cold]
    fn look_closely(&self, facts: &dyn Facts, service: &ServiceLimiter, missing: OnMissingAddress) {
        let is_last = self.seen.fetch_add(1, Ordering::Relaxed) + 1 == REQUESTS_MAX;
        let Some(policy) = service.policy() else { return };
        if policy.needs().route {
            self.look_for_a_route(facts, is_last);
        }
        if policy.needs().client {
            self.look_for_a_client(facts, &policy, is_last, missing);
        }
    }

    fn look_for_a_route(&self, facts: &dyn Facts, is_last: bool) {
        if facts.route().is_some() {
            self.routed.store(true, Ordering::Relaxed);
        }
        if is_last && !self.routed.load(Ordering::Relaxed) {
            tracing::warn!(
                requests = REQUESTS_MAX,
                "rules ask for the route, but no request so far came with one: they never apply; \
                 put the layer behind the router, or the route into requests"
            );
        }
    }

    fn look_for_a_client(
        &self,
        facts: &dyn Facts,
        policy: &Policy,
        is_last: bool,
        missing: OnMissingAddress,
    ) {
        let Some(client) = policy.addresses().client(facts) else {
            if !self.told_nowhere.swap(true, Ordering::Relaxed) {
                let then = match missing {
                    OnMissingAddress::Refuse => "they are refused with 500",
                    OnMissingAddress::Pass => "nobody is limited by it",
                };
                tracing::warn!(
                    then,
                    "rules ask for the client's address, but requests come without one: \
                     axum passes it on with `into_make_service_with_connect_info::<SocketAddr>()`, \
                     other servers with the extension `Peer`"
                );
            }
            return;
        };
        let header = PROXY_HEADERS.into_iter().find(|header| facts.header(header).is_some());
        if let Some(header) = header
            && !policy.addresses().trusts_anybody()
            && !self.told_untrusted.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                header,
                "requests come through a proxy, but `trusted_proxies` names none: \
                 all clients count as the proxy's one address"
            );
        }
        let first = *self.first.get_or_init(|| client);
        if first != client {
            self.several.store(true, Ordering::Relaxed);
        }
        if is_last && !self.several.load(Ordering::Relaxed) {
            tracing::warn!(
                client = %first,
                requests = REQUESTS_MAX,
                "all requests so far come from one address: is there a proxy that `trusted_proxies` does not name?"
            );
        }
    }
}
