//! What envoyproxy/ratelimit does, in as few words as it takes: written from its documentation, and sharing nothing with
//! the code that it is held against.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

/// A descriptor's entry in the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    pub(crate) limit: Option<Limit>,
    pub(crate) is_shadow: bool,
    pub(crate) is_quota: bool,
    pub(crate) is_shared: bool,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub(crate) struct Limit {
    /// None is unlimited.
    pub(crate) per_unit: Option<u64>,
    pub(crate) unit: (&'static str, u64),
    pub(crate) name: &'static str,
    pub(crate) replaces: &'static str,
}

pub(crate) type Descriptor = Vec<(&'static str, &'static str)>;

impl Entry {
    fn composite(&self) -> (&str, &str) {
        (self.key, self.value)
    }

    fn is_wild(&self) -> bool {
        self.value.contains('*')
    }
}

/// Without what the original refuses: the same entry twice on a level, and flags that have no meaning where they stand.
pub(crate) fn cleaned(entries: Vec<Entry>) -> Vec<Entry> {
    let mut known = HashSet::new();
    let cleaned = entries.into_iter().filter_map(|mut entry| {
        entry.entries = cleaned(entry.entries);
        entry.is_shared &= entry.is_wild();
        let (key, value) = entry.composite();
        known.insert(format!("{key}_{value}")).then_some(entry)
    });
    cleaned.collect()
}

/// Whether anything is limited at all.
pub(crate) fn has_limit(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| {
        let own = entry.limit.as_ref().is_some_and(|limit| limit.per_unit.is_some());
        own || has_limit(&entry.entries)
    })
}

/// The file.
pub(crate) fn yaml(entries: &[Entry]) -> String {
    let mut text = "domain: shop\ndescriptors:\n".to_owned();
    write(&mut text, entries, "");
    text
}

fn write(text: &mut String, entries: &[Entry], indent: &str) {
    for entry in entries {
        writeln!(text, "{indent}- key: {}", entry.key).unwrap();
        if !entry.value.is_empty() {
            writeln!(text, "{indent}  value: \"{}\"", entry.value).unwrap();
        }
        let flags = [
            ("shadow_mode", entry.is_shadow),
            ("quota_mode", entry.is_quota),
            ("share_threshold", entry.is_shared),
        ];
        for (flag, _) in flags.iter().filter(|(_, is_set)| *is_set) {
            writeln!(text, "{indent}  {flag}: true").unwrap();
        }
        if let Some(limit) = &entry.limit {
            writeln!(text, "{indent}  rate_limit:").unwrap();
            match limit.per_unit {
                None => writeln!(text, "{indent}    unlimited: true").unwrap(),
                Some(units) => {
                    let unit = limit.unit.0;
                    writeln!(text, "{indent}    unit: {unit}\n{indent}    requests_per_unit: {units}")
                        .unwrap();
                }
            }
            if !limit.name.is_empty() {
                writeln!(text, "{indent}    name: {}", limit.name).unwrap();
            }
            if !limit.replaces.is_empty() && limit.replaces != limit.name {
                writeln!(text, "{indent}    replaces: [{{ name: {} }}]", limit.replaces).unwrap();
            }
        }
        if !entry.entries.is_empty() {
            writeln!(text, "{indent}  descriptors:").unwrap();
            write(text, &entry.entries, &format!("{indent}  "));
        }
    }
}

/// The service, with its counters.
pub(crate) struct Model<'c> {
    entries: &'c [Entry],
    /// By what is counted and the window it is counted in.
    counters: HashMap<(String, u64, u64), u64>,
    /// Whether what is denied counts, as in the original; else all of a call is one check, and a denial costs nothing.
    counts_denials: bool,
}

/// What is said to a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) is_over: bool,
    /// None, if nothing limits it.
    pub(crate) limit: Option<u64>,
}

impl<'c> Model<'c> {
    pub(crate) fn new(entries: &'c [Entry], counts_denials: bool) -> Self {
        Self { entries, counters: HashMap::new(), counts_denials }
    }

    /// Whether a call is over the limit, and what is said to each descriptor.
    pub(crate) fn call(&mut self, descriptors: &[Descriptor], hits: u64, now: u64) -> (bool, Vec<Status>) {
        let mut found: Vec<Option<(&Entry, String)>> =
            descriptors.iter().map(|descriptor| find(self.entries, descriptor)).collect();
        let replaced: HashSet<&str> = found
            .iter()
            .flatten()
            .filter_map(|(entry, _)| entry.limit.as_ref())
            .map(|limit| if limit.replaces == limit.name { "" } else { limit.replaces })
            .filter(|name| !name.is_empty())
            .collect();
        for place in &mut found {
            let limit = place.as_ref().and_then(|(entry, _)| entry.limit.as_ref());
            let is_free = limit.is_none_or(|limit| limit.per_unit.is_none() || replaced.contains(limit.name));
            if is_free {
                *place = None;
            }
        }
        let counter = |key: &str, limit: &Limit| (key.to_owned(), limit.unit.1, now / limit.unit.1);
        // Descriptors that are the same count together.
        let mut asked: HashMap<(String, u64, u64), u64> = HashMap::new();
        for (entry, key) in found.iter().flatten() {
            let limit = entry.limit.as_ref().unwrap();
            *asked.entry(counter(key, limit)).or_default() += hits;
        }
        let statuses: Vec<Status> = found
            .iter()
            .map(|place| {
                let Some((entry, key)) = place else { return Status { is_over: false, limit: None } };
                let limit = entry.limit.as_ref().unwrap();
                let counter = counter(key, limit);
                let after = self.counters.get(&counter).copied().unwrap_or_default() + asked[&counter];
                Status { is_over: after > limit.per_unit.unwrap(), limit: limit.per_unit }
            })
            .collect();
        let of = |is_quota: bool| {
            let all =
                found.iter().zip(&statuses).filter_map(|(place, status)| Some((place.as_ref()?.0, status)));
            let all = all.filter(|(entry, _)| entry.is_quota == is_quota);
            all.map(|(entry, status)| status.is_over && !entry.is_shadow).collect::<Vec<bool>>()
        };
        let (plain, quota) = (of(false), of(true));
        let is_over = plain.contains(&true) || !quota.is_empty() && quota.iter().all(|is_over| *is_over);
        for ((entry, key), status) in
            found.iter().zip(&statuses).filter_map(|(place, status)| Some((place.as_ref()?, status)))
        {
            let counter = counter(key, entry.limit.as_ref().unwrap());
            if self.counts_denials || !is_over && !status.is_over {
                *self.counters.entry(counter).or_default() += hits;
            }
        }
        (is_over, statuses)
    }
}

/// The entry that a descriptor leads to, and what it counts under.
fn find<'c>(entries: &'c [Entry], descriptor: &Descriptor) -> Option<(&'c Entry, String)> {
    let (mut here, mut key, mut found) = (entries, String::new(), None);
    for (name, value) in descriptor {
        let of_key = || here.iter().filter(|entry| entry.key == *name);
        let exact =
            of_key().find(|entry| !entry.value.is_empty() && !entry.is_wild() && entry.value == *value);
        let wild = || of_key().find(|entry| entry.is_wild() && fits(entry.value, value));
        let any = || of_key().find(|entry| entry.value.is_empty());
        let entry = exact.or_else(wild).or_else(any)?;
        let counted = if entry.is_shared { entry.value } else { value };
        write!(key, "{name}={counted};").unwrap();
        here = &entry.entries;
        found = Some(entry);
    }
    found.map(|entry| (entry, key))
}

/// Whether a text is what a pattern stands for.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| fits(rest, &text[at..]))
        }),
    }
}
