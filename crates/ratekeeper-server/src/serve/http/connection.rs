//! A connection: its requests, when it is idle, and how it ends.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body as _, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;

use super::answer::AnswerBody;
use super::response::{no_room, unread};
use super::room::Taken;
use super::watched::Watched;
use super::{HEAD_BYTES_MAX, HEAD_LINES_MAX, Http, head};
use crate::serve::api::Problem;
use crate::serve::calls::{Body, Endpoint};
use crate::serve::http2::{self, Noted};
use crate::serve::listener::activity::Activity;
use crate::serve::listener::linger::{LINGER_MAX, linger};
use crate::serve::listener::{Finishing, Place, Protocol as _};
use crate::serve::otlp::{self, Parent};

/// A connection, and whether something goes on on it.
#[derive(Debug)]
pub(super) struct Connection {
    http: Arc<Http>,
    pub(super) activity: Arc<Activity>,
    /// The address at the other end.
    from: Option<IpAddr>,
    /// Whether a head said the length of its body twice.
    pub(super) is_ambiguous: AtomicBool,
    /// Whether the last answer was given before all of its call was read.
    is_unread: AtomicBool,
}

impl Connection {
    /// Serves all requests on a connection.
    pub(super) async fn serve(
        http: Arc<Http>,
        stream: impl Read + Write + Unpin + Send + 'static,
        finishing: Finishing,
        place: Place,
        from: Option<IpAddr>,
    ) {
        let connection = Arc::new(Self {
            activity: Arc::new(Activity::new(place, http.idle)),
            http,
            from,
            is_ambiguous: AtomicBool::new(false),
            is_unread: AtomicBool::new(false),
        });
        let activity = Arc::clone(&connection.activity);
        let stream = Watched::new(stream, Arc::clone(&connection));
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
            over = &mut served => Ok(over),
            waited = activity.until_idle(finishing.clone()) => Err(waited),
            () = activity.until_needed() => Err(Duration::ZERO),
            () = activity.until_finishing(finishing.clone()) => {
                std::pin::Pin::new(&mut served).graceful_shutdown();
                tokio::select! {
                    biased;
                    // First: what has arrived until now is seen, and may be a request.
                    over = &mut served => Ok(over),
                    () = activity.unless_under_way() => return,
                    waited = activity.until_quiet(activity.idle(), false) => Err(waited),
                }
            }
        };
        // What goes wrong on a connection is its client's business: it is over either way.
        let metrics = &connection.http.api.metrics;
        match over {
            Err(_) if activity.place().is_spare() => {
                if !activity.is_writing() {
                    head::tell(&mut served.into_parts().io, connection.http.refused()).await;
                }
            }
            Ok(Err(error)) if error.is_parse_version_h2() => {
                let parts = served.into_parts();
                Box::pin(connection.serve_http2(parts.io.into_stream().0, parts.read_buf, finishing)).await;
            }
            Ok(over) => {
                let parts = served.into_parts();
                let (mut stream, is_refused) = parts.io.into_stream();
                if let Some(problem) = over.err().and_then(|error| head::problem(&error, &parts.read_buf)) {
                    metrics.head_refused(problem.status);
                    if is_refused {
                        head::tell_problem(&mut stream, problem).await;
                    }
                }
                if is_refused || connection.is_unread.load(Ordering::Relaxed) {
                    let wait = activity.idle().min(LINGER_MAX);
                    // On the heap, where it takes nothing of the many connections that end otherwise.
                    Box::pin(linger(stream, wait, finishing)).await;
                }
            }
            Err(waited) => {
                let mut parts = served.into_parts();
                if !parts.read_buf.is_empty() && !activity.is_writing() {
                    metrics.head_refused(408);
                    head::tell_late(&mut parts.io, waited).await;
                }
            }
        }
    }

    #[inline]
    async fn answer(&self, request: http::Request<Incoming>) -> Response<AnswerBody> {
        self.activity.begin();
        let has_body = !request.body().is_end_stream();
        let is_ambiguous = self.is_ambiguous.load(Ordering::Relaxed);
        let refused = is_ambiguous.then(|| unread(head::ambiguous()));
        let (endpoint, mut response) = self.called(request, refused).await;
        if self.is_ambiguous.load(Ordering::Relaxed) {
            // Perhaps it was only a body that looks like a head: then who comes next must not pay for it.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.is_unread.store(has_body && is_unread(endpoint, &response), Ordering::Relaxed);
        if self.is_told_to_leave() {
            // Who keeps a connection sees no load balancer: nothing else tells it to go elsewhere.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // Requests that are there already are judged before the first is answered: answers in
        // bursts wake a client once, one by one each of them costs the time of a wake-up.
        tokio::task::yield_now().await;
        // Only now: who is told to finish waits for what is under way.
        self.activity.end();
        response
    }

    /// Answers a request, unless it is refused already, and counts it.
    #[inline]
    async fn called(
        &self,
        request: Request<Incoming>,
        refused: Option<Response<AnswerBody>>,
    ) -> (Endpoint, Response<AnswerBody>) {
        let start = Instant::now();
        let tracer = self.http.tracer.as_deref();
        let traced = tracer.map(|_| (Parent::of(request.headers()), request.method().clone()));
        let (endpoint, response) = match refused {
            Some(refused) => (Endpoint::UNKNOWN, refused),
            None => self.http.call(request, self.activity.place(), self.from).await,
        };
        let (status, took) = (response.status().as_u16(), start.elapsed());
        self.http.api.metrics.answered(endpoint, status, took);
        if let (Some(tracer), Some((parent, method))) = (tracer, traced) {
            tracer.note(parent, otlp::Call::new(&method, endpoint), status, took);
        }
        (endpoint, response)
    }

    /// Whether its client is to go elsewhere.
    fn is_told_to_leave(&self) -> bool {
        self.http.stop.is_stopping() || self.activity.place().is_spare()
    }

    /// Serves a connection that has begun to speak HTTP/2; `read` was read of it.
    async fn serve_http2(
        self: Arc<Self>,
        stream: impl Read + Write + Unpin + Send + 'static,
        read: Bytes,
        finishing: Finishing,
    ) {
        let activity = Arc::clone(&self.activity);
        let stream = Noted::new(read, stream, Arc::clone(&activity));
        let answer = move |request| {
            let connection = Arc::clone(&self);
            async move { connection.answer_http2(request).await }
        };
        http2::serve(stream, &activity, answer, finishing).await;
    }

    /// A request of HTTP/2. There are no fields about its connection.
    async fn answer_http2(&self, mut request: Request<Incoming>) -> Response<AnswerBody> {
        self.activity.begin();
        let mut taken = Taken::default();
        let bytes = http2::head_bytes(request.headers(), request.uri().path());
        let refused = if !self.http.heads.resize(&mut taken, bytes) {
            Some(no_room(Problem::new(
                503,
                "the heads of all requests under way take too much; send it again",
            )))
        } else {
            as_sent_to_us(&mut request).err().map(unread)
        };
        let (_, mut response) = self.called(request, refused).await;
        response.headers_mut().remove(CONNECTION);
        if self.is_told_to_leave() {
            self.activity.leave();
        }
        self.activity.end();
        response
    }
}

/// Makes of a head of HTTP/2 what HTTP/1.1 sends to a server: a path, and the authority in a field.
fn as_sent_to_us(request: &mut Request<Incoming>) -> Result<(), Problem> {
    if request.version() != Version::HTTP_2 {
        return Ok(());
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    let authority = parts.authority.take();
    parts.scheme = None;
    if let Some(path) = parts.path_and_query {
        *request.uri_mut() = Uri::from(path);
    }
    let Some(authority) = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok())
    else {
        return Ok(());
    };
    match request.headers().get(HOST) {
        Some(host) if *host != authority => {
            Err(Problem::new(400, "host and :authority differ; expected one of them, or the same"))
        }
        _ => {
            request.headers_mut().insert(HOST, authority);
            Ok(())
        }
    }
}

/// Whether a call with a body was answered without reading all of it: then the connection is closed, or there is
/// no such call, or it reads none.
fn is_unread(endpoint: Endpoint, response: &Response<AnswerBody>) -> bool {
    response.headers().contains_key(CONNECTION)
        || response.status() == StatusCode::METHOD_NOT_ALLOWED
        || endpoint.call().is_none_or(|call| call.body == Body::None)
}
