//! Limits in one line: per address, per header, per identity, for all together.
//!
//! Each is a rule of a policy, so several of them behind one layer are one decision. The functions are in the
//! module of each framework (`axum::per_ip`, `tower::per_ip`, `actix::per_ip`), because each has a layer of its own.

use std::marker::PhantomData;
use std::sync::Arc;

use ratekeeper::policy::{KeySpec, Network, Policies, PolicyLimiter, PolicySpec, RuleSpec, Template};
use ratekeeper::{Field, InvalidInput, MemoryStore, Quota, Store};
use ratekeeper_http::{Denial, HttpOptions};

use crate::denial::{DenialBodies, DenialBody};
use crate::gate::{Gate, OnMissingAddress};
use crate::ready::literal;

/// What counters are told apart by from those of others on the same store, unless it is said.
const SERVICE_DEFAULT: &str = "http";

/// Limits without a policy document, as a layer of the framework `K`: made by `per_ip`, `per_header`, `per_identity` and
/// `global` of its module. Clones share their counters.
#[derive(Clone, Debug)]
pub struct Limited<K> {
    terms: Terms,
    gate: Arc<Gate>,
    kind: PhantomData<fn() -> K>,
}

/// What a gate is made of.
#[derive(Clone, Debug)]
struct Terms {
    service: String,
    rules: Vec<RuleSpec>,
    store: Option<Arc<dyn Store>>,
    proxies: Vec<Network>,
    options: HttpOptions,
    denial_bodies: DenialBodies,
    on_missing_address: OnMissingAddress,
}

impl Terms {
    fn gate(&self) -> Result<Gate, InvalidInput> {
        let spec = PolicySpec::builder(&self.service)
            .rules(self.rules.clone())
            .trusted_proxies(self.proxies.clone())
            .build("these limits");
        let policies = Policies::builder().build()?;
        policies.install("code", spec, None).map_err(|problems| {
            let first = problems.iter().next().map(|problem| (&*problem.got, &*problem.expected));
            let (got, expected) = first.unwrap_or_default();
            InvalidInput::new(Field::Check, got, expected)
        })?;
        let store = self.store.clone().unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let limiter = PolicyLimiter::on(store, policies).service(&self.service)?;
        let gate = Gate::new(limiter).options(self.options).denial_bodies(self.denial_bodies.clone());
        Ok(gate.on_missing_address(self.on_missing_address))
    }
}

impl<K> Limited<K> {
    fn of(terms: Terms) -> Result<Self, InvalidInput> {
        Ok(Self { gate: Arc::new(terms.gate()?), terms, kind: PhantomData })
    }

    /// One rule: whose quota it is, and under which key requests count that do not say.
    pub(crate) fn rule(
        name: &str,
        key: &str,
        fallback: Option<&str>,
        quota: &str,
    ) -> Result<Self, InvalidInput> {
        let quota: Quota = quota.parse()?;
        // Two layers on one store with other numbers are two counters.
        let apart = format!("@{quota}").replace(' ', "_");
        let template = Template::parse(&format!("{key}{}", literal(&apart)))
            .map_err(|error| InvalidInput::new(Field::Key, error.got, error.expected))?;
        let mut rule = RuleSpec::new(name, KeySpec::from(template), quota);
        if let Some(fallback) = fallback {
            rule = rule.fallback(format!("{fallback}{apart}"));
        }
        Self::of(Terms {
            service: SERVICE_DEFAULT.to_owned(),
            rules: vec![rule],
            store: None,
            proxies: Vec::new(),
            options: HttpOptions::default(),
            denial_bodies: DenialBodies::default(),
            on_missing_address: OnMissingAddress::Refuse,
        })
    }

    /// These limits and others as **one** decision: a request that any of them denies is charged by none.
    ///
    /// Store, service and options are those of the first.
    ///
    /// # Errors
    /// If both have a store and these are two, or there are too many limits.
    pub fn and(mut self, other: Self) -> Result<Self, InvalidInput> {
        match (&self.terms.store, other.terms.store) {
            (Some(first), Some(second)) if !Arc::ptr_eq(first, &second) => {
                let (got, expected) =
                    ("two stores for one decision", "`store` on one of the limits, or the same one");
                return Err(InvalidInput::new(Field::Check, got, expected));
            }
            (None, Some(store)) => self.terms.store = Some(store),
            _ => {}
        }
        for mut rule in other.terms.rules {
            let same = self.terms.rules.iter().filter(|known| is_numbered(&known.name, &rule.name)).count();
            if same > 0 {
                rule.name = format!("{}-{}", rule.name, same + 1);
            }
            self.terms.rules.push(rule);
        }
        self.terms.proxies.extend(other.terms.proxies);
        Self::of(self.terms)
    }

