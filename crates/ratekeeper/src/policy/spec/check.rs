//! What a policy may say, whether it was read or put together by a program.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Display;

use ratekeeper_core::{
    Algorithm, CHARGES_MAX, LIMIT_MAX, NAME_BYTES_MAX, Quota, SUBJECT_BYTES_MAX, WINDOWS_MAX,
};

use super::reader::push_field;
use super::{
    CostSpec, KEYS_MAX, KeySpec, Limits, NamedQuota, Network, OnError, REPLACES_MAX, RuleSpec, Scope,
};
use crate::control::ALL_RULES;
use crate::policy::problem::{Problem, Problems, quoted};
use crate::policy::template::{KeyHashing, Template};

type Checked = Result<(), Problem>;

/// What a penalty counts under within its rule, which no quota may be called.
pub(in crate::policy) const PENALTY_COUNTERS: [&str; 3] = ["penalty", "strikes", "offences"];

pub(super) const A_NAME: &str = "a name of 1 to 128 printable ASCII characters";
const _: () = assert!(NAME_BYTES_MAX == 128, "A_NAME says so");
pub(super) const AT_LEAST_ONE_RULE: &str = "at least one rule; `mode = \"off\"` switches all of them off";
pub(super) const A_QUOTA_NAME: &str = "a name of printable ASCII characters";
pub(super) const A_GROUP: &str = "the name of a group of rules, 1 to 128 printable ASCII characters";
pub(super) const ANOTHER_RULE: &str = "the name of another rule";
pub(super) const A_FALLBACK: &str = "a key for all requests that have none, such as \"nobody\"";
/// What a length of time may be, for errors.
pub const A_LENGTH_OF_TIME: &str =
    "a length of time from \"1ms\" to \"366d\", such as \"90s\", \"10min\" or \"1h\"";
pub(super) const EACH_TEMPLATE_ONCE: &str = "each template once: the first that resolves is taken";
pub(super) const LIMITS: &str =
    "a quota such as \"100/60s\", a list of quotas, a table of named ones, or \"unlimited\"";

impl Problems {
    /// Adds what is wrong with rules, alone and together.
    pub(super) fn of_rules(&mut self, rules: &[RuleSpec], hash_keys: bool) {
        let (mut names, mut owners) = (HashSet::new(), HashMap::new());
        let all: HashSet<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
        for rule in rules {
            rule.check(self);
            rule.check_groups(&all, self);
            rule.check_keys(hash_keys, self);
            let named = rule_name(&rule.name).and_then(|()| {
                let is_known = !names.insert(rule.name.as_str());
                unless(is_known, quoted(&rule.name), "a name that no other rule has")
            });
            self.checked(named.and_then(|()| rule.counters(&mut owners)), || rule.place_of("name"));
        }
    }
}

impl RuleSpec {
    fn check(&self, problems: &mut Problems) {
        let mut note = |field: &str, checked: Checked| {
            problems.checked(checked, || self.place_of(field));
        };
        note(
            "quota",
            limits(&self.limits)
                .and_then(|()| self.limits_somebody())
                .and_then(|()| self.windows())
                .and_then(|()| self.kit_windows()),
        );
        note("fallback", self.fallback.as_deref().map_or(Ok(()), fallback));
        note("enforce_percent", within(self.enforce_percent, 0, 100));
        if let CostSpec::Units(units) = self.cost {
            note("cost", within(units, 1, LIMIT_MAX));
        }
        if let Some(units) = self.cost_on_error {
            note("cost_on_error", within(units, 1, LIMIT_MAX));
            let expected = "it beside `cost`, an expression: nothing else can fail";
            let is_useless = !matches!(self.cost, CostSpec::Expression(_));
            note("cost_on_error", unless(is_useless, "`cost_on_error` without an expression", expected));
        }
        let is_useless = self.on_error != OnError::default() && self.when.is_none();
        note(
            "on_error",
            unless(is_useless, "`on_error` without `when`", "it beside `when`: nothing else can fail"),
        );
        if self.overrides.is_some() && self.scope == Scope::Process {
            let expected = "one of them: overrides are kept in the store that all instances share";
            note("overrides", Err(Problem::of("`overrides` beside `scope = \"process\"`", expected)));
        }
        if self.plans.as_ref().is_some_and(|plans| plans.limits.is_empty()) {
            note("plans", Err(Problem::of("an empty table", "at least one plan, or no `plans`")));
        }
        let plans = self.plans.iter().flat_map(|plans| &plans.limits).map(|entry| ("plans", entry));
        for (field, (key, of_key)) in plans.chain(self.custom.iter().map(|entry| ("custom", entry))) {
            if let Err(problem) = exact_key(key).and_then(|()| limits(of_key)) {
                let mut path = field.to_owned();
                push_field(&mut path, key);
                note(&path, Err(problem));
            }
        }
        for key in &self.unlimited {
            note("unlimited", unlimited(key, &self.custom));
        }
        for (field, checked) in self.penalty.iter().flat_map(super::PenaltySpec::check) {
            note(field, checked);
        }
    }

