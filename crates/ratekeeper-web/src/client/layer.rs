//! The layer around a client.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::{NotSent, OutgoingLimit};

/// A client behind a limit.
#[derive(Clone, Debug)]
pub struct OutgoingService<S> {
    limit: OutgoingLimit,
    inner: S,
}

impl<S> Layer<S> for OutgoingLimit {
    type Service = OutgoingService<S>;

    fn layer(&self, inner: S) -> OutgoingService<S> {
        OutgoingService { limit: self.clone(), inner }
    }
}

/// Why there is no response.
#[derive(Debug)]
pub enum OutgoingError<E> {
    /// The request was not sent.
    NotSent(NotSent),
    /// The client failed.
    Client(E),
}

impl<E: fmt::Display> fmt::Display for OutgoingError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) => why.fmt(f),
            Self::Client(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for OutgoingError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotSent(why) => Some(why),
            Self::Client(error) => error.source(),
        }
    }
}

impl<S, B, R> Service<Request<B>> for OutgoingService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<R>;
    type Error = OutgoingError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, Self::Error>> + Send>>;

    /// Always: a request waits here, where it is counted, and the client is asked whether it is ready then.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let key = (self.limit.key)(&parts).map(|key| Box::from(&*key));
        let request = Request::from_parts(parts, body);
        let entering = Arc::clone(&self.limit.gate).enter(key);
        let mut client = self.inner.clone();
        Box::pin(async move {
            let pass = entering.await.map_err(OutgoingError::NotSent)?;
            poll_fn(|context| client.poll_ready(context)).await.map_err(OutgoingError::Client)?;
            let response = client.call(request).await.map_err(OutgoingError::Client)?;
            pass.answered(response.status(), response.headers());
            Ok(response)
        })
    }
}
