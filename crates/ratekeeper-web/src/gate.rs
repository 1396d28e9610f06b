//! The limits of a service, and what a middleware has to know beside them.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::bounds::LIMIT_MAX;
use ratekeeper::policy::{Ask, Facts, KeyFunction, Needs, Scalar, ServiceLimiter};
#[cfg(feature = "policy")]
use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper::{Admission, CounterClaim, Demand, Limiter, Started};
use ratekeeper::{Decision, Field, InvalidInput, Origin, Outcome};
use ratekeeper_http::{Denial, HttpOptions};
use tracing::{Instrument as _, Span};

use crate::counts::{Counters, Counts};
use crate::denial::{DenialBodies, DenialBody};
use crate::observe::Observations;
use crate::ready::OnMissingIdentity;
use crate::rules::{InCode, Rules};
use crate::told::{OVER_LIMIT, is_watched};

/// How much of a body is read for rules that look into it, unless told otherwise.
pub const BODY_BYTES_MAX_DEFAULT: usize = 256 << 10;
/// How long is waited for a body, unless told otherwise.
pub const BODY_WAIT_DEFAULT: Duration = Duration::from_secs(5);

/// The limits of a service at its door: what middleware asks.
///
/// It never fails: what cannot be judged goes on, is counted and logged once.
#[derive(Debug)]
pub struct Gate {
    rules: Rules,
    pub(crate) options: HttpOptions,
    pub(crate) denial_bodies: DenialBodies,
    pub(crate) body_bytes_max: usize,
    pub(crate) body_wait: Duration,
    /// Who must be known, for limits that are about nobody else.
    pub(crate) identity: Option<IdentityNeeded>,
    key: Option<KeyFunction>,
    spans: bool,
    on_missing_address: OnMissingAddress,
    observations: Observations,
    counters: Counters,
    /// Held as long as the gate is there, so that no other one counts on its counters with other numbers.
    _claim: Option<Arc<CounterClaim>>,
}

#[derive(Clone, Debug)]
pub(crate) struct IdentityNeeded {
    pub(crate) claims: &'static [&'static str],
    pub(crate) on_missing: OnMissingIdentity,
}

/// What becomes of a request without a client's address where a rule asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingAddress {
    /// Rules without a key do not limit it.
    Pass,
    /// It is refused with 500: the server should have passed the address on.
    #[default]
    Refuse,
}

/// What a gate says to a request: a decision, allowed or denied.
pub type Answer = Result<Admission, NoIdentity>;

/// The request does not say whose it is, and the limit is set up to insist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoIdentity(pub(crate) Missing);

/// What a request lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Identity,
    Address,
    /// The rules in code are about requests of another framework.
    Kind,
}

impl std::fmt::Display for NoIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Missing::Identity => "nobody knows who is calling",
            Missing::Address => "the server does not pass on the client's address",
            Missing::Kind => "the rules in code are about another kind of request",
        })
    }
}

impl std::error::Error for NoIdentity {}

/// How far a request got at the door without I/O.
#[derive(Debug)]
pub enum Entry {
    /// It is decided.
    Decided(Answer),
    /// The store has to be asked: [`Gate::wait`]. Nothing has been charged yet.
    Waits(Waiting),
}

impl Entry {
    /// The answer, once the store has been asked if need be.
    pub(crate) async fn finish(self, gate: &Gate) -> Answer {
        match self {
            Entry::Decided(answer) => answer,
            Entry::Waits(waiting) => gate.wait(waiting).await,
        }
    }
}

/// A request that has been looked at, and waits for the store.
#[derive(Debug)]
pub struct Waiting {
    demand: Box<Demand<'static>>,
    span: Span,
}

impl Gate {
    /// The door of a service with these limits.
    #[must_use]
    pub fn new(service: ServiceLimiter) -> Self {
        Self::with_rules(Rules::Policy(service))
    }