    /// Notes what is wrong with how it goes together with others.
    fn check_groups(&self, rules: &HashSet<&str>, problems: &mut Problems) {
        let mut note = |field: &str, checked: Checked| {
            problems.checked(checked, || self.place_of(field));
        };
        for (field, group) in [("first_of", &self.first_of), ("any_of", &self.any_of)] {
            let Some(group) = group else { continue };
            note(field, unless(group.trim().is_empty() || !is_name(group), quoted(group), A_GROUP));
        }
        note("replaces", so_many("rules", self.replaces.len(), 0, REPLACES_MAX));
        for name in self.replaces.iter().take(REPLACES_MAX) {
            let is_other = *name != self.name && rules.contains(name.as_str());
            note("replaces", unless(!is_other, quoted(name), ANOTHER_RULE));
        }
        if self.any_of.is_some() && self.penalty.is_some() {
            let expected = "one of them: where another rule of the group admits, a denial is none";
            note("penalty", Err(Problem::of("`penalty` beside `any_of`", expected)));
        }
    }

    /// A rule without a limit may still keep others from having a say.
    fn limits_somebody(&self) -> Checked {
        if self.first_of.is_some() || !self.replaces.is_empty() {
            return Ok(());
        }
        let is_nobody = self.all_limits().all(|limits| *limits == Limits::Unlimited);
        let expected = "a limit, here or in `plans` or `custom`: this limits nobody";
        unless(is_nobody, quoted("unlimited"), expected)
    }

    /// Refuses a quota of more windows than a key can be counted in at a time.
    fn windows(&self) -> Checked {
        let mut windows: BTreeMap<&str, BTreeSet<(u8, u64)>> = BTreeMap::new();
        for NamedQuota { name, quota } in self.all_quotas() {
            let window = (quota.algorithm() as u8, quota.window_number());
            windows.entry(name.as_ref()).or_default().insert(window);
        }
        let most = windows.values().map(BTreeSet::len).max().unwrap_or_default();
        let expected = format!("at most {WINDOWS_MAX}: a key is counted in each of them for itself");
        unless(
            most > WINDOWS_MAX,
            format!("a quota of {most} windows, here, in `plans` and in `custom`"),
            expected,
        )
    }

    /// Refuses two windows of a quota that counts on counters of Application Kit: these store no window, so each
    /// would end the other's.
    fn kit_windows(&self) -> Checked {
        if !self.counts_on_kits() {
            return Ok(());
        }
        let mut known: BTreeMap<&str, &Quota> = BTreeMap::new();
        for NamedQuota { name, quota } in self.all_quotas() {
            if quota.algorithm() != Algorithm::FixedWindow || quota.is_clocked() {
                continue;
            }
            let first = *known.entry(name.as_ref()).or_insert(quota);
            if first.window() != quota.window() {
                let rule = &self.name;
                let got = format!(
                    "windows of both `{first}` and `{quota}` in rule `{rule}`, with plans and `custom`"
                );
                let expected = "one window: its key and its overrides make it count on counters of Application Kit, \
                                which store none; or another algorithm";
                return Err(Problem::of(got, expected));
            }
        }
        Ok(())
    }

