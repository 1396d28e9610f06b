//! A connection: its requests, when it is idle, and how it ends.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::header::CONNECTION;
use http::{HeaderValue, Response};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;

use super::answer::AnswerBody;
use super::watched::Watched;
use super::{HEAD_BYTES_MAX, HEAD_LINES_MAX, Http, head};
use crate::serve::listener::{Finishing, Place, Protocol as _, SPARE_WAIT};
use crate::serve::otlp::{self, Parent};

/// A connection, and whether something goes on on it.
#[derive(Debug)]
pub(super) struct Connection {
    http: Arc<Http>,
    place: Place,
    begun: AtomicU64,
    done: AtomicU64,
    /// Whether some of an answer has not left yet.
    pub(super) is_writing: AtomicBool,
}

impl Connection {
    /// Serves all requests on a connection.
    pub(super) async fn serve(
        http: Arc<Http>,
        stream: impl Read + Write + Unpin + Send + 'static,
        finishing: Finishing,
        place: Place,
    ) {
        let connection = Arc::new(Self {
            http,
            place,
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            is_writing: AtomicBool::new(false),
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
            () = finishing.wait() => {
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
            Err(_) if place == Place::Spare => {
                if !connection.is_writing.load(Ordering::Relaxed) {
                    head::tell(served.into_parts().io, connection.http.refused()).await;
                }
            }
            Ok(over) => {
                if let Some(status) = over.err().as_ref().and_then(head::refused_with) {
                    metrics.head_refused(status);
                }
            }
            Err(waited) => {
                let parts = served.into_parts();
                if !parts.read_buf.is_empty() && !connection.is_writing.load(Ordering::Relaxed) {
                    metrics.head_refused(408);
                    head::tell_late(parts.io, waited).await;
                }
            }
        }
    }

    #[inline]
    async fn answer(&self, request: http::Request<Incoming>) -> Response<AnswerBody> {
        let start = Instant::now();
        self.begun.fetch_add(1, Ordering::Relaxed);
        let tracer = self.http.tracer.as_deref();
        let traced = tracer.map(|_| (Parent::of(request.headers()), request.method().clone()));
        let (endpoint, mut response) = self.http.call(request, self.place).await;
        let (status, took) = (response.status().as_u16(), start.elapsed());
        self.http.api.metrics.answered(endpoint, status, took);
        if let (Some(tracer), Some((parent, method))) = (tracer, traced) {
            tracer.note(parent, otlp::Call::new(&method, endpoint), status, took);
        }
        if self.http.stop.is_stopping() || self.place == Place::Spare {
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
        if self.place == Place::Spare { SPARE_WAIT } else { self.http.idle }
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
    /// a byte at a time. When the server drains, who sends nothing for half of the time it
    /// has left will not be told by an answer. Returns how long was waited.
    async fn until_idle(&self, finishing: Finishing) -> Duration {
        let told_to_leave = async {
            match finishing.draining().await {
                Some(lasting) => self.until_quiet(lasting / 2, true).await,
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
                return period;
            }
            before = begun;
            tokio::time::sleep(period).await;
        }
    }
}