    /// The door of a service with rules in code. The closures of the rules look at requests as the framework has them:
    /// `http::request::Parts` for axum and tower, `actix_web::HttpRequest` for actix-web.
    #[must_use]
    pub fn of_limiter<R: 'static>(limiter: Limiter<R>) -> Self {
        Self::with_rules(Rules::Code(Box::new(limiter)))
    }

    fn with_rules(rules: Rules) -> Self {
        Self {
            rules,
            options: HttpOptions::default(),
            denial_bodies: DenialBodies::default(),
            body_bytes_max: BODY_BYTES_MAX_DEFAULT,
            body_wait: BODY_WAIT_DEFAULT,
            identity: None,
            key: None,
            spans: false,
            on_missing_address: OnMissingAddress::default(),
            observations: Observations::default(),
            counters: Counters::default(),
            _claim: None,
        }
    }

    /// What clients are told.
    #[must_use]
    pub fn options(self, options: HttpOptions) -> Self {
        Self { options, ..self }
    }

    /// How much of a body is read for rules that look into it. For them, a longer
    /// body is no body; the service gets all of it all the same.
    #[must_use]
    pub fn body_bytes_max(self, bytes: usize) -> Self {
        Self { body_bytes_max: bytes, ..self }
    }

    /// How long is waited for a body that rules look into. For them, one that
    /// takes longer is no body.
    #[must_use]
    pub fn body_wait(self, wait: Duration) -> Self {
        Self { body_wait: wait, ..self }
    }

    /// Makes a span for every check: `ratelimit.check`, with `outcome`.
    #[must_use]
    pub fn spans(self, spans: bool) -> Self {
        Self { spans, ..self }
    }

    /// Writes the bodies of denials: a type and a text for each, or `None` for the usual one. Status and fields stay, and
    /// so does what callers of gRPC are told, who get no body.
    ///
    /// ```
    /// # use ratekeeper::MemoryStore;
    /// # use ratekeeper_web::{DenialBody, Gate};
    /// # fn with_own_bodies(gate: Gate) -> Gate {
    /// gate.denial_body(|denial| {
    ///     let secs = denial.retry_after().unwrap_or(0);
    ///     Some(DenialBody::json(format!(r#"{{"error":"slow down","seconds":{secs}}}"#)))
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn denial_body(
        self,
        write: impl Fn(&Denial<'_>) -> Option<DenialBody> + Send + Sync + 'static,
    ) -> Self {
        self.denial_bodies(DenialBodies::new(write))
    }

    pub(crate) fn denial_bodies(self, denial_bodies: DenialBodies) -> Self {
        Self { denial_bodies, ..self }
    }

    /// What becomes of requests without a client's address, if a rule that could apply asks for it. They are refused, unless
    /// said otherwise.
    #[must_use]
    pub fn on_missing_address(self, then: OnMissingAddress) -> Self {
        Self { on_missing_address: then, ..self }
    }

    /// The limits of a policy in TOML, on this store: what [`Policies`], [`PolicyLimiter`] and [`Gate::new`] do in four steps.
    ///
    /// ```
    /// use ratekeeper::MemoryStore;
    /// use ratekeeper_web::Gate;
    /// use std::sync::Arc;
    ///
    /// let text = "service = 'api'\n[[rules]]\nname = 'r'\nkeys = 'ip:{client.ip}'\nquota = '10/s'\n";
    /// let gate = Gate::from_toml(Arc::new(MemoryStore::new()), text)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong with the policy, each with its line.
    #[cfg(feature = "policy")]
    pub fn from_toml(
        store: Arc<dyn ratekeeper::Store>,
        text: &str,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let spec = PolicySpec::read("the policy", Format::Toml, text.as_bytes())?;
        let (service, policies) = (spec.service.clone(), Policies::builder().build()?);
        policies.install("the policy", Ok(spec), None)?;
        Ok(Self::new(PolicyLimiter::on(store, policies).service(&service)?))
    }

    pub(crate) fn key(self, key: KeyFunction) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(crate) fn claims(self, claim: Option<Arc<CounterClaim>>) -> Self {
        Self { _claim: claim, ..self }
    }

    pub(crate) fn needs_identity(self, identity: IdentityNeeded) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// The limits of its policy, unless its rules are in code.
    #[must_use]
    pub fn service(&self) -> Option<&ServiceLimiter> {
        match &self.rules {
            Rules::Policy(service) => Some(service),
            Rules::Code(_) => None,
        }
    }

    /// How denials are told.
    #[cfg(any(feature = "actix", feature = "axum"))]
    pub(crate) fn words(&self, is_outermost: bool) -> crate::admission::Words {
        let bodies = self.denial_bodies.clone();
        crate::admission::Words { options: self.options, bodies, is_outermost }
    }

    /// Whether its rules are in code.
    pub(crate) fn is_in_code(&self) -> bool {
        matches!(self.rules, Rules::Code(_))
    }

    /// What clients are told, for adapters.
    #[must_use]
    pub fn http_options(&self) -> &HttpOptions {
        &self.options
    }

    /// What has to be found out about this request before it can be judged.
    #[must_use]
    pub fn needs_of(&self, facts: &dyn Facts) -> Needs {
        self.service().map_or_else(Needs::default, |service| service.needs_of(facts))
    }

    /// Whether a rule that could apply to this request looks into its body.
    #[must_use]
    #[inline]
    pub fn needs_body_of(&self, facts: &dyn Facts) -> bool {
        self.service().is_some_and(|service| service.needs_body_of(facts))
    }

    /// What became of requests so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counters.counts()
    }

    /// Judges a request as far as that takes no I/O, at this cost: more than 10^9
    /// count as 10^9, so that nobody passes by asking for too much.
    #[inline]
    pub fn enter(&self, facts: &dyn Facts, cost: u64) -> Entry {
        self.enter_as(facts, None, cost)
    }

    /// The same for rules in code, which look at the request as the framework has it.
    #[inline]
    pub(crate) fn enter_as(&self, facts: &dyn Facts, request: Option<&dyn Any>, cost: u64) -> Entry {
        if let Some(answer) = self.before(facts, request) {
            return Entry::Decided(answer);
        }
        if !self.spans {
            return match self.start(facts, request, cost) {
                Started::Done(answer) => Entry::Decided(Ok(self.answered(answer))),
                Started::Waits(demand) => Entry::Waits(Waiting { demand, span: Span::none() }),
            };
        }
        let span = check_span();
        match span.in_scope(|| self.start(facts, request, cost)) {
            Started::Done(answer) => Entry::Decided(Ok(recorded(&span, self.answered(answer)))),
            Started::Waits(demand) => Entry::Waits(Waiting { demand, span }),
        }
    }

    /// Looks at a request whose demand has to be kept, because what it was made of is gone afterwards: its body.
    #[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "a layer uses it"))]
    pub(crate) fn prepare(&self, facts: &dyn Facts, request: Option<&dyn Any>, cost: u64) -> Entry {
        if let Some(answer) = self.before(facts, request) {
            return Entry::Decided(answer);
        }
        let span = if self.spans { check_span() } else { Span::none() };
        match span.in_scope(|| self.demand(facts, request, cost)) {
            Some(demand) => Entry::Waits(Waiting { demand: Box::new(demand), span }),
            None => Entry::Decided(Err(self.refused(Missing::Kind))),
        }
    }

    #[inline]
    fn start(&self, facts: &dyn Facts, request: Option<&dyn Any>, cost: u64) -> Started<'static> {
        let cost = cost.min(LIMIT_MAX.into());
        match &self.rules {
            Rules::Policy(service) => {
                let key = self.key.as_ref().and_then(|key| key.of(facts));
                service.start(&asked(facts, key.as_deref(), cost))
            }
            Rules::Code(limiter) => start_in_code(&**limiter, request, cost),
        }
    }

    /// What a request asks for, to be asked again; `None` if rules in code are about another kind of request.
    pub(crate) fn demand(
        &self,
        facts: &dyn Facts,
        request: Option<&dyn Any>,
        cost: u64,
    ) -> Option<Demand<'static>> {
        let cost = cost.min(LIMIT_MAX.into());
        match &self.rules {
            Rules::Policy(service) => {
                let key = self.key.as_ref().and_then(|key| key.of(facts));
                Some(service.demand(&asked(facts, key.as_deref(), cost)))
            }
            Rules::Code(limiter) => Some(limiter.demand(request?)?.cost(cost).into_owned()),
        }
    }

    /// Asks the store about a request that waits for it.
    pub async fn wait(&self, waiting: Waiting) -> Answer {
        let Waiting { demand, span } = waiting;
        let answer = demand.admit().instrument(span.clone()).await;
        Ok(recorded(&span, self.answered(answer)))
    }

    /// Judges a request, unless the store needs I/O for it: then nothing has
    /// happened yet. Whoever asks on in that case saves work with [`Gate::enter`].
    #[inline]
    pub fn try_admit(&self, facts: &dyn Facts, cost: u64) -> Option<Answer> {
        match self.enter(facts, cost) {
            Entry::Decided(answer) => Some(answer),
            Entry::Waits(_) => None,
        }
    }

    /// Judges a request. The request is looked at right away; the future does not
    /// need it any more.
    pub fn admit(&self, facts: &dyn Facts, cost: u64) -> impl Future<Output = Answer> + Send + use<'_> {
        self.enter(facts, cost).finish(self)
    }

    /// What can be said without asking for limits.
    #[inline]
    fn before(&self, facts: &dyn Facts, request: Option<&dyn Any>) -> Option<Answer> {
        match &self.rules {
            Rules::Policy(service) => {
                self.observations.look(facts, service, self.on_missing_address);
                if facts.peer().is_none()
                    && self.on_missing_address == OnMissingAddress::Refuse
                    && service.needs_of(facts).client
                {
                    return Some(Err(self.refused(Missing::Address)));
                }
            }
            Rules::Code(limiter) => {
                if !request.is_some_and(|request| limiter.takes(request)) {
                    return Some(Err(self.refused(Missing::Kind)));
                }
            }
        }
        let needed = self.identity.as_ref()?;
        if needed.claims.iter().all(|claim| facts.claim(claim).is_some_and(|claim| is_name(&claim))) {
            return None;
        }
        let insists = needed.on_missing == OnMissingIdentity::Refuse;
        if self.counters.anonymous() {
            let then = if insists { "they are refused" } else { "they are not limited" };
            tracing::warn!(
                claims = ?needed.claims,
                then,
                "requests come without an identity: authentication has to set it before limits are checked"
            );
        }
        Some(if insists { Err(NoIdentity(Missing::Identity)) } else { Ok(unlimited()) })
    }

    #[cold]
    fn refused(&self, what: Missing) -> NoIdentity {
        if self.counters.anonymous() && what == Missing::Kind {
            tracing::error!("requests are refused: the rules in code are about another kind of request");
        }
        NoIdentity(what)
    }

    #[inline]
    fn answered(&self, answer: Result<Admission, InvalidInput>) -> Admission {
        let admission = answer.unwrap_or_else(|error| self.failed(&error));
        self.counters.decided(&admission.decision);
        admission
    }

    #[cold]
    fn failed(&self, error: &InvalidInput) -> Admission {
        if self.counters.failed() {
            tracing::warn!(%error, "a request could not be judged and goes on; this is told once");
        }
        unlimited()
    }
}

