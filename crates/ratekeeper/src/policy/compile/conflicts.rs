//! What only shows when the rules are seen together.

use std::collections::{HashMap, HashSet};

use ratekeeper_core::{CHARGES_MAX, Name, ORGANISATION_PLACES_MAX, Quota};

use super::{Compiler, LimitSets, Rule};
use crate::policy::expression::{Condition, Paths};
use crate::policy::problem::Problem;
use crate::policy::request::canonical_path;
use crate::policy::spec::{KeySpec, RuleSpec};
use crate::policy::template::Template;
use crate::store::StoreUrl;

impl Compiler<'_> {
    pub(super) fn conflicts(&mut self, rules: &[Rule], limits: &LimitSets) {
        self.too_many_at_once(rules, limits);
        let never = |when: &Condition| when.requires().is_impossible() || when.as_str() == "false";
        for rule in self.spec.rules.iter().filter(|rule| rule.when.as_ref().is_some_and(never)) {
            let got = "a condition that no request meets";
            self.warn(rule.place_of("when"), got, "one that some request meets");
        }
        self.never_first(rules);
        self.misspelled();
        self.escapable();
        self.apart();
        self.outdone(rules, limits);
        self.kits();
    }

    /// Rules of a group behind one that takes every request.
    fn never_first(&mut self, rules: &[Rule]) {
        let mut taken: HashMap<u16, &str> = HashMap::new();
        for (spec, rule) in self.spec.rules.iter().zip(rules) {
            let Some(group) = rule.first_of else { continue };
            if let Some(first) = taken.get(&group) {
                let got = format!("a rule of a group behind `{first}`, which takes every request");
                self.warn(spec.place_of("first_of"), got, "it before that one, or a `when` there");
            } else if spec.when.is_none() {
                taken.insert(group, &spec.name);
            }
        }
    }

    /// Rules that limit nobody who leaves out what they count by.
    fn escapable(&mut self) {
        for rule in self.spec.rules.iter().filter(|rule| rule.fallback.is_none()) {
            let KeySpec::Templates(templates) = &rule.keys else { continue };
            if templates.iter().all(Template::is_callers_choice) {
                let got = "keys that a caller can leave out, and no `fallback`";
                let expected = "a last key such as \"ip:{client.ip}\", or a `fallback`: a request without a key is not limited";
                self.warn(rule.place_of("keys"), got, expected);
            }
        }
    }

    /// Counters that cannot be where their overrides are, if counters are on several servers: refused there, and warned
    /// of everywhere.
    fn apart(&mut self) {
        let is_parted = self.options.parted || self.spec.store.as_ref().is_some_and(StoreUrl::is_parted);
        for rule in &self.spec.rules {
            let (Some(overrides), KeySpec::Templates(templates)) = (&rule.overrides, &rule.keys) else {
                continue;
            };
            let organisation = overrides.organisation.as_str();
            let Some((got, expected)) = apart(templates, organisation, self.spec.hash_keys) else { continue };
            match is_parted {
                true => {
                    let (at, field) = rule.place_of("keys");
                    self.problems.push(Problem::new(at, field, got, expected));
                }
                false => self.warn(rule.place_of("keys"), got, expected),
            }
        }
    }

    /// Paths that no request has, because a path has one spelling.
    fn misspelled(&mut self) {
        for rule in &self.spec.rules {
            let paths = rule.when.as_ref().and_then(|when| when.requires().paths.as_deref());
            for path in paths.unwrap_or_default() {
                let (Paths::Is(written) | Paths::StartsWith(written)) = path;
                let one = canonical_path(written);
                if one != written.as_ref() {
                    let got = format!("\"{written}\", which no path is spelled like");
                    self.warn(rule.place_of("when"), got, format!("\"{one}\""));
                }
            }
        }
    }

    /// Rules without a condition all apply to one request.
    fn too_many_at_once(&mut self, rules: &[Rule], limits: &LimitSets) {
        let mut charges = 0;
        let always = self.spec.rules.iter().zip(rules).filter(|(_, rule)| rule.when.is_none());
        // Of a group, one has a say.
        let mut groups = HashSet::new();
        for (spec, rule) in always.filter(|(_, rule)| rule.first_of.is_none_or(|group| groups.insert(group)))
        {
            let plans = rule.plans.iter().flat_map(|plans| plans.by_name.values());
            let sets = plans.chain(rule.exact.values()).chain([&rule.limits]).copied();
            charges += limits.most_charges(sets) + usize::from(rule.terms.penalty.is_some());
            if charges > CHARGES_MAX {
                let got = format!("{charges} quotas that one request counts against, up to this rule");
                let expected = format!("at most {CHARGES_MAX}; give rules a `when`");
                let (at, field) = spec.place_of("name");
                self.problems.push(Problem::new(at, field, got, expected));
                return;
            }
        }
    }

    /// Quotas that can never be the strictest, because another rule allows less
    /// of the same to the same.
    fn outdone(&mut self, rules: &[Rule], limits: &LimitSets) {
        for (at, (spec, rule)) in self.spec.rules.iter().zip(rules).enumerate() {
            let others = self.spec.rules.iter().zip(rules).enumerate().filter(|(other, _)| *other != at);
            let alike = others.filter(|(_, (other, _))| counts_the_same(spec, other));
            let mut pairs = alike.flat_map(|(other_at, (other, other_rule))| {
                let (own, theirs) = (&limits.get(rule.limits).quotas, &limits.get(other_rule.limits).quotas);
                let pairs = own.iter().flat_map(|own| theirs.iter().map(move |theirs| (own, theirs)));
                pairs.map(move |(own, theirs)| (own, theirs, other, at > other_at))
            });
            let found = pairs.find(|(own, theirs, _, later)| never_stricter(own, theirs, *later));
            if let Some(((name, quota), (_, stricter), other, _)) = found {
                let got = format!("{name} ({quota}), which never decides");
                let because = format!(
                    "less than {stricter}, which rule `{}` allows under the same key and condition",
                    other.name
                );
                self.warn(spec.place_of("name"), got, because);
            }
        }
    }
}

