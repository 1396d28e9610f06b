//! Limits that most services want, ready-made.
//!
//! - [`ProjectLimit`]: every project of every organisation on every endpoint, with
//!   overrides that are kept in the store;
//! - [`PathLimit`]: every path, for public endpoints and webhooks;
//! - [`CustomLimit`]: whatever a function finds in a request.
//!
//! Each is a policy of one rule. They count in fixed windows, under the keys of
//! Application Kit where that has them, so that a service on that library and one
//! on this share counters and overrides. In mode `monitor` all of them count and
//! tell, also [`PathLimit`], which Application Kit's does not.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::policy::{
    Facts, KeyFunction, KeySpec, OverridesSpec, Policies, PolicyLimiter, PolicySpec, RuleSpec, Scalar,
    Template,
};
use ratekeeper::{Algorithm, CounterClaim, Field, InvalidInput, Mode, Quota, Store};

use crate::gate::{Gate, IdentityNeeded, is_name};

/// The name of a limit's policy if it has none of its own.
const POLICY_DEFAULT: &str = "requests";

/// What a request without an identity means to a limit per project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingIdentity {
    /// It is not limited.
    #[default]
    Skip,
    /// It is refused: authentication should have come first.
    Refuse,
}

/// What all ready-made limits have.
#[derive(Clone, Debug)]
struct Terms {
    service: String,
    max_requests: u64,
    expiry: Duration,
    suffix: String,
    policy_name: Option<String>,
    mode: Option<Mode>,
}

impl Terms {
    fn new(max_requests: u64) -> Self {
        Self {
            service: "http".to_owned(),
            max_requests,
            expiry: Duration::from_secs(1),
            suffix: String::new(),
            policy_name: None,
            mode: None,
        }
    }

    /// What the headers call it: "" is `requests`, `/elements` is `elements`.
    fn policy(&self) -> &str {
        let of_suffix = self.suffix.trim_start_matches('/');
        let derived = if of_suffix.is_empty() { POLICY_DEFAULT } else { of_suffix };
        self.policy_name.as_deref().unwrap_or(derived)
    }

    /// What is part of every key that is not Application Kit's: two limits on one request that
    /// nobody gave names of their own, 10 a second and 1,000 an hour, are two counters.
    fn text(&self) -> String {
        format!("{}/{}ms", self.max_requests, self.expiry.as_millis())
    }

    fn quota(&self) -> Result<Quota, InvalidInput> {
        let millis = u64::try_from(self.expiry.as_millis()).unwrap_or(u64::MAX);
        Quota::new(Algorithm::FixedWindow, self.max_requests, Duration::from_millis(millis))
    }

    /// Its one rule.
    fn rule(&self) -> Result<RuleSpec, InvalidInput> {
        Ok(RuleSpec::new(self.policy(), KeySpec::Caller, self.quota()?).mode(self.mode))
    }

    fn gate(&self, store: Arc<dyn Store>, rule: RuleSpec, key: KeyFunction) -> Result<Gate, InvalidInput> {
        let policies = Policies::builder().build()?;
        let spec = PolicySpec::builder(&self.service).rules([rule]).build("this limit");
        policies.install("code", spec, None).map_err(|problems| {
            let first = problems.iter().next().map(|problem| (&*problem.got, &*problem.expected));
            let (got, expected) = first.unwrap_or_default();
            InvalidInput::new(Field::Check, got, expected)
        })?;
        Ok(Gate::new(PolicyLimiter::on(store, policies).service(&self.service)?).key(key))
    }
}

macro_rules! common {
    ($limit:ident) => {
        impl $limit {
            /// How long a window is; a second, unless said otherwise.
            #[must_use]
            pub fn expiry(mut self, expiry: Duration) -> Self {
                self.terms.expiry = expiry;
                self
            }

            /// Another counter on the same endpoint: `/elements`.
            #[must_use]
            pub fn key_suffix(mut self, suffix: impl Into<String>) -> Self {
                self.terms.suffix = suffix.into();
                self
            }

            /// What headers call it. Without it the suffix gives the name: "" is
            /// `requests`, `/elements` is `elements`.
            #[must_use]
            pub fn policy_name(mut self, name: impl Into<String>) -> Self {
                self.terms.policy_name = Some(name.into());
                self
            }

            /// What it does, whatever `RATE_LIMIT_MODE` says by default.
            #[must_use]
            pub fn mode(mut self, mode: Mode) -> Self {
                self.terms.mode = Some(mode);
                self
            }

            /// The service, which tells its counters from those of others on the same store, unless they
            /// are Application Kit's; `http`, unless said otherwise.
            #[must_use]
            pub fn service(mut self, service: impl Into<String>) -> Self {
                self.terms.service = service.into();
                self
            }
        }
    };
}

/// A limit for every project on every endpoint.
///
/// Its counter is Application Kit's: `ratelimit:ROUTE:ORGANISATION:PROJECT`, whatever the service and
/// the policy are called. So services that share a Redis share the counters of routes of
/// the same name, and of two limits with other numbers on a store, the second is refused ([`ProjectLimit::gate`]): it
/// needs a [`key_suffix`](ProjectLimit::key_suffix), which is another counter on the same endpoint, or both say which
/// [`endpoint`](ProjectLimit::endpoint) they are about. Overrides are found by the route: where there is none, as around
/// a router, nobody has any, unless the limit says its endpoint.
#[derive(Clone, Debug)]
pub struct ProjectLimit {
    terms: Terms,
    endpoint: Option<String>,
    on_missing: OnMissingIdentity,
}

