//! What one request has been told so far, by all layers and its handler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(feature = "tower")]
use ratekeeper::Admission;
#[cfg(any(feature = "actix", feature = "tower"))]
use ratekeeper::Demand;
use ratekeeper::policy::Facts;
use ratekeeper::{Decision, Enforcement, Verdict};
use ratekeeper_http::{Field, HttpOptions, Tally};
use tracing::Span;
use tracing::level_filters::LevelFilter;

#[cfg(any(feature = "actix", feature = "axum"))]
use crate::admission::Charged;
#[cfg(any(feature = "actix", feature = "tower"))]
use crate::gate::Gate;

/// What is set on the span of a request that a rule which only watches would have denied.
pub(crate) const OVER_LIMIT: &str = "ratelimit.over_limit";

/// What the limits have said to one request so far. Clones are handles to the
/// same: middleware puts one into the request, inner layers and the handler add,
/// and the outermost writes the fields of the response.
#[derive(Clone, Debug)]
pub struct Told(Arc<Request>);

#[derive(Debug)]
struct Request {
    /// The span of the request: the one that the outermost layer was called in.
    root: Span,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    first: Option<Box<Decision>>,
    /// Of a request that was judged several times.
    others: Vec<Decision>,
    /// What came after the most decisions that are kept one by one.
    beyond: Option<Box<Tally>>,
    /// The innermost layer around whoever asks.
    #[cfg(any(feature = "actix", feature = "tower"))]
    layer: Option<Layer>,
    /// How whoever spoke last wants it to be told.
    #[cfg(any(feature = "actix", feature = "axum"))]
    options: HttpOptions,
}

/// A layer that let a request pass, for a handler that finds out later what the request costs.
#[cfg(any(feature = "actix", feature = "tower"))]
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) gate: Arc<Gate>,
    /// What was asked, if it cannot be made again or is at hand.
    pub(crate) demand: Option<Arc<Demand<'static>>>,
    /// Which of the decisions is its own.
    pub(crate) place: usize,
    /// What it has charged, once a handler has asked: all who ask give back of the same.
    #[cfg(any(feature = "actix", feature = "axum"))]
    pub(crate) charged: Option<Arc<Charged>>,
}

#[cfg(any(feature = "actix", feature = "tower"))]
impl Layer {
    pub(crate) fn new(gate: Arc<Gate>, demand: Option<Arc<Demand<'static>>>, place: usize) -> Self {
        Self {
            gate,
            demand,
            place,
            #[cfg(any(feature = "actix", feature = "axum"))]
            charged: None,
        }
    }
}

/// Decisions on one request that are kept one by one; later ones are only tallied.
const DECISIONS_KEPT_MAX: usize = 64;

