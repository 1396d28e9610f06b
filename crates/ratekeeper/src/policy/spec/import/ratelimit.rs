//! The configuration of envoyproxy/ratelimit, read and put together.
//!
//! Its keys, units and bounds are those of its `config_impl.go`. What is wrong there is wrong here; so is a key that is
//! right elsewhere and has no meaning where it stands, which the original reads and ignores.

mod rules;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Algorithm, LIMIT_MAX, Quota};

use super::pattern::Pattern;
use crate::policy::document::{Format, Node, Place, Value};
use crate::policy::problem::{Problem, Problems, meant, quoted, shown};
use crate::policy::spec::check::{service_name, so_many};
use crate::policy::spec::reader::{Cursor, Fields, Reader, integer};
use crate::policy::spec::shape::{Shape, did_you_mean};
use crate::policy::spec::{PolicySpec, REPLACES_MAX};

/// How many descriptors a domain may have, whether or not they have a limit.
const DESCRIPTORS_MAX: usize = 10_000;

static SHEET: Shape = Shape {
    what: "a configuration of envoyproxy/ratelimit",
    fields: "domain descriptors name metadata",
    neighbours: &[(&DESCRIPTOR, "it in a descriptor, under `descriptors`"), (&LIMIT, "it under `rate_limit`")],
};

static DESCRIPTOR: Shape = Shape {
    what: "a descriptor",
    fields: "key value rate_limit descriptors shadow_mode quota_mode share_threshold detailed_metric \
             value_to_metric metadata",
    neighbours: &[(&LIMIT, "it under `rate_limit`"), (&SHEET, "it at the top of the file")],
};

static LIMIT: Shape = Shape {
    what: "a rate limit",
    fields: "unit requests_per_unit unlimited name replaces metadata",
    neighbours: &[(&DESCRIPTOR, "it in the descriptor itself, beside `rate_limit`")],
};

static REPLACED: Shape = Shape { what: "a limit that is replaced", fields: "name", neighbours: &[] };

const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("week", 7 * 86_400),
    ("month", 30 * 86_400),
    ("year", 365 * 86_400),
];

