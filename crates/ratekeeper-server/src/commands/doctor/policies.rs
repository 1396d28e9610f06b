//! What is wrong with policies.

use std::path::Path;

use ratekeeper::StoreUrl;
use ratekeeper::policy::Problem;

use super::finding::{Finding, Severity};
use crate::commands::policy::{self, Checked, Verdict};

const CHECK: &str = "policy";

/// Looks at policies; the second is the store that they name, if it is one and the same.
pub(super) fn look(path: Option<&Path>) -> (Vec<Finding>, Option<StoreUrl>) {
    let Some(path) = path else { return (Vec::new(), None) };
    let checked = policy::read(path, None);
    let mut stores: Vec<&StoreUrl> = checked.iter().filter_map(Checked::store).collect();
    stores.sort_unstable_by_key(|url| url.as_str());
    stores.dedup();
    let mut findings: Vec<Finding> = checked.iter().flat_map(findings_of).collect();
    if stores.len() > 1 {
        let found = format!("the policies name {} stores; none of them was looked at", stores.len());
        findings
            .push(Finding::new(CHECK, Severity::Note, found).fix("look at one after the other with --store"));
    }
    let named = match stores[..] {
        [store] => Some(store.clone()),
        _ => None,
    };
    (findings, named)
}

fn findings_of(checked: &Checked) -> Vec<Finding> {
    let file = &checked.file;
    let at = |problem: &Problem| match problem.at.is_known() {
        true => format!(
            "{file}:{}:{}: {}: got {}",
            problem.at.line, problem.at.column, problem.field, problem.got
        ),
        false => format!("{file}: {}: got {}", problem.field, problem.got),
    };
    let expected = |problem: &Problem| format!("expected {}", problem.expected);
    match &checked.verdict {
        Verdict::Good(summary) => {
            let found = format!("{file}: service {}, rules: {}", summary.service, summary.rules);
            let warnings = summary
                .warnings
                .iter()
                .map(|problem| Finding::warning(CHECK, at(problem)).fix(expected(problem)));
            std::iter::once(Finding::ok(CHECK, found)).chain(warnings).collect()
        }
        Verdict::Wrong(problems) => {
            problems.iter().map(|problem| Finding::error(CHECK, at(problem)).fix(expected(problem))).collect()
        }
        Verdict::Unread { error, hint } => {
            let finding = Finding::error(CHECK, format!("{file}: {error}"));
            vec![match hint {
                Some(hint) => finding.fix(hint),
                None => finding,
            }]
        }
    }
}
