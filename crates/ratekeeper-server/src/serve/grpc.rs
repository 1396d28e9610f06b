//! Envoy's rate limit service, `envoy.service.ratelimit.v3`, over gRPC; and the health of it.
//!
//! There is no framework between a connection and a call: hyper has the streams, and a call is one message in and one out,
//! read where it lies. Descriptors are judged by the policy of their domain, as requests are: [`Api::envoy`](super::api).

mod answer;
mod call;
mod health;
mod messages;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper_util::rt::TokioIo;

pub use self::call::CALL_BYTES_MAX;
pub(super) use self::call::judged;
use self::health::KnownHealth;
pub use self::health::WATCHES_MAX;
pub use self::messages::{DESCRIPTORS_MAX, ENTRIES_MAX};
use super::api::{Api, EnvoyTerms};
use super::http::room::Room;
use super::http2::{self, Noted, STREAM_HEADS_BYTES_MAX};
use super::listener::activity::Activity;
use super::listener::{Finishing, Place, Protocol, Serving, Stop, Stream};

/// How long a connection may be without a call, unless told otherwise: Envoy keeps its connections.
pub const GRPC_IDLE_DEFAULT: Duration = Duration::from_secs(300);
/// How long is waited for the rest of a call.
const CALL_WAIT: Duration = Duration::from_secs(10);
/// The most bytes that calls under way take together; short ones are not counted.
const CALLS_BYTES_MAX: usize = 64 << 20;

/// Envoy's rate limit service as something that listens.
#[derive(Debug)]
pub struct Grpc {
    api: Arc<Api>,
    stop: Stop,
    terms: EnvoyTerms,
    idle: Duration,
    call_wait: Duration,
    calls: Room,
    heads: Room,
    health: KnownHealth,
}

impl Grpc {
    /// Serves `api`.
    #[must_use]
    pub fn new(api: Arc<Api>, stop: Stop) -> Self {
        Self {
            api,
            stop,
            terms: EnvoyTerms::default(),
            idle: GRPC_IDLE_DEFAULT,
            call_wait: CALL_WAIT,
            calls: Room::of(CALLS_BYTES_MAX),
            heads: Room::of(STREAM_HEADS_BYTES_MAX),
            health: KnownHealth::default(),
        }
    }

    /// Takes negative hits, which give back without a receipt: whoever can call then can lift limits.
    #[must_use]
    pub fn with_refunds(mut self, takes_refunds: bool) -> Self {
        self.terms.takes_refunds = takes_refunds;
        self
    }

    /// Judges each descriptor as a check of its own, so that one that is over its limit does not spare the others.
    #[must_use]
    pub fn each_descriptor(mut self, is_each: bool) -> Self {
        self.terms.is_each = is_each;
        self
    }

    /// How long a connection may be without a call, and how long is waited for the rest of one.
    #[must_use]
    pub fn patience(self, idle: Duration, call_wait: Duration) -> Self {
        Self { idle, call_wait, ..self }
    }
}

impl Protocol for Grpc {
    fn name(&self) -> &'static str {
        "gRPC"
    }

    fn opened(&self) {
        self.api.metrics.connection_opened();
    }

    fn closed(&self) {
        self.api.metrics.connection_closed();
    }

    fn refused(&self) -> &'static [u8] {
        self.api.metrics.connection_refused();
        // SETTINGS with nothing in it, and GOAWAY: ENHANCE_YOUR_CALM.
        b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b"
    }

    fn serve(self: Arc<Self>, stream: Stream, finishing: Finishing, place: Place) -> Serving {
        let activity = Arc::new(Activity::new(place, self.idle));
        let answer = {
            let (activity, finishing) = (Arc::clone(&activity), finishing.clone());
            move |request| Arc::clone(&self).answer(request, Arc::clone(&activity), finishing.clone())
        };
        match stream {
            Stream::Plain(stream) => {
                let stream = Noted::new(Bytes::new(), TokioIo::new(stream), Arc::clone(&activity));
                Box::pin(async move { http2::serve(stream, &activity, answer, finishing).await })
            }
            Stream::Tls(stream) => {
                let stream = Noted::new(Bytes::new(), TokioIo::new(stream), Arc::clone(&activity));
                Box::pin(async move { http2::serve(stream, &activity, answer, finishing).await })
            }
        }
    }
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    Denied,
    /// The caller waits no longer than the store takes, so failure policies decided.
    Late,
    /// The call is wrong.
    Invalid,
    /// It was not judged: it came in part, or there was no room for it.
    Failed,
    /// It was about health.
    Health,
}

impl Outcome {
    const NAMES: [&str; 6] = ["allowed", "denied", "late", "invalid", "failed", "health"];
}

/// How many calls there were of each outcome.
#[derive(Debug, Default)]
pub(super) struct CallCounts([AtomicU64; Outcome::NAMES.len()]);

impl CallCounts {
    #[inline]
    pub(super) fn note(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// All outcomes: the word for each, and how often.
    pub(super) fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Outcome::NAMES.into_iter().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}
