//! The layer and the service it makes.

use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use ratekeeper::Admission;
use ratekeeper::policy::{Body as Known, JsonBody};
use tower_layer::Layer as TowerLayer;
use tower_service::Service;
use tracing::Span;

use super::bodies::{RequestBodies, ResponseBodies, Wrapped};
use super::body::RequestBody;
use super::facts::{RequestRef, is_looked_into};
use super::future::{Passing, ResponseFuture};
use super::response::{self, Dialect};
use crate::gate::{Answer, Entry, Gate, Waiting};
use crate::limits::Limited;
use crate::told::{Layer, Told, current_span, mark_if_watched};

/// Puts the limits of a [`Gate`] in front of a service.
#[derive(Clone, Debug)]
pub struct RateLimitLayer<C = Wrapped> {
    gate: Arc<Gate>,
    bodies: PhantomData<fn() -> C>,
}

impl RateLimitLayer {
    /// The layer, for any service. Routers of axum have a faster one:
    /// `ratekeeper_web::axum::rate_limit`.
    #[must_use]
    pub fn new(gate: impl Into<Arc<Gate>>) -> Self {
        Self::with_bodies(gate)
    }
}

impl<C> RateLimitLayer<C> {
    /// The layer, for services with bodies of this kind.
    #[must_use]
    pub fn with_bodies(gate: impl Into<Arc<Gate>>) -> Self {
        Self { gate: gate.into(), bodies: PhantomData }
    }
}

impl<S, C> TowerLayer<S> for RateLimitLayer<C> {
    type Service = RateLimit<S, C>;

    fn layer(&self, inner: S) -> RateLimit<S, C> {
        RateLimit { gate: Arc::clone(&self.gate), inner, bodies: PhantomData }
    }
}

impl<S, C> TowerLayer<S> for Limited<C> {
    type Service = RateLimit<S, C>;

    fn layer(&self, inner: S) -> RateLimit<S, C> {
        RateLimit { gate: Arc::clone(self.gate()), inner, bodies: PhantomData }
    }
}

/// A service behind limits.
#[derive(Clone, Debug)]
pub struct RateLimit<S, C = Wrapped> {
    gate: Arc<Gate>,
    inner: S,
    bodies: PhantomData<fn() -> C>,
}

/// A response on its way out.
type Passed<C, R> = Response<<C as ResponseBodies<R>>::Body>;

/// Who tells the client, if the request goes on.
pub(super) enum Teller {
    /// A layer around this one.
    Other,
    /// This layer: there is none around it.
    Outermost(Told),
}

impl<S, B, R, C> Service<Request<B>> for RateLimit<S, C>
where
    C: RequestBodies<B> + ResponseBodies<R> + 'static,
    <C as ResponseBodies<R>>::Body: 'static,
    S: Service<Request<<C as RequestBodies<B>>::Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: 'static,
{
    type Response = Passed<C, R>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, C, Self::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if self.gate.is_in_code() {
            return self.call_in_code(request);
        }
        let facts = RequestRef::of(&request);
        let has_body = !request.body().is_end_stream();
        let needs_body = has_body && self.gate.needs_body_of(&facts);
        let waiting = if needs_body && is_looked_into(request.headers()) {
            None
        } else {
            let known = match (has_body, needs_body) {
                (false, _) => Known::Absent,
                // A policy that is new by now and does need the body says so: it was not read.
                (true, false) => Known::Unread,
                (true, true) => Known::Unreadable,
            };
            match self.gate.enter(&facts.body(known), 1) {
                Entry::Decided(answer) => return self.decided(request, answer),
                Entry::Waits(waiting) => Some(waiting),
            }
        };
        ResponseFuture::slow(Box::pin(self.take().decide(request, current_span(), waiting)))
    }
}

impl<S, C> RateLimit<S, C> {
    /// A request that rules in code look at, as its parts.
    fn call_in_code<B, R>(
        &mut self,
        request: Request<B>,
    ) -> ResponseFuture<S::Future, C, Passed<C, R>, S::Error>
    where
        C: RequestBodies<B> + ResponseBodies<R> + 'static,
        <C as ResponseBodies<R>>::Body: 'static,
        S: Service<Request<<C as RequestBodies<B>>::Body>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        R: 'static,
    {
        let (parts, body) = request.into_parts();
        let entry = self.gate.enter_as(&RequestRef::new(&parts), Some(&parts), 1);
        let request = Request::from_parts(parts, body);
        match entry {
            Entry::Decided(answer) => self.decided(request, answer),
            Entry::Waits(waiting) => {
                let deciding = self.take().decide(request, current_span(), Some(waiting));
                ResponseFuture::slow(Box::pin(deciding))
            }
        }
    }