    /// Whether a key may be `ENDPOINT:ORGANISATION:PROJECT` of its overrides, which is what Application Kit counts under.
    fn counts_on_kits(&self) -> bool {
        let (Some(overrides), KeySpec::Templates(templates)) = (&self.overrides, &self.keys) else {
            return false;
        };
        let owner = format!(":{}:{}", overrides.organisation.as_str(), overrides.project.as_str());
        templates.iter().any(|template| template.as_str().ends_with(&owner))
    }

    /// Every quota that it gives to some key.
    pub(in crate::policy) fn all_quotas(&self) -> impl Iterator<Item = &NamedQuota> {
        self.all_limits().flat_map(|limits| match limits {
            Limits::Unlimited => [].iter(),
            Limits::Quotas(quotas) => quotas.iter(),
        })
    }

    /// Notes templates that can give the same key.
    fn check_keys(&self, hash_keys: bool, problems: &mut Problems) {
        let KeySpec::Templates(templates) = &self.keys else { return };
        problems.checked(so_many("templates", templates.len(), 1, KEYS_MAX), || self.place_of("keys"));
        let hashing = hash_keys.then(KeyHashing::open);
        let mut known: Vec<Template> = Vec::with_capacity(templates.len());
        for (index, template) in templates.iter().take(KEYS_MAX).enumerate() {
            let template = template.clone().hashed(hashing.as_ref());
            let checked = if known.contains(&template) {
                Err(Problem::of(quoted(template.as_str()), EACH_TEMPLATE_ONCE))
            } else if let Some(other) = known.iter().find(|other| other.overlaps(&template)) {
                let expected = "templates that begin differently, such as \"user:{...}\" and \"ip:{...}\": \
                                whoever chooses a value of one could use up the limit of another";
                let got = format!("a key that a request can also have from \"{}\"", other.as_str());
                Err(Problem::of(got, expected))
            } else {
                Ok(())
            };
            problems.checked(checked, || self.place_of(&format!("keys[{index}]")));
            known.push(template);
        }
    }

    /// Refuses counters whose names are too long, are those of a penalty, or could not be told
    /// from another's: a rule `api.rpm` beside the tier rpm of a rule `api`.
    fn counters<'r>(&'r self, owners: &mut HashMap<String, &'r str>) -> Checked {
        let names: BTreeSet<&str> = self.all_quotas().map(|quota| quota.name.as_ref()).collect();
        for quota in names {
            let counter = if quota.is_empty() { self.name.clone() } else { format!("{}.{quota}", self.name) };
            if counter.len() > NAME_BYTES_MAX {
                let got = format!("a counter with a name of {} bytes", counter.len());
                let most = format!("at most {NAME_BYTES_MAX} bytes for the names of rule and quota together");
                return Err(Problem::of(got, most));
            }
            if self.penalty.is_some() && PENALTY_COUNTERS.contains(&quota) {
                let expected = "another name: this one is what the penalty counts under";
                return Err(Problem::of(format!("a quota `{counter}` beside `penalty`"), expected));
            }
            if let Some(other) =
                owners.insert(counter.clone(), &self.name).filter(|other| *other != self.name)
            {
                let got =
                    format!("{}, which has a counter {counter} like {}", quoted(&self.name), quoted(other));
                return Err(Problem::of(got, "a name whose counters no other rule has"));
            }
        }
        Ok(())
    }

    fn all_limits(&self) -> impl Iterator<Item = &Limits> {
        let plans = self.plans.iter().flat_map(|plans| plans.limits.values());
        plans.chain(self.custom.values()).chain([&self.limits])
    }
}

