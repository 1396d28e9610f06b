//! The limits of an endpoint, for documents that describe a service.

use std::collections::HashMap;

use ratekeeper_core::Quota;

use super::Policy;
use crate::control::Mode;

/// What a rule says to the requests of one endpoint, as far as that can be told before
/// there is a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointLimits {
    /// The rule.
    pub rule: &'static str,
    /// The quotas of whoever has no others, under the names that headers have.
    pub quotas: Vec<(&'static str, Quota)>,
    /// Whether its condition holds for every request to the endpoint, or else depends on
    /// more than method, route and path.
    pub is_certain: bool,
}

impl Policy {
    /// The rules that apply, or may apply, to requests of a method to a route such as
    /// `/datasets/{id}/search`; in their order. Not those that are off, and not those
    /// without a general limit. Plans, exact keys and overrides are not told: they are
    /// somebody's, not the endpoint's.
    ///
    /// ```
    /// use ratekeeper::policy::{CompileOptions, Format, Policy, PolicySpec};
    ///
    /// let policy = r#"
    ///     service = "search"
    ///     [[rules]]
    ///     name = "writes"
    ///     when = "method == 'POST'"
    ///     keys = "all"
    ///     quota = "100/60s"
    /// "#;
    /// let spec = PolicySpec::read("policy.toml", Format::Toml, policy.as_bytes())?;
    /// let policy = Policy::compile(&spec, "policy.toml", &CompileOptions::default())?;
    /// assert_eq!(policy.limits_for("POST", "/items")[0].quotas[0].1.limit(), 100);
    /// assert!(policy.limits_for("GET", "/items").is_empty());
    /// # Ok::<(), ratekeeper::policy::Problems>(())
    /// ```
    #[must_use]
    pub fn limits_for(&self, method: &str, route: &str) -> Vec<EndpointLimits> {
        // By group, whether a rule before this one takes every request, or some.
        let mut taken: HashMap<u16, bool> = HashMap::new();
        let limits = self.rules.iter().filter_map(|rule| {
            let mut holds = rule.when.as_ref().map_or(Some(true), |when| when.for_endpoint(method, route));
            if let Some(group) = rule.first_of.filter(|_| holds != Some(false)) {
                let before = taken.insert(group, holds == Some(true) || taken.get(&group) == Some(&true));
                holds = before.map_or(holds, |all| if all { Some(false) } else { None });
            }
            if rule.mode == Mode::Off {
                return None;
            }
            if self.rules.iter().any(|other| other.replaces.contains(&rule.name)) {
                holds = holds.filter(|holds| !holds);
            }
            let quotas = &self.limits.get(rule.limits).quotas;
            if holds == Some(false) || quotas.is_empty() {
                return None;
            }
            let quotas = quotas.iter().map(|(name, quota)| (name.label(), *quota)).collect();
            Some(EndpointLimits { rule: rule.name.label(), quotas, is_certain: holds == Some(true) })
        });
        limits.collect()
    }
}
