//! What is counted, and how it is shown.
//!
//! Counting is a few atomic additions; everything else happens when somebody looks.
//! No label holds anything that a request has said: rules, plans, names and services
//! are the words of operators, and there is a bound on them all the same.

mod families;
mod histogram;
mod prometheus;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper::metrics::RuleSeries;
pub use ratekeeper::metrics::{Family, Kind, SERIES_MAX, Sample, Value};
pub(crate) use ratekeeper::metrics::{OTHER, Outcomes};
use ratekeeper::{Decision, DemandRule, Verdict};

pub(in crate::serve) use self::families::{decisions, families};
use self::histogram::Histogram;
use super::calls::Endpoint;
use super::grpc::CallCounts;
use super::resp::CommandCounts;

/// The upper ends of the buckets for latencies, in seconds.
const LATENCY_BUCKETS: [f64; 12] =
    [0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0];
/// The upper ends of the buckets for batches, in checks.
const BATCH_BUCKETS: [f64; 7] = [1.0, 2.0, 5.0, 10.0, 50.0, 200.0, 1_000.0];
/// Statuses that are told apart; others are the last.
const STATUSES: [u16; 17] =
    [200, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429, 431, 501, 503, 0];

/// Everything that is counted by the server itself; the rest is asked of the policies
/// and the store when somebody looks.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    endpoints: OfEndpoints,
    batches: Histogram<{ BATCH_BUCKETS.len() }>,
    rules: RuleSeries,
    /// Of the Redis protocol.
    pub(super) commands: CommandCounts,
    /// Of Envoy's rate limit service.
    pub(super) calls: CallCounts,
    connections: AtomicU64,
    connections_refused: AtomicU64,
    /// 0 if there is none.
    certificate_expires: AtomicU64,
}

/// By the place of a call in the table.
#[derive(Debug)]
struct OfEndpoints([OfEndpoint; Endpoint::COUNT]);

// Arrays of more than 32 have no default of their own.
impl Default for OfEndpoints {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OfEndpoint::default()))
    }
}

#[derive(Debug, Default)]
struct OfEndpoint {
    latency: Histogram<{ LATENCY_BUCKETS.len() }>,
    statuses: [AtomicU64; STATUSES.len()],
}

impl Metrics {
    /// Notes that a call was answered.
    #[inline]
    pub(super) fn answered(&self, endpoint: Endpoint, status: u16, took: Duration) {
        self.endpoints.0[endpoint.index()].latency.observe(&LATENCY_BUCKETS, took.as_secs_f64());
        self.count(endpoint, status);
    }

    /// Notes a head that could not be read, or did not come, so that there was no call.
    #[cold]
    pub(crate) fn head_refused(&self, status: u16) {
        self.count(Endpoint::UNKNOWN, status);
    }

    #[inline]
    fn count(&self, endpoint: Endpoint, status: u16) {
        let status = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        self.endpoints.0[endpoint.index()].statuses[status].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the size of a batch.
    pub(crate) fn batch(&self, checks: usize) {
        self.batches.observe(&BATCH_BUCKETS, checks as f64);
    }

    /// Notes what a rule had to do with a decision; the verdict that speaks for it.
    #[inline]
    pub(crate) fn decided<'d>(&self, rule: &DemandRule<'_>, decision: &'d Decision) -> Option<&'d Verdict> {
        self.rules.note(rule, decision)
    }

    /// Notes a connection for as long as what it returns is kept.
    pub(crate) fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections that are open.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn connection_refused(&self) {
        self.connections_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// When the certificate ends, in seconds since 1970.
    pub(crate) fn certificate_expires(&self, seconds: u64) {
        self.certificate_expires.store(seconds, Ordering::Relaxed);
    }
}

pub(crate) use self::prometheus::{CONTENT_TYPE, text};
