//! What a store alone says of its counters, without the rules that made them.

use std::time::Duration;

use ratekeeper_core::Algorithm;

/// A counter as it is stored: what is left of which quota, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredCounter {
    /// What the quota is called within its rule; empty if it is the rule's only one.
    pub quota: String,
    /// How it counts.
    pub algorithm: Algorithm,
    /// The window; of a counter that has all windows, the present one.
    pub window: Duration,
    /// Units per window, as the last charge had it.
    pub limit: u32,
    /// The burst of a token bucket, the queue of a leaky one, else the limit.
    pub burst: u32,
    /// Units that are left.
    pub remaining: u32,
    /// How long until all units are there again.
    pub reset_after: Duration,
}

/// A log or a list of holders as it is stored. The limit is not stored with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredList {
    /// How it counts: a log or concurrency.
    pub algorithm: Algorithm,
    /// The window of its rule or plan.
    pub window: Duration,
    /// Units that count.
    pub used: u64,
    /// When the last of them leaves.
    pub ends_after: Duration,
}

/// Which counters of a store are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredFilter {
    /// Those of our own layout.
    Own {
        /// Of this rule, `service/rule`, or with `service/*` of all rules of a service; of all rules, if it is none.
        rule: Option<String>,
        /// Of this subject, or with `*` behind it of all that begin so.
        subject: Option<String>,
    },
    /// Those of Application Kit: of an organisation, or of one project of it.
    Kit {
        /// The organisation.
        organisation: String,
        /// The project.
        project: Option<String>,
    },
}

impl StoredFilter {
    /// Those of our own layout; see [`StoredFilter::Own`].
    #[must_use]
    pub fn own(rule: Option<&str>, subject: Option<&str>) -> Self {
        Self::Own { rule: rule.map(str::to_owned), subject: subject.map(str::to_owned) }
    }

    /// Those of Application Kit.
    #[must_use]
    pub fn kit(organisation: &str, project: Option<&str>) -> Self {
        Self::Kit { organisation: organisation.to_owned(), project: project.map(str::to_owned) }
    }

    /// Whether counters of this rule and subject are looked for.
    #[must_use]
    pub fn takes(&self, of_rule: &str, of_subject: &str) -> bool {
        match self {
            Self::Own { rule, subject } => {
                is_like(of_rule, rule.as_deref()) && is_like(of_subject, subject.as_deref())
            }
            Self::Kit { organisation, project } => match of_subject.split_once(':') {
                Some((of, own)) => of == organisation && project.as_ref().is_none_or(|wanted| own == wanted),
                None => false,
            },
        }
    }
}

/// Whether a text is the one that is wanted, or begins like it before a `*`.
fn is_like(text: &str, wanted: Option<&str>) -> bool {
    let Some(wanted) = wanted else { return true };
    wanted.strip_suffix('*').map_or(text == wanted, |start| text.starts_with(start))
}

/// The counters of a rule and subject, or of an endpoint and project.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredKey {
    /// The rule, `service/rule`; of Application Kit's the endpoint.
    pub rule: String,
    /// The quota of a log or of holders, which have a key each.
    pub quota: Option<String>,
    /// What it counts under; of Application Kit's `organisation:project`.
    pub subject: String,
    /// The counters, which the store alone can read.
    pub counters: Vec<StoredCounter>,
    /// What a log or a list of holders has, for each window.
    pub lists: Vec<StoredList>,
    /// Units of a counter that has no limit beside it: one of Application Kit's.
    pub used: Option<u64>,
    /// When that one ends.
    pub ends_after: Option<Duration>,
    /// Which of several servers, or which node of a cluster, has it, if it was found there by listing.
    pub server: Option<String>,
}

/// A part of what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredPage {
    /// The keys, in no order. Counters that change meanwhile may be missing, or there twice.
    pub keys: Vec<StoredKey>,
    /// Where the next part begins; none if this is the last.
    pub cursor: Option<u64>,
}
