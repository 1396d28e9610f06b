//! The dashboard: pages that are in the binary, and the one call that has what they show.
//!
//! The pages have no data and take no token. They ask the calls that everyone else asks, with the token that the
//! operator types in, so the dashboard can do nothing that its token cannot.

mod history;
mod pages;
mod snapshot;

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use self::history::History;
pub(super) use self::history::{history, watch};
pub(super) use self::pages::{ACTIONS, CHART, DOM, HTML, MAIN, SERVER, STYLE, VIEW};
pub(super) use self::snapshot::snapshot;
use super::api::Api;
use super::demo::Demo;

/// The most overrides that are shown.
const OVERRIDES_MAX: usize = 100;
/// How old the overrides of a server may be that are shown: to list them looks through all its keys, ...
const OVERRIDES_AGE: Duration = Duration::from_secs(10);
/// ... and takes one part in so many of the time at most.
const OVERRIDES_SHARE: u32 = 20;

/// What the dashboard shows beside what the API knows.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Where policies come from, ...
    policy: String,
    /// ... and where counters are.
    store: String,
    pub(crate) demo: OnceLock<Demo>,
    overrides: Mutex<Option<Listed>>,
    history: History,
}

/// Overrides, as they were a while ago.
#[derive(Clone, Debug)]
struct Listed {
    overrides: Json,
    at: Instant,
    again: Instant,
}

impl Shown {
    pub(crate) fn of(policy: &str, store: &str) -> Self {
        Self { policy: policy.to_owned(), store: store.to_owned(), ..Self::default() }
    }

    /// Overrides may have changed: they are read again when they are next shown.
    pub(crate) fn forget(&self) {
        *self.overrides.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn known(&self) -> Option<Listed> {
        self.overrides.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is shown until `again`, also to those who ask while it is read.
    fn put(&self, listed: Listed) {
        *self.overrides.lock().unwrap_or_else(PoisonError::into_inner) = Some(listed);
    }
}

impl Api {
    /// The overrides of the store, read again now and then.
    async fn shown_overrides(&self) -> Json {
        let needs_io = self.limiter().store().needs_io();
        let begun = Instant::now();
        let known = self.shown.known().filter(|listed| needs_io && listed.again > begun);
        let listed = match known {
            Some(listed) => listed,
            None => self.listed_overrides(begun).await,
        };
        let mut told = listed.overrides;
        told["seconds_ago"] = json!(listed.at.elapsed().as_secs());
        told
    }

    async fn listed_overrides(&self, begun: Instant) -> Listed {
        let overrides = match self.all_overrides().await {
            Ok(mut all) => {
                let count = all.len();
                all.truncate(OVERRIDES_MAX);
                json!({ "list": all, "count": count })
            }
            Err(problem) => json!({ "failure": problem.detail() }),
        };
        let now = Instant::now();
        let wait = OVERRIDES_AGE.max((now - begun) * OVERRIDES_SHARE);
        let listed = Listed { overrides, at: now, again: now + wait };
        self.shown.put(listed.clone());
        listed
    }
}
