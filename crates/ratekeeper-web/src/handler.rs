//! What handlers can ask, whatever the framework: extractors and responses are its own.

use ratekeeper::Admission;
use ratekeeper::Decision;
use ratekeeper::policy::Facts;
use ratekeeper_http::{HttpOptions, Tally};

use crate::gate::{Gate, NoIdentity};
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

    /// Applies a limit to the request with these facts. They are looked at when it begins and
    /// when it is decided.
    pub(crate) async fn limit<F: Facts>(
        &self,
        gate: &Gate,
        units: u64,
        facts: impl Fn() -> F,
    ) -> Result<Admission, Refused> {
        let asking = gate.admit(&facts(), units);
        self.told.speak(gate.options);
        let refused =
            |why| Refused { why, options: gate.options, told: self.is_outermost.then(|| self.told.clone()) };
        match asking.await {
            Err(what) => Err(refused(Why::NoIdentity(what))),
            Ok(admission) => {
                self.told.add_for(&facts(), admission.decision.clone());
                if admission.decision.is_allowed() {
                    return Ok(admission);
                }
                Err(refused(Why::Denied(admission.decision)))
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

/// A request that is refused: 429, 503 if the limits could not be checked, or 500
/// if nobody knows who is calling or from where.
#[derive(Clone, Debug)]
pub struct Refused {
    pub(crate) why: Why,
    pub(crate) options: HttpOptions,
    /// What is told by this response, if no layer or middleware tells.
    told: Option<Told>,
}

#[derive(Clone, Debug)]
pub(crate) enum Why {
    Denied(Box<Decision>),
    NoIdentity(NoIdentity),
}

impl Refused {
    /// The decision, unless there is none because nobody knows who is calling.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match &self.why {
            Why::Denied(decision) => Some(decision),
            Why::NoIdentity(_) => None,
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
        }
    }
}

impl std::error::Error for Refused {}
