//! Quotas in all the ways a document may write them.

use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use ratekeeper_core::{Algorithm, CHARGES_MAX, InvalidInput, LIMIT_MAX, Quota, Quotas};

use super::check::{A_QUOTA_NAME, LIMITS, is_name, so_many};
use super::reader::{Cursor, Fields, Reader, integer};
use super::{Limits, NamedQuota};
use crate::policy::document::Value;
use crate::policy::problem::Problem;

/// The tiers that may be a bare number, and their windows in seconds.
const TIERS: [(&str, u64); 4] = [("rps", 1), ("rpm", 60), ("rph", 3_600), ("rpd", 86_400)];
/// Their names as fields of a rule.
const TIER_FIELDS: [&str; 4] = ["rps", "rpm", "rph", "rpd"];

const A_QUOTA: &str = "a quota such as \"100/60s\"";

/// What a rule says about how its quotas count.
#[derive(Clone, Copy)]
pub(super) struct Counting {
    /// How those count that do not say it themselves.
    pub(super) algorithm: Option<Algorithm>,
}

impl Counting {
    /// The quota of a tier.
    fn tier(self, limit: i64, seconds: u64) -> Result<Quota, InvalidInput> {
        let algorithm = self.algorithm.unwrap_or(Algorithm::TokenBucket);
        // What is negative is as wrong as what is too large, for the same reason.
        Quota::new(algorithm, u64::try_from(limit).unwrap_or(u64::MAX), Duration::from_secs(seconds))
    }

    /// Reads quotas. First as they were written, so that what is wrong with them
    /// is told in the words of whoever wrote them.
    fn parse<Q: FromStr<Err = InvalidInput>>(self, text: &str) -> Result<Q, InvalidInput> {
        let as_written = text.parse();
        match self.complete(text) {
            Cow::Owned(complete) if as_written.is_ok() => complete.parse(),
            _ => as_written,
        }
    }

    /// The text of a quota with how it counts, if the rule says it.
    fn complete(self, text: &str) -> Cow<'_, str> {
        let says_itself = stated(text).is_some() || words(text).any(|word| word == "calendar");
        match self.algorithm {
            Some(algorithm) if !says_itself => format!("{text} {algorithm}").into(),
            _ => text.into(),
        }
    }
}

/// The algorithm that a quota's text names.
pub(super) fn stated(text: &str) -> Option<Algorithm> {
    words(text).find_map(|word| word.parse().ok())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphabetic() || c == '_'))
}

impl Reader {
    /// The limits of a rule itself: one of `quota`, `quotas`, and tiers.
    pub(super) fn own_limits(
        &mut self,
        at: &Cursor<'_>,
        fields: &Fields<'_>,
        counting: Counting,
    ) -> Option<Limits> {
        let tiers: Vec<Cursor<'_>> = TIER_FIELDS.iter().filter_map(|tier| fields.get(tier)).collect();
        let (quota, quotas) = (fields.get("quota"), fields.get("quotas"));
        let ways = [quota, quotas, tiers.first().copied()];
        let mut ways = ways.into_iter().flatten();
        let Some(first) = ways.next() else {
            self.report(at, "no quota", "`quota`, `quotas`, or some of rps, rpm, rph and rpd");
            return None;
        };
        for second in ways {
            let got = format!("`{}` beside `{}`", second.key(), first.key());
            self.report(&second, got, "one of `quota`, `quotas`, and tiers such as `rps`");
        }
        match (quota, quotas) {
            (Some(quota), _) => self.quota_field(&quota, counting),
            (None, Some(quotas)) => match &quotas.node.value {
                Value::List(items) if !items.is_empty() => self.limits(&quotas, counting),
                Value::Table(entries) if !entries.is_empty() => self.limits(&quotas, counting),
                _ => self.unfit(&quotas, "a list of quotas or a table of named ones; one alone is `quota`"),
            },
            (None, None) => self.named(at, &tiers, counting),
        }
    }

    fn quota_field(&mut self, at: &Cursor<'_>, counting: Counting) -> Option<Limits> {
        match at.node.value {
            Value::Text(_) => self.limits(at, counting),
            _ => self.unfit(at, format!("{A_QUOTA}; several are `quotas`, a bare number is `rps` or `rpm`")),
        }
    }

    /// The limits of a rule, a plan or an exact key.
    pub(super) fn limits(&mut self, at: &Cursor<'_>, counting: Counting) -> Option<Limits> {
        match &at.node.value {
            Value::Text(text) if text == "unlimited" => Some(Limits::Unlimited),
            Value::Text(text) => self.checked(at, counting.parse::<Quotas>(text)).map(Limits::from),
            Value::List(_) => self.listed(at, counting),
            Value::Table(_) => {
                let entries = self.entries(at, LIMITS)?;
                if entries.is_empty() {
                    self.report(at, "no quota", LIMITS);
                    return None;
                }
                self.named(at, &entries, counting)
            }
            _ => self.unfit(at, LIMITS),
        }
    }

    /// Quotas without names, which are called after their windows.
    fn listed(&mut self, at: &Cursor<'_>, counting: Counting) -> Option<Limits> {
        let items = self.items(at, LIMITS)?;
        if items.is_empty() {
            self.wrong(at, LIMITS);
        }
        let mut quotas: Vec<NamedQuota> = Vec::with_capacity(items.len());
        for item in &items {
            let Some(quota) = self.quota(item, counting) else { continue };
            let name = window_name(quota);
            if quotas.iter().any(|known| known.name == name) {
                let got = format!("a second quota called {name}, after its window");
                self.report(item, got, "a table of quotas with names of your own");
            } else {
                quotas.push(NamedQuota { name, quota });
            }
        }
        self.bounded(at, quotas)
    }

