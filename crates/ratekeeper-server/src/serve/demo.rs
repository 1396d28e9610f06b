//! A small load within the server, so that the dashboard has something to show: off unless the settings say so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::api::Api;
use super::calls::Endpoint;

/// How long a load goes on.
const DEMO_SECONDS_MAX: u64 = 60;
/// The most requests of it in a second.
const DEMO_RATE_MAX: u64 = 100;
/// How often some of them are asked.
const TICK: Duration = Duration::from_millis(100);
/// The call that they make.
const CALL: &str = "/v1/check";
/// Who asks, under which plan, with what share of the requests in percent.
const CALLERS: [(&str, Option<&str>, u64); 6] = [
    ("ann", Some("paid"), 30),
    ("bob", None, 12),
    ("cyd", None, 6),
    ("dan", None, 4),
    ("eve", None, 40),
    ("fay", Some("paid"), 8),
];

/// Whether a load is under way.
#[derive(Debug, Default)]
pub(crate) struct Demo {
    /// What is asked.
    api: Weak<Api>,
    /// Counts the loads: one that finds another number has been ended.
    number: AtomicU64,
    /// When the one under way ends, in milliseconds since `begun`; 0 if there is none.
    ends: AtomicU64,
    begun: OnceLock<Instant>,
}

impl Demo {
    /// Loads of an API, none of which is under way.
    pub(crate) fn of(api: &Arc<Api>) -> Self {
        Self { api: Arc::downgrade(api), ..Self::default() }
    }

    /// Starts a load, unless there is one; within a tokio runtime.
    pub(crate) fn start(&self) {
        if let (Some(api), Some(number)) = (self.api.upgrade(), self.begin()) {
            tokio::spawn(load_until_over(api, number));
        }
    }

    /// Ends the load that is under way.
    pub(crate) fn stop(&self) {
        self.number.fetch_add(1, Ordering::AcqRel);
        self.ends.store(0, Ordering::Release);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// What the load under way has left.
    fn left(&self) -> Option<Duration> {
        let left = self.ends.load(Ordering::Acquire).checked_sub(self.now())?;
        (left > 0).then(|| Duration::from_millis(left))
    }

    pub(crate) fn told(&self) -> Json {
        let left = self.left();
        let seconds = left.map_or(0, |left| left.as_secs() + u64::from(left.subsec_nanos() > 0));
        json!({ "running": left.is_some(), "seconds_left": seconds })
    }

    /// The number of a load that begins now, unless there is one.
    fn begin(&self) -> Option<u64> {
        if self.left().is_some() {
            return None;
        }
        self.ends.store(self.now() + DEMO_SECONDS_MAX * 1_000, Ordering::Release);
        Some(self.number.fetch_add(1, Ordering::AcqRel) + 1)
    }

    fn is_over(&self, number: u64) -> bool {
        self.number.load(Ordering::Acquire) != number || self.left().is_none()
    }
}

/// Asks as callers would, through the engine, until the load is over.
async fn load_until_over(api: Arc<Api>, number: u64) {
    let endpoint = Endpoint::at(CALL);
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    for tick in 0_u64.. {
        ticks.tick().await;
        if api.shown.demo.get().is_none_or(|demo| demo.is_over(number)) {
            return;
        }
        for _ in 0..requests_in(tick) {
            let begun = Instant::now();
            let answer = api.check(request().to_string().as_bytes()).await;
            api.metrics.answered(endpoint, answer.status, begun.elapsed());
        }
    }
}

/// It rises and falls, twice in its time, so that there is something to see.
fn requests_in(tick: u64) -> u64 {
    let phase = tick as f64 * TICK.as_secs_f64() / (DEMO_SECONDS_MAX as f64 / 2.0);
    let share = 0.55 - 0.45 * (phase * std::f64::consts::TAU).cos();
    let most = DEMO_RATE_MAX as f64 * TICK.as_secs_f64();
    (share * most).round() as u64
}

fn request() -> Json {
    let mut lot = fastrand::u64(0..100);
    let (user, plan, _) = CALLERS
        .into_iter()
        .find(|(_, _, share)| match lot.checked_sub(*share) {
            Some(rest) => {
                lot = rest;
                false
            }
            None => true,
        })
        .unwrap_or(CALLERS[0]);
    let path = if fastrand::u8(0..3) == 0 { "/search" } else { "/items" };
    json!({ "service": "demo", "path": path, "client": "192.0.2.7", "identity": { "user": user, "plan": plan } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_small_and_ends() {
        let seconds =
            (0..DEMO_SECONDS_MAX).map(|second| (second * 10..second * 10 + 10).map(requests_in).sum());
        let asked: Vec<u64> = seconds.collect();
        assert!(asked.iter().all(|count| (1..=DEMO_RATE_MAX).contains(count)), "{asked:?}");
        assert_eq!(CALLERS.iter().map(|(_, _, share)| share).sum::<u64>(), 100);
        let demo = Demo::default();
        let first = demo.begin().unwrap();
        assert!(demo.begin().is_none() && !demo.is_over(first), "one at a time");
        demo.stop();
        assert!(demo.is_over(first) && demo.told()["running"] == false);
        assert!(demo.begin().unwrap() > first);
    }
}
