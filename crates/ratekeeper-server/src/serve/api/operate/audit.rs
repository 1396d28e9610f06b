//! The audit log: who changed what. A line of JSON for each change, written before the change is made.
//!
//! Before, because a change without a line could not be proven later, and a line without a change can be told: the
//! next line says that it failed. Where no line can be written, nothing is changed.

use ratekeeper::Demand;
use ratekeeper::bounds::{AUDIT_LINE_BYTES_MAX, AUDIT_LINES_MAX};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::read;
use crate::serve::admin::Caller;
use crate::serve::api::object::only_objects;
use crate::serve::api::problem::Problem;
use crate::serve::api::value::{Text, Whole};
use crate::serve::api::{Answer, Api, answered};

/// The most lines in one answer.
pub const AUDIT_SHOWN_MAX: usize = 1_000;
/// Lines in an answer, unless the call says otherwise.
const SHOWN_DEFAULT: usize = 100;
/// How much is kept of what was there before and after, if a line would be too long.
const SHORT_CHARS_MAX: usize = 500;

/// A change that is about to be made.
#[derive(Debug)]
pub(super) struct Change<'c> {
    pub(super) caller: &'c Caller,
    /// Its path.
    pub(super) call: &'static str,
    /// What is changed.
    pub(super) about: Json,
    pub(super) before: Json,
    pub(super) after: Json,
    pub(super) reason: &'c str,
    pub(super) author: &'c str,
}

impl<'c> Change<'c> {
    pub(super) fn new(caller: &'c Caller, call: &'static str, about: Json) -> Self {
        Self { caller, call, about, before: Json::Null, after: Json::Null, reason: "", author: "" }
    }

    /// What the call says of itself.
    pub(super) fn because(self, reason: Option<&'c Text<'_>>, author: Option<&'c Text<'_>>) -> Self {
        let (reason, author) = (reason.map_or("", Text::as_str), author.map_or("", Text::as_str));
        Self { reason, author, ..self }
    }

    fn line(&self, at_us: u64, failure: Option<&str>) -> String {
        let line = self.with(at_us, Json::clone, failure);
        if line.len() <= AUDIT_LINE_BYTES_MAX {
            return line;
        }
        self.with(at_us, shortened, failure)
    }

    fn with(&self, at_us: u64, fitted: impl Fn(&Json) -> Json, failure: Option<&str>) -> String {
        let mut line = json!({
            "at_us": at_us, "by": self.caller.name, "call": self.call, "about": fitted(&self.about),
            "before": fitted(&self.before), "after": fitted(&self.after),
        });
        let notes = [("reason", Some(self.reason)), ("author", Some(self.author)), ("failed", failure)];
        for (name, note) in notes {
            if let Some(note) = note.filter(|note| !note.is_empty()) {
                line[name] = json!(note);
            }
        }
        line.to_string()
    }
}

/// `/v1/audit`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct AuditCall<'a> {
    #[serde(default)]
    skip: Option<Whole>,
    #[serde(default)]
    count: Option<Whole>,
    #[serde(borrow, default)]
    by: Option<Text<'a>>,
}

only_objects!(AuditCall);

impl Api {
    /// Makes a change that is in the audit log before it is made.
    pub(super) async fn audited<T>(
        &self,
        change: Change<'_>,
        made: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        self.record(&change, None).await.map_err(|problem| problem.before("nothing was changed"))?;
        let made = made.await;
        self.shown.forget();
        if let Err(problem) = &made
            && let Err(unnoted) = self.record(&change, Some(problem.detail())).await
        {
            tracing::warn!(
                call = change.call,
                reason = unnoted.detail(),
                "a change failed, and the audit log does not have it"
            );
        }
        made
    }

    /// Forgets the counters of a demand, under these rules and keys.
    pub(in crate::serve::api) async fn reset_audited(
        &self,
        caller: &Caller,
        about: Vec<(&str, &str)>,
        demand: &Demand<'_>,
    ) -> Result<usize, Problem> {
        let about = about.into_iter().map(|(rule, key)| json!({ "rule": rule, "key": key }));
        let change = Change::new(caller, "/v1/reset", about.collect());
        self.audited(change, async { demand.reset().await.map_err(Problem::store) }).await
    }