/// Words that YAML 1.1, which the original reads, has for true and false.
const TRUTHS: [(&str, bool); 8] = [
    ("true", true),
    ("false", false),
    ("yes", true),
    ("no", false),
    ("on", true),
    ("off", false),
    ("y", true),
    ("n", false),
];

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
        let warnings = sheets.iter().flat_map(|sheet| Problems::of(&sheet.source, sheet.warnings()).into_iter());
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

    /// What is right and has no meaning here.
    fn warnings(&self) -> Vec<Problem> {
        let all: Vec<&Entry> = self.entries.iter().flat_map(Entry::all).collect();
        let limits = || all.iter().filter_map(|entry| Some((*entry, entry.limit.as_ref()?)));
        let names: HashSet<&str> = limits().filter_map(|(_, limit)| limit.name.as_deref()).collect();
        let unknown = limits().flat_map(|(entry, limit)| {
            let unknown = limit.replaces.iter().filter(|name| !names.contains(name.as_str()));
            unknown.map(|name| {
                let field = format!("{}.rate_limit.replaces", entry.path);
                Problem::new(entry.at, field, quoted(name), "the name of a limit: this replaces nothing")
            })
        });
        let ignored = all.iter().flat_map(|entry| {
            entry.ignored.iter().map(|(field, at)| {
                let (field, got) = (format!("{}.{field}", entry.path), format!("`{field}`, which is left out"));
                Problem::new(*at, field, got, "nothing: metrics are by rule, and `ratekeeper top` shows single keys")
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

const ONCE: &str = "each key with a value once among its neighbours";

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

impl Reader {
    fn sheet(&mut self, at: &Cursor<'_>, source: &str) -> Option<Sheet> {
        let fields = self.fields(at, &SHEET)?;
        let domain = self.required(at, &fields, "domain", "whose limits these are");
        let domain = domain.and_then(|at| {
            let domain = self.scalar(&at)?;
            self.checked(&at, service_name(&domain)).map(|()| domain)
        });
        let entries = fields.get("descriptors").map(|at| self.descriptors(&at)).unwrap_or_default();
        if entries.is_empty() && fields.get("descriptors").is_none_or(|at| at.node.value == Value::List(vec![])) {
            self.report(at, "no descriptors", "at least one limit under `descriptors`");
        }
        Some(Sheet { source: source.into(), domain: domain?, entries })
    }

    fn descriptors(&mut self, at: &Cursor<'_>) -> Vec<Entry> {
        let items = self.items(at, "a list of descriptors").unwrap_or_default();
        let mut lines: HashMap<String, Place> = HashMap::with_capacity(items.len());
        let mut entries = Vec::with_capacity(items.len());
        for item in &items {
            let Some(entry) = self.descriptor(item) else { continue };
            if let Some(first) = lines.insert(entry.composite(), entry.at) {
                let line = if first.is_known() { format!(", as in line {}", first.line) } else { String::new() };
                self.report(item, format!("{} again{line}", quoted(&entry.composite())), ONCE);
            }
            entries.push(entry);
        }
        entries
    }

    fn descriptor(&mut self, at: &Cursor<'_>) -> Option<Entry> {
        let fields = self.fields(at, &DESCRIPTOR)?;
        let key = self.required(at, &fields, "key", "what the entry is called");
        let key = key.and_then(|at| self.entry_key(&at));
        let value = fields.get("value").and_then(|at| self.scalar(&at)).unwrap_or_default();
        let value = Pattern::of(&value);
        let mut ignored = Vec::new();
        for field in ["detailed_metric", "value_to_metric"] {
            let Some(at) = fields.get(field) else { continue };
            if self.truth(&at) == Some(true) {
                ignored.push((field, at.node.at));
            }
        }
        let is_shared = self.is_true(&fields, "share_threshold");
        if let Some(at) = fields.get("share_threshold").filter(|_| is_shared) {
            if !matches!(value, Pattern::Glob(_)) {
                self.report(&at, "`share_threshold` without a wildcard", "it beside a `value` with `*`");
            }
        }
        let limit = fields.get("rate_limit").and_then(|at| self.rate_limit(&at));
        Some(Entry {
            entries: fields.get("descriptors").map(|at| self.descriptors(&at)).unwrap_or_default(),
            is_shadow: self.is_true(&fields, "shadow_mode"),
            is_quota: self.is_true(&fields, "quota_mode"),
            key: key?,
            value,
            limit,
            is_shared,
            at: at.node.at,
            path: at.path(),
            ignored,
        })
    }

    fn entry_key(&mut self, at: &Cursor<'_>) -> Option<String> {
        let key = self.scalar(at)?;
        if key.is_empty() {
            return self.unfit(at, "the key of an entry");
        }
        if key.contains('*') {
            return self.unfit(at, "a key without `*`; wildcards belong in `value`");
        }
        // No template could name it.
        if key.contains('}') || key.chars().any(char::is_control) {
            return self.unfit(at, "a key without `}` and without control characters");
        }
        Some(key)
    }

    fn rate_limit(&mut self, at: &Cursor<'_>) -> Option<Limit> {
        let fields = self.fields(at, &LIMIT)?;
        let name = fields.get("name").and_then(|at| self.scalar(&at)).filter(|name| !name.is_empty());
        let replaces = fields.get("replaces").map(|at| self.replaced(&at, name.as_deref()));
        let unit = fields.get("unit").and_then(|at| self.unit(&at));
        let limit = fields.get("requests_per_unit");
        let limit_at = limit;
        let limit = limit.and_then(|at| self.units(&at));
        let quota = if self.is_true(&fields, "unlimited") {
            if let Some(at) = fields.get("unit").filter(|_| unit.is_some()) {
                self.report(&at, "`unit` beside `unlimited`", "one of them");
            }
            None
        } else {
            if fields.get("unit").is_none() {
                self.report(at, "no `unit`", "`unit`: second, minute, hour, day, week, month or year");
            }
            if limit_at.is_none() {
                self.report(at, "no `requests_per_unit`", "`requests_per_unit`: how many; 0 lets nothing pass");
            }
            let window = Duration::from_secs(unit?);
            let quota = Quota::new(Algorithm::FixedWindow, limit?.into(), window).and_then(Quota::aligned);
            Some(self.checked(at, quota)?)
        };
        Some(Limit { quota, name, replaces: replaces.unwrap_or_default() })
    }

    fn unit(&mut self, at: &Cursor<'_>) -> Option<u64> {
        let unit = self.scalar(at)?;
        let lower = unit.to_ascii_lowercase();
        let found = UNITS.iter().find(|(name, _)| *name == lower).map(|(_, seconds)| *seconds);
        if found.is_none() {
            let known = UNITS.map(|(name, _)| name);
            let hint = meant(&lower, &known).map_or_else(String::new, did_you_mean);
            self.wrong(at, format!("second, minute, hour, day, week, month or year{hint}"));
        }
        found
    }

    /// How many requests: at most 10^9, where the original goes up to 2^32 - 1.
    fn units(&mut self, at: &Cursor<'_>) -> Option<u32> {
        let number = match &at.node.value {
            Value::Text(text) if is_whole(text) => text.parse().ok(),
            _ => integer(at.node),
        };
        let units = number.and_then(|number| u32::try_from(number).ok()).filter(|units| *units <= LIMIT_MAX);
        if units.is_none() {
            let text = if let Value::Text(text) = &at.node.value { text.clone() } else { shown(at.node) };
            let expected = format!("a whole number from 0 to {LIMIT_MAX}; `unlimited: true` instead of it limits nobody");
            self.report(at, text, expected);
        }
        units
    }

    fn replaced(&mut self, at: &Cursor<'_>, own_name: Option<&str>) -> Vec<String> {
        let items = self.items(at, "a list of limits, each with its `name`").unwrap_or_default();
        if self.checked(at, so_many("names", items.len(), 0, REPLACES_MAX)).is_none() {
            return Vec::new();
        }
        let mut names = Vec::with_capacity(items.len());
        for item in &items {
            let Some(fields) = self.fields(item, &REPLACED) else { continue };
            let Some(name) = fields.get("name").and_then(|at| self.scalar(&at)).filter(|name| !name.is_empty()) else {
                self.report(item, "no `name`", "`name`: which limit is replaced");
                continue;
            };
            if Some(name.as_str()) == own_name {
                self.report(item, format!("{}, its own name", quoted(&name)), "the name of another limit");
            }
            names.push(name);
        }
        names
    }

    /// A value as a text, as the original takes it.
    fn scalar(&mut self, at: &Cursor<'_>) -> Option<String> {
        match &at.node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Integer(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => self.unfit(at, "a text"),
        }
    }

    fn is_true(&mut self, fields: &Fields<'_>, field: &str) -> bool {
        fields.get(field).and_then(|at| self.truth(&at)).unwrap_or_default()
    }

    fn truth(&mut self, at: &Cursor<'_>) -> Option<bool> {
        match &at.node.value {
            Value::Bool(value) => Some(*value),
            Value::Text(text) => {
                let lower = text.to_ascii_lowercase();
                let found = TRUTHS.iter().find(|(word, _)| *word == lower);
                found.map(|(_, truth)| *truth).or_else(|| self.unfit(at, "true or false"))
            }
            _ => self.unfit(at, "true or false"),
        }
    }
}

/// Whether it is a whole number that is one in every version of YAML: `010` is 8 in one and 10 in the other.
fn is_whole(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'))
}
