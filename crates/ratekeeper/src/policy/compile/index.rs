//! Which rules could apply to a request, found without looking at the others.
//!
//! Every rule stands in one place: under the routes, the paths or the methods that
//! its condition requires (or the keys of a descriptor), whichever says most; or among those that are always
//! looked at. A request that does not say what it is looked up by gets all rules
//! of that place: their conditions fail then, and that must be seen.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::Rule;
use crate::policy::expression::{Condition, Paths};
use crate::policy::request::{Descriptor, Facts};

/// Numbers of rules, in their order.
pub(in crate::policy) type Candidates = SmallVec<[u16; 16]>;

type ByText = HashMap<Box<str>, Vec<u16>>;

#[derive(Debug, Default)]
pub(in crate::policy) struct Index {
    always: Vec<u16>,
    routes: Table,
    paths: Table,
    /// By the length of the prefix, and by the prefix.
    prefixes: Vec<(usize, ByText)>,
    prefixed: Vec<u16>,
    methods: Table,
    descriptors: Table,
    /// Whether any rule is found by what a request says.
    is_looked_up: bool,
}

#[derive(Debug, Default)]
struct Table {
    by_text: ByText,
    all: Vec<u16>,
}

impl Table {
    fn add(&mut self, texts: &[Box<str>], rule: u16) {
        self.all.push(rule);
        for text in texts {
            put(&mut self.by_text, text, rule);
        }
    }

    #[inline]
    fn find(&self, text: Option<&str>) -> &[u16] {
        match text {
            _ if self.all.is_empty() => &[],
            Some(text) => self.by_text.get(text).map_or(&[], Vec::as_slice),
            None => &self.all,
        }
    }
}

/// Puts a rule under a text, once.
fn put(by_text: &mut ByText, text: &str, rule: u16) {
    let rules = by_text.entry(text.into()).or_default();
    if rules.last() != Some(&rule) {
        rules.push(rule);
    }
}

impl Index {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let mut index = Self::default();
        for (number, rule) in (0..).zip(rules) {
            let requires = rule.when.as_ref().map(Condition::requires);
            let Some(requires) = requires else {
                index.always.push(number);
                continue;
            };
            if let Some(keys) = &requires.descriptor_keys {
                index.descriptors.add(keys, number);
            } else if let Some(routes) = &requires.routes {
                index.routes.add(routes, number);
            } else if let Some(paths) = &requires.paths {
                index.add_paths(paths, number);
            } else if let Some(methods) = &requires.methods {
                index.methods.add(methods, number);
            } else {
                index.always.push(number);
            }
        }
        index.is_looked_up = index.always.len() < rules.len();
        index
    }

    fn add_paths(&mut self, paths: &[Paths], rule: u16) {
        let exact: Option<Vec<Box<str>>> =
            paths.iter().map(|path| if let Paths::Is(is) = path { Some(is.clone()) } else { None }).collect();
        if let Some(exact) = exact {
            return self.paths.add(&exact, rule);
        }
        self.prefixed.push(rule);
        for path in paths {
            // What is a path is a beginning of it, too; the condition tells.
            let (Paths::Is(start) | Paths::StartsWith(start)) = path;
            let place = match self.prefixes.iter().position(|(length, _)| *length == start.len()) {
                Some(place) => place,
                None => {
                    self.prefixes.push((start.len(), HashMap::new()));
                    self.prefixes.len() - 1
                }
            };
            put(&mut self.prefixes[place].1, start, rule);
        }
    }

    /// Hands on the rules that could apply, in their order.
    #[inline]
    pub(in crate::policy) fn each_candidate(&self, facts: &dyn Facts, mut then: impl FnMut(u16)) {
        if self.is_looked_up {
            self.candidates(facts).into_iter().for_each(then);
        } else {
            // Nothing has to be found out about the request.
            self.always.iter().for_each(|rule| then(*rule));
        }
    }

    /// The rules that could apply, in their order.
    pub(in crate::policy) fn candidates(&self, facts: &dyn Facts) -> Candidates {
        let mut found = Candidates::from_slice(&self.always);
        let mut places = usize::from(!found.is_empty());
        let mut add = |rules: &[u16]| {
            places += usize::from(!rules.is_empty());
            found.extend_from_slice(rules);
        };
        if !self.descriptors.all.is_empty() {
            add(self.descriptors.find(facts.descriptor().map(Descriptor::keys)));
        }
        if !self.routes.all.is_empty() {
            add(self.routes.find(facts.route()));
        }
        if !self.methods.all.is_empty() {
            add(self.methods.find(facts.method()));
        }
        if !self.paths.all.is_empty() || !self.prefixed.is_empty() {
            let path = facts.path();
            add(self.paths.find(path));
            match path {
                Some(path) => {
                    for (length, by_prefix) in &self.prefixes {
                        if let Some(rules) = path.get(..*length).and_then(|start| by_prefix.get(start)) {
                            add(rules);
                        }
                    }
                }
                None => add(&self.prefixed),
            }
        }
        if places > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }
}
