//! Responses on their way out, whatever the framework: what they hold until they are sent,
//! and the future of one.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use pin_project_lite::pin_project;
use ratekeeper::Hold;

pin_project! {
    /// The body of a response: the service's, or that of a denial.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        pub(crate) kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindPinned]
    #[derive(Debug)]
    pub(crate) enum Kind<B> {
        Service {
            #[pin]
            body: B,
            // Given back when the body has been sent or dropped.
            hold: Option<Hold>,
        },
        Denial { text: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn service(body: B, hold: Option<Hold>) -> Self {
        Self { kind: Kind::Service { body, hold } }
    }

    pub(crate) fn denial(text: Bytes) -> Self {
        Self { kind: Kind::Denial { text: (!text.is_empty()).then_some(text) } }
    }

    /// The next piece: `next` asks the service's body, `whole` makes one of a denial.
    pub(crate) fn poll_piece<T, E>(
        self: Pin<&mut Self>,
        next: impl FnOnce(Pin<&mut B>) -> Poll<Option<Result<T, E>>>,
        whole: impl FnOnce(Bytes) -> T,
    ) -> Poll<Option<Result<T, E>>> {
        match self.project().kind.project() {
            KindPinned::Service { body, hold } => {
                let piece = ready!(next(body));
                if !matches!(piece, Some(Ok(_))) {
                    drop(hold.take());
                }
                Poll::Ready(piece)
            }
            KindPinned::Denial { text } => Poll::Ready(text.take().map(|text| Ok(whole(text)))),
        }
    }
}

pin_project! {
    /// Where a request is: `inner` is the service at work, `P` what is to be done with its
    /// response `T`.
    #[project = ProgressPinned]
    pub(crate) enum Progress<F, P, T, S> {
        // Denied: the service is not asked.
        Denied { response: Option<T> },
        // Decided already; the service is at work.
        Passing { #[pin] inner: F, passing: Option<P> },
        // The decision takes I/O, or a body has to be read.
        Slow { slow: S },
    }
}

impl<F, P, T, S> Progress<F, P, T, S> {
    pub(crate) fn denied(response: T) -> Self {
        Self::Denied { response: Some(response) }
    }

    pub(crate) fn passing(inner: F, passing: P) -> Self {
        Self::Passing { inner, passing: Some(passing) }
    }

    /// The response, once it is there; `finish` makes it of the service's.
    pub(crate) fn poll<R, E>(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        finish: impl FnOnce(R, Option<P>) -> T,
    ) -> Poll<Result<T, E>>
    where
        F: Future<Output = Result<R, E>>,
        S: Future<Output = Result<T, E>> + Unpin,
    {
        match self.project() {
            ProgressPinned::Denied { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => Poll::Pending,
            },
            ProgressPinned::Passing { inner, passing } => {
                let response = ready!(inner.poll(context));
                // An error of the service drops what the request held.
                let passing = passing.take();
                Poll::Ready(response.map(|response| finish(response, passing)))
            }
            ProgressPinned::Slow { slow } => Pin::new(slow).poll(context),
        }
    }
}
