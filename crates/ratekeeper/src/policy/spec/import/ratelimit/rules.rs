//! From the tree of descriptors to rules.
//!
//! The original walks down the tree with a descriptor's entries. On every level it takes the neighbour that fits best
//! (exactly this value, the first wildcard, any value) and never comes back for another. So for the descriptors
//! with the same keys there is one list of rules, of which the first that fits decides: the tree in that order, and
//! behind all that stands under an entry a rule without a limit, for what fitted the entry and nothing under it.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{DESCRIPTORS_MAX, Entry, Limit, Sheet};
use crate::control::Mode;
use crate::policy::document::Place;
use crate::policy::expression::Condition;
use crate::policy::problem::{Problem, Problems};
use crate::policy::spec::check::so_many;
use crate::policy::spec::import::names::{self, Names};
use crate::policy::spec::import::pattern::{Pattern, fact, labelled, literal};
use crate::policy::spec::{
    KeySpec, Limits, NamedQuota, Places, PolicySpec, REPLACES_MAX, RULES_MAX, RuleSpec,
};
use crate::policy::template::Template;

/// The group of all limits with `quota_mode`: one that has room is enough.
const QUOTA_MODE: &str = "quota_mode";

/// What stands in a list of rules.
#[derive(Clone)]
struct Step<'e> {
    path: Vec<&'e Entry>,
    /// None frees requests from the rules behind it.
    limit: Option<&'e Limit>,
}

impl<'e> Step<'e> {
    /// Whether it has something to say of its own.
    fn is_rule(&self) -> bool {
        self.limit.is_some_and(|limit| limit.quota.is_some() || !limit.replaces.is_empty())
    }

    /// Whether no descriptor fits both.
    fn is_apart_from(&self, other: &Self) -> bool {
        self.path.iter().zip(&other.path).any(|(a, b)| a.value.is_apart_from(&b.value))
    }

    fn entry(&self) -> Option<&'e Entry> {
        self.path.last().copied()
    }
}

pub(super) fn policy(sheet: &Sheet) -> Result<PolicySpec, Problems> {
    let mut problems = Problems::none(&sheet.source);
    let descriptors =
        so_many("descriptors", sheet.entries.iter().map(Entry::count).sum(), 0, DESCRIPTORS_MAX);
    if problems.checked(descriptors, || (Place::UNKNOWN, "descriptors".to_owned())).is_none() {
        return Err(problems);
    }
    let mut shapes: Vec<Vec<&str>> = Vec::new();
    let mut known = HashSet::new();
    collect_shapes(&sheet.entries, &mut Vec::new(), &mut known, &mut shapes);
    let mut steps: Vec<(Vec<&str>, Vec<Step<'_>>)> = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let mut list = Vec::new();
        collect_steps(&shape, &sheet.entries, &mut Vec::new(), &mut list);
        steps.push((shape, list));
    }
    let limits = || sheet.limits().filter(|(_, limit)| limit.quota.is_some());
    let few_limits = match limits().count() {
        0 => Err(Problem::of("no limit", "at least one `rate_limit` with `requests_per_unit`")),
        count => so_many("limits", count, 0, RULES_MAX),
    };
    if problems.checked(few_limits, || (Place::UNKNOWN, "descriptors".to_owned())).is_none() {
        return Err(problems);
    }
    let rules = Maker::new(&steps).rules(steps, &mut problems);
    let few_rules =
        so_many("rules, with those that only free requests from others", rules.len(), 0, RULES_MAX);
    problems.checked(few_rules, || (Place::UNKNOWN, "descriptors".to_owned()));
    problems.of_rules(&rules, false);
    let spec = PolicySpec { rules, ..PolicySpec::builder(&*sheet.domain).unchecked() };
    problems.or(Some(spec))
}

