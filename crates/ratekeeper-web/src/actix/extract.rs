//! What handlers can ask, and how their denials become responses.

use std::convert::Infallible;
use std::future::{Ready, ready};

use actix_web::body::BoxBody;
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest, HttpResponse, ResponseError};
use ratekeeper::Decision;
use ratekeeper::policy::{Admission, Body};
use ratekeeper_http::{HttpOptions, Tally};

use super::facts::RequestRef;
use super::response::{denied, insert, no_identity};
use crate::gate::{Gate, NoIdentity};
use crate::told::Told;

/// What the limits said to a request so far, for handlers that want to know.
///
/// ```
/// use ratekeeper_web::actix::Limits;
///
/// async fn handler(limits: Limits) -> String {
///     limits.decision().map_or("no limit applies".into(), |decision| decision.explain())
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Limits(Told);

impl Limits {
    /// The decision of the innermost middleware; `None` behind none.
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

impl FromRequest for Limits {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self(request.extensions().get::<Told>().cloned().unwrap_or_default())))
    }
}

/// Applies limits from within a handler: a second counter on the same endpoint, a cost that
/// is known only when the body has been read.
///
/// Behind a [`RateLimit`](super::RateLimit), everything is told in the fields
/// of one response. Without one, denials tell by themselves; for other responses there is
/// [`Apply::tell`].
///
/// ```
/// use actix_web::web;
/// use ratekeeper_web::Gate;
/// use ratekeeper_web::actix::{Apply, Refused};
///
/// struct Limited { elements: Gate }
///
/// async fn matrix(
///     limits: web::Data<Limited>,
///     apply: Apply,
///     points: web::Json<Vec<u32>>,
/// ) -> Result<String, Refused> {
///     apply.cost(&limits.elements, points.len() as u64).await?;
///     Ok("computed".into())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Apply {
    request: HttpRequest,
    told: Told,
    is_outermost: bool,
}

impl FromRequest for Apply {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let outer = request.extensions().get::<Told>().cloned();
        let is_outermost = outer.is_none();
        ready(Ok(Self { request: request.clone(), told: outer.unwrap_or_default(), is_outermost }))
    }
}

impl Apply {
    /// Applies a limit: one unit. What the admission holds (a place in a quota for
    /// concurrency) is given back when it is dropped, so keep it as long as the work takes.
    ///
    /// # Errors
    /// The denial, ready to be returned from a handler.
    pub async fn limit(&self, gate: &Gate) -> Result<Admission, Refused> {
        self.cost(gate, 1).await
    }

    /// Applies a limit: so many units, for rules that do not say themselves what a request
    /// costs. More than 10^9 count as 10^9.
    ///
    /// # Errors
    /// As [`Apply::limit`].
    pub async fn cost(&self, gate: &Gate, units: u64) -> Result<Admission, Refused> {
        let facts = || RequestRef::new(&self.request).body(Body::Absent);
        let asking = gate.admit(&facts(), units);
        self.told.speak(gate.options);
        let refused =
            |why| Refused { why, options: gate.options, told: self.is_outermost.then(|| self.told.clone()) };
        match asking.await {
            Err(NoIdentity) => Err(refused(Why::NoIdentity)),
            Ok(admission) => {
                self.told.add_for(&facts(), admission.decision.clone());
                if admission.decision.is_allowed() {
                    return Ok(admission);
                }
                Err(refused(Why::Denied(admission.decision)))
            }
        }
    }

    /// What the limits said so far.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits(self.told.clone())
    }

    /// Puts the fields about limits into a response, unless a middleware does.
    pub fn tell<B>(&self, response: &mut HttpResponse<B>) {
        if self.is_outermost {
            let (status, headers) = (response.status().as_u16(), response.headers_mut());
            self.told.each_spoken(status, |name, value| insert(headers, name, value));
        }
    }
}

/// A request that is refused: 429, 503 if the limits could not be checked, or 500
/// if nobody knows who is calling.
#[derive(Clone, Debug)]
pub struct Refused {
    why: Why,
    options: HttpOptions,
    /// What is told by this response, if no middleware tells.
    told: Option<Told>,
}

#[derive(Clone, Debug)]
enum Why {
    Denied(Box<Decision>),
    NoIdentity,
}

impl Refused {
    /// The decision, unless there is none because nobody knows who is calling.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match &self.why {
            Why::Denied(decision) => Some(decision),
            Why::NoIdentity => None,
        }
    }

    fn response(&self) -> HttpResponse<BoxBody> {
        let response = match &self.why {
            Why::Denied(decision) => denied::<BoxBody>(decision, &self.options),
            Why::NoIdentity => no_identity(),
        };
        response.map_into_boxed_body()
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.why {
            Why::Denied(decision) => decision.fmt(f),
            Why::NoIdentity => NoIdentity.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

impl ResponseError for Refused {
    fn status_code(&self) -> StatusCode {
        self.response().status()
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        let mut response = self.response();
        if let Some(told) = &self.told {
            let (status, headers) = (response.status().as_u16(), response.headers_mut());
            told.each_field(status, &self.options, |name, value| insert(headers, name, value));
        }
        response
    }
}
