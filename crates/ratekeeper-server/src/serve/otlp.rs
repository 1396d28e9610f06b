//! Traces and metrics for an OpenTelemetry collector: OTLP over HTTP, as JSON.
//!
//! What is counted for `/metrics` is what is sent; nothing is counted twice. Spans wait
//! in a queue that is bounded: a collector that is away costs spans, never requests.

mod encode;
mod resource;
mod send;

use std::path::Path as FilePath;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, Method};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::resource::Resource;
use self::send::{COLLECTOR, Path};
use super::api::Api;
use super::calls::Endpoint;
use super::health;
use super::listener::Stop;
use super::metrics;
use super::post::Target;

/// How often something is sent, unless told otherwise.
pub const EXPORT_EVERY: Duration = Duration::from_secs(5);
/// Spans that wait to be sent; what comes beyond is counted and dropped.
pub const SPANS_MAX: usize = 2_048;

/// One call, as a trace shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    trace: u128,
    parent: Option<u64>,
    id: u64,
    call: Call,
    status: u16,
    start: SystemTime,
    took: Duration,
}

/// What was asked for, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// One that is known, or `_OTHER`: anybody can make up one.
    method: &'static str,
    endpoint: Endpoint,
}

impl Call {
    pub(super) fn new(method: &Method, endpoint: Endpoint) -> Self {
        const KNOWN: [&str; 9] =
            ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
        let known = KNOWN.into_iter().find(|known| method == *known);
        Self { method: known.unwrap_or(encode::OTHER_METHOD), endpoint }
    }
}

/// Where spans go.
#[derive(Debug, Default)]
pub(super) struct Tracer {
    waiting: Mutex<Vec<Span>>,
    dropped: AtomicU64,
}

/// What a caller says of the trace that its call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    trace: u128,
    span: u64,
    is_sampled: bool,
}