fn unless(is_wrong: bool, got: impl AsRef<str>, expected: impl AsRef<str>) -> Checked {
    if is_wrong { Err(Problem::of(got, expected)) } else { Ok(()) }
}

/// A name as the core wants it; not interned, because what becomes of the policy is not
/// decided yet.
fn name(text: &str) -> Checked {
    unless(text.trim().is_empty() || !is_name(text), quoted(text), A_NAME)
}

fn rule_name(text: &str) -> Checked {
    name(text)?;
    unless(text == ALL_RULES, quoted(text), "another name: this one stands for all rules")
}

pub(super) fn service_name(text: &str) -> Checked {
    name(text)?;
    let expected = "a name without `/`, which separates a service from its rules in the store";
    unless(text.contains('/'), quoted(text), expected)
}

fn fallback(key: &str) -> Checked {
    unless(key.trim().is_empty(), quoted(key), A_FALLBACK)?;
    // `#` marks the digest of a long key.
    let expected = "a fixed key without {, } and #; templates belong in `keys`";
    unless(key.contains(['{', '}', '#']), quoted(key), expected)?;
    exact_key(key)
}

/// A key that stands for itself.
pub(super) fn exact_key(key: &str) -> Checked {
    if (1..=SUBJECT_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(Problem::of(format!("a key of {} bytes", key.len()), format!("1 to {SUBJECT_BYTES_MAX} bytes")))
}

/// A key that is never limited.
pub(super) fn unlimited(key: &str, custom: &BTreeMap<String, Limits>) -> Checked {
    let got = format!("{}, which is in `custom` as well", quoted(key));
    unless(custom.contains_key(key), got, "it in one of them")?;
    exact_key(key)
}

/// A network of trusted proxies.
pub(super) fn proxy(network: &Network) -> Checked {
    let expected = "the addresses of your proxies: whoever is trusted can claim any address";
    unless(network.prefix() == 0, format!("{network}, which is everybody"), expected)
}

pub(super) fn within<N: PartialOrd + Display + Copy>(number: N, min: N, max: N) -> Checked {
    let expected = a_whole_number(&min, &max);
    unless(!(min..=max).contains(&number), number.to_string(), expected)
}

pub(super) fn a_whole_number(min: &impl Display, max: &impl Display) -> String {
    format!("a whole number from {min} to {max}")
}

pub(super) fn so_many(what: &str, count: usize, min: usize, max: usize) -> Checked {
    if (min..=max).contains(&count) {
        return Ok(());
    }
    let from = if min == 0 { "at most".to_owned() } else { format!("{min} to") };
    Err(Problem::of(format!("{count} {what}"), format!("{from} {max} {what}")))
}

fn limits(limits: &Limits) -> Checked {
    let Limits::Quotas(quotas) = limits else { return Ok(()) };
    unless(quotas.is_empty(), "no quota", LIMITS)?;
    so_many("quotas", quotas.len(), 0, CHARGES_MAX)?;
    quotas.iter().enumerate().try_for_each(|(index, quota)| {
        let may_lack_one = quotas.len() == 1 && quota.name.is_empty();
        unless(!may_lack_one && !is_name(&quota.name), "this name of a quota", A_QUOTA_NAME)?;
        let is_known = quotas[..index].iter().any(|known| known.name == quota.name);
        unless(is_known, "the same name again", "each name once")
    })
}

/// Whether the core takes `text` for a name.
pub(super) fn is_name(text: &str) -> bool {
    let printable = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    printable && (1..=NAME_BYTES_MAX).contains(&text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ratekeeper_core::Name;

    proptest! {
        #[test]
        fn names_are_what_the_core_takes_for_names(text in "[a-z\u{0}\u{1f} ~\u{7f}\u{e9}]{0,3}|x{127,130}") {
            prop_assert_eq!(is_name(&text), Name::new(&text).is_ok());
        }
    }
}