/// The keys of all descriptors for which there is a limit, in the order of the file.
fn collect_shapes<'e>(
    entries: &'e [Entry],
    path: &mut Vec<&'e str>,
    known: &mut HashSet<Vec<&'e str>>,
    shapes: &mut Vec<Vec<&'e str>>,
) {
    for entry in entries {
        path.push(&entry.key);
        if entry.limit.is_some() && known.insert(path.clone()) {
            shapes.push(path.clone());
        }
        collect_shapes(&entry.entries, path, known, shapes);
        path.pop();
    }
}

/// What decides on descriptors with these keys, the first that fits first.
fn collect_steps<'e>(
    keys: &[&str],
    entries: &'e [Entry],
    path: &mut Vec<&'e Entry>,
    steps: &mut Vec<Step<'e>>,
) {
    let Some((key, deeper)) = keys.split_first() else { return };
    let mut here: Vec<&Entry> = entries.iter().filter(|entry| entry.key == *key).collect();
    here.sort_by_key(|entry| entry.value.rank());
    for entry in here {
        path.push(entry);
        let limit = if deeper.is_empty() { entry.limit.as_ref() } else { None };
        collect_steps(deeper, &entry.entries, path, steps);
        steps.push(Step { path: path.clone(), limit });
        path.pop();
    }
}

/// The list without what no later rule could take for itself.
fn needed(steps: Vec<Step<'_>>) -> Vec<Step<'_>> {
    let is_needed = |(at, step): (usize, &Step<'_>)| {
        let mut later = steps[at + 1..].iter().filter(|later| later.is_rule());
        step.is_rule() || later.any(|later| !later.is_apart_from(step))
    };
    let needed: Vec<bool> = steps.iter().enumerate().map(is_needed).collect();
    steps.into_iter().zip(needed).filter_map(|(step, is_needed)| is_needed.then_some(step)).collect()
}

/// Makes rules, and knows what each is called.
struct Maker<'e> {
    names: Names,
    /// How many limits have that name.
    named: HashMap<&'e str, usize>,
    /// The names of the rules that a name stands for.
    rules_of: HashMap<&'e str, Vec<String>>,
}

impl<'e> Maker<'e> {
    fn new(steps: &[(Vec<&'e str>, Vec<Step<'e>>)]) -> Self {
        let mut named = HashMap::new();
        for step in steps.iter().flat_map(|(_, list)| list).filter(|step| step.is_rule()) {
            if let Some(name) = step.limit.and_then(|limit| limit.name.as_deref()) {
                *named.entry(name).or_insert(0) += 1;
            }
        }
        Self { names: Names::default(), named, rules_of: HashMap::new() }
    }

    fn rules(mut self, steps: Vec<(Vec<&'e str>, Vec<Step<'e>>)>, problems: &mut Problems) -> Vec<RuleSpec> {
        let lists = steps.into_iter().map(|(keys, list)| {
            let list = needed(list).into_iter().map(|step| {
                let name = self.name(&step);
                (step, name)
            });
            (keys, list.collect::<Vec<_>>())
        });
        // All names, before one rule refers to another.
        let lists: Vec<_> = lists.collect();
        let mut rules = Vec::new();
        for (keys, list) in &lists {
            let is_group = list
                .iter()
                .enumerate()
                .any(|(at, (step, _))| list[at + 1..].iter().any(|(later, _)| !later.is_apart_from(step)));
            let keys = Keys::of(keys);
            let group = is_group.then(|| names::printable(&keys.all));
            for (step, name) in list {
                rules.extend(self.rule(step, name, &keys, group.as_deref(), problems));
            }
        }
        rules
    }

    /// The name that the file gives the limit, if it has it alone; else one of the entries that lead to it.
    fn name(&mut self, step: &Step<'e>) -> String {
        let own = step.limit.filter(|_| step.is_rule()).and_then(|limit| limit.name.as_deref());
        let alone = own.filter(|name| self.named.get(name) == Some(&1) && names::fits(name));
        let name = match alone {
            Some(name) => self.names.unique(name),
            None => {
                let path: Vec<String> = step.path.iter().map(|entry| entry.composite()).collect();
                let end = if step.is_rule() { "" } else { ".none" };
                self.names.unique(&format!("{}{end}", path.join(".")))
            }
        };
        if let Some(own) = own {
            self.rules_of.entry(own).or_default().push(name.clone());
        }
        name
    }

