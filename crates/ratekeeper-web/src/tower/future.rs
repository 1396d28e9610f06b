//! The future of a response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;
use ratekeeper::policy::Hold;

use super::body::ResponseBody;
use super::layer::Teller;
use super::response;
use crate::gate::Gate;

/// A request that goes on: what is to be done with its response.
pub(super) struct Passing {
    pub(super) gate: Arc<Gate>,
    pub(super) teller: Teller,
    pub(super) hold: Option<Hold>,
}

impl Passing {
    pub(super) fn finish<R>(self, response: Response<R>) -> Response<ResponseBody<R>> {
        let mut response = response.map(|body| ResponseBody::service(body, self.hold));
        if self.teller.is_outermost {
            let fields = self.teller.told.fields_with(response.status().as_u16(), &self.gate.options);
            response::insert(response.headers_mut(), fields);
        }
        response
    }
}

type Slow<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

pin_project! {
    /// The response of a service behind limits.
    pub struct ResponseFuture<F, T, E> {
        #[pin]
        state: State<F, T, E>,
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

impl<F, T, E> ResponseFuture<F, T, E> {
    pub(super) fn denied(response: T) -> Self {
        Self { state: State::Denied { response: Some(response) } }
    }

    pub(super) fn passing(inner: F, passing: Passing) -> Self {
        Self { state: State::Passing { inner, passing: Some(passing) } }
    }

    pub(super) fn slow(slow: Slow<T, E>) -> Self {
        Self { state: State::Slow { slow } }
    }
}

impl<F, R, E> Future for ResponseFuture<F, Response<ResponseBody<R>>, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

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
                    Some(passing) => passing.finish(response),
                    None => response.map(|body| ResponseBody::service(body, None)),
                }))
            }
            StatePinned::Slow { slow } => slow.as_mut().poll(context),
        }
    }
}

impl<F, T, E> std::fmt::Debug for ResponseFuture<F, T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