impl Parent {
    /// Reads `traceparent` (W3C Trace Context); one that is malformed is as good as none.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get("traceparent")?.to_str().ok()?;
        let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let parts: Vec<&str> = text.split('-').take(5).collect();
        let [version, trace, span, flags, rest @ ..] = parts.as_slice() else { return None };
        let lengths = [version.len(), trace.len(), span.len(), flags.len()] == [2, 32, 16, 2];
        // Later versions may say more behind it; this one may not.
        let is_known = *version != "ff" && (*version != "00" || rest.is_empty());
        if !lengths || !is_known || ![version, trace, span, flags].into_iter().all(|part| is_hex(part)) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

impl Tracer {
    /// Notes a call, unless whoever asked wants no trace of it.
    pub(super) fn note(&self, parent: Option<Parent>, call: Call, status: u16, took: Duration) {
        if parent.is_some_and(|parent| !parent.is_sampled) {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= SPANS_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.push(Span {
            trace: parent.map_or_else(|| fastrand::u128(1..), |parent| parent.trace),
            parent: parent.map(|parent| parent.span),
            id: fastrand::u64(1..),
            call,
            status,
            start: SystemTime::now().checked_sub(took).unwrap_or(UNIX_EPOCH),
            took,
        });
    }

    fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A collector, and how often it is sent something.
#[derive(Clone, Debug)]
pub struct Collector {
    target: Target,
    is_compressed: bool,
    every: Duration,
}

impl Collector {
    /// The collector at a URL such as `http://127.0.0.1:4318`, or with https://, where `authority` is a file with whom to
    /// trust; without one, whom the system trusts.
    ///
    /// # Errors
    /// If it is no such URL, or there is nobody to trust.
    pub fn at(url: &str, authority: Option<&FilePath>) -> anyhow::Result<Self> {
        let target = Target::at(COLLECTOR, url, authority)?;
        Ok(Self { target, is_compressed: false, every: EXPORT_EVERY })
    }

    /// Whether what is sent is compressed, with gzip.
    #[must_use]
    pub fn compressed(mut self, is_compressed: bool) -> Self {
        self.is_compressed = is_compressed;
        self
    }

    /// How often something is sent.
    #[must_use]
    pub fn every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// Sends now and then, until it is told to send what is left.
    pub(super) fn start(self, api: Arc<Api>, tracer: Arc<Tracer>, stop: Stop) -> Exporting {
        let (end, mut ended) = oneshot::channel();
        let mut exporter = Exporter {
            metrics: Path::new(self.target.clone(), "/v1/metrics", self.is_compressed),
            traces: Path::new(self.target, "/v1/traces", self.is_compressed),
            from: Resource::of_this_process(),
            started: SystemTime::now(),
            api,
            tracer,
            stop,
        };
        let sending = tokio::spawn(async move {
            // Whoever drops the other end has forgotten about it: that is the end as well.
            while tokio::time::timeout(self.every, &mut ended).await.is_err() {
                exporter.send().await;
            }
            exporter.send().await;
        });
        Exporting { end, sending }
    }
}

/// What is sent to a collector, until somebody says that nothing more will happen.
#[derive(Debug)]
pub struct Exporting {
    end: oneshot::Sender<()>,
    sending: JoinHandle<()>,
}

impl Exporting {
    /// Sends what is left. It is bounded by how long a collector may take.
    pub async fn finish(self) {
        let _ = self.end.send(());
        // Whether it has panicked or not, it is over.
        let _ = self.sending.await;
    }
}

struct Exporter {
    metrics: Path,
    traces: Path,
    from: Resource,
    started: SystemTime,
    api: Arc<Api>,
    tracer: Arc<Tracer>,
    stop: Stop,
}

impl Exporter {
    /// Metrics and spans, each whatever becomes of the other: many collectors take only one.
    async fn send(&mut self) {
        let wellness = health::Wellness::of(&self.api, self.stop.is_stopping()).await;
        let families = metrics::families(&self.api, wellness);
        let families = encode::metrics(&self.from, &families, self.started, SystemTime::now());
        let spans = send_spans(&mut self.traces, &self.from, &self.tracer);
        tokio::join!(self.metrics.send(&families), spans);
    }
}

async fn send_spans(traces: &mut Path, from: &Resource, tracer: &Tracer) {
    let spans = tracer.take();
    if spans.is_empty() {
        return;
    }
    let dropped = tracer.dropped.swap(0, Ordering::Relaxed);
    if !traces.send(&encode::traces(from, &spans, dropped)).await {
        // They may have arrived, or not: sent again, some would be there twice.
        tracer.dropped.fetch_add(dropped + spans.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_call_is_read_as_the_standard_has_it() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            Parent::of(&headers)
        };
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let sampled = of(&format!("00-{trace}-{span}-01")).unwrap();
        assert_eq!(
            (format!("{:032x}", sampled.trace), format!("{:016x}", sampled.span)),
            (trace.into(), span.into())
        );
        assert!(sampled.is_sampled && !of(&format!("00-{trace}-{span}-00")).unwrap().is_sampled);
        assert!(of(&format!("cc-{trace}-{span}-01-what-comes")).is_some(), "a later version");
        for wrong in [
            String::new(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}-+0f067aa0ba902b-01"),
        ] {
            assert_eq!(of(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn spans_that_nobody_takes_are_dropped_and_counted() {
        let tracer = Tracer::default();
        let call = Call::new(&Method::POST, Endpoint::at("/v1/limit"));
        for _ in 0..SPANS_MAX + 7 {
            tracer.note(None, call, 200, Duration::from_micros(3));
        }
        assert_eq!((tracer.take().len(), tracer.dropped.load(Ordering::Relaxed)), (SPANS_MAX, 7));
        let unsampled = Parent { trace: 1, span: 1, is_sampled: false };
        tracer.note(Some(unsampled), call, 200, Duration::ZERO);
        assert!(tracer.take().is_empty());
    }

    #[test]
    fn collectors_are_reached_over_http() {
        assert!(Collector::at("http://127.0.0.1:4318", None).is_ok());
        for url in ["", "127.0.0.1:4318", "http://ann:secret@example.org", "grpc://x", "http:///v1"] {
            let error = Collector::at(url, None).unwrap_err().to_string();
            assert!(error.starts_with("otlp: ") && error.contains("expected http://HOST:PORT"), "{error}");
        }
    }
}
