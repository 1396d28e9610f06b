//! Overrides that are set where the rules are known.

use std::collections::BTreeSet;

use ratekeeper_core::{Field, InvalidInput, Name, Override, OverrideScope};

use super::Engine;
use crate::store::StoreError;

/// A quota of a rule, and what overrides call it.
#[derive(Clone, Copy)]
pub(crate) struct Overridable<'r> {
    pub(crate) rule: Name,
    pub(crate) quota: Name,
    /// The endpoint of the rule's overrides, if that is not its name.
    pub(crate) endpoint: Option<&'r dyn EndpointPattern>,
}

/// An endpoint as a rule says it, which requests may have a part in.
pub(crate) trait EndpointPattern: Sync {
    /// Whether the endpoint of some request is this one.
    fn can_be(&self, endpoint: &str) -> bool;
}

impl Overridable<'_> {
    /// What comes behind the rule's endpoint where the quota is looked up: nothing, or `.rpm`.
    fn suffix(&self) -> &str {
        &self.quota.as_str()[self.rule.as_str().len()..]
    }

    fn is_named(&self, endpoint: &str) -> bool {
        self.endpoint.is_none() && self.rule.as_str() == endpoint
    }

    fn can_be(&self, endpoint: &str) -> bool {
        self.endpoint.map_or(self.rule.as_str() == endpoint, |pattern| pattern.can_be(endpoint))
    }

    /// Whether an override of this endpoint may hold for it.
    fn is_found_by(&self, endpoint: &str) -> bool {
        endpoint.strip_suffix(self.suffix()).is_some_and(|endpoint| self.can_be(endpoint))
    }
}

impl Engine {
    /// Sets an override for one of `quotas`, which are those of the rules.
    pub(crate) async fn set_override<'r>(
        &self,
        scope: OverrideScope<'_>,
        to: Override,
        quotas: impl Iterator<Item = Overridable<'r>>,
    ) -> Result<(), StoreError> {
        let quotas: Vec<Overridable<'_>> = quotas.collect();
        refuse_bare(scope.endpoint(), &quotas)?;
        self.store.overrides().set(scope, to).await
    }
}

/// Refuses the endpoint of rules that have only quotas with names of their own: each of them is looked up by its
/// name, so the override would hold for none. What no rule is called may be an endpoint of requests elsewhere.
fn refuse_bare(endpoint: &str, quotas: &[Overridable<'_>]) -> Result<(), InvalidInput> {
    // No request has the name of a rule for its endpoint, whatever it may have.
    let is_name = quotas.iter().any(|quota| quota.is_named(endpoint));
    let may_hold = |quota: &Overridable<'_>| quota.endpoint.is_none() || !is_name;
    if quotas.iter().any(|quota| may_hold(quota) && quota.is_found_by(endpoint)) {
        return Ok(());
    }
    let bare = quotas.iter().filter(|quota| may_hold(quota) && quota.can_be(endpoint));
    let names: BTreeSet<String> = bare.map(|quota| format!("`{endpoint}{}`", quota.suffix())).collect();
    if names.is_empty() {
        return Ok(());
    }
    let got = format!("endpoint `{endpoint}` of a rule with quotas of their own names");
    let names: Vec<String> = names.into_iter().collect();
    Err(InvalidInput::new(Field::Override, got, format!("one of {}", names.join(", "))))
}
