//! A connection: its requests, when it is idle, and how it ends.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::header::CONNECTION;
use http::{HeaderValue, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;

use super::answer::AnswerBody;
use super::response::unread;
use super::watched::Watched;
use super::{HEAD_BYTES_MAX, HEAD_LINES_MAX, Http, head};
use crate::serve::calls::{Body, Endpoint};
use crate::serve::listener::linger::{LINGER_MAX, linger};
use crate::serve::listener::{FIRST_REQUEST_WAIT, Finishing, Place, Protocol as _, SPARE_WAIT, leaves_after};
use crate::serve::otlp::{self, Parent};

/// A connection, and whether something goes on on it.
#[derive(Debug)]
pub(super) struct Connection {
    http: Arc<Http>,
    place: Place,
    /// The address at the other end.
    from: Option<IpAddr>,
    begun: AtomicU64,
    done: AtomicU64,
    /// Whether some of an answer has not left yet.
    pub(super) is_writing: AtomicBool,
    /// Whether a head said the length of its body twice.
    pub(super) is_ambiguous: AtomicBool,
    /// Whether the last answer was given before all of its call was read.
    is_unread: AtomicBool,
    opened: Instant,
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
            http,
            place,
            from,
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            is_writing: AtomicBool::new(false),
            is_ambiguous: AtomicBool::new(false),
            is_unread: AtomicBool::new(false),
            opened: Instant::now(),
        });
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
            waited = connection.until_idle(finishing.clone()) => Err(waited),
            () = connection.until_needed() => Err(Duration::ZERO),
            () = connection.until_finishing(finishing.clone()) => {
                std::pin::Pin::new(&mut served).graceful_shutdown();
                tokio::select! {
                    biased;
                    // First: what has arrived until now is seen, and may be a request.
                    over = &mut served => Ok(over),
                    () = connection.unless_under_way() => return,
                    waited = connection.until_quiet(connection.idle(), false) => Err(waited),
                }
            }
        };
        // What goes wrong on a connection is its client's business: it is over either way.
        let metrics = &connection.http.api.metrics;
        match over {
            Err(_) if connection.place.is_spare() => {
                if !connection.is_writing.load(Ordering::Relaxed) {
                    head::tell(&mut served.into_parts().io, connection.http.refused()).await;
                }
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
                    let wait = connection.idle().min(LINGER_MAX);
                    // On the heap, where it takes nothing of the many connections that end otherwise.
                    Box::pin(linger(stream, wait, finishing)).await;
                }
            }
            Err(waited) => {
                let mut parts = served.into_parts();
                if !parts.read_buf.is_empty() && !connection.is_writing.load(Ordering::Relaxed) {
                    metrics.head_refused(408);
                    head::tell_late(&mut parts.io, waited).await;
                }
            }
        }
    }

    #[inline]
    async fn answer(&self, request: http::Request<Incoming>) -> Response<AnswerBody> {
        let start = Instant::now();
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.place.busy();
        let tracer = self.http.tracer.as_deref();
        let traced = tracer.map(|_| (Parent::of(request.headers()), request.method().clone()));
        let has_body = !request.body().is_end_stream();
        let (endpoint, mut response) = if self.is_ambiguous.load(Ordering::Relaxed) {
            (Endpoint::UNKNOWN, unread(head::ambiguous()))
        } else {
            self.http.call(request, &self.place, self.from).await
        };
        if self.is_ambiguous.load(Ordering::Relaxed) {
            // Perhaps it was only a body that looks like a head: then who comes next must not pay for it.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.is_unread.store(has_body && is_unread(endpoint, &response), Ordering::Relaxed);
        let (status, took) = (response.status().as_u16(), start.elapsed());
        self.http.api.metrics.answered(endpoint, status, took);
        if let (Some(tracer), Some((parent, method))) = (tracer, traced) {
            tracer.note(parent, otlp::Call::new(&method, endpoint), status, took);
        }
        if self.http.stop.is_stopping() || self.place.is_spare() {
            // Who keeps a connection sees no load balancer: nothing else tells it to go elsewhere.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // Requests that are there already are judged before the first is answered: answers in
        // bursts wake a client once, one by one each of them costs the time of a wake-up.
        tokio::task::yield_now().await;
        // Only now: who is told to finish waits for what is under way.
        self.done.fetch_add(1, Ordering::Relaxed);
        response
    }

    fn idle(&self) -> Duration {
        if self.place.is_spare() { SPARE_WAIT } else { self.http.idle }
    }

    /// Until another connection needs the place of this one, which has no request.
    async fn until_needed(&self) {
        self.place.needed().await;
        if self.begun.load(Ordering::Relaxed) > 0 {
            std::future::pending::<()>().await;
        }
    }

    /// Until the server finishes and no first request is on its way. What has arrived by then is seen: others had
    /// their turn, and the runtime has looked at the socket.
    async fn until_finishing(&self, finishing: Finishing) {
        finishing.wait().await;
        if self.begun.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(FIRST_REQUEST_WAIT.saturating_sub(self.opened.elapsed())).await;
        }
        tokio::task::yield_now().await;
    }

    /// At once if no request is under way, and else never: a request that is makes an end
    /// of the connection itself. Of a head that is not complete nobody knows when it will be.
    async fn unless_under_way(&self) {
        let is_answering = self.begun.load(Ordering::Relaxed) != self.done.load(Ordering::Relaxed);
        if is_answering || self.is_writing.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// Until nobody seems to be there, or only somebody who sends a head, or takes an answer,
    /// a byte at a time. Returns how long was waited.
    async fn until_idle(&self, finishing: Finishing) -> Duration {
        let told_to_leave = async {
            match finishing.draining().await {
                Some(lasting) => self.until_quiet(leaves_after(lasting), true).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            waited = self.until_quiet(self.idle(), false) => waited,
            waited = told_to_leave => waited,
        }
    }

    /// Until for a whole period no request began or was under way, nor, if `and_sent`, an
    /// answer. A look now and then costs a request nothing, which a timer for each would.
    async fn until_quiet(&self, period: Duration, and_sent: bool) -> Duration {
        let mut before = u64::MAX;
        loop {
            let begun = self.begun.load(Ordering::Relaxed);
            let is_sending = and_sent && self.is_writing.load(Ordering::Relaxed);
            if begun == before && begun == self.done.load(Ordering::Relaxed) && !is_sending {
                // What has arrived while others had their turn has not been read yet.
                tokio::task::yield_now().await;
                if begun == self.begun.load(Ordering::Relaxed) {
                    return period;
                }
            }
            before = begun;
            tokio::time::sleep(period).await;
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
