//! Limits that live outside the code: a policy for a service, written by people.
//!
//! ```text
//! TOML, YAML, JSON, a database  ->  Node  ->  PolicySpec  ->  a compiled policy
//!                                    |            |
//!                                    +-> Problems <+   every mistake, with its line
//! ```
//!
//! ```
//! use ratekeeper::policy::{Format, PolicySpec};
//!
//! let policy = r#"
//!     service = "search"
//!
//!     [[rules]]
//!     name = "per-user"
//!     keys = "user:{identity.user}"
//!     quota = "100/60s"
//! "#;
//! let spec = PolicySpec::read("policy.toml", Format::Toml, policy.as_bytes())?;
//! assert_eq!(spec.rules[0].name, "per-user");
//!
//! let mistaken = policy.replace("quota", "qouta");
//! let problems = PolicySpec::read("policy.toml", Format::Toml, mistaken.as_bytes()).unwrap_err();
//! assert!(problems.to_string().starts_with(
//!     "policy.toml:4:5: rules[0]: got no quota; expected"
//! ), "{problems}");
//! # Ok::<(), ratekeeper::policy::Problems>(())
//! ```
//!
//! With the feature `policy-core` alone, a program puts policies together ([`PolicySpec::builder`]) or reads them from JSON;
//! there is no TOML, no YAML and no expression in CEL, for conditions and costs.
//!
//! `docs/policies.md` says what every field means, `docs/policy.schema.json`
//! says it to editors.

mod address;
mod apply;
mod book;
mod compile;
#[cfg_attr(not(feature = "policy"), allow(dead_code, reason = "what reads TOML and YAML uses it"))]
mod document;
#[cfg_attr(
    not(feature = "policy"),
    allow(dead_code, reason = "there are no expressions, only what would judge them")
)]
mod expression;
mod limiter;
mod overriding;
mod problem;
mod request;
pub mod source;
mod spec;
mod status;
mod syntax;
mod template;
mod tenant;

/// The bounds of policies, which callers find in [`bounds`](crate::bounds).
pub(crate) mod limits {
    pub use super::book::SERVICES_MAX;
    pub use super::document::{BYTES_MAX, DEPTH_MAX, NODES_MAX};
    pub use super::expression::{
        COST_MAX, EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, STEPS_DEFAULT, STEPS_MAX, STEPS_MIN,
    };
    pub use super::problem::PROBLEMS_MAX;
    pub use super::spec::{KEYS_MAX, RULES_MAX};
    pub use super::template::{SUBJECT_PLAIN_BYTES_MAX, TEMPLATE_BYTES_MAX};
}

pub use address::{Addresses, ProxyHeader};
pub use apply::{Ask, NotApplied};
pub use book::{Policies, PoliciesBuilder};
pub use compile::{CompileOptions, EndpointLimits, KeyFunction, Policy};
pub use document::{Entry, Format, Node, Place, Value};
pub use expression::{Condition, Cost, EvaluationError, Paths, Requires};
pub use limiter::{PolicyLimiter, ServiceLimiter};
pub use problem::{Problem, Problems};
pub use request::{
    Body, Client, Facts, Identity, JsonBody, Needs, Request, RequestFacts, Scalar, canonical_path,
    parameter_of,
};
pub use spec::{
    A_LENGTH_OF_TIME, CostSpec, GENERAL_RULE, IPV6_PREFIX_DEFAULT, KeySpec, Limits, NamedQuota, Network,
    ORGANISATION_DEFAULT, OnError, OverridesSpec, PLAN_DEFAULT, PROJECT_DEFAULT, PenaltySpec, PlansSpec,
    PolicyBuilder, PolicySpec, RuleSpec, Scope, StoreUrl, parse_duration,
};
pub use status::{LOADS_MAX, PolicyLoad, RuleStatus, ServiceStatus, SourceStatus};
pub use syntax::SyntaxError;
pub use template::{KeyHashing, Subject, Template};
pub use tenant::{RuleLimits, Whose};
