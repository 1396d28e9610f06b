//! What handlers can ask, whatever the framework: extractors and responses are its own.

use std::sync::Arc;

use ratekeeper::policy::Facts;
use ratekeeper::{Decision, Demand, Field, InvalidInput};
use ratekeeper_http::{HttpOptions, Tally};

use crate::admission::{Admission, Charged, Words};
use crate::denial::{DenialBodies, DenialBody};
use crate::gate::{Entry, Gate, NoIdentity};
use crate::told::Told;

/// What the limits said to a request so far, for handlers that want to know.
#[derive(Clone, Debug, Default)]
pub struct Limits(pub(crate) Told);

impl Limits {
    /// The decision of the innermost limit; `None` behind none.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        self.0.decision()
    }

    /// Everything that the fields of the response will tell.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.0.tally()
    }
}

/// One request, in a handler that applies limits to it.
#[derive(Clone, Debug)]
pub(crate) struct Applying {
    pub(crate) told: Told,
    /// Whether no layer or middleware tells the client.
    is_outermost: bool,
}

impl Applying {
    /// Behind the layer that has put `outer` into the request, or behind none.
    pub(crate) fn new(outer: Option<Told>) -> Self {
        Self { is_outermost: outer.is_none(), told: outer.unwrap_or_default() }
    }

    /// Applies a limit to the request with these facts, which it has been looked at with.
    pub(crate) async fn limit<F: Facts>(
        &self,
        gate: &Gate,
        entry: Entry,
        facts: impl Fn() -> F,
    ) -> Result<Admission, Refused> {
        self.told.speak(gate.options);
        let words = gate.words(self.is_outermost);
        match entry.finish(gate).await {
            Err(what) => Err(Refused::new(Why::NoIdentity(what), &words, &self.told)),
            Ok(admission) => {
                let (decision, hold, demand) = admission.into_parts();
                let place = self.told.place_for(&facts(), decision.clone());
                if !decision.is_allowed() {
                    return Err(Refused::new(Why::Denied(decision), &words, &self.told));
                }
                let demand = demand.map(|demand| Arc::new(*demand));
                let charged = Arc::new(Charged::by(&decision));
                Ok(Admission::new(demand, (decision, charged), hold, (self.told.clone(), place), words))
            }
        }
    }

    /// The fields for a response with this status, unless a layer or middleware tells.
    pub(crate) fn each_field(&self, status: u16, tell: impl FnMut(&'static str, &str)) {
        if self.is_outermost {
            self.told.each_spoken(status, tell);
        }
    }
}

/// What the innermost layer has charged for a request, behind which a handler is; `again` makes what it asked.
pub(crate) fn admission_of(
    told: Option<&Told>,
    again: impl FnOnce(&Gate) -> Option<Demand<'static>>,
) -> Result<Admission, Refused> {
    let no_layer = || {
        let words =
            Words { options: HttpOptions::default(), bodies: DenialBodies::default(), is_outermost: true };
        let (got, expected) =
            ("a handler without limits around it", "a layer or middleware with limits around it");
        Refused::new(
            Why::Failed(Box::new(InvalidInput::new(Field::Check, got, expected))),
            &words,
            &Told::new(),
        )
    };
    let told = told.ok_or_else(no_layer)?;
    let (layer, decision, charged) = told.layer().ok_or_else(no_layer)?;
    let demand = layer.demand.or_else(|| again(&layer.gate).map(Arc::new)).ok_or_else(no_layer)?;
    let place = (told.clone(), layer.place);
    Ok(Admission::new(Some(demand), (Box::new(decision), charged), None, place, layer.gate.words(false)))
}

/// A request that is refused: 429, 503 if the limits could not be checked, or 500
/// if nobody knows who is calling or from where, or what was asked of the limits is wrong.
#[derive(Clone, Debug)]
pub struct Refused {
    pub(crate) why: Why,
    pub(crate) options: HttpOptions,
    /// The body, if it is not the usual one.
    pub(crate) body: Option<Box<DenialBody>>,
    /// What is told by this response, if no layer or middleware tells.
    told: Option<Told>,
}

#[derive(Clone, Debug)]
pub(crate) enum Why {
    Denied(Box<Decision>),
    NoIdentity(NoIdentity),
    Failed(Box<InvalidInput>),
}

impl Refused {
    pub(crate) fn new(why: Why, words: &Words, told: &Told) -> Self {
        let body = match &why {
            Why::Denied(decision) => words.bodies.of(decision, &words.options).map(Box::new),
            Why::NoIdentity(_) | Why::Failed(_) => None,
        };
        Self { why, options: words.options, body, told: words.is_outermost.then(|| told.clone()) }
    }

    /// The decision, unless there is none because nobody knows who is calling, or something was wrong.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match &self.why {
            Why::Denied(decision) => Some(decision),
            Why::NoIdentity(_) | Why::Failed(_) => None,
        }
    }

    /// The fields about limits for its response, which has this status.
    pub(crate) fn each_field(&self, status: u16, tell: impl FnMut(&'static str, &str)) {
        if let Some(told) = &self.told {
            told.each_field(status, &self.options, tell);
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.why {
            Why::Denied(decision) => decision.fmt(f),
            Why::NoIdentity(what) => what.fmt(f),
            Why::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}
