//! The future of a response.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use pin_project_lite::pin_project;
use ratekeeper::Hold;
use ratekeeper_http::HttpOptions;

use super::bodies::ResponseBodies;
use super::layer::Teller;
use super::response;
use crate::response::Progress;
use crate::told::{Report, Told};

/// A request that goes on: what is to be done with its response.
pub(super) struct Passing {
    pub(super) options: HttpOptions,
    pub(super) teller: Teller,
    pub(super) hold: Option<Hold>,
}

impl Passing {
    pub(super) fn finish<C: ResponseBodies<R>, R>(self, response: Response<R>) -> Response<C::Body> {
        let mut response = C::passed(response, self.hold);
        if let Teller::Outermost(told) = self.teller {
            told.tell(&mut response, &self.options);
            told.recycle();
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
        headers.reserve(options.field_count());
        self.report(status, |report| match report {
            Report::One(decision) => response::tell(headers, decision, options),
            Report::Several(tally) => {
                tally.each_field(options, |name, value| response::insert(headers, name, value));
            }
        });
    }
}

type Slow<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

pin_project! {
    /// The response of a service behind limits.
    pub struct ResponseFuture<F, C, T, E> {
        #[pin]
        progress: Progress<F, Passing, T, Slow<T, E>>,
        bodies: PhantomData<fn() -> C>,
    }
}

impl<F, C, T, E> ResponseFuture<F, C, T, E> {
    pub(super) fn denied(response: T) -> Self {
        Self { progress: Progress::denied(response), bodies: PhantomData }
    }

    pub(super) fn passing(inner: F, passing: Passing) -> Self {
        Self { progress: Progress::passing(inner, passing), bodies: PhantomData }
    }

    pub(super) fn slow(slow: Slow<T, E>) -> Self {
        Self { progress: Progress::Slow { slow }, bodies: PhantomData }
    }
}

impl<F, C, R, E> Future for ResponseFuture<F, C, Response<C::Body>, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    C: ResponseBodies<R>,
{
    type Output = Result<Response<C::Body>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().progress.poll(context, |response, passing| match passing {
            Some(passing) => passing.finish::<C, R>(response),
            None => C::passed(response, None),
        })
    }
}

impl<F, C, T, E> std::fmt::Debug for ResponseFuture<F, C, T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