    /// Where counters are, such as a `RedisStore` that several processes share; in memory, unless said otherwise.
    ///
    /// # Errors
    /// If the store cannot have these limits.
    pub fn store(mut self, store: Arc<dyn Store>) -> Result<Self, InvalidInput> {
        self.terms.store = Some(store);
        Self::of(self.terms)
    }

    /// The service, which tells counters from those of others on the same store; `http`, unless said otherwise.
    ///
    /// # Errors
    /// If it is no name.
    pub fn service(mut self, service: impl Into<String>) -> Result<Self, InvalidInput> {
        self.terms.service = service.into();
        Self::of(self.terms)
    }

    /// Proxies that are believed what they say of the client's address, such as `10.0.0.0/8`.
    ///
    /// # Errors
    /// If one is neither an address nor a network.
    pub fn trusted_proxies<'n>(
        mut self,
        networks: impl IntoIterator<Item = &'n str>,
    ) -> Result<Self, InvalidInput> {
        for network in networks {
            let parsed = network.parse().map_err(|expected: String| {
                InvalidInput::new(Field::Key, format!("the proxy `{network}`"), expected)
            })?;
            self.terms.proxies.push(parsed);
        }
        Self::of(self.terms)
    }

    /// What clients are told.
    ///
    /// # Errors
    /// Never, unless making the limits anew fails.
    pub fn options(mut self, options: HttpOptions) -> Result<Self, InvalidInput> {
        self.terms.options = options;
        Self::of(self.terms)
    }

    /// Writes the bodies of denials, as [`Gate::denial_body`].
    ///
    /// # Errors
    /// Never, unless making the limits anew fails.
    pub fn denial_body(
        mut self,
        write: impl Fn(&Denial<'_>) -> Option<DenialBody> + Send + Sync + 'static,
    ) -> Result<Self, InvalidInput> {
        self.terms.denial_bodies = DenialBodies::new(write);
        Self::of(self.terms)
    }

    /// What becomes of requests without a client's address, if a limit counts by it: they are refused, unless said otherwise.
    ///
    /// # Errors
    /// Never, unless making the limits anew fails.
    pub fn on_missing_address(mut self, then: OnMissingAddress) -> Result<Self, InvalidInput> {
        self.terms.on_missing_address = then;
        Self::of(self.terms)
    }

    /// The limits at the door of a service: for handlers, metrics and switches.
    #[must_use]
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }
}

/// Whether a name is this one, or this one with a number behind it.
fn is_numbered(known: &str, name: &str) -> bool {
    known.strip_prefix(name).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

/// The functions of a framework whose layer is `Limited<$kind>`.
macro_rules! one_line {
    ($kind:ty) => {
        /// A limit for each client's address: `per_ip("10/s burst 20")`.
        ///
        /// IPv6 addresses count by their /64. Behind proxies, name them with [`trusted_proxies`](Limited::trusted_proxies). A
        /// request without an address is refused with 500, so that a server which does not pass it on is noticed at
        /// once; [`on_missing_address`](Limited::on_missing_address) lets them pass.
        ///
        /// # Errors
        /// If the quota is none.
        pub fn per_ip(quota: &str) -> Result<Limited<$kind>, InvalidInput> {
            Limited::rule("per-ip", "ip:{client.ip}", None, quota)
        }

        /// A limit for each value of a header: `per_header("x-api-key", "100/min")`. Requests without the header share
        /// one quota, so that leaving it out gains nothing.
        ///
        /// # Errors
        /// If the quota is none, or the header no name of one.
        pub fn per_header(name: &str, quota: &str) -> Result<Limited<$kind>, InvalidInput> {
            let name = name.to_ascii_lowercase();
            Limited::rule("per-header", &format!("{name}:{{header.{name}}}"), Some("without-header"), quota)
        }

        /// A limit for each value of a claim of the [`Identity`](crate::Identity): `per_identity("user", "100/min")`.
        /// Requests without it share one quota.
        ///
        /// # Errors
        /// If the quota is none, or the claim no name of one.
        pub fn per_identity(claim: &str, quota: &str) -> Result<Limited<$kind>, InvalidInput> {
            Limited::rule("per-identity", &format!("{claim}:{{identity.{claim}}}"), Some("anonymous"), quota)
        }

        /// One limit for all requests together: `global("1000/s")`.
        ///
        /// # Errors
        /// If the quota is none.
        pub fn global(quota: &str) -> Result<Limited<$kind>, InvalidInput> {
            Limited::rule("global", "all", None, quota)
        }
    };
}
pub(crate) use one_line;
