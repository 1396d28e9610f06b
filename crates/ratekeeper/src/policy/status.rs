//! What became of policies, sources and rules, for status pages and metrics.

use std::time::SystemTime;

use super::problem::Problem;
use crate::control::Mode;

/// How a rule is doing. Counts are since it is part of the policy, reloads included.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleStatus {
    /// The rule.
    pub name: String,
    /// What it does: with the switches of the store in [`PolicyLimiter::status`](super::PolicyLimiter::status), without
    /// them in [`Policies::status`](super::Policies::status).
    pub mode: Mode,
    /// Whether it denies while the store cannot be asked.
    pub denies_in_outage: bool,
    /// Requests it applied to but found no key in.
    pub unresolved: u64,
    /// Requests for which its condition or its cost could not be told.
    pub failed: u64,
    /// Requests whose budget of steps was spent before it was known whether the rule applies, or what it costs.
    pub beyond_budget: u64,
    /// Why, the last time.
    pub last_failure: Option<String>,
    /// Requests it denied.
    pub denied: u64,
    /// Requests it would have denied, had it done more than watch.
    pub over_limit: u64,
    /// Penalties it gave.
    pub penalties: u64,
}

/// How many loads of a service's policies are remembered.
pub const LOADS_MAX: usize = 50;

/// A policy that was put into force, or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyLoad {
    /// When.
    pub at: SystemTime,
    /// Where it came from.
    pub source: String,
    /// Of what it says, the same in every process of this version; none of one that could not be read.
    pub digest: Option<String>,
    /// What was wrong with it; it was put into force if nothing was.
    pub refusal: Option<String>,
}

/// How the policy of a service is doing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceStatus {
    /// The service.
    pub service: String,
    /// Whether a policy is in force.
    pub in_force: bool,
    /// Where the policy in force comes from.
    pub source: Option<String>,
    /// Since when it is in force.
    pub since: Option<SystemTime>,
    /// How many policies were put into force.
    pub installed: u64,
    /// How many documents were refused.
    pub refused: u64,
    /// What is wrong with the last document, if it was refused.
    pub last_refusal: Option<String>,
    /// What was put into force and refused lately, the newest last; at most [`LOADS_MAX`].
    pub loads: Vec<PolicyLoad>,
    /// What is allowed in the policy in force but hardly meant.
    pub warnings: Vec<Problem>,
    /// Its rules.
    pub rules: Vec<RuleStatus>,
}

/// How a source of policies is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStatus {
    /// What the source is called: a path, `mongodb`.
    pub source: String,
    /// Why it cannot be reached, if it cannot.
    pub failure: Option<String>,
    /// How often it could not be reached.
    pub failures: u64,
    /// How many documents were refused that did not say whose they are.
    pub refused: u64,
    /// What was wrong with the last of them.
    pub last_refusal: Option<String>,
}
