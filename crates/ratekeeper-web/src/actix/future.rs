//! The future of a response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::dev::ServiceResponse;
use futures_util::future::LocalBoxFuture;
use pin_project_lite::pin_project;
use ratekeeper::Hold;

use super::middleware::Teller;
use super::response;
use crate::gate::Gate;
use crate::response::{Progress, ResponseBody};

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
type Slow<B, E> = LocalBoxFuture<'static, Output<B, E>>;

pin_project! {
    /// The response of a service behind limits.
    pub struct ResponseFuture<F, B, E> {
        #[pin]
        progress: Progress<F, Passing, ServiceResponse<ResponseBody<B>>, Slow<B, E>>,
    }
}

impl<F, B, E> ResponseFuture<F, B, E> {
    pub(super) fn denied(response: ServiceResponse<ResponseBody<B>>) -> Self {
        Self { progress: Progress::denied(response) }
    }

    pub(super) fn passing(inner: F, passing: Passing) -> Self {
        Self { progress: Progress::passing(inner, passing) }
    }

    pub(super) fn slow(slow: Slow<B, E>) -> Self {
        Self { progress: Progress::Slow { slow } }
    }
}

impl<F, B, E> Future for ResponseFuture<F, B, E>
where
    F: Future<Output = Result<ServiceResponse<B>, E>>,
{
    type Output = Output<B, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().progress.poll(context, |response: ServiceResponse<B>, passing| match passing {
            Some(passing) => passing.finish(response),
            None => response.map_body(|_, body| ResponseBody::service(body, None)),
        })
    }
}

impl<F, B, E> std::fmt::Debug for ResponseFuture<F, B, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