    /// The service that is ready, to be called later; the copy that stays has to become so.
    fn take(&mut self) -> Self
    where
        S: Clone,
    {
        let copy = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, copy);
        Self { gate: Arc::clone(&self.gate), inner, bodies: self.bodies }
    }

    /// What follows from a decision that is there already.
    #[inline]
    fn decided<B, R>(
        &mut self,
        mut request: Request<B>,
        answer: Answer,
    ) -> ResponseFuture<S::Future, C, Passed<C, R>, S::Error>
    where
        C: RequestBodies<B> + ResponseBodies<R>,
        S: Service<Request<<C as RequestBodies<B>>::Body>, Response = Response<R>>,
    {
        match self.verdict(&mut request, current_span(), answer) {
            Err(response) => ResponseFuture::denied(response),
            Ok(passing) => ResponseFuture::passing(self.inner.call(C::untouched(request)), passing),
        }
    }

    /// What is to be done with the response if the request goes on, or else its response.
    fn verdict<B, R>(
        &self,
        request: &mut Request<B>,
        root: Span,
        answer: Answer,
    ) -> Result<Passing, Passed<C, R>>
    where
        C: ResponseBodies<R>,
    {
        let (decision, hold, demand) = match answer {
            Ok(admission) => admission.into_parts(),
            Err(what) => {
                let dialect = Dialect::of(request.method(), request.headers());
                return Err(response::no_identity(what, dialect, C::denial));
            }
        };
        let facts = RequestRef::of(request);
        let outer = request.extensions().get::<Told>();
        if !decision.is_allowed() {
            let dialect = Dialect::of(request.method(), request.headers());
            let (options, own) =
                (&self.gate.options, self.gate.denial_bodies.of(&decision, &self.gate.options));
            let mut denied = response::denied(&decision, options, own, dialect, C::denial);
            match outer {
                Some(told) => told.add_for(&facts, decision),
                None => {
                    mark_if_watched(&root, &facts, &decision);
                    response::tell(denied.headers_mut(), &decision, &self.gate.options);
                    Admission::recycle(decision);
                }
            }
            return Err(denied);
        }
        let gate = Arc::clone(&self.gate);
        let mut layer = Layer::new(gate, demand.map(|demand| Arc::new(*demand)), 0);
        let teller = match outer {
            Some(told) => {
                layer.place = told.place_for(&facts, decision);
                told.set_layer(layer);
                Teller::Other
            }
            None => {
                let told = Told::first(root, &facts, decision, layer);
                request.extensions_mut().insert(told.clone());
                Teller::Outermost(told)
            }
        };
        Ok(Passing { options: self.gate.options, teller, hold })
    }

    /// Asks the store, if need be about a body that has to be read first, and goes on.
    async fn decide<B, R>(
        mut self,
        request: Request<B>,
        root: Span,
        waiting: Option<Waiting>,
    ) -> Result<Passed<C, R>, S::Error>
    where
        C: RequestBodies<B> + ResponseBodies<R>,
        S: Service<Request<<C as RequestBodies<B>>::Body>, Response = Response<R>>,
        B: Body<Data = Bytes> + Send + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (answer, mut request) = match waiting {
            Some(waiting) => (self.gate.wait(waiting).await, request.map(RequestBody::untouched)),
            None => {
                let (parts, body) = request.into_parts();
                let (max, wait) = (self.gate.body_bytes_max, self.gate.body_wait);
                let (read, body) = RequestBody::read(body, max, wait).await;
                let request = Request::from_parts(parts, body);
                (judged(&self.gate, &request, read.as_deref()).await, request)
            }
        };
        let passing = match self.verdict(&mut request, root, answer) {
            Ok(passing) => passing,
            Err(response) => return Ok(response),
        };
        let response = self.inner.call(request.map(C::read)).await?;
        Ok(passing.finish::<C, R>(response))
    }
}

/// Judges a request whose body has been read. The JSON in it is gone before the store is asked.
fn judged<'g, B>(
    gate: &'g Gate,
    request: &Request<B>,
    body: Option<&[u8]>,
) -> impl Future<Output = Answer> + Send + use<'g, B> {
    let json = JsonBody::of(body);
    // The demand is kept for handlers, who could not make it again without the body.
    gate.prepare(&RequestRef::of(request).body(json.as_body()), None, 1).finish(gate)
}
