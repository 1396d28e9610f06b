//! What overrides call the quotas of a policy.

use super::compile::Policy;
use super::template::Template;
use crate::engine::{EndpointPattern, Overridable};

impl EndpointPattern for Template {
    fn can_be(&self, endpoint: &str) -> bool {
        self.subject_of(endpoint).is_some()
    }
}

impl Policy {
    /// Every quota of every rule: of the rule itself, of its plans, of exact keys. Some more than once.
    pub(super) fn overridable(&self) -> impl Iterator<Item = Overridable<'_>> {
        self.rules.iter().flat_map(|rule| {
            let endpoint = rule.owner.as_ref().and_then(|owner| owner.endpoint.as_ref());
            let endpoint = endpoint.map(|endpoint| endpoint as &dyn EndpointPattern);
            let quotas = rule.sets().flat_map(|set| self.limits.get(set).quotas.iter());
            quotas.map(move |(quota, _)| Overridable { rule: rule.name, quota: *quota, endpoint })
        })
    }
}
