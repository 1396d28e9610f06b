//! Overrides that are set where the rules are known.

use std::collections::BTreeSet;

use ratekeeper_core::{Field, InvalidInput, Name, Override, OverrideScope};

use super::Engine;
use crate::store::StoreError;

impl Engine {
    /// Sets an override for one of `quotas`, which are those of the rules.
    pub(crate) async fn set_override(
        &self,
        scope: OverrideScope<'_>,
        to: Override,
        quotas: impl Iterator<Item = Name>,
    ) -> Result<(), StoreError> {
        refuse_bare(scope.endpoint(), quotas)?;
        self.store.overrides().set(scope, to).await
    }
}

/// Refuses the name of a rule that has only quotas with names of their own: each of them is looked up by its
/// name, so the override would hold for none. What no rule is called may be an endpoint of requests.
fn refuse_bare(endpoint: &str, quotas: impl Iterator<Item = Name>) -> Result<(), InvalidInput> {
    let own = quotas.filter(|quota| quota.rule().as_str() == endpoint);
    let names: BTreeSet<&str> = own.map(Name::as_str).collect();
    if names.is_empty() || names.contains(endpoint) {
        return Ok(());
    }
    let got = format!("endpoint `{endpoint}` of a rule with quotas of their own names");
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    Err(InvalidInput::new(Field::Override, got, format!("one of {}", names.join(", "))))
}
