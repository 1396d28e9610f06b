//! The fields that tables may have, and what to say about others.

use crate::policy::problem::meant;

/// The fields a table may have.
pub(super) struct Shape {
    /// What the table is, with its article.
    pub(super) what: &'static str,
    /// Their names, separated by spaces.
    pub(super) fields: &'static str,
    /// Tables whose fields are sometimes written here by mistake, and where they
    /// belong.
    pub(super) neighbours: &'static [(&'static Shape, &'static str)],
}

/// What people call fields that have another name here.
const SYNONYMS: [(&str, &str); 23] = [
    ("algo", "algorithm"),
    ("allowlist", "allow"),
    ("condition", "when"),
    ("custom_limits", "custom"),
    ("enforce", "enforce_percent"),
    ("fail_open", "on_outage"),
    ("failure", "on_outage"),
    ("failure_mode", "on_outage"),
    ("failure_policy", "on_outage"),
    ("if", "when"),
    ("ipv6", "ipv6_prefix"),
    ("limit", "quota"),
    ("limits", "quotas"),
    ("on_failure", "on_outage"),
    ("proxies", "trusted_proxies"),
    ("rate", "quota"),
    ("redis", "store"),
    ("rule", "rules"),
    ("service", "_id"),
    ("template", "keys"),
    ("tiers", "quotas"),
    ("whitelist", "allow"),
    ("window", "quota"),
];

impl Shape {
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.fields.split_ascii_whitespace()
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.fields().any(|known| known == field)
    }

    /// What was probably meant by a field that is not known.
    pub(super) fn suggestion(&self, field: &str) -> String {
        for (neighbour, advice) in self.neighbours {
            if neighbour.has(field) {
                return (*advice).to_owned();
            }
        }
        let lower = field.to_ascii_lowercase();
        let synonym = SYNONYMS.iter().find(|(word, right)| *word == lower && self.has(right));
        let fields: Vec<&str> = self.fields().collect();
        match synonym.map(|(_, right)| *right).or_else(|| meant(field, &fields)) {
            Some(right) => format!("a field of {}{}", self.what, did_you_mean(right)),
            None => format!("one of {}", fields.join(", ")),
        }
    }
}

pub(super) fn did_you_mean(word: &str) -> String {
    format!("; did you mean `{word}`?")
}
