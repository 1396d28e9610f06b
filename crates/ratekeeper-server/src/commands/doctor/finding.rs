//! One thing that was looked at.

use serde::Serialize;

use crate::failure::without_secrets;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// Good to know, or not to be known.
    Note,
    /// Works today, and will hurt one day.
    Warning,
    /// Limits do not hold, or nothing works.
    Error,
}

impl Severity {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// What was looked at.
    pub(super) check: &'static str,
    pub(super) severity: Severity,
    /// The server it is about, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    /// What is the case.
    pub(super) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn new(check: &'static str, severity: Severity, found: impl AsRef<str>) -> Self {
        Self { check, severity, server: None, found: without_secrets(found.as_ref()), fix: None }
    }

    pub(super) fn ok(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Ok, found)
    }

    pub(super) fn warning(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Warning, found)
    }

    pub(super) fn error(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Error, found)
    }

    pub(super) fn of_server(self, server: String) -> Self {
        Self { server: Some(server), ..self }
    }

    pub(super) fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}