fn check_span() -> Span {
    tracing::info_span!("ratelimit.check", outcome = tracing::field::Empty)
}

/// What rules in code say as far as that takes no I/O.
fn start_in_code(limiter: &dyn InCode, request: Option<&dyn Any>, cost: u64) -> Started<'static> {
    let Some(demand) = request.and_then(|request| limiter.demand(request)) else {
        let (got, expected) = ("another kind of request", "the one that the rules in code look at");
        return Started::Done(Err(InvalidInput::new(Field::Check, got, expected)));
    };
    match demand.cost(cost).start() {
        Started::Done(answer) => Started::Done(answer),
        Started::Waits(demand) => Started::Waits(Box::new(demand.into_owned())),
    }
}

fn recorded(span: &Span, admission: Admission) -> Admission {
    let decision = &admission.decision;
    let outcome = match decision.outcome() {
        Outcome::Deny => "denied",
        Outcome::Allow if decision.is_over_limit() => "over_limit",
        Outcome::Allow => "allowed",
    };
    span.record("outcome", outcome);
    // The limiter marks the span that it is asked in, which is this one: the mark is for the one around it.
    if !span.is_none() && is_watched(decision) {
        Span::current().record(OVER_LIMIT, true);
    }
    admission
}

/// Whether a claim can tell one caller from others.
pub(crate) fn is_name(claim: &Scalar<'_>) -> bool {
    match claim {
        Scalar::Text(text) => !text.is_empty(),
        Scalar::Integer(_) | Scalar::Large(_) => true,
        Scalar::Float(_) | Scalar::Bool(_) => false,
    }
}

fn asked<'a>(facts: &'a dyn Facts, key: Option<&'a str>, cost: u64) -> Ask<'a> {
    let ask = Ask::request(facts).cost(cost);
    match key {
        Some(key) => ask.with_key(key),
        None => ask,
    }
}

fn unlimited() -> Admission {
    let decision =
        Decision::without_store(Outcome::Allow, Origin::Unlimited, ratekeeper::Timestamp::default());
    Admission::of(decision)
}