/// The key of a rule with overrides that does not name their organisation, and what would be right.
fn apart(templates: &[Template], organisation: &str, is_hashed: bool) -> Option<(String, String)> {
    if is_hashed {
        let got = "`overrides` beside `hash_keys`, which hides the organisation in the key".to_owned();
        let expected =
            "one of them: on a cluster a counter is where its organisation is, and this is refused";
        return Some((got, expected.to_owned()));
    }
    let names_it = |template: &Template| {
        template.as_str().rsplit(':').take(ORGANISATION_PLACES_MAX).any(|part| part == organisation)
    };
    let is_after_one_that_does = |at: usize, key: &str| {
        // A request that has this key, and an organisation, has that one.
        templates[..at].iter().filter(|before| names_it(before)).any(|before| {
            placeholders(before.as_str()).all(|value| value == organisation || key.contains(value))
        })
    };
    let mut all = templates.iter().map(Template::as_str).enumerate();
    let (_, key) = all.find(|(at, key)| !names_it(&templates[*at]) && !is_after_one_that_does(*at, key))?;
    let got = format!("\"{key}\" with `overrides` of \"{organisation}\", which it does not name");
    let expected = format!(
        "\"org:{organisation}:{key}\" instead of it, or before it: on a cluster a counter is where its organisation is, \
         and this is refused"
    );
    Some((got, expected))
}

/// What a template takes from the request, in its braces.
fn placeholders(template: &str) -> impl Iterator<Item = &str> {
    template.split_inclusive('}').filter_map(|part| Some(&part[part.find('{')?..]))
}

fn counts_the_same(a: &RuleSpec, b: &RuleSpec) -> bool {
    let plain = |rule: &RuleSpec| {
        let is_alone = rule.first_of.is_none() && rule.any_of.is_none() && rule.replaces.is_empty();
        is_alone
            && rule.plans.is_none()
            && rule.custom.is_empty()
            && rule.overrides.is_none()
            && rule.penalty.is_none()
    };
    let reach = |rule: &RuleSpec| (rule.mode, rule.enforce_percent, rule.scope, rule.on_outage);
    plain(a)
        && plain(b)
        && a.when == b.when
        && a.keys == b.keys
        && a.cost == b.cost
        && a.fallback == b.fallback
        && (&a.unlimited, &a.allow) == (&b.unlimited, &b.allow)
        && reach(a) == reach(b)
}

fn never_stricter((_, own): &(Name, Quota), (_, other): &(Name, Quota), later: bool) -> bool {
    let same = own.algorithm() == other.algorithm()
        && own.window_micros() == other.window_micros()
        && own.is_aligned() == other.is_aligned()
        && own.calendar_window() == other.calendar_window();
    // Of two that are equal, the later one is too many.
    same && (own.limit(), own.capacity()) >= (other.limit(), other.capacity())
        && own.capacity() >= other.capacity()
        && (own != other || later)
}
