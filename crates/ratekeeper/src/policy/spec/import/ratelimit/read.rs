//! The file as it stands: what may be in it, and what is wrong with it.

use std::collections::HashMap;
use std::time::Duration;

use ratekeeper_core::{Algorithm, LIMIT_MAX, Quota};

use super::{Entry, Limit, ONCE, Sheet};
use crate::policy::document::{Place, Value};
use crate::policy::problem::{meant, quoted, shown};
use crate::policy::spec::REPLACES_MAX;
use crate::policy::spec::check::{service_name, so_many};
use crate::policy::spec::import::pattern::Pattern;
use crate::policy::spec::reader::{Cursor, Fields, Reader, integer};
use crate::policy::spec::shape::{Shape, did_you_mean};

static SHEET: Shape = Shape {
    what: "a configuration of envoyproxy/ratelimit",
    fields: "domain descriptors name metadata",
    neighbours: &[
        (&DESCRIPTOR, "it in a descriptor, under `descriptors`"),
        (&LIMIT, "it under `rate_limit`"),
    ],
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

impl Reader {
    pub(super) fn sheet(&mut self, at: &Cursor<'_>, source: &str) -> Option<Sheet> {
        let fields = self.fields(at, &SHEET)?;
        let domain = self.required(at, &fields, "domain", "whose limits these are");
        let domain = domain.and_then(|at| {
            let domain = self.scalar(&at)?;
            self.checked(&at, service_name(&domain)).map(|()| domain)
        });
        let entries = fields.get("descriptors").map(|at| self.descriptors(&at)).unwrap_or_default();
        if entries.is_empty()
            && fields.get("descriptors").is_none_or(|at| at.node.value == Value::List(vec![]))
        {
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
                let line =
                    if first.is_known() { format!(", as in line {}", first.line) } else { String::new() };
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
        let shared =
            fields.get("share_threshold").filter(|_| is_shared && !matches!(value, Pattern::Glob(_)));
        if let Some(at) = shared {
            self.report(&at, "`share_threshold` without a wildcard", "it beside a `value` with `*`");
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
                self.report(
                    at,
                    "no `requests_per_unit`",
                    "`requests_per_unit`: how many; 0 lets nothing pass",
                );
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
            let expected = format!(
                "a whole number from 0 to {LIMIT_MAX}; `unlimited: true` instead of it limits nobody"
            );
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
            let Some(name) =
                fields.get("name").and_then(|at| self.scalar(&at)).filter(|name| !name.is_empty())
            else {
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
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'))
}
