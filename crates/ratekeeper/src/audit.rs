//! The audit log: what operators changed, a line for each change.
//!
//! A store keeps the lines and knows nothing of what is in them: a surface writes them (the server and the command
//! line write JSON), so what a line says can grow without a new format in every store. Nothing changes a line, and
//! the oldest are dropped at the bound.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratekeeper_core::{Field, InvalidInput};

use crate::store::StoreFuture;

/// The most lines an audit log keeps; the oldest are dropped.
pub const AUDIT_LINES_MAX: usize = 10_000;
/// The longest line, in bytes.
pub const AUDIT_LINE_BYTES_MAX: usize = 8_192;

/// What operators changed, for as long as the store remembers its overrides.
pub trait Audit: Send + Sync {
    /// Appends a line. It is durable as soon as an override of this store would be.
    ///
    /// # Errors
    /// If it is empty, longer than [`AUDIT_LINE_BYTES_MAX`] or more than one line, or the store could not answer.
    fn append<'a>(&'a self, line: &'a str) -> StoreFuture<'a, ()>;

    /// The newest `count` lines but the newest `skip`, the newest first.
    fn latest(&self, skip: usize, count: usize) -> StoreFuture<'_, Vec<String>>;
}

/// Refuses what is not one line.
pub(crate) fn validated(line: &str) -> Result<&str, InvalidInput> {
    if line.is_empty() || line.len() > AUDIT_LINE_BYTES_MAX || line.contains(['\n', '\r']) {
        let got = format!("{} bytes", line.len());
        let expected = format!("one line of 1 to {AUDIT_LINE_BYTES_MAX} bytes");
        return Err(InvalidInput::new(Field::Audit, got, expected));
    }
    Ok(line)
}

/// The audit log of a store in memory.
#[derive(Debug, Default)]
pub(crate) struct AuditLog(Mutex<VecDeque<Box<str>>>);

impl AuditLog {
    pub(crate) fn append(&self, line: &str) -> Result<(), InvalidInput> {
        let line = validated(line)?;
        let mut lines = self.lock();
        if lines.len() >= AUDIT_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line.into());
        Ok(())
    }

    pub(crate) fn latest(&self, skip: usize, count: usize) -> Vec<String> {
        self.lock().iter().rev().skip(skip).take(count).map(ToString::to_string).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Box<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_make_room_and_the_newest_come_first() {
        let log = AuditLog::default();
        for number in 0..AUDIT_LINES_MAX + 2 {
            log.append(&number.to_string()).unwrap();
        }
        assert_eq!(log.latest(0, 2), [(AUDIT_LINES_MAX + 1).to_string(), AUDIT_LINES_MAX.to_string()]);
        assert_eq!(log.latest(AUDIT_LINES_MAX - 1, 5), ["2"]);
        assert_eq!(log.latest(AUDIT_LINES_MAX, 5), [""; 0]);
    }

    #[test]
    fn what_is_not_one_line_is_refused() {
        let log = AuditLog::default();
        for wrong in ["", "a\nb", "a\r", &"x".repeat(AUDIT_LINE_BYTES_MAX + 1)] {
            assert!(log.append(wrong).unwrap_err().to_string().starts_with("audit: got "));
        }
        assert_eq!(log.latest(0, 5), [""; 0]);
    }
}
