//! The future of a response.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;
use ratekeeper::policy::Hold;
use ratekeeper_http::{FIELDS_MAX, HttpOptions};

use super::bodies::ResponseBodies;
use super::layer::Teller;
use super::response;
use crate::gate::Gate;
use crate::told::Told;

/// A request that goes on: what is to be done with its response.
pub(super) struct Passing {
    pub(super) gate: Arc<Gate>,
    pub(super) teller: Teller,
    pub(super) hold: Option<Hold>,
}

impl Passing {
    pub(super) fn finish<C: ResponseBodies<R>, R>(self, response: Response<R>) -> Response<C::Body> {
        let mut response = C::passed(response, self.hold);
        if let Teller::Outermost(told) = &self.teller {
            told.tell(&mut response, &self.gate.options);
        }
        response
    }
}

impl Told {
    fn tell<B>(&self, response: &mut Response<B>, options: &HttpOptions) {
        if !options.has_fields() {
            return;
        }
        let status = response.status().as_u16();
        let headers = response.headers_mut();
        headers.reserve(FIELDS_MAX);
        self.each_field(status, options, |name, value| response::insert(headers, name, value));
    }
}

type Slow<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

pin_project! {
    /// The response of a service behind limits.
    pub struct ResponseFuture<F, C, T, E> {
        #[pin]
        state: State<F, T, E>,
        bodies: PhantomData<fn() -> C>,
    }
}

pin_project! {
    #[project = StatePinned]
    enum State<F, T, E> {
        // Denied: the service is not asked.
        Denied { response: Option<T> },
        // Decided already; the service is at work.
        Passing { #[pin] inner: F, passing: Option<Passing> },
        // The decision takes I/O, or a body has to be read.
        Slow { slow: Slow<T, E> },
    }
}

impl<F, C, T, E> ResponseFuture<F, C, T, E> {
    pub(super) fn denied(response: T) -> Self {
        Self { state: State::Denied { response: Some(response) }, bodies: PhantomData }
    }

    pub(super) fn passing(inner: F, passing: Passing) -> Self {
        Self { state: State::Passing { inner, passing: Some(passing) }, bodies: PhantomData }
    }

    pub(super) fn slow(slow: Slow<T, E>) -> Self {
        Self { state: State::Slow { slow }, bodies: PhantomData }
    }
}

impl<F, C, R, E> Future for ResponseFuture<F, C, Response<C::Body>, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    C: ResponseBodies<R>,
{
    type Output = Result<Response<C::Body>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StatePinned::Denied { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => Poll::Pending,
            },
            StatePinned::Passing { inner, passing } => {
                let response = ready!(inner.poll(context));
                // An error of the service drops what the request held.
                let passing = passing.take();
                Poll::Ready(response.map(|response| match passing {
                    Some(passing) => passing.finish::<C, R>(response),
                    None => C::passed(response, None),
                }))
            }
            StatePinned::Slow { slow } => slow.as_mut().poll(context),
        }
    }
}

impl<F, C, T, E> std::fmt::Debug for ResponseFuture<F, C, T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
