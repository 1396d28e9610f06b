//! Who is treated in another way than a rule treats the others: by plan, by
//! exact key, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use super::check;
use super::limits::Counting;
use super::reader::{Cursor, Fields, Reader};
use super::{Limits, PlansSpec};
use crate::policy::template::Template;

impl Reader {
    pub(super) fn plans(&mut self, fields: &Fields<'_>, counting: Counting) -> Option<PlansSpec> {
        let template = fields.get("plan");
        let plan = template.and_then(|at| self.template(&at));
        let Some(at) = fields.get("plans") else {
            if let Some(at) = template {
                self.report(&at, "`plan` without `plans`", "`plans`: limits by the name of a plan");
            }
            return None;
        };
        let entries = self.entries(&at, "a table of limits by the name of a plan")?;
        let plan = plan.unwrap_or_else(|| Template::of_claim("plan"));
        let limits = self.limits_by_key(&entries, counting);
        // Of plans that are all wrong, enough is noted.
        (entries.is_empty() || !limits.is_empty()).then_some(PlansSpec { plan, limits })
    }

    /// Limits by exact key.
    pub(super) fn custom(&mut self, at: &Cursor<'_>, counting: Counting) -> BTreeMap<String, Limits> {
        let entries = self.entries(at, "a table of limits by exact key").unwrap_or_default();
        self.limits_by_key(&entries, counting)
    }

    fn limits_by_key(&mut self, entries: &[Cursor<'_>], counting: Counting) -> BTreeMap<String, Limits> {
        let mut by_key = BTreeMap::new();
        for entry in entries {
            let key = self.checked(entry, check::exact_key(entry.key()).map(|()| entry.key().to_owned()));
            by_key.extend(key.zip(self.limits(entry, counting)));
        }
        by_key
    }

    pub(super) fn unlimited(
        &mut self,
        at: &Cursor<'_>,
        custom: &BTreeMap<String, Limits>,
    ) -> BTreeSet<String> {
        let items = self.items(at, "a list of exact keys, such as [\"user:1234\"]").unwrap_or_default();
        let mut unlimited = BTreeSet::new();
        for item in &items {
            let Some(key) = self.text(item, "an exact key such as \"user:1234\"") else { continue };
            let is_fine = self.checked(item, check::unlimited(key, custom)).is_some();
            if is_fine && !unlimited.insert(key.to_owned()) {
                self.wrong(item, "each key once");
            }
        }
        unlimited
    }
}