    async fn record(&self, change: &Change<'_>, failure: Option<&str>) -> Result<(), Problem> {
        let store = self.limiter.store();
        let line = change.line(store.now().as_micros(), failure);
        store.audit().append(&line).await.map_err(Problem::store)
    }

    /// Says of the `switches` in each of these who set them, when and why, as far as the log has it: programs set
    /// some without it.
    pub(super) async fn tell_who_set(&self, told: impl Iterator<Item = &mut Json>) -> Result<(), Problem> {
        let switches = told.filter_map(|of| of.get_mut("switches")?.as_array_mut());
        let mut unknown: Vec<&mut Json> = switches.flatten().collect();
        for page in 0..AUDIT_LINES_MAX / AUDIT_SHOWN_MAX {
            if unknown.is_empty() {
                return Ok(());
            }
            let lines = self.limiter.store().audit().latest(page * AUDIT_SHOWN_MAX, AUDIT_SHOWN_MAX).await;
            let lines = lines.map_err(Problem::store)?;
            let entries = lines.iter().filter_map(|line| serde_json::from_str::<Json>(line).ok());
            for entry in entries.filter(|entry| entry["failed"].is_null()) {
                unknown.retain_mut(|switch| {
                    let is_it = entry["after"] == **switch;
                    if is_it {
                        sign(switch, &entry);
                    }
                    !is_it
                });
            }
            if lines.len() < AUDIT_SHOWN_MAX {
                break;
            }
        }
        unknown.into_iter().for_each(|switch| sign(switch, &Json::Null));
        Ok(())
    }

    /// `POST /v1/audit`: who changed what, the newest first. Takes the role read.
    pub async fn audit(&self, body: &[u8]) -> Answer {
        let listed = async {
            let call: AuditCall<'_> = read(body)?;
            let skip = within("skip", call.skip, 0, AUDIT_LINES_MAX)?;
            let count = within("count", call.count, SHOWN_DEFAULT, AUDIT_SHOWN_MAX)?;
            let lines = self.limiter.store().audit().latest(skip, count).await.map_err(Problem::store)?;
            let is_last = lines.len() < count;
            let by = call.by.as_ref().map(Text::as_str);
            let entries: Vec<Json> = lines
                .iter()
                .map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!({ "unreadable": line })))
                .filter(|entry: &Json| by.is_none_or(|by| entry["by"] == by))
                .collect();
            let next = (!is_last).then_some(skip + count);
            Ok(Answer::json(&json!({ "entries": entries, "next_skip": next })))
        };
        answered(listed.await)
    }
}

/// Takes who set a switch over from the line about it.
fn sign(switch: &mut Json, entry: &Json) {
    for name in ["by", "author", "reason"] {
        switch[name] = entry[name].clone();
    }
    switch["set_at_us"] = entry["at_us"].clone();
}

/// The beginning of what would make a line too long.
fn shortened(value: &Json) -> Json {
    let text = value.to_string();
    if text.len() <= SHORT_CHARS_MAX {
        return value.clone();
    }
    // What has to be escaped takes six bytes in the line.
    let plain = text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
    json!(plain.take(SHORT_CHARS_MAX).collect::<String>() + "...")
}

/// A number of a page, within its bound.
pub(super) fn within(
    field: &str,
    number: Option<Whole>,
    default: usize,
    max: usize,
) -> Result<usize, Problem> {
    let Some(Whole(number)) = number else { return Ok(default) };
    let number = usize::try_from(number).ok().filter(|number| *number <= max);
    number.ok_or_else(|| Problem::wrong(field, format!("a whole number from 0 to {max}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_too_long_for_the_log() {
        let caller = Caller::named(&"n".repeat(128));
        let note = "\u{1}".repeat(512);
        let of = json!({ "endpoint": "e".repeat(1024), "reason": note, "author": note });
        let mut change = Change::new(&caller, "/v1/overrides/set", json!({ "endpoint": "e".repeat(200) }));
        (change.before, change.after) = (of.clone(), of);
        let line = change.line(u64::MAX, Some(&"f".repeat(500)));
        assert!(line.len() <= AUDIT_LINE_BYTES_MAX, "{}", line.len());
        let read: Json = serde_json::from_str(&line).unwrap();
        assert_eq!((read["call"].as_str(), read["at_us"].as_u64()), (Some(change.call), Some(u64::MAX)));
        assert!(line.find('\n').is_none());
    }
}
