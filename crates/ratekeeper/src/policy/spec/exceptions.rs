//! Who is treated in another way than a rule treats the others: by plan, by
//! exact key, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use ratekeeper_core::SUBJECT_BYTES_MAX;

use super::limits::Counting;
use super::reader::{Cursor, Fields, Reader};
use super::{Limits, PLAN_DEFAULT, PlansSpec};
use crate::policy::problem::quoted;

impl Reader {
    pub(super) fn plans(&mut self, fields: &Fields<'_>, counting: Counting) -> Option<PlansSpec> {
        let template = fields.get("plan").and_then(|at| self.template(&at));
        let Some(at) = fields.get("plans") else {
            if let Some(template) = template {
                self.report_text(
                    &template,
                    "`plan` without `plans`",
                    "`plans`: limits by the name of a plan",
                );
            }
            return None;
        };
        let entries = self.entries(&at, "a table of limits by the name of a plan")?;
        if entries.is_empty() {
            self.wrong(&at, "at least one plan, or no `plans`");
        }
        let mut limits = BTreeMap::new();
        for entry in &entries {
            let (plan, of_plan) = (self.exact_key(entry, entry.key()), self.limits(entry, counting));
            limits.extend(plan.map(str::to_owned).zip(of_plan));
        }
        let plan = template.unwrap_or_else(|| at.with_text(PLAN_DEFAULT));
        Some(PlansSpec { plan, limits })
    }

    /// Limits by exact key.
    pub(super) fn custom(&mut self, at: &Cursor<'_>, counting: Counting) -> BTreeMap<String, Limits> {
        let entries = self.entries(at, "a table of limits by exact key").unwrap_or_default();
        let mut custom = BTreeMap::new();
        for entry in &entries {
            let (key, limits) = (self.exact_key(entry, entry.key()), self.limits(entry, counting));
            custom.extend(key.map(str::to_owned).zip(limits));
        }
        custom
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
            if custom.contains_key(key) {
                self.report(
                    item,
                    format!("{}, which is in `custom` as well", quoted(key)),
                    "it in one of them",
                );
            }
            let is_new = self.exact_key(item, key).is_none_or(|key| unlimited.insert(key.to_owned()));
            if !is_new {
                self.wrong(item, "each key once");
            }
        }
        unlimited
    }

    /// A key that stands for itself.
    pub(super) fn exact_key<'a>(&mut self, at: &Cursor<'_>, key: &'a str) -> Option<&'a str> {
        if (1..=SUBJECT_BYTES_MAX).contains(&key.len()) {
            return Some(key);
        }
        self.report(at, format!("a key of {} bytes", key.len()), format!("1 to {SUBJECT_BYTES_MAX} bytes"));
        None
    }
}
