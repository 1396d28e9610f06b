//! What operators change while everything runs: overrides of customers, modes of rules, emergencies.
//!
//! The command line makes the same calls, in its own process on a store or over HTTP on a server, so there is one
//! reader and one answer for both. Every change is logged with what was changed: that is the record of who
//! did what.

mod audit;
mod counters;
mod demo;
mod explain;
mod look;
mod overrides;
mod switches;

pub use audit::AUDIT_SHOWN_MAX;
pub use counters::{COUNTERS_SHOWN_MAX, CUSTOM_SHOWN_MAX};
pub(in crate::serve) use counters::{history, rule as rule_limits};

use std::time::Duration;

use ratekeeper::Timestamp;
use ratekeeper::policy::{A_LENGTH_OF_TIME, parse_duration};
use serde::Deserialize;

use super::Api;
use super::problem::Problem;
use super::value::{Text, Whole};

/// Reads a call of an operator.
fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::unread::<T>(body, &error))
}

/// A length of time as people write it.
fn length(field: &str, text: &Text<'_>) -> Result<Duration, Problem> {
    parse_duration(text.as_str()).ok_or_else(|| Problem::wrong(field, A_LENGTH_OF_TIME))
}

/// The same for answers; [`parse_duration`] reads it back.
fn in_words(length: Duration) -> String {
    match length.subsec_millis() {
        0 => format!("{}s", length.as_secs()),
        _ => format!("{}ms", length.as_millis()),
    }
}

impl Api {
    /// When something ends that was set for a while, or until an instant.
    fn end(&self, life: Option<&Text<'_>>, until: Option<Whole>) -> Result<Option<Timestamp>, Problem> {
        let now = self.limiter.store().now();
        match (life, until) {
            (Some(_), Some(_)) => Err(Problem::got("until_us", "it beside `for`", "one of the two")),
            (Some(life), None) => Ok(Some(now.after(length("for", life)?))),
            (None, Some(Whole(micros))) if Timestamp::from_micros(micros) <= now => {
                Err(Problem::wrong("until_us", "an instant to come, in microseconds since 1970"))
            }
            (None, until) => Ok(until.map(|Whole(micros)| Timestamp::from_micros(micros))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_read_as_they_are_written() {
        for text in ["1ms", "250ms", "1s", "90s", "3600s"] {
            assert_eq!(in_words(parse_duration(text).unwrap()), text);
        }
        assert_eq!(in_words(parse_duration("1h").unwrap()), "3600s");
    }
}