    /// Quotas with names; a tier may be a bare number.
    fn named(&mut self, at: &Cursor<'_>, entries: &[Cursor<'_>], counting: Counting) -> Option<Limits> {
        let mut quotas = Vec::with_capacity(entries.len());
        for entry in entries {
            let tier = TIERS.iter().find(|(name, _)| *name == entry.key());
            let quota = match tier {
                Some((_, seconds)) => self.tier(entry, *seconds, counting),
                None => self.quota(entry, counting),
            };
            if !is_name(entry.key()) {
                self.report(entry, "this name of a quota", A_QUOTA_NAME);
                continue;
            }
            let name = tier.map_or_else(|| entry.key().to_owned().into(), |(name, _)| Cow::Borrowed(*name));
            quotas.extend(quota.map(|quota| NamedQuota { name, quota }));
        }
        self.bounded(at, quotas)
    }

    fn bounded(&mut self, at: &Cursor<'_>, quotas: Vec<NamedQuota>) -> Option<Limits> {
        self.checked(at, so_many("quotas", quotas.len(), 0, CHARGES_MAX))?;
        (!quotas.is_empty()).then_some(Limits::Quotas(quotas))
    }

    fn tier(&mut self, at: &Cursor<'_>, seconds: u64, counting: Counting) -> Option<Quota> {
        if let Value::Text(_) = at.node.value {
            let quota = self.quota(at, counting)?;
            if quota.calendar_window().is_some() || quota.window() != Duration::from_secs(seconds) {
                let (name, quota) = (at.key(), quota.to_string());
                self.report(at, format!("`{quota}`"), format!("a window of {seconds} s in `{name}`"));
            }
            return Some(quota);
        }
        let quota = counting.tier(integer(at.node).unwrap_or(-1), seconds);
        quota.map_err(|error| self.wrong(at, error.expected)).ok()
    }

    /// One quota as text.
    fn quota(&mut self, at: &Cursor<'_>, counting: Counting) -> Option<Quota> {
        match &at.node.value {
            Value::Text(text) => self.checked(at, counting.parse(text)),
            _ => self.unfit(at, format!("{A_QUOTA}; only rps, rpm, rph and rpd may be bare numbers")),
        }
    }

    /// The limits with the burst that stands beside them.
    pub(super) fn with_burst(&mut self, at: &Cursor<'_>, limits: &Limits) -> Option<Limits> {
        let burst = self.whole(at, 1, LIMIT_MAX)?;
        let Limits::Quotas(quotas) = limits else {
            self.report(at, "a burst without a limit", "no burst");
            return None;
        };
        let [NamedQuota { name, quota }] = quotas.as_slice() else {
            let expected = "`burst` beside one quota; of several, each has its own: \"10/s burst 20\"";
            self.report(at, format!("a burst beside {} quotas", quotas.len()), expected);
            return None;
        };
        if quota.algorithm() == Algorithm::TokenBucket && quota.capacity() != quota.limit() {
            self.report(at, "a second burst", format!("the burst once; `quota` has {}", quota.capacity()));
            return None;
        }
        let quota =
            quota.with_burst(u64::from(burst)).map_err(|error| Problem::of(error.got, error.expected));
        let quota = self.checked(at, quota)?;
        Some([(name.clone(), quota)].into_iter().collect())
    }
}

/// What a quota in a list is called: it keeps its name, and so its counters,
/// when its limit changes.
fn window_name(quota: Quota) -> Cow<'static, str> {
    if quota.algorithm() == Algorithm::Concurrency {
        return "concurrency".into();
    }
    // `10/30s burst 20`, `500/calendar month +02:00`.
    let text = quota.to_string();
    let window = text.split_once('/').map_or("", |(_, window)| window);
    let mut words = window.split(' ');
    match (words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
        ("calendar", unit) => format!("calendar_{unit}").into(),
        ("s", _) => "rps".into(),
        ("min", _) => "rpm".into(),
        ("h", _) => "rph".into(),
        ("d", _) => "rpd".into(),
        (window, _) => format!("per_{window}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_in_a_list_are_called_after_their_windows() {
        let cases = [
            ("10/s burst 20", "rps"),
            ("10/60s", "rpm"),
            ("10/30s sliding_log", "per_30s"),
            ("10/90min", "per_90min"),
            ("10/7d", "per_7d"),
            ("10/250ms", "per_250ms"),
            ("5/calendar month +02:00", "calendar_month"),
            ("5/30s concurrency", "concurrency"),
        ];
        for (text, name) in cases {
            assert_eq!(window_name(text.parse().unwrap()), name, "{text}");
        }
    }

    #[test]
    fn a_quota_counts_as_it_says_and_else_as_its_rule_says() {
        let counting = Counting { algorithm: Some(Algorithm::SlidingWindow) };
        let cases = [
            ("10/s", "10/s sliding_window"),
            ("10/s fixed_window", "10/s fixed_window"),
            ("5 per calendar day", "5 per calendar day"),
            ("{rps=1}", "{rps=1} sliding_window"),
        ];
        for (text, complete) in cases {
            assert_eq!(counting.complete(text), complete);
            assert_eq!(Counting { algorithm: None }.complete(text), text);
        }
    }
}
