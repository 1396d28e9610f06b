//! HTTP/1.1 on a connection: which call it is, its body within bounds, its answer.
//!
//! There is no framework between a connection and a call: hyper reads the head, a
//! `match` finds the call, and most calls are answered without waiting for anything.

mod answer;
mod body;
mod connection;
mod head;
mod response;
mod room;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, HOST};
use http::{HeaderValue, Method, Response, Version};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use self::answer::AnswerBody;
use self::connection::Connection;
use self::response::{challenge, challenged, no_room, response, response_in, unread};
use self::room::{Room, Taken};
use super::admin::Admin;
use super::api::{Answer, Api, JSON, Problem};
use super::listener::{Finishing, Place, Protocol, Serving, Stop, Stream};
use super::metrics::{self, Endpoint};
use super::otlp::{Collector, Exporting, Tracer};
use super::{health, openapi};

/// The longest body of a call, in bytes.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// The longest body of a batch, in bytes.
pub const BATCH_BYTES_MAX: usize = 2 << 20;
/// The most bytes of memory that the bodies of all calls and their answers take together,
/// unless told otherwise. Short ones are not counted: they are part of what a connection takes.
pub const BODIES_BYTES_MAX: usize = 64 << 20;
/// The same for answers that only tell, such as metrics: they are there also when calls
/// have no room left.
pub const TOLD_BYTES_MAX: usize = 16 << 20;
/// The most bytes that are kept of a head that is not complete.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most header lines of a request.
pub const HEAD_LINES_MAX: usize = 64;
/// How long a connection may be without a request under way, unless told otherwise;
/// it is noticed after twice that at the latest.
pub const IDLE_DEFAULT: Duration = Duration::from_secs(30);
/// How long is waited for a body, unless told otherwise.
pub const BODY_WAIT_DEFAULT: Duration = Duration::from_secs(10);

/// What is said on a connection that is one too many.
const TOO_MANY: &str = "too many connections";

/// The HTTP API as something that listens.
#[derive(Debug)]
pub struct Http {
    api: Arc<Api>,
    admin: Arc<Admin>,
    stop: Stop,
    idle: Duration,
    body_wait: Duration,
    bodies: Room,
    told: Room,
    tracer: Option<Arc<Tracer>>,
}

impl Http {
    /// Serves `api`, what is for operators to those that `admin` admits.
    #[must_use]
    pub fn new(api: Arc<Api>, admin: impl Into<Arc<Admin>>, stop: Stop) -> Self {
        Self {
            api,
            admin: admin.into(),
            stop,
            idle: IDLE_DEFAULT,
            body_wait: BODY_WAIT_DEFAULT,
            bodies: Room::of(BODIES_BYTES_MAX),
            told: Room::of(TOLD_BYTES_MAX),
            tracer: None,
        }
    }

    /// The most bytes that the bodies of all calls and their answers take together; see [`BODIES_BYTES_MAX`].
    #[must_use]
    pub fn bodies_max(self, bytes: usize) -> Self {
        Self { bodies: Room::of(bytes), ..self }
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
    async fn call(&self, request: http::Request<Incoming>, place: Place) -> (Endpoint, Response<AnswerBody>) {
        let (head, body) = request.into_parts();
        let endpoint = endpoint_of(head.uri.path());
        if place == Place::Spare && !tells_how_it_is(endpoint) {
            self.api.metrics.connection_refused();
            return (endpoint, unread(Problem::new(503, TOO_MANY)));
        }
        let response = match (endpoint, is_read(endpoint)) {
            // As RFC 9112 has it, section 3.2: who passes requests on goes by it.
            _ if head.version == Version::HTTP_11 && head.headers.get_all(HOST).iter().count() != 1 => {
                unread(Problem::new(400, "expected one Host field"))
            }
            (Endpoint::Unknown, _) => {
                response(Problem::new(404, "there is no such call; /openapi.json tells of all").into())
            }
            (_, true) if matches!(head.method, Method::GET | Method::HEAD) => {
                self.read(endpoint, &head).await
            }
            (_, false) if head.method == Method::POST => match self.admitted(endpoint, &head) {
                Ok(()) => self.write(endpoint, body).await,
                Err(problem) => challenged(problem),
            },
            (_, reads) => {
                let allowed = if reads { "GET, HEAD" } else { "POST" };
                let mut response = response(Problem::new(405, format!("expected {allowed}")).into());
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
                response
            }
        };
        (endpoint, response)
    }

    /// Calls that change something. There is room for the answer before anything is decided.
    #[inline]
    async fn write(&self, endpoint: Endpoint, body: Incoming) -> Response<AnswerBody> {
        let max = if is_batch(endpoint) { BATCH_BYTES_MAX } else { BODY_BYTES_MAX };
        let body = match self.bodies.read(body, max, self.body_wait).await {
            Ok(body) => body,
            Err(problem) => return unread(problem),
        };
        match self.bodies.for_answer_to(&body.bytes) {
            Ok(taken) => response_in(&self.bodies, taken, self.decide(endpoint, &body.bytes).await),
            Err(problem) => no_room(problem),
        }
    }

    fn admitted(&self, endpoint: Endpoint, head: &http::request::Parts) -> Result<(), Problem> {
        match endpoint {
            Endpoint::Reset | Endpoint::HotKeys | Endpoint::Policies => self.admin.admits(head),
            _ => Ok(()),
        }
    }

    #[inline]
    async fn decide(&self, endpoint: Endpoint, body: &[u8]) -> Answer {
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
            _ => Box::pin(api.reset(body)).await,
        }
    }

    /// Calls that only tell.
    async fn read(&self, endpoint: Endpoint, head: &http::request::Parts) -> Response<AnswerBody> {
        if let Err(problem) = self.admitted(endpoint, head) {
            let is_challenge = problem.status == 401;
            let response = response(problem.into());
            return if is_challenge { challenge(response) } else { response };
        }
        response_in(&self.told, Taken::default(), self.tell(endpoint).await)
    }

    async fn tell(&self, endpoint: Endpoint) -> Answer {
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

    fn serve(self: Arc<Self>, stream: Stream, finishing: Finishing, place: Place) -> Serving {
        match stream {
            Stream::Plain(stream) => {
                Box::pin(Connection::serve(self, TokioIo::new(stream), finishing, place))
            }
            Stream::Tls(stream) => Box::pin(Connection::serve(self, TokioIo::new(stream), finishing, place)),
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

/// Whether a call is for those who look after the server.
const fn tells_how_it_is(endpoint: Endpoint) -> bool {
    matches!(endpoint, Endpoint::Healthz | Endpoint::Readyz | Endpoint::Metrics)
}

const fn is_batch(endpoint: Endpoint) -> bool {
    matches!(endpoint, Endpoint::CheckBatch | Endpoint::LimitBatch)
}
