//! The same limit as a middleware of reqwest-middleware.

use std::sync::Arc;

use ::reqwest::{Request, Response};
use http::Extensions;
use reqwest_middleware::{Error, Middleware, Next, Result};

use super::OutgoingLimit;

#[async_trait::async_trait]
impl Middleware for OutgoingLimit {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let key = self.key_of(&request);
        let pass = Arc::clone(&self.gate).enter(key).await.map_err(Error::middleware)?;
        let response = next.run(request, extensions).await?;
        pass.answered(response.status(), response.headers());
        Ok(response)
    }
}

impl OutgoingLimit {
    /// The key of a request of reqwest, seen as one of the `http` crate without its body.
    fn key_of(&self, request: &Request) -> Option<Box<str>> {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = request.method().clone();
        parts.uri = request.url().as_str().parse().unwrap_or_default();
        parts.headers = request.headers().clone();
        (self.key)(&parts).map(|key| Box::from(&*key))
    }
}
