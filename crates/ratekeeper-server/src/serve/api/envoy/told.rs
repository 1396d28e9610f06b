//! What Envoy is told: a status for each descriptor in its place, the fields of the response, and the body of a denial.

use std::time::Duration;

use ratekeeper::{Decision, Name, Verdict};
use ratekeeper_http::{Denial, Field, HttpOptions, TOO_MANY_REQUESTS, Tally};
use smallvec::SmallVec;

use super::unit_of;

/// An answer.
#[derive(Debug, Default)]
pub(in crate::serve) struct EnvoyAnswer {
    pub(in crate::serve) is_over: bool,
    /// In the order of the descriptors.
    pub(in crate::serve) statuses: Vec<EnvoyStatus>,
    /// Fields for the response to the client.
    pub(in crate::serve) fields: SmallVec<[Field; 4]>,
    /// The body of that response, if it is a denial.
    pub(in crate::serve) body: String,
    /// Whether failure policies decided because the caller would not wait.
    pub(in crate::serve) is_late: bool,
}

/// What is said of a descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::serve) struct EnvoyStatus {
    pub(in crate::serve) is_over: bool,
    pub(in crate::serve) limit: Option<EnvoyLimit>,
}

/// The quota of a descriptor that has least left.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct EnvoyLimit {
    pub(in crate::serve) requests: u32,
    /// Envoy's number for the window; 0 if it has none.
    pub(in crate::serve) unit: u64,
    pub(in crate::serve) name: &'static str,
    pub(in crate::serve) remaining: u32,
    pub(in crate::serve) reset_after: Duration,
}

impl EnvoyAnswer {
    /// No rule is about any of so many descriptors.
    pub(super) fn unlimited(descriptors: usize) -> Self {
        Self { statuses: vec![EnvoyStatus::default(); descriptors], ..Self::default() }
    }

    /// What these decisions say of descriptors with these rules; each rule has the index under which its verdicts are
    /// found.
    pub(super) fn new(decisions: &[&Decision], rules: &[&[(Name, u16)]], options: &HttpOptions) -> Self {
        let mut tally = Tally::new();
        decisions.iter().for_each(|decision| tally.add(decision));
        let is_over = decisions.iter().any(|decision| !decision.is_allowed());
        let mut statuses: Vec<EnvoyStatus> =
            rules.iter().map(|rules| EnvoyStatus::of(decisions, |verdict| is_of(verdict, rules))).collect();
        if is_over && !statuses.iter().any(|status| status.is_over) {
            // No quota has denied it but a gate, an outage, or the budget of conditions: nobody knows which descriptor.
            let is_known = rules.iter().any(|rules| !rules.is_empty());
            let limited = statuses.iter_mut().zip(rules).filter(|(_, rules)| !is_known || !rules.is_empty());
            limited.for_each(|(status, _)| status.is_over = true);
        }
        let mut answer = Self { is_over, statuses, ..Self::default() };
        answer.fields = tally.fields(options).collect();
        // Of several, the one that lasts longest.
        let denied = decisions.iter().filter(|decision| !decision.is_allowed());
        if let Some(denied) = denied.max_by_key(|decision| decision.retry_after())
            && let Some(denial) = Denial::of(denied, options)
        {
            // Whatever it is, the proxy answers with the one status that it is set up with.
            let denial = denial.answered_with(TOO_MANY_REQUESTS);
            answer.fields.extend(denial.fields());
            answer.body = denial.body().into_owned();
        }
        answer
    }
}

/// Whether a verdict is about a descriptor with these rules.
fn is_of(verdict: &Verdict, rules: &[(Name, u16)]) -> bool {
    let own = (verdict.name().rule(), verdict.index());
    rules.iter().any(|(rule, index)| (*rule, usize::from(*index)) == own)
}

impl EnvoyStatus {
    fn of(decisions: &[&Decision], is_own: impl Fn(&Verdict) -> bool) -> Self {
        let own = decisions.iter().flat_map(|decision| decision.verdicts()).filter(|verdict| is_own(verdict));
        let tightest = own.min_by_key(|verdict| {
            let capacity = u64::from(verdict.quota().capacity()).max(1);
            // In parts of a million, which two quotas of one descriptor hardly share.
            (!verdict.is_denied(), u64::from(verdict.remaining()) * 1_000_000 / capacity)
        });
        let Some(verdict) = tightest else { return Self::default() };
        let limit = EnvoyLimit {
            requests: verdict.quota().limit(),
            unit: unit_of(verdict.quota().window()),
            name: verdict.name().label(),
            remaining: verdict.remaining(),
            reset_after: verdict.reset_after(),
        };
        Self { is_over: verdict.is_denied(), limit: Some(limit) }
    }
}
