//! Another limit for one project or one organisation, with a life of its own.

use std::time::Duration;

use crate::check::{Charge, Level};
use crate::error::{Field, InvalidInput};
use crate::key::SUBJECT_BYTES_MAX;
use crate::quota::{Algorithm, Quota};
use crate::time::Timestamp;

/// The longest reason or author of an override, in bytes.
pub const NOTE_BYTES_MAX: usize = 512;
/// How many parts of a subject, between colons and counted from the right, can be the organisation whose overrides it
/// follows on several servers. Endpoints may hold colons.
pub const ORGANISATION_PLACES_MAX: usize = 8;

/// Whose overrides a charge follows: on which endpoint, in which organisation
/// and, below it, which project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OverrideScope<'a> {
    endpoint: &'a str,
    organisation: &'a str,
    project: Option<&'a str>,
}

impl<'a> OverrideScope<'a> {
    /// The scope of a whole organisation on an endpoint. Its override is each
    /// project's own limit, never a bucket they share.
    ///
    /// # Errors
    /// If a part is empty or too long.
    pub fn organisation(endpoint: &'a str, organisation: &'a str) -> Result<Self, InvalidInput> {
        for (part, text) in [("endpoint", endpoint), ("organisation", organisation)] {
            bounded(part, text)?;
        }
        Ok(Self { endpoint, organisation, project: None })
    }

    /// The scope of one project on an endpoint.
    ///
    /// # Errors
    /// If a part is empty or too long.
    pub fn project(endpoint: &'a str, organisation: &'a str, project: &'a str) -> Result<Self, InvalidInput> {
        bounded("project", project)?;
        Ok(Self { project: Some(project), ..Self::organisation(endpoint, organisation)? })
    }

    /// The scope of a project that a subject names: `ENDPOINT:ORGANISATION:PROJECT`, with
    /// numbers for the last two. Read from the right, because endpoints may have colons.
    #[must_use]
    pub fn of_subject(subject: &'a [u8]) -> Option<Self> {
        let (rest, project) = std::str::from_utf8(subject).ok()?.rsplit_once(':')?;
        let (endpoint, organisation) = rest.rsplit_once(':')?;
        let numbered = is_integer(organisation) && is_integer(project);
        Self::project(endpoint, organisation, project).ok().filter(|_| numbered)
    }

    /// The endpoint, with the quota's name if it has several.
    #[must_use]
    pub const fn endpoint(&self) -> &'a str {
        self.endpoint
    }

    /// The organisation.
    #[must_use]
    pub const fn organisation_id(&self) -> &'a str {
        self.organisation
    }

    /// The project, unless the scope is a whole organisation.
    #[must_use]
    pub const fn project_id(&self) -> Option<&'a str> {
        self.project
    }

    /// The scope of the organisation around it.
    #[must_use]
    pub const fn without_project(self) -> Self {
        Self { project: None, ..self }
    }
}

impl<'a> Charge<'a> {
    /// The scope on whose one counter this charge counts, together with every
    /// rule that does: a fixed window off the clock that follows overrides,
    /// and whose subject is `ENDPOINT:ORGANISATION:PROJECT` with numbers for the
    /// last two. So counts Application Kit, whose counters stores may share; all
    /// stores count alike, shared or not.
    #[must_use]
    pub fn shared_scope(&self) -> Option<OverrideScope<'a>> {
        let scope = self.overrides?;
        let fixed = self.quota.algorithm() == Algorithm::FixedWindow && !self.quota.is_clocked();
        (fixed && OverrideScope::of_subject(self.key.subject()) == Some(scope)).then_some(scope)
    }
}

/// Whether `text` is a whole number as Application Kit writes it.
fn is_integer(text: &str) -> bool {
    let canonical = text == "0" || !text.starts_with('0');
    (1..=19).contains(&text.len()) && canonical && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn bounded(part: &str, text: &str) -> Result<(), InvalidInput> {
    if text.is_empty() || text.len() > SUBJECT_BYTES_MAX {
        let got = format!("{part} of {} bytes", text.len());
        return Err(InvalidInput::new(Field::Override, got, format!("1 to {SUBJECT_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// What replaces a quota's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Units per window; 0 lets nothing pass.
    pub limit: u64,
    /// The window; the quota's own if there is none.
    pub window: Option<Duration>,
    /// From this instant on it is gone; without one it stays.
    pub expires_at: Option<Timestamp>,
    /// Why it was set.
    pub reason: String,
    /// Who set it.
    pub author: String,
}

impl Override {
    /// An override of the limit alone, until it is deleted.
    #[must_use]
    pub const fn limit(limit: u64) -> Self {
        Self { limit, window: None, expires_at: None, reason: String::new(), author: String::new() }
    }

    /// Whether it counts at `now`.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }

    /// Checks the numbers and notes on their own, before they are stored.
    ///
    /// # Errors
    /// If the limit or window could be valid for no algorithm, or a note is
    /// longer than [`NOTE_BYTES_MAX`].
    pub fn validate(&self) -> Result<(), InvalidInput> {
        let window = self.window.unwrap_or(Duration::from_secs(1));
        Quota::token_bucket(self.limit, window)?;
        for (part, text) in [("reason", &self.reason), ("author", &self.author)] {
            if text.len() > NOTE_BYTES_MAX {
                let got = format!("{part} of {} bytes", text.len());
                return Err(InvalidInput::new(
                    Field::Override,
                    got,
                    format!("at most {NOTE_BYTES_MAX} bytes"),
                ));
            }
        }
        Ok(())
    }
}

/// The quota in force for `charge`, and who set it: the project's override,
/// else the organisation's, else what the charge carries.
///
/// `find` looks a scope up in the store, inside the atomic step.
pub fn resolve<'f>(
    charge: &Charge<'_>,
    now: Timestamp,
    mut find: impl FnMut(OverrideScope<'_>) -> Option<&'f Override>,
) -> (Quota, Level) {
    let Some(scope) = charge.overrides else {
        return (*charge.quota, charge.level);
    };
    let mut live = |scope| find(scope).filter(|found| found.is_live(now));
    let project = scope.project.and_then(|_| live(scope)).map(|found| (found, Level::Project));
    let found = project.or_else(|| live(scope.without_project()).map(|found| (found, Level::Organisation)));
    match found {
        Some((found, level)) => (charge.quota.overridden(found.limit, found.window), level),
        None => (*charge.quota, charge.level),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_names_a_project_on_an_endpoint_if_it_reads_so() {
        let named = |subject| OverrideScope::of_subject(subject);
        assert_eq!(named(b"/a:b/{id}:7:42"), OverrideScope::project("/a:b/{id}", "7", "42").ok());
        assert_eq!(
            named(b"/a:0:9999999999999999999").and_then(|scope| scope.project_id()).unwrap().len(),
            19
        );
        let others: [&[u8]; 9] = [
            b"",
            b":7:42",
            b"/a:7",
            b"/a:007:42",
            b"/a:7:",
            b"/a:-1:42",
            b"/a:acme:42",
            b"/\xff:7:42",
            b"/a:7:99999999999999999999",
        ];
        for other in others {
            assert_eq!(named(other), None, "{other:?}");
        }
    }
}