/// What a response tells.
pub(crate) enum Report<'a> {
    /// The only decision there was.
    One(&'a Decision),
    Several(&'a Tally),
}

impl State {
    fn tally(&self) -> Tally {
        let mut decisions = self.first.as_deref().into_iter().chain(&self.others);
        let mut tally = decisions.next().map_or_else(Tally::new, Tally::of);
        decisions.for_each(|decision| tally.add(decision));
        if let Some(beyond) = &self.beyond {
            tally.add_all(beyond);
        }
        tally
    }

    fn last(&self) -> Option<&Decision> {
        self.others.last().or(self.first.as_deref())
    }

    /// Adds a decision; says which it is.
    fn add(&mut self, decision: Box<Decision>) -> usize {
        let Some(before) = self.last() else {
            self.first = Some(decision);
            return 0;
        };
        warn_of_namesakes(before, &decision);
        if self.others.len() < DECISIONS_KEPT_MAX {
            self.others.push(*decision);
        } else {
            self.beyond.get_or_insert_default().add(&decision);
            return usize::MAX;
        }
        self.others.len()
    }

    /// The decision at this place.
    #[cfg(any(feature = "actix", feature = "axum"))]
    fn at(&mut self, place: usize) -> Option<&mut Decision> {
        match place.checked_sub(1) {
            None => self.first.as_deref_mut(),
            Some(index) => self.others.get_mut(index),
        }
    }
}

impl Default for Told {
    fn default() -> Self {
        Self::new()
    }
}

impl Told {
    /// Nothing yet, about a request whose span is the current one.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Request { root: current_span(), state: Mutex::default() }))
    }

    /// One decision on a request with these facts, whose span is `root`.
    #[cfg(feature = "tower")]
    pub(crate) fn first(root: Span, facts: &dyn Facts, decision: Box<Decision>, layer: Layer) -> Self {
        mark_if_watched(&root, facts, &decision);
        let state = State { first: Some(decision), layer: Some(layer), ..State::default() };
        Self(Arc::new(Request { root, state: Mutex::new(state) }))
    }

    /// Adds a decision.
    pub fn add(&self, decision: Box<Decision>) {
        self.lock().add(decision);
    }

    /// Adds a decision on a request with these facts. If a rule that only watches had no
    /// room, the span of the request is marked with `ratelimit.over_limit`.
    #[inline]
    pub fn add_for(&self, facts: &dyn Facts, decision: Box<Decision>) {
        self.place_for(facts, decision);
    }

    /// The same; says which of the decisions it is.
    #[inline]
    pub(crate) fn place_for(&self, facts: &dyn Facts, decision: Box<Decision>) -> usize {
        mark_if_watched(&self.0.root, facts, &decision);
        self.lock().add(decision)
    }

    /// Notes the layer that has added a decision and lets the request pass.
    #[cfg(any(feature = "actix", feature = "tower"))]
    pub(crate) fn set_layer(&self, layer: Layer) {
        self.lock().layer = Some(layer);
    }

    /// The innermost layer around, with its decision and what it has charged.
    #[cfg(any(feature = "actix", feature = "axum"))]
    pub(crate) fn layer(&self) -> Option<(Layer, Decision, Arc<Charged>)> {
        let mut state = self.lock();
        let place = state.layer.as_ref()?.place;
        let decision = state.at(place)?.clone();
        let layer = state.layer.as_mut()?;
        let charged = layer.charged.get_or_insert_with(|| Arc::new(Charged::by(&decision)));
        let charged = Arc::clone(charged);
        Some((layer.clone(), decision, charged))
    }

    /// Lets the decision at this place say what a later one on the same counters says, at a cost that has changed by
    /// so many units.
    #[cfg(any(feature = "actix", feature = "axum"))]
    pub(crate) fn catch_up(&self, place: usize, later: &Decision, units: i32) {
        if let Some(decision) = self.lock().at(place) {
            decision.catch_up(later, units);
        }
    }

    /// The decision that was made last; `None` before the first.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        self.lock().last().cloned()
    }

    /// The policies that the response will tell about.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.lock().tally()
    }

    /// The fields for the response.
    pub fn fields(&self, options: &HttpOptions) -> impl Iterator<Item = Field> + use<> {
        self.tally().fields(options)
    }

    /// The fields for a response with this status, one by one. Redirections have none: a client
    /// that reads that little is left might not follow them, and what comes with a 304
    /// ends up in caches.
    pub fn each_field(&self, status: u16, options: &HttpOptions, tell: impl FnMut(&'static str, &str)) {
        if options.has_fields() {
            self.report(status, |report| match report {
                Report::Several(tally) => tally.each_field(options, tell),
                Report::One(decision) => Tally::each_field_of(decision, options, false, tell),
            });
        }
    }

    /// Hands on what a response with this status tells, if it tells anything.
    #[inline]
    pub(crate) fn report(&self, status: u16, tell: impl FnOnce(Report<'_>)) {
        if (300..400).contains(&status) {
            return;
        }
        let state = self.lock();
        match &state.first {
            None => {}
            Some(decision) if state.others.is_empty() => tell(Report::One(decision)),
            Some(_) => tell(Report::Several(&state.tally())),
        }
    }

    /// Keeps the memory of the decision for the next request, unless a handler holds on to it.
    #[cfg(feature = "tower")]
    pub(crate) fn recycle(self) {
        let request = Arc::into_inner(self.0);
        let state = request.map(|request| request.state.into_inner().unwrap_or_else(PoisonError::into_inner));
        if let Some(decision) = state.and_then(|state| state.first) {
            Admission::recycle(decision);
        }
    }

    /// How it is to be told if no layer does.
    #[cfg(any(feature = "actix", feature = "axum"))]
    pub(crate) fn speak(&self, options: HttpOptions) {
        self.lock().options = options;
    }

    /// As [`Told::each_field`], in the words of whoever spoke last.
    #[cfg(any(feature = "actix", feature = "axum"))]
    pub(crate) fn each_spoken(&self, status: u16, tell: impl FnMut(&'static str, &str)) {
        let options = self.lock().options;
        self.each_field(status, &options, tell);
    }

    /// A handler that panics while it adds leaves a whole tally behind.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says once if one request meets two limits of one name: clients cannot tell them apart, and on
/// one store they may even count together.
fn warn_of_namesakes(one: &Decision, other: &Decision) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let mut names = one.verdicts().iter().map(Verdict::name);
    let same =
        names.find(|name| other.verdicts().iter().any(|verdict| verdict.name().label() == name.label()));
    if let Some(name) = same
        && !TOLD.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(
            policy = name.label(),
            "one request meets two limits of this name: give them names of their own, so that clients can tell \
             them apart and their counters stay apart"
        );
    }
}

/// The span that is entered; without a subscriber there is none, and no need to look for it.
#[inline]
pub(crate) fn current_span() -> Span {
    if LevelFilter::current() == LevelFilter::OFF { Span::none() } else { Span::current() }
}

/// Marks the span of a request if a rule that only watches had no room for it.
#[inline]
pub(crate) fn mark_if_watched(root: &Span, facts: &dyn Facts, decision: &Decision) {
    if decision.is_over_limit() && is_watched(decision) {
        mark(root, facts);
    }
}

#[cold]
fn mark(root: &Span, facts: &dyn Facts) {
    #[cfg(feature = "opentelemetry")]
    {
        use tracing_opentelemetry::OpenTelemetrySpanExt as _;
        let endpoint = facts.route().or_else(|| facts.path()).unwrap_or_default();
        root.set_attribute(OVER_LIMIT, endpoint.to_owned());
    }
    #[cfg(not(feature = "opentelemetry"))]
    let _ = facts;
    // The limiter has marked the span that it was asked in, which may be one within the request's.
    if root.id() != Span::current().id() {
        root.record(OVER_LIMIT, true);
    }
}

/// Whether a quota that only watches had no room.
pub(crate) fn is_watched(decision: &Decision) -> bool {
    let mut shadows =
        decision.verdicts().iter().filter(|verdict| verdict.enforcement() == Enforcement::Shadow);
    shadows.any(|verdict| !verdict.is_admitted() && verdict.cost() > 0)
}