    fn rule(
        &self,
        step: &Step<'_>,
        name: &str,
        keys: &Keys,
        group: Option<&str>,
        problems: &mut Problems,
    ) -> Option<RuleSpec> {
        let entry = step.entry()?;
        let place = |field: &str| (entry.at, format!("{}.{field}", entry.path));
        let when = Condition::parse(&keys.condition(&step.path));
        let when = problems.checked(when, || place("value"))?;
        let template = Template::parse(&keys.template(&step.path, step.is_rule()));
        let template = problems.checked(template, || place("key"))?;
        let quota = step.limit.and_then(|limit| limit.quota);
        let limits = quota
            .map_or(Limits::Unlimited, |quota| Limits::Quotas(vec![NamedQuota { name: "".into(), quota }]));
        let replaces = step.limit.map(|limit| self.replaced(limit, name)).unwrap_or_default();
        if quota.is_none() && replaces.is_empty() && group.is_none() {
            // It replaces what is not there.
            return None;
        }
        if replaces.len() > REPLACES_MAX {
            let got = format!("names of {} limits", replaces.len());
            let (at, field) = place("rate_limit.replaces");
            problems.push(Problem::new(at, field, got, format!("at most {REPLACES_MAX}")));
            return None;
        }
        Some(RuleSpec {
            when: Some(when),
            first_of: group.map(str::to_owned),
            any_of: (entry.is_quota && quota.is_some()).then(|| QUOTA_MODE.to_owned()),
            mode: (entry.is_shadow && quota.is_some()).then_some(Mode::Monitor),
            replaces,
            places: Places { path: entry.path.clone(), fields: vec![("name".to_owned(), entry.at)] },
            ..RuleSpec::new(name, KeySpec::from(template), limits)
        })
    }

    /// The rules that a limit replaces. Names that nothing has replace nothing, as in the original.
    fn replaced(&self, limit: &Limit, own: &str) -> BTreeSet<String> {
        let names = limit.replaces.iter().filter_map(|name| self.rules_of.get(name.as_str()));
        names.flatten().filter(|name| *name != own).cloned().collect()
    }
}

/// The keys of a kind of descriptor, in words of policies.
struct Keys {
    /// What `descriptor_keys` is for it.
    all: String,
    /// What its entries are called: `user`, and `user#2` if the key is there twice.
    names: Vec<String>,
}

impl Keys {
    fn of(keys: &[&str]) -> Self {
        let escaped: Vec<String> =
            keys.iter().map(|key| key.replace('%', "%25").replace(',', "%2C")).collect();
        let name = |(at, key): (usize, &&str)| match keys[..at].iter().filter(|before| *before == key).count()
        {
            0 => (*key).to_owned(),
            before => format!("{key}#{}", before + 1),
        };
        Self { all: escaped.join(","), names: keys.iter().enumerate().map(name).collect() }
    }

    /// When entries lead to the end of a path.
    fn condition(&self, path: &[&Entry]) -> String {
        let mut parts = vec![format!("descriptor_keys == {}", literal(&self.all))];
        let values = self.names.iter().zip(path);
        parts.extend(values.filter_map(|(name, entry)| entry.value.condition(&fact(name))));
        parts.join(" && ")
    }

    /// Who counts together: all whose values are the same where they may differ.
    fn template(&self, path: &[&Entry], is_counted: bool) -> String {
        let differs = |entry: &Entry| match entry.value {
            Pattern::Exact(_) => false,
            Pattern::Glob(_) => !entry.is_shared,
            Pattern::Any => true,
        };
        let values = self.names.iter().zip(path).filter(|(_, entry)| differs(entry) && is_counted);
        let values: Vec<String> = values.map(|(name, _)| labelled(name)).collect();
        if values.is_empty() { "all".to_owned() } else { values.join(":") }
    }
}
