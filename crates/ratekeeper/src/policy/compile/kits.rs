//! Rules that count on the same counters of Application Kit.
//!
//! It has one counter for a project on an endpoint, whatever rule counts there, and the counter stores no window: of
//! two windows each would end the other's. Within a rule `spec/check.rs` refuses that; here it is about two rules.

use std::collections::HashMap;

use ratekeeper_core::{Algorithm, Quota};

use super::Compiler;
use crate::policy::expression::{Condition, Requires};
use crate::policy::problem::Problem;
use crate::policy::spec::{KeySpec, RuleSpec};

/// The templates of the endpoint, the organisation and the project that counters are of.
type Counters<'s> = (&'s str, &'s str, &'s str);

/// What requests two rules have in common that count on one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Common {
    /// The same requests.
    Requests,
    /// Projects and endpoints.
    Counters,
    /// Nobody can tell before there are requests.
    Perhaps,
    Nothing,
}

impl Compiler<'_> {
    /// Refuses two rules that give such a counter two windows; warns of two that count a request twice on it, which no
    /// check can.
    pub(super) fn kits(&mut self) {
        if self.spec.hash_keys {
            return; // A digest is the key of none.
        }
        let rules = &self.spec.rules;
        let mut known: HashMap<Counters<'_>, Vec<(&RuleSpec, &Quota)>> = HashMap::new();
        for rule in rules {
            let Some(quota) = rule.all_quotas().map(|named| &named.quota).find(|quota| is_kits(quota)) else {
                continue;
            };
            for counters in counters_of(rule) {
                let others = known.entry(counters).or_default();
                let told = others.iter().find_map(|(other, of_other)| {
                    let (got, is_refused) = conflict(counters.0, (rule, quota), (other, of_other))?;
                    Some((got, is_refused))
                });
                others.push((rule, quota));
                let Some((got, is_refused)) = told else { continue };
                let expected = "an `endpoint` of its own, or another algorithm: Application Kit has one counter for a project \
                                on an endpoint, and it stores no window";
                let (at, field) = rule.place_of("overrides");
                match is_refused {
                    true => self.problems.push(Problem::new(at, field, got, expected)),
                    false => self.warnings.push(Problem::new(at, field, got, expected)),
                }
                break;
            }
        }
    }
}

/// What is wrong with two rules on the counters of one endpoint, and whether that is certain.
fn conflict(
    endpoint: &str,
    (rule, quota): (&RuleSpec, &Quota),
    (other, of_other): (&RuleSpec, &Quota),
) -> Option<(String, bool)> {
    let common = common(endpoint, rule.when.as_ref(), other.when.as_ref());
    let others = format!("of rule `{}` (`{of_other}`)", other.name);
    match common {
        Common::Nothing => None,
        _ if quota.window() != of_other.window() => {
            let got = format!("`{quota}` on the counters {others}, with another window");
            Some((got, common != Common::Perhaps))
        }
        Common::Requests => {
            Some((format!("`{quota}` on the counters {others}, for the same requests"), false))
        }
        Common::Counters | Common::Perhaps => None,
    }
}

fn common(endpoint: &str, one: Option<&Condition>, other: Option<&Condition>) -> Common {
    match (one, other) {
        (Some(one), Some(other)) if one != other => {
            match have_endpoints_in_common(endpoint, one.requires(), other.requires()) {
                Some(true) => Common::Counters,
                Some(false) => Common::Nothing,
                None => Common::Perhaps,
            }
        }
        _ => Common::Requests,
    }
}

/// Whether requests that meet the one and requests that meet the other can have the same endpoint; `None` if conditions do
/// not tell.
fn have_endpoints_in_common(endpoint: &str, one: &Requires, other: &Requires) -> Option<bool> {
    let both = one.both(other);
    let facts = [
        ("{method}", one.methods.is_some() && other.methods.is_some(), both.methods.map(|all| all.len())),
        ("{route}", one.routes.is_some() && other.routes.is_some(), both.routes.map(|all| all.len())),
        ("{path}", one.paths.is_some() && other.paths.is_some(), both.paths.map(|all| all.len())),
    ];
    let named = facts.iter().filter(|(placeholder, ..)| endpoint.contains(placeholder));
    let (mut known, mut is_told) = (0, true);
    for (placeholder, is_said, in_both) in named {
        if *in_both == Some(0) {
            return Some(false);
        }
        known += endpoint.matches(placeholder).count();
        is_told &= *is_said;
    }
    (is_told && known == endpoint.matches('{').count()).then_some(true)
}

/// Whether Application Kit would count like this.
fn is_kits(quota: &Quota) -> bool {
    quota.algorithm() == Algorithm::FixedWindow && !quota.is_clocked()
}

/// The counters of Application Kit that a rule counts on: those of keys that are the endpoint of its overrides, their
/// organisation and their project. Without an endpoint of its own, a rule is one to itself.
fn counters_of(rule: &RuleSpec) -> impl Iterator<Item = Counters<'_>> {
    let templates = match &rule.keys {
        KeySpec::Templates(templates) => templates.as_slice(),
        KeySpec::Caller => &[],
    };
    let overrides = rule.overrides.as_ref();
    templates.iter().filter_map(move |template| {
        let overrides = overrides?;
        let (organisation, project) = (overrides.organisation.as_str(), overrides.project.as_str());
        let owned = template.as_str().strip_suffix(project)?.strip_suffix(':')?;
        let of_key = owned.strip_suffix(organisation)?.strip_suffix(':')?;
        let of_overrides = overrides.endpoint.as_ref()?.as_str();
        let endpoint = match (of_key.contains('{'), of_overrides.contains('{')) {
            _ if of_key == of_overrides => of_key,
            // Where the one that comes from the request is the other.
            (true, false) => of_overrides,
            (false, true) => of_key,
            _ => return None,
        };
        Some((endpoint, organisation, project))
    })
}
