//! The future of a response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_web::dev::ServiceResponse;
use futures_util::future::LocalBoxFuture;
use pin_project_lite::pin_project;
use ratekeeper::policy::Hold;

use super::body::ResponseBody;
use super::middleware::Teller;
use super::response;
use crate::gate::Gate;

/// A request that goes on: what is to be done with its response.
pub(super) struct Passing {
    pub(super) gate: Arc<Gate>,
    pub(super) teller: Teller,
    pub(super) hold: Option<Hold>,
}

impl Passing {
    pub(super) fn finish<B>(self, response: ServiceResponse<B>) -> ServiceResponse<ResponseBody<B>> {
        let mut response = response.map_body(|_, body| ResponseBody::service(body, self.hold));
        if self.teller.is_outermost {
            let (status, headers) = (response.status().as_u16(), response.headers_mut());
            let insert = |name, value: &str| response::insert(headers, name, value);
            self.teller.told.each_field(status, &self.gate.options, insert);
        }
        response
    }
}

type Output<B, E> = Result<ServiceResponse<ResponseBody<B>>, E>;

pin_project! {
    /// The response of a service behind limits.
    pub struct ResponseFuture<F, B, E> {
        #[pin]
        state: State<F, B, E>,
    }
}

pin_project! {
    #[project = StatePinned]
    enum State<F, B, E> {
        // Denied: the service is not asked.
        Denied { response: Option<ServiceResponse<ResponseBody<B>>> },
        // Decided already; the service is at work.
        Passing { #[pin] inner: F, passing: Option<Passing> },
        // The decision takes I/O, or a body has to be read.
        Slow { slow: LocalBoxFuture<'static, Output<B, E>> },
    }
}

impl<F, B, E> ResponseFuture<F, B, E> {
    pub(super) fn denied(response: ServiceResponse<ResponseBody<B>>) -> Self {
        Self { state: State::Denied { response: Some(response) } }
    }

    pub(super) fn passing(inner: F, passing: Passing) -> Self {
        Self { state: State::Passing { inner, passing: Some(passing) } }
    }

    pub(super) fn slow(slow: LocalBoxFuture<'static, Output<B, E>>) -> Self {
        Self { state: State::Slow { slow } }
    }
}

impl<F, B, E> Future for ResponseFuture<F, B, E>
where
    F: Future<Output = Result<ServiceResponse<B>, E>>,
{
    type Output = Output<B, E>;

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
                    None => response.map_body(|_, body| ResponseBody::service(body, None)),
                }))
            }
            StatePinned::Slow { slow } => slow.as_mut().poll(context),
        }
    }
}

impl<F, B, E> std::fmt::Debug for ResponseFuture<F, B, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
