//! HTTP/1.1 on a connection: which call it is, its body within bounds, its answer.
//!
//! There is no framework between a connection and a call: hyper reads the head, a
//! `match` finds the call, and most calls are answered without waiting for anything.

mod body;
mod connection;
mod head;
mod response;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ALLOW;
use http::{HeaderValue, Method, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use self::connection::Connection;
use self::response::{challenge, challenged, response, unread};
use super::admin::Admin;
use super::api::{Answer, Api, JSON, Problem};
use super::listener::{Finishing, Protocol, Serving, Stop, Stream};
use super::metrics::{self, Endpoint};
use super::otlp::{Collector, Exporting, Tracer};
use super::{health, openapi};

/// The longest body of a call, in bytes.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// The longest body of a batch, in bytes.
pub const BATCH_BYTES_MAX: usize = 2 << 20;
/// The most bytes of memory that the bodies of all calls take together, unless told
/// otherwise. Short ones and those that come with their head are not counted: they are
/// part of what a connection takes.
pub const BODIES_BYTES_MAX: usize = 64 << 20;
/// The most bytes that are kept of a head that is not complete.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most header lines of a request.
pub const HEAD_LINES_MAX: usize = 64;
/// How long a connection may be without a request under way, unless told otherwise;
/// it is noticed after twice that at the latest.
pub const IDLE_DEFAULT: Duration = Duration::from_secs(30);
/// How long is waited for a body, unless told otherwise.
pub const BODY_WAIT_DEFAULT: Duration = Duration::from_secs(10);

/// The HTTP API as something that listens.
#[derive(Debug)]
pub struct Http {
    api: Arc<Api>,
    admin: Admin,
    stop: Stop,
    idle: Duration,
    body_wait: Duration,
    bodies: body::Room,
    tracer: Option<Arc<Tracer>>,
}

impl Http {
    /// Serves `api`, what is for operators to those that `admin` admits.
    #[must_use]
    pub fn new(api: Arc<Api>, admin: Admin, stop: Stop) -> Self {
        Self {
            api,
            admin,
            stop,
            idle: IDLE_DEFAULT,
            body_wait: BODY_WAIT_DEFAULT,
            bodies: body::Room::of(BODIES_BYTES_MAX),
            tracer: None,
        }
    }

    /// The most bytes that the bodies of all calls take together; see [`BODIES_BYTES_MAX`].
    #[must_use]
    pub fn bodies_max(self, bytes: usize) -> Self {
        Self { bodies: body::Room::of(bytes), ..self }
    }

    /// How long a connection may be without a request, and how long is waited for a body.
    #[must_use]
    pub fn patience(self, idle: Duration, body_wait: Duration) -> Self {
        Self { idle, body_wait, ..self }
    }

    /// Sends traces and metrics to a collector, within a tokio runtime; what is returned
    /// sends what is left when everything has been served.
    #[must_use]
    pub fn traced(self, collector: Collector) -> (Self, Exporting) {
        let tracer = Arc::new(Tracer::default());
        let sending = collector.start(Arc::clone(&self.api), Arc::clone(&tracer), self.stop.clone());
        (Self { tracer: Some(tracer), ..self }, sending)
    }

    /// Finds the call and answers it.
    async fn call(&self, request: http::Request<Incoming>) -> (Endpoint, Response<Full<Bytes>>) {
        let (head, body) = request.into_parts();
        let endpoint = endpoint_of(head.uri.path());
        let answer = match (endpoint, is_read(endpoint)) {
            (Endpoint::Unknown, _) => {
                Problem::new(404, "there is no such call; /openapi.json tells of all").into()
            }
            (_, true) if matches!(head.method, Method::GET | Method::HEAD) => {
                self.read(endpoint, &head).await
            }
            (_, false) if head.method == Method::POST => {
                let max = if is_batch(endpoint) { BATCH_BYTES_MAX } else { BODY_BYTES_MAX };
                match self.admitted(endpoint, &head) {
                    Ok(()) => match self.bodies.read(body, max, self.body_wait).await {
                        Ok(body) => self.write(endpoint, &body.bytes).await,
                        Err(problem) => return (endpoint, unread(problem)),
                    },
                    Err(problem) => return (endpoint, challenged(problem)),
                }
            }
            (_, reads) => {
                let allowed = if reads { "GET, HEAD" } else { "POST" };
                let problem = Problem::new(405, format!("expected {allowed}"));
                let mut response = response(problem.into());
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
                return (endpoint, response);
            }
        };
        if answer.status == 401 {
            return (endpoint, challenge(response(answer)));
        }
        (endpoint, response(answer))
    }

    fn admitted(&self, endpoint: Endpoint, head: &http::request::Parts) -> Result<(), Problem> {
        match endpoint {
            Endpoint::Reset | Endpoint::HotKeys | Endpoint::Policies => self.admin.admits(head),
            _ => Ok(()),
        }
    }

    /// Calls that change something.
    #[inline]
    async fn write(&self, endpoint: Endpoint, body: &[u8]) -> Answer {
        let api = &self.api;
        match endpoint {
            Endpoint::Limit => api.limit(body).await,
            Endpoint::Check => api.check(body).await,
            Endpoint::LimitBatch => Box::pin(api.limit_batch(body)).await,
            Endpoint::CheckBatch => Box::pin(api.check_batch(body)).await,
            Endpoint::Peek => Box::pin(api.peek(body)).await,
            Endpoint::Explain => Box::pin(api.explain(body)).await,
            Endpoint::Refund => Box::pin(api.refund(body)).await,
            Endpoint::Reserve => Box::pin(api.reserve(body)).await,
            Endpoint::Settle => Box::pin(api.settle(body)).await,
            Endpoint::Cancel => Box::pin(api.cancel(body)).await,
            _ => {
                let answer = Box::pin(api.reset(body)).await;
                // What an operator did is on record; whose counters they were is nobody's business.
                tracing::info!(status = answer.status, "an operator had counters forgotten");
                answer
            }
        }
    }

    /// Calls that only tell.
    async fn read(&self, endpoint: Endpoint, head: &http::request::Parts) -> Answer {
        if let Err(problem) = self.admitted(endpoint, head) {
            return problem.into();
        }
        let is_stopping = self.stop.is_stopping();
        match endpoint {
            Endpoint::Healthz => Answer::of("text/plain; charset=utf-8", "ok\n"),
            Endpoint::Readyz => {
                let (is_ready, report) = Box::pin(health::report(&self.api, is_stopping)).await;
                Answer { status: if is_ready { 200 } else { 503 }, ..Answer::json(&report) }
            }
            Endpoint::Metrics => {
                let is_ready = Box::pin(health::is_well(&self.api)).await && !is_stopping;
                Answer::of(metrics::CONTENT_TYPE, metrics::text(metrics::families(&self.api, is_ready)))
            }
            Endpoint::HotKeys => Answer::json(&serde_json::json!({ "keys": self.api.hot.list() })),
            Endpoint::Policies => Answer::json(&health::policies(&self.api)),
            _ => Answer::of(JSON, openapi::text()),
        }
    }
}

impl Protocol for Http {
    fn name(&self) -> &'static str {
        "HTTP"
    }

    fn opened(&self) {
        self.api.metrics.connection_opened();
    }

    fn closed(&self) {
        self.api.metrics.connection_closed();
    }

    fn refused(&self) -> &'static [u8] {
        self.api.metrics.connection_refused();
        b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
          content-type: application/problem+json\r\ncontent-length: 97\r\n\r\n\
          {\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\"detail\":\"too many connections\"}"
    }

    fn serve(self: Arc<Self>, stream: Stream, finishing: Finishing) -> Serving {
        match stream {
            Stream::Plain(stream) => Box::pin(Connection::serve(self, TokioIo::new(stream), finishing)),
            Stream::Tls(stream) => Box::pin(Connection::serve(self, TokioIo::new(stream), finishing)),
        }
    }
}

fn endpoint_of(path: &str) -> Endpoint {
    match path {
        "/v1/limit" => Endpoint::Limit,
        "/v1/check" => Endpoint::Check,
        _ => {
            let mut known = Endpoint::ALL.into_iter().filter(|endpoint| *endpoint != Endpoint::Unknown);
            known.find(|endpoint| endpoint.path() == path).unwrap_or(Endpoint::Unknown)
        }
    }
}

/// Whether a call only tells.
const fn is_read(endpoint: Endpoint) -> bool {
    matches!(
        endpoint,
        Endpoint::HotKeys
            | Endpoint::Policies
            | Endpoint::Metrics
            | Endpoint::OpenApi
            | Endpoint::Healthz
            | Endpoint::Readyz
    )
}

const fn is_batch(endpoint: Endpoint) -> bool {
    matches!(endpoint, Endpoint::CheckBatch | Endpoint::LimitBatch)
}
