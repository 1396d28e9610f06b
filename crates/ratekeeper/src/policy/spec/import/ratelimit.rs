//! The configuration of envoyproxy/ratelimit, read and put together.
//!
//! Its keys, units and bounds are those of its `config_impl.go`. What is wrong there is wrong here; so is a key that is
//! right elsewhere and has no meaning where it stands, which the original reads and ignores.

mod read;
mod rules;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ratekeeper_core::Quota;

use super::pattern::Pattern;
use crate::policy::document::{Format, Node, Place, Value};
use crate::policy::problem::{Problem, Problems, quoted};
use crate::policy::spec::PolicySpec;
use crate::policy::spec::reader::{Cursor, Reader};

/// What is wrong with two of them.
const ONCE: &str = "each key with a value once among its neighbours";
/// How many descriptors a domain may have, whether or not they have a limit.
const DESCRIPTORS_MAX: usize = 10_000;

/// One file of a domain. A domain may have several.
#[derive(Debug)]
pub(in crate::policy) struct Sheet {
    source: Arc<str>,
    domain: String,
    entries: Vec<Entry>,
}

/// A descriptor's entry that requests may have.
#[derive(Debug)]
struct Entry {
    key: String,
    value: Pattern,
    limit: Option<Limit>,
    entries: Vec<Entry>,
    is_shadow: bool,
    is_quota: bool,
    /// Whether all values that match a wildcard count together.
    is_shared: bool,
    at: Place,
    path: String,
    /// What has no meaning here, and where it stands.
    ignored: Vec<(&'static str, Place)>,
}

#[derive(Debug)]
struct Limit {
    /// None is as much as one likes.
    quota: Option<Quota>,
    name: Option<String>,
    replaces: Vec<String>,
}

/// Whether a document is one of envoyproxy/ratelimit.
pub(in crate::policy::spec) fn is_ratelimit(document: &Node) -> bool {
    let Value::Table(entries) = &document.value else { return false };
    let has = |names: &[&str]| entries.iter().any(|entry| names.contains(&entry.key.as_str()));
    has(&["domain", "descriptors"]) && !has(&["service", "_id", "rules", "general_rate_limit"])
}

impl Sheet {
    /// The domain.
    pub(in crate::policy) fn domain(&self) -> &str {
        &self.domain
    }

    /// The policy of a domain, and what is left out of it.
    pub(super) fn converted(sheets: Vec<Self>) -> Result<(PolicySpec, Vec<Problem>), Problems> {
        let names: HashSet<&str> =
            sheets.iter().flat_map(Self::limits).filter_map(|limit| limit.1.name()).collect();
        let warnings =
            sheets.iter().flat_map(|sheet| Problems::of(&sheet.source, sheet.warnings(&names)).into_iter());
        let warnings = warnings.collect();
        Ok((Self::policy(sheets)?, warnings))
    }

    /// Reads a document, if it is one of envoyproxy/ratelimit.
    pub(in crate::policy) fn of(
        source: &str,
        format: Format,
        text: &[u8],
        document: &Node,
    ) -> Option<Result<Self, Problems>> {
        if !is_ratelimit(document) {
            return None;
        }
        // There, a value is a text however it looks: `007` is no 7.
        let texts = (format == Format::Yaml).then(|| Node::parse_texts(source, text));
        Some(match texts {
            Some(texts) => texts.and_then(|texts| Self::of_node(source, &texts)),
            None => Self::of_node(source, document),
        })
    }

    pub(in crate::policy::spec) fn of_node(source: &str, document: &Node) -> Result<Self, Problems> {
        // In Go, null is as good as leaving a field out.
        let mut reader = Reader::new(source, true);
        let sheet = reader.sheet(&Cursor::root(document), source);
        reader.finish(sheet)
    }

    /// The policy of a domain from all of its files.
    pub(in crate::policy) fn policy(sheets: Vec<Self>) -> Result<PolicySpec, Problems> {
        rules::policy(&Self::merged(sheets)?)
    }

    /// All limits, with their entries.
    fn limits(&self) -> impl Iterator<Item = (&Entry, &Limit)> {
        let all = self.entries.iter().flat_map(Entry::all);
        all.filter_map(|entry| Some((entry, entry.limit.as_ref()?)))
    }

    /// What is right and has no meaning here. `names` are those of all limits of the domain.
    fn warnings(&self, names: &HashSet<&str>) -> Vec<Problem> {
        let unknown = self.limits().flat_map(|(entry, limit)| {
            let unknown = limit.replaces.iter().filter(|name| !names.contains(name.as_str()));
            unknown.map(|name| {
                let field = format!("{}.rate_limit.replaces", entry.path);
                Problem::new(entry.at, field, quoted(name), "the name of a limit: this replaces nothing")
            })
        });
        let ignored = self.entries.iter().flat_map(Entry::all).flat_map(|entry| {
            entry.ignored.iter().map(|(field, at)| {
                let (field, got) =
                    (format!("{}.{field}", entry.path), format!("`{field}`, which is left out"));
                Problem::new(
                    *at,
                    field,
                    got,
                    "nothing: metrics are by rule, and `ratekeeper top` shows single keys",
                )
            })
        });
        unknown.chain(ignored).collect()
    }

    fn merged(sheets: Vec<Self>) -> Result<Self, Problems> {
        let mut sheets = sheets.into_iter();
        let Some(mut all) = sheets.next() else { return Err(Problems::none("")) };
        let known = |entry: &Entry, source: &Arc<str>| (entry.composite(), (Arc::clone(source), entry.at));
        let mut firsts: HashMap<String, (Arc<str>, Place)> =
            all.entries.iter().map(|entry| known(entry, &all.source)).collect();
        for more in sheets {
            let mut problems = Problems::none(&more.source);
            for entry in more.entries {
                let (name, place) = known(&entry, &more.source);
                if let Some((source, at)) = firsts.get(&name) {
                    let got = format!("{} again, as in {source}:{}", quoted(&name), at.line);
                    problems.push(Problem::new(entry.at, entry.path, got, ONCE));
                } else {
                    firsts.insert(name, place);
                    all.entries.push(entry);
                }
            }
            problems.or(Some(()))?;
        }
        Ok(all)
    }
}

impl Limit {
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl Entry {
    /// What tells it from its neighbours, as the original has it.
    fn composite(&self) -> String {
        match &self.value {
            Pattern::Any => self.key.clone(),
            value => format!("{}_{}", self.key, value.text()),
        }
    }

    /// It and those below it.
    fn all(&self) -> Vec<&Self> {
        let mut all = vec![self];
        all.extend(self.entries.iter().flat_map(Self::all));
        all
    }

    /// How many entries it is, with those below it.
    fn count(&self) -> usize {
        1 + self.entries.iter().map(Self::count).sum::<usize>()
    }
}
