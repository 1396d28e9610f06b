//! HTTP/1.1 on a connection: which call it is, its body within bounds, its answer.
//!
//! There is no framework between a connection and a call: hyper reads the head, a
//! `match` finds the call, and most calls are answered without waiting for anything.

mod body;
mod head;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

use super::admin::Admin;
use super::api::{Answer, Api, JSON, Problem};
use super::listener::{Finishing, Protocol, Serving, Stop, Stream};
use super::metrics::{self, Endpoint};
use super::otlp::{Collector, Parent, Tracer};
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

    /// Sends traces and metrics to a collector, within a tokio runtime and until the
    /// server finishes; what is returned is over when the last of it was sent.
    #[must_use]
    pub fn traced(self, collector: Collector) -> (Self, JoinHandle<()>) {
        let tracer = Arc::new(Tracer::default());
        let sending = collector.start(Arc::clone(&self.api), Arc::clone(&tracer), self.stop.clone());
        (Self { tracer: Some(tracer), ..self }, sending)
    }

    async fn connection(
        self: Arc<Self>,
        stream: impl Read + Write + Unpin + Send + 'static,
        finishing: Finishing,
    ) {
        let connection =
            Arc::new(Connection { http: self, begun: AtomicU64::new(0), done: AtomicU64::new(0) });
        let service = {
            let connection = Arc::clone(&connection);
            service_fn(move |request| {
                let connection = Arc::clone(&connection);
                async move { Ok::<_, Infallible>(connection.answer(request).await) }
            })
        };
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEAD_LINES_MAX).half_close(true);
        // Head and body in one piece: answers are short, and one buffer is sent faster than two.
        builder.writev(false);
        let mut served = builder.serve_connection(stream, service);
        let over = tokio::select! {
            biased;
            over = &mut served => Some(over),
            () = connection.until_idle() => None,
            () = finishing.wait() => {
                std::pin::Pin::new(&mut served).graceful_shutdown();
                tokio::select! {
                    over = &mut served => Some(over),
                    () = connection.until_idle() => None,
                }
            }
        };
        // What goes wrong on a connection is its client's business: it is over either way.
        let metrics = &connection.http.api.metrics;
        match over {
            Some(over) => {
                if let Some(status) = over.err().as_ref().and_then(head::refused_with) {
                    metrics.head_refused(status);
                }
            }
            None => {
                let parts = served.into_parts();
                if !parts.read_buf.is_empty() {
                    metrics.head_refused(408);
                    head::tell_late(parts.io, connection.http.idle).await;
                }
            }
        }
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
            _ => Box::pin(api.reset(body)).await,
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
            Stream::Plain(stream) => Box::pin(self.connection(TokioIo::new(stream), finishing)),
            Stream::Tls(stream) => Box::pin(self.connection(TokioIo::new(stream), finishing)),
        }
    }
}

/// A connection, and whether something goes on on it.
#[derive(Debug)]
struct Connection {
    http: Arc<Http>,
    begun: AtomicU64,
    done: AtomicU64,
}

impl Connection {
    #[inline]
    async fn answer(&self, request: http::Request<Incoming>) -> Response<Full<Bytes>> {
        let start = Instant::now();
        self.begun.fetch_add(1, Ordering::Relaxed);
        let tracer = self.http.tracer.as_deref();
        let parent = tracer.and_then(|_| Parent::of(request.headers()));
        let (endpoint, response) = self.http.call(request).await;
        self.done.fetch_add(1, Ordering::Relaxed);
        let (status, took) = (response.status().as_u16(), start.elapsed());
        self.http.api.metrics.answered(endpoint, status, took);
        if let Some(tracer) = tracer {
            tracer.note(parent, endpoint, status, took);
        }
        response
    }

    /// Until for a whole period no request began or was under way: nobody is there, or
    /// somebody who sends a head, or takes an answer, a byte at a time. A look now and
    /// then costs a request nothing, which a timer for each would.
    async fn until_idle(&self) {
        let mut before = u64::MAX;
        loop {
            let begun = self.begun.load(Ordering::Relaxed);
            if begun == before && begun == self.done.load(Ordering::Relaxed) {
                return;
            }
            before = begun;
            tokio::time::sleep(self.http.idle).await;
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

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers: &mut HeaderMap = response.headers_mut();
    headers.reserve(answer.fields.len() + 1);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    for (name, value) in answer.fields {
        // The fields about limits are ASCII, always.
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value.into_owned())) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// The answer to a body that was not read.
fn unread(problem: Problem) -> Response<Full<Bytes>> {
    let is_full = problem.status == 503;
    let mut response = closing(response(problem.into()));
    if is_full {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// What is left of the body is not read: the connection is over.
fn closing(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn challenged(problem: Problem) -> Response<Full<Bytes>> {
    let is_challenge = problem.status == 401;
    let response = closing(response(problem.into()));
    if is_challenge { challenge(response) } else { response }
}

fn challenge(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}
