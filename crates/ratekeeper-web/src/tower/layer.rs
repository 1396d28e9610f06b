//! The layer and the service it makes.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use ratekeeper::policy::{Admission, Body as Known, Hold};
use tower_layer::Layer;
use tower_service::Service;

use super::body::{RequestBody, ResponseBody};
use super::facts::{RequestRef, is_json};
use super::future::{Passing, ResponseFuture};
use super::response::{self, Dialect};
use crate::gate::{Answer, Entry, Gate, Waiting};
use crate::told::Told;

/// Puts the limits of a [`Gate`] in front of a service.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    gate: Arc<Gate>,
}

impl RateLimitLayer {
    /// The layer.
    #[must_use]
    pub fn new(gate: impl Into<Arc<Gate>>) -> Self {
        Self { gate: gate.into() }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { gate: Arc::clone(&self.gate), inner }
    }
}

/// A service behind limits.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    gate: Arc<Gate>,
    inner: S,
}

/// What a request is told, and whether it is this layer that tells.
pub(super) struct Teller {
    pub(super) told: Told,
    pub(super) is_outermost: bool,
}

impl Teller {
    fn of(parts: &mut Parts) -> Self {
        if let Some(told) = parts.extensions.get::<Told>() {
            return Self { told: told.clone(), is_outermost: false };
        }
        let told = Told::new();
        parts.extensions.insert(told.clone());
        Self { told, is_outermost: true }
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, Self::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let teller = Teller::of(&mut parts);
        let facts = RequestRef::new(&parts);
        let needs_body = self.gate.needs_of(&facts).body;
        let reads_body = needs_body && is_json(&parts) && !body.is_end_stream();
        let waiting = if reads_body {
            None
        } else {
            // A policy that is new by now and does need the body says so: it was not read.
            let known = if needs_body { Known::Absent } else { Known::Unread };
            match self.gate.enter(&facts.body(known), 1) {
                Entry::Decided(answer) => return self.decided(parts, body, teller, answer),
                Entry::Waits(waiting) => Some(waiting),
            }
        };
        // The service that is ready is this one; the copy has to become so.
        let copy = self.inner.clone();
        let ready =
            RateLimit { gate: Arc::clone(&self.gate), inner: std::mem::replace(&mut self.inner, copy) };
        ResponseFuture::slow(Box::pin(ready.decide(parts, body, teller, waiting)))
    }
}

impl<S> RateLimit<S> {
    /// What follows from a decision that is there already.
    fn decided<B, R>(
        &mut self,
        parts: Parts,
        body: B,
        teller: Teller,
        answer: Answer,
    ) -> ResponseFuture<S::Future, Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    {
        match self.verdict(&parts, &teller, answer) {
            Err(response) => ResponseFuture::denied(response),
            Ok(hold) => {
                let request = Request::from_parts(parts, RequestBody::untouched(body));
                let passing = Passing { gate: Arc::clone(&self.gate), teller, hold };
                ResponseFuture::passing(self.inner.call(request), passing)
            }
        }
    }

    /// What the request holds if it goes on, or else the response.
    #[expect(clippy::result_large_err, reason = "it is sent, not handed up")]
    fn verdict<R>(
        &self,
        parts: &Parts,
        teller: &Teller,
        answer: Answer,
    ) -> Result<Option<Hold>, Response<ResponseBody<R>>> {
        let options = &self.gate.options;
        let Ok(Admission { decision, hold }) = answer else {
            return Err(response::no_identity(Dialect::of(parts)));
        };
        let denied =
            (!decision.is_allowed()).then(|| response::denied(&decision, options, Dialect::of(parts)));
        teller.told.add_for(&RequestRef::new(parts), decision);
        let Some(mut denied) = denied else { return Ok(hold) };
        if teller.is_outermost {
            response::insert(denied.headers_mut(), teller.told.fields(options));
        }
        Err(denied)
    }

    /// Asks the store, if need be about a body that has to be read first, and goes on.
    async fn decide<B, R>(
        mut self,
        parts: Parts,
        body: B,
        teller: Teller,
        waiting: Option<Waiting>,
    ) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        B: Body<Data = Bytes> + Send + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (answer, body) = match waiting {
            Some(waiting) => (self.gate.wait(waiting).await, RequestBody::untouched(body)),
            None => {
                let (max, wait) = (self.gate.body_bytes_max, self.gate.body_wait);
                let (read, body) = RequestBody::read(body, max, wait).await;
                (judged(&self.gate, &parts, read).await, body)
            }
        };
        let hold = match self.verdict(&parts, &teller, answer) {
            Ok(hold) => hold,
            Err(response) => return Ok(response),
        };
        let passing = Passing { gate: Arc::clone(&self.gate), teller, hold };
        let response = self.inner.call(Request::from_parts(parts, body)).await?;
        Ok(passing.finish(response))
    }
}

/// Judges a request whose body has been read. The JSON in it is gone before the store is asked.
fn judged<'g>(
    gate: &'g Gate,
    parts: &Parts,
    body: Option<Bytes>,
) -> impl Future<Output = Answer> + Send + use<'g> {
    let json: Option<serde_json::Value> = body.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let known = json.as_ref().map_or(Known::Absent, Known::Json);
    gate.admit(&RequestRef::new(parts).body(known), 1)
}
