//! The counts of the last minutes, so that a page that is opened shows what was before.
//!
//! Counts, not rates: the page makes rates of them as it does of what it sees itself. They are read beside requests, which
//! never wait for that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratekeeper::Timestamp;
use serde_json::json;

use super::snapshot::by_outcome;
use crate::serve::api::{Answer, Api, JSON};
use crate::serve::listener::Stop;
use crate::serve::metrics;

/// Moments that are kept, ...
const HISTORY_POINTS_MAX: usize = 60;
/// ... one in so long: five minutes together.
const EVERY: Duration = Duration::from_secs(5);
/// The most combinations of rule and plan, or names, of one moment: the busiest.
const SERIES_MAX: usize = 50;

/// Moments, each as a text of JSON: it takes a small part of what the same takes in memory.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<String>>);

impl History {
    fn note(&self, point: String) {
        let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if points.len() >= HISTORY_POINTS_MAX {
            points.pop_front();
        }
        points.push_back(point);
    }

    fn list(&self) -> String {
        let points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, second) = points.as_slices();
        [first, second].concat().join(",")
    }
}

/// The answer to `GET /v1/dashboard/history`.
pub(in crate::serve) fn history(api: &Api) -> Answer {
    let every = EVERY.as_micros();
    Answer::of(JSON, format!("{{\"every_us\":{every},\"points\":[{}]}}", api.shown.history.list()))
}

/// Keeps what was decided up to now, again and again, until the server finishes.
pub(in crate::serve) async fn watch(api: Arc<Api>, stop: Stop) {
    loop {
        api.shown.history.note(moment(&api));
        if tokio::time::timeout(EVERY, stop.finishing().wait()).await.is_ok() {
            return;
        }
    }
}

fn moment(api: &Api) -> String {
    let [decisions, limit_decisions] = metrics::decisions(api).map(|family| by_outcome(&family, SERIES_MAX));
    let at_us = Timestamp::as_micros(api.limiter().store().now());
    json!({ "at_us": at_us, "decisions": decisions, "limit_decisions": limit_decisions }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_moments_are_kept_in_their_order() {
        let history = History::default();
        assert_eq!(history.list(), "");
        (0..HISTORY_POINTS_MAX + 7).for_each(|point| history.note(point.to_string()));
        let list = history.list();
        let points: Vec<&str> = list.split(',').collect();
        assert_eq!((points.len(), points[0]), (HISTORY_POINTS_MAX, "7"));
        assert_eq!(points[HISTORY_POINTS_MAX - 1], (HISTORY_POINTS_MAX + 6).to_string());
    }
}