common!(ProjectLimit);

impl ProjectLimit {
    /// So many requests in a window.
    #[must_use]
    pub fn new(max_requests: u64) -> Self {
        Self { terms: Terms::new(max_requests), endpoint: None, on_missing: OnMissingIdentity::default() }
    }

    /// The endpoint that it counts for, whatever route a request has: for limits of several numbers on one store.
    #[must_use]
    pub fn endpoint(self, endpoint: impl Into<String>) -> Self {
        Self { endpoint: Some(endpoint.into()), ..self }
    }

    /// What a request without an organisation and a project means.
    #[must_use]
    pub fn on_missing_identity(self, on_missing: OnMissingIdentity) -> Self {
        Self { on_missing, ..self }
    }

    /// The limit at the door of a service.
    ///
    /// # Errors
    /// If a number is out of bounds, a name is none, or another gate on this store has the same counters with other
    /// numbers. Without an [`endpoint`](ProjectLimit::endpoint), they are those of all routes.
    pub fn gate(&self, store: Arc<dyn Store>) -> Result<Gate, InvalidInput> {
        let suffix = &self.terms.suffix;
        let claim = CounterClaim::new(self.endpoint.as_deref(), suffix, self.terms.quota()?);
        let claim = store.counter_claims().map(|claims| claims.claim(claim)).transpose()?;
        let route = self.endpoint.as_deref().map_or_else(|| "{route}".to_owned(), literal);
        let of_route = Template::parse(&format!("{route}{}", literal(suffix)))
            .map_err(|error| InvalidInput::new(Field::Check, error.got, error.expected))?;
        let overrides = OverridesSpec { endpoint: Some(of_route), ..OverridesSpec::default() };
        let rule = self.terms.rule()?.overrides(overrides);
        let (suffix, own) = (suffix.clone(), self.endpoint.clone());
        let key = KeyFunction::new(move |facts| {
            let (org, project) = (text(facts.claim("org")?)?, text(facts.claim("project")?)?);
            let endpoint = own.as_deref().or_else(|| endpoint(facts))?;
            Some(Cow::Owned(format!("{endpoint}{suffix}:{}:{}", part(&org), part(&project))))
        });
        let needed = IdentityNeeded { claims: &["org", "project"], on_missing: self.on_missing };
        Ok(self.terms.gate(store, rule, key)?.needs_identity(needed).claims(claim))
    }
}

/// A limit for every path, whoever asks: public endpoints, webhooks.
#[derive(Clone, Debug)]
pub struct PathLimit {
    terms: Terms,
}

common!(PathLimit);

impl PathLimit {
    /// So many requests in a window.
    #[must_use]
    pub fn new(max_requests: u64) -> Self {
        Self { terms: Terms::new(max_requests) }
    }

    /// The limit at the door of a service.
    ///
    /// # Errors
    /// If a number is out of bounds or a name is none.
    pub fn gate(&self, store: Arc<dyn Store>) -> Result<Gate, InvalidInput> {
        let suffix = self.terms.suffix.clone();
        let terms = self.terms.text();
        let key = KeyFunction::new(move |facts| {
            Some(Cow::Owned(format!("path:{}{suffix}@{terms}", facts.path()?)))
        });
        self.terms.gate(store, self.terms.rule()?, key)
    }
}

/// A limit by a key of one's own.
#[derive(Clone, Debug)]
pub struct CustomLimit {
    terms: Terms,
    key: KeyFunction,
}

common!(CustomLimit);

impl CustomLimit {
    /// So many requests in a window for each key that the function finds; where it
    /// finds none, a request is not limited.
    pub fn new<K>(max_requests: u64, key: K) -> Self
    where
        K: for<'r> Fn(&'r dyn Facts) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    {
        Self { terms: Terms::new(max_requests), key: KeyFunction::new(key) }
    }

    /// The limit at the door of a service.
    ///
    /// # Errors
    /// If a number is out of bounds or a name is none.
    pub fn gate(&self, store: Arc<dyn Store>) -> Result<Gate, InvalidInput> {
        let (suffix, found, terms) = (self.terms.suffix.clone(), self.key.clone(), self.terms.text());
        let key = KeyFunction::new(move |facts| {
            let key = found.of(facts).filter(|key| !key.is_empty())?;
            Some(Cow::Owned(format!("{key}{suffix}@{terms}")))
        });
        self.terms.gate(store, self.terms.rule()?, key)
    }
}

/// A text as a template that has it in it.
pub(crate) fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

/// The route that the service matched, or else the path.
fn endpoint(facts: &dyn Facts) -> Option<&str> {
    facts.route().or_else(|| facts.path())
}

/// A name between colons, which it must not have itself: nobody is called like two others together.
/// Numbers, which Application Kit's counters have there, stay as they are.
fn part(name: &str) -> Cow<'_, str> {
    match name.contains([':', '%']) {
        true => Cow::Owned(name.replace('%', "%25").replace(':', "%3A")),
        false => Cow::Borrowed(name),
    }
}

fn text(claim: Scalar<'_>) -> Option<String> {
    match claim {
        claim if !is_name(&claim) => None,
        Scalar::Text(text) => Some(text.into_owned()),
        Scalar::Integer(number) => Some(number.to_string()),
        Scalar::Large(number) => Some(number.to_string()),
        Scalar::Float(_) | Scalar::Bool(_) => None,
    }
}
