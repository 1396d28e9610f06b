//! The limits file of Limitador: a list of limits, each with its namespace.

mod condition;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Algorithm, LIMIT_MAX, Quota};

use self::condition::Test;
use super::names::{self, Names};
use super::pattern::labelled;
use crate::policy::document::{Node, Place, Value};
use crate::policy::expression::Condition;
use crate::policy::problem::Problems;
use crate::policy::spec::check::{service_name, so_many};
use crate::policy::spec::reader::{Cursor, Reader};
use crate::policy::spec::shape::Shape;
use crate::policy::spec::{KeySpec, Places, PolicySpec, RULES_MAX, RuleSpec};
use crate::policy::template::Template;

static LIMIT: Shape = Shape {
    what: "a limit of Limitador",
    fields: "id name namespace max_value seconds conditions variables",
    neighbours: &[],
};

const A_VARIABLE: &str = "a key such as \"user_id\" or \"descriptors[0]['user_id']\"";

/// The limits of one namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    source: Arc<str>,
    name: String,
    limits: Vec<Limit>,
}

#[derive(Debug)]
struct Limit {
    name: Option<String>,
    quota: Quota,
    tests: Vec<Test>,
    variables: Vec<String>,
    at: Place,
    path: String,
}

/// Reads a document, if it is a list of limits.
pub(super) fn read(source: &str, document: &Node) -> Option<Result<Vec<Namespace>, Problems>> {
    let Value::List(_) = document.value else { return None };
    let mut reader = Reader::new(source, true);
    let root = Cursor::root(document);
    let items = reader.items(&root, "a list of limits").unwrap_or_default();
    if items.is_empty() {
        reader.report(&root, "no limits", "at least one limit");
    }
    let few = so_many("limits", items.len(), 0, RULES_MAX);
    reader.checked(&root, few);
    let mut all: Vec<Namespace> = Vec::new();
    for item in &items {
        let Some((namespace, limit)) = reader.foreign_limit(item) else { continue };
        match all.iter_mut().find(|known| known.name == namespace) {
            Some(known) => {
                if let Some(first) = known.limits.iter().find(|known| known.is_same(&limit)) {
                    let got = format!(
                        "a limit with the conditions, variables and seconds of line {}",
                        first.at.line
                    );
                    reader.report(item, got, "one of them: Limitador has one counter for both");
                }
                known.limits.push(limit);
            }
            None => all.push(Namespace { source: source.into(), name: namespace, limits: vec![limit] }),
        }
    }
    Some(reader.finish(Some(all)))
}

/// Namespaces of several files, each once.
pub(super) fn together(namespaces: Vec<Namespace>) -> Vec<Namespace> {
    let mut all: Vec<Namespace> = Vec::new();
    for more in namespaces {
        match all.iter_mut().find(|known| known.name == more.name) {
            Some(known) => known.limits.extend(more.limits),
            None => all.push(more),
        }
    }
    all
}

impl Limit {
    /// Whether both have one counter.
    fn is_same(&self, other: &Self) -> bool {
        let tests = |limit: &Self| limit.tests.iter().map(Test::text).collect::<BTreeSet<String>>();
        let variables = |limit: &Self| limit.variables.iter().cloned().collect::<BTreeSet<String>>();
        self.quota.window() == other.quota.window()
            && tests(self) == tests(other)
            && variables(self) == variables(other)
    }
}

impl Reader {
    fn foreign_limit(&mut self, at: &Cursor<'_>) -> Option<(String, Limit)> {
        let fields = self.fields(at, &LIMIT)?;
        let namespace = self.required(at, &fields, "namespace", "whose limit it is");
        let namespace = namespace
            .and_then(|at| self.parsed(&at, "a name", |name| service_name(name).map(|()| name.to_owned())));
        let limit = self.required(at, &fields, "max_value", "how many");
        let limit = limit.and_then(|at| self.whole(&at, 0, LIMIT_MAX));
        let seconds_at = self.required(at, &fields, "seconds", "in how long");
        let seconds = seconds_at.and_then(|at| self.whole(&at, 1, u32::MAX));
        let quota = limit.zip(seconds).zip(seconds_at).and_then(|((limit, seconds), at)| {
            let window = Duration::from_secs(seconds.into());
            self.checked(&at, Quota::new(Algorithm::FixedWindow, limit.into(), window))
        });
        let conditions = fields.get("conditions");
        let conditions = conditions.and_then(|at| {
            let items = self.items(&at, "a list of conditions").unwrap_or_default();
            let tests: Vec<Option<Test>> =
                items.iter().map(|item| self.parsed(item, "a condition", Test::parse)).collect();
            tests.into_iter().collect::<Option<Vec<Test>>>()
        });
        let variables = fields.get("variables").and_then(|at| {
            let items = self.items(&at, "a list of variables").unwrap_or_default();
            let keys: Vec<Option<String>> =
                items.iter().map(|item| self.parsed(item, A_VARIABLE, condition::variable)).collect();
            keys.into_iter().collect::<Option<Vec<String>>>()
        });
        let mut name =
            |field: &str| fields.get(field).and_then(|at| self.text(&at, "a name")).map(str::to_owned);
        let name = name("name").or_else(|| name("id"));
        let limit = Limit {
            name,
            quota: quota?,
            tests: conditions.unwrap_or_default(),
            variables: variables.unwrap_or_default(),
            at: at.node.at,
            path: at.path(),
        };
        Some((namespace?, limit))
    }
}

impl Namespace {
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The policy of the namespace.
    pub(super) fn policy(&self) -> Result<PolicySpec, Problems> {
        let mut problems = Problems::none(&self.source);
        let few = so_many("limits", self.limits.len(), 1, RULES_MAX);
        problems.checked(few, || (Place::UNKNOWN, String::new()));
        let mut names = Names::default();
        let rules = self.limits.iter().zip(1..).filter_map(|(limit, number)| {
            let own = limit.name.as_deref().filter(|name| names::fits(name));
            let name = names.unique(&own.map_or_else(|| format!("limit-{number}"), str::to_owned));
            limit.rule(&name, &mut problems)
        });
        let rules: Vec<RuleSpec> = rules.take(RULES_MAX).collect();
        problems.of_rules(&rules, false);
        let spec = PolicySpec { rules, ..PolicySpec::builder(&*self.name).unchecked() };
        problems.or(Some(spec))
    }
}

impl Limit {
    fn rule(&self, name: &str, problems: &mut Problems) -> Option<RuleSpec> {
        let place = |field: &str| (self.at, format!("{}.{field}", self.path));
        let tests: Vec<String> = self.tests.iter().map(Test::text).collect();
        let when = (!tests.is_empty()).then(|| Condition::parse(&tests.join(" && ")));
        let when = problems.checked(when.transpose(), || place("conditions"))?;
        let keys: Vec<String> = self.variables.iter().map(|key| labelled(key)).collect();
        let keys = if keys.is_empty() { "all".to_owned() } else { keys.join(":") };
        let keys = problems.checked(Template::parse(&keys), || place("variables"))?;
        Some(RuleSpec {
            when,
            places: Places { path: self.path.clone(), fields: vec![("name".to_owned(), self.at)] },
            ..RuleSpec::new(name, KeySpec::from(keys), self.quota)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_another_kind_is_no_list_of_limits() {
        assert!(read("x", &Node::table([("limits", Node::list(["x"]))])).is_none());
        assert!(read("x", &Node::list(Vec::<Node>::new())).unwrap().is_err());
    }
}
