//! `CL.THROTTLE key max_burst count period [quantity]`: its arguments, its reply and the errors of redis-cell.

use super::parse::Command;
use super::reply::Replies;
use crate::serve::api::{Throttle, Throttled};

/// What redis-cell writes before all that is wrong.
const CELL: &str = "Cell error: Store error: ";
const USAGE: &str = "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";

/// The call that a command is.
#[inline]
pub(super) fn read(command: Command<'_>) -> Result<Throttle<'_>, String> {
    if !matches!(command.len(), 5 | 6) {
        return Err(format!("{CELL}{USAGE}"));
    }
    let number = |index: usize| integer(command.get(index).unwrap_or_default());
    let (max_burst, count, period) = (number(2)?, number(3)?, number(4)?);
    let quantity = if command.len() == 6 { number(5)? } else { 1 };
    if count == 0 || period == 0 {
        return Err(format!("{CELL}Zero rates are not supported"));
    }
    let key = command.get(1).unwrap_or_default();
    Throttle::new(key, max_burst, count, period, quantity).map_err(|error| format!("{CELL}{error}"))
}

#[inline]
fn integer(bytes: &[u8]) -> Result<i64, String> {
    let parsed = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| {
        format!("{CELL}Couldn't parse as integer: {}", String::from_utf8_lossy(bytes).escape_debug())
    })
}

/// Its reply: whether it is limited, the capacity, what is left, when to come back and when the bucket is full.
#[inline]
pub(super) fn reply(told: &Throttled, replies: &mut Replies) {
    replies.array(5);
    replies.integer(told.is_limited.into());
    replies.integer(told.limit.into());
    replies.integer(told.remaining.into());
    replies.integer(told.retry_after);
    replies.integer(told.reset_after);
}
