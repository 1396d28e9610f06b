//! The middleware and the service it makes.

use std::future::{Ready, ready};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::dev::{Payload, Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};
use bytes::Bytes;
use ratekeeper::Hold;
use ratekeeper::policy::{Body as Known, JsonBody};

use super::Actix;
use super::body;
use super::facts::{RequestRef, is_looked_into};
use super::future::{Passing, ResponseFuture};
use super::response;
use crate::gate::{Answer, Entry, Gate, Waiting};
use crate::limits::Limited;
use crate::response::ResponseBody;
use crate::told::{Layer, Told};

/// Puts the limits of a [`Gate`] in front of a service. Clones share the gate.
#[derive(Clone, Debug)]
pub struct RateLimit {
    gate: Arc<Gate>,
}

impl RateLimit {
    /// The middleware.
    #[must_use]
    pub fn new(gate: impl Into<Arc<Gate>>) -> Self {
        Self { gate: gate.into() }
    }
}

impl<S, B> Transform<S, ServiceRequest> for RateLimit
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>> + 'static,
    B: 'static,
{
    type Response = ServiceResponse<ResponseBody<B>>;
    type Error = S::Error;
    type Transform = RateLimitService<S>;
    type InitError = ();
    type Future = Ready<Result<RateLimitService<S>, ()>>;

    fn new_transform(&self, inner: S) -> Self::Future {
        ready(Ok(RateLimitService { gate: Arc::clone(&self.gate), inner: Rc::new(inner) }))
    }
}

impl<S, B> Transform<S, ServiceRequest> for Limited<Actix>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>> + 'static,
    B: 'static,
{
    type Response = ServiceResponse<ResponseBody<B>>;
    type Error = S::Error;
    type Transform = RateLimitService<S>;
    type InitError = ();
    type Future = Ready<Result<RateLimitService<S>, ()>>;

    fn new_transform(&self, inner: S) -> Self::Future {
        RateLimit::new(Arc::clone(self.gate())).new_transform(inner)
    }
}

/// A service behind limits.
#[derive(Debug)]
pub struct RateLimitService<S> {
    gate: Arc<Gate>,
    inner: Rc<S>,
}

/// What a request is told, and whether it is this middleware that tells.
pub(super) struct Teller {
    pub(super) told: Told,
    pub(super) is_outermost: bool,
}

impl Teller {
    fn of(request: &HttpRequest) -> Self {
        let mut extensions = request.extensions_mut();
        if let Some(told) = extensions.get::<Told>() {
            return Self { told: told.clone(), is_outermost: false };
        }
        let told = Told::new();
        extensions.insert(told.clone());
        Self { told, is_outermost: true }
    }
}

impl<S, B> Service<ServiceRequest> for RateLimitService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>> + 'static,
    B: 'static,
{
    type Response = ServiceResponse<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, B, S::Error>;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&self, mut request: ServiceRequest) -> Self::Future {
        let teller = Teller::of(request.request());
        let has_body = self.has_body(&mut request);
        let waiting = if has_body && is_looked_into(request.request()) {
            None
        } else {
            let known = if has_body { Known::Unreadable } else { Known::Absent };
            // The facts borrow the request, so they must be gone before it goes on.
            let facts = RequestRef::new(request.request()).body(known);
            let entry = self.gate.enter_as(&facts, Some(request.request()), 1);
            drop(facts);
            match entry {
                Entry::Decided(answer) => return self.decided(request, teller, answer),
                Entry::Waits(waiting) => Some(waiting),
            }
        };
        let service = Self { gate: Arc::clone(&self.gate), inner: Rc::clone(&self.inner) };
        ResponseFuture::slow(Box::pin(service.decide(request, teller, waiting)))
    }
}

impl<S, B> RateLimitService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>> + 'static,
{
    /// Whether a rule that could apply asks for the body, and there is one.
    fn has_body(&self, request: &mut ServiceRequest) -> bool {
        let (head, payload) = request.parts_mut();
        let needs_body = self.gate.needs_body_of(&RequestRef::new(head));
        needs_body && !matches!(payload, Payload::None)
    }

    /// What follows from a decision that is there already.
    fn decided(
        &self,
        request: ServiceRequest,
        teller: Teller,
        answer: Answer,
    ) -> ResponseFuture<S::Future, B, S::Error> {
        match verdict(&self.gate, &request, &teller, answer) {
            Err(response) => ResponseFuture::denied(request.into_response(response)),
            Ok(hold) => {
                let passing = Passing { gate: Arc::clone(&self.gate), teller, hold };
                ResponseFuture::passing(self.inner.call(request), passing)
            }
        }
    }

    /// Asks the store, if need be about a body that has to be read first, and goes on.
    async fn decide(
        self,
        mut request: ServiceRequest,
        teller: Teller,
        waiting: Option<Waiting>,
    ) -> Result<ServiceResponse<ResponseBody<B>>, S::Error> {
        let answer = match waiting {
            Some(waiting) => self.gate.wait(waiting).await,
            None => {
                let read = self.read(&mut request).await;
                self.gate.admit_with(request.request(), read.as_deref()).await
            }
        };
        let hold = match verdict(&self.gate, &request, &teller, answer) {
            Ok(hold) => hold,
            Err(response) => return Ok(request.into_response(response)),
        };
        let passing = Passing { gate: Arc::clone(&self.gate), teller, hold };
        let response = self.inner.call(request).await?;
        Ok(passing.finish(response))
    }

    /// The body, if it is short enough and soon enough.
    async fn read(&self, request: &mut ServiceRequest) -> Option<Bytes> {
        let (max, wait) = (self.gate.body_bytes_max, self.gate.body_wait);
        if declared_length(request.request()).is_some_and(|length| length > max as u64) {
            return None;
        }
        let (read, whole) = body::read(request.take_payload(), max, wait).await;
        request.set_payload(whole);
        read
    }
}

impl Gate {
    /// Judges a request whose body has been read. The JSON in it is gone before the
    /// store is asked.
    fn admit_with(
        &self,
        request: &HttpRequest,
        body: Option<&[u8]>,
    ) -> impl Future<Output = Answer> + use<'_> {
        let json = JsonBody::of(body);
        // The demand is kept for handlers, who could not make it again without the body.
        self.prepare(&RequestRef::new(request).body(json.as_body()), None, 1).finish(self)
    }
}

fn declared_length(request: &HttpRequest) -> Option<u64> {
    let length = request.headers().get(actix_web::http::header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// What the request holds if it goes on, or else the response.
fn verdict<B>(
    gate: &Arc<Gate>,
    request: &ServiceRequest,
    teller: &Teller,
    answer: Answer,
) -> Result<Option<Hold>, HttpResponse<ResponseBody<B>>> {
    let (decision, hold, demand) = answer.map_err(response::no_identity)?.into_parts();
    let own = || gate.denial_bodies.of(&decision, &gate.options);
    let denied = (!decision.is_allowed()).then(|| response::denied(&decision, &gate.options, own()));
    let place = teller.told.place_for(&RequestRef::new(request.request()), decision);
    let Some(mut denied) = denied else {
        let demand = demand.map(|demand| Arc::new(*demand));
        teller.told.set_layer(Layer::new(Arc::clone(gate), demand, place));
        return Ok(hold);
    };
    if teller.is_outermost {
        let (status, headers) = (denied.status().as_u16(), denied.headers_mut());
        let insert = |name, value: &str| response::insert(headers, name, value);
        teller.told.each_field(status, &gate.options, insert);
    }
    Err(denied)
}
