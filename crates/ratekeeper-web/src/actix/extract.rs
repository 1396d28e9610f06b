//! What handlers can ask, and how their denials become responses.

use std::convert::Infallible;
use std::future::{Ready, ready};

use actix_web::body::BoxBody;
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest, HttpResponse, ResponseError};
use ratekeeper::policy::Body;

use super::facts::RequestRef;
use super::response::{denied, failed, insert, no_identity};
use crate::admission::Admission;
use crate::gate::Gate;
use crate::handler::{Applying, Limits, Refused, Why, admission_of};
use crate::told::Told;

impl FromRequest for Limits {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self(request.extensions().get::<Told>().cloned().unwrap_or_default())))
    }
}

/// What the innermost middleware around the handler has charged for the request.
impl FromRequest for Admission {
    type Error = Refused;
    type Future = Ready<Result<Self, Refused>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let told = request.extensions().get::<Told>().cloned();
        let facts = || RequestRef::new(request).body(Body::Absent);
        ready(admission_of(told.as_ref(), |gate| gate.demand(&facts(), Some(request), 1)))
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
    applying: Applying,
}

impl FromRequest for Apply {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let applying = Applying::new(request.extensions().get::<Told>().cloned());
        ready(Ok(Self { request: request.clone(), applying }))
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
        let entry = gate.prepare(&facts(), Some(&self.request), units);
        self.applying.limit(gate, entry, facts).await
    }

    /// What the limits said so far.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits(self.applying.told.clone())
    }

    /// Puts the fields about limits into a response, unless a middleware does.
    pub fn tell<B>(&self, response: &mut HttpResponse<B>) {
        let (status, headers) = (response.status().as_u16(), response.headers_mut());
        self.applying.each_field(status, |name, value| insert(headers, name, value));
    }
}

impl Refused {
    fn response(&self) -> HttpResponse<BoxBody> {
        let response = match &self.why {
            Why::Denied(decision) => {
                denied::<BoxBody>(decision, &self.options, self.body.as_deref().cloned())
            }
            Why::NoIdentity(what) => no_identity(*what),
            Why::Failed(error) => failed(error),
        };
        response.map_into_boxed_body()
    }
}

impl ResponseError for Refused {
    fn status_code(&self) -> StatusCode {
        self.response().status()
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        let mut response = self.response();
        let (status, headers) = (response.status().as_u16(), response.headers_mut());
        self.each_field(status, |name, value| insert(headers, name, value));
        response
    }
}
