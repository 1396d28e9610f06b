//! An override as a hash: what we write, and what others may have written.
//!
//! Fields: `max_requests` and `expiry` (whole seconds) are Application Kit's;
//! `window_ms` stands beside a window that is not of whole seconds, `expires_at`
//! is when the override ends in microseconds, `reason` and `author` are notes.
//! Others change the first two and the key's time to live and leave the rest, so
//! what is ours counts only as long as it agrees with what is theirs. The script
//! reads a hash in the same way.

use std::collections::HashMap;
use std::time::Duration;

use ratekeeper_core::{LIMIT_MAX, Override, Timestamp, WINDOW_MILLIS_MAX, WINDOW_MILLIS_MIN};

use crate::store::{StoreError, StoreErrorKind};

/// How much longer than its override a key may live, in microseconds: the time
/// to live is set a moment after it was worked out.
pub(super) const RENEWED_MICROS: u64 = 1_000_000;

pub(super) fn write(to: &Override) -> Vec<(&'static str, String)> {
    let mut fields = vec![("max_requests", to.limit.to_string())];
    if let Some(window) = to.window {
        let millis = window.as_millis();
        fields.push(("expiry", millis.div_ceil(1_000).to_string()));
        if millis % 1_000 != 0 {
            fields.push(("window_ms", millis.to_string()));
        }
    }
    if let Some(end) = to.expires_at {
        fields.push(("expires_at", end.as_micros().to_string()));
    }
    for (name, note) in [("reason", &to.reason), ("author", &to.author)] {
        if !note.is_empty() {
            fields.push((name, note.clone()));
        }
    }
    fields
}

/// The override in a hash; none if nothing in it is a term of one.
pub(super) fn read(fields: &HashMap<String, String>) -> Result<Option<Override>, StoreError> {
    let number = |name: &str| {
        let Some(text) = fields.get(name) else { return Ok(None) };
        number(text)
            .map(Some)
            .ok_or_else(|| unreadable(&format!("{name} = {text:?} where a number should be")))
    };
    let (limit, seconds) = (number("max_requests")?, number("expiry")?);
    let Some(limit) = limit else {
        return if seconds.is_none() {
            Ok(None)
        } else {
            Err(unreadable("no max_requests: each quota keeps its own limit"))
        };
    };
    let whole = |name: &str| fields.get(name).and_then(|text| whole(text));
    let window = seconds.map(|seconds| {
        let exact = whole("window_ms").filter(|exact| exact.div_ceil(1_000) as f64 == seconds);
        // A cast from a float stays within what it is cast to.
        let millis = exact.unwrap_or((seconds * 1_000.0 + 0.5) as u64);
        Duration::from_millis(millis.clamp(WINDOW_MILLIS_MIN, WINDOW_MILLIS_MAX))
    });
    if let (Some(text), None) = (fields.get("expires_at"), whole("expires_at")) {
        return Err(unreadable(&format!("expires_at = {text:?} where a whole number should be")));
    }
    Ok(Some(Override {
        limit: (limit as u64).min(LIMIT_MAX.into()),
        window,
        expires_at: whole("expires_at").map(Timestamp::from_micros),
        reason: fields.get("reason").cloned().unwrap_or_default(),
        author: fields.get("author").cloned().unwrap_or_default(),
    }))
}

/// When an override ends whose key ends at `key_ends`, if ever: when it says itself, unless others
/// have given the key another life.
pub(super) fn end(said: Option<Timestamp>, key_ends: Option<Timestamp>) -> Option<Timestamp> {
    let agree = |end: &Timestamp, key: Timestamp| end.as_micros().abs_diff(key.as_micros()) <= RENEWED_MICROS;
    key_ends.map(|key| said.filter(|end| agree(end, key)).unwrap_or(key))
}

/// What the script takes for a number: decimals, as Lua's `tonumber` reads them.
fn number(text: &str) -> Option<f64> {
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let decimal = text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    text.parse().ok().filter(|_| decimal)
}

/// A whole number as we write it.
fn whole(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn unreadable(what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, format!("an override has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(fields: &[(&str, &str)]) -> Result<Option<(u64, Option<u128>)>, String> {
        let fields = fields.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let found = read(&fields).map_err(|error| error.to_string())?;
        Ok(found.map(|found| (found.limit, found.window.map(|window| window.as_millis()))))
    }

    #[test]
    fn numbers_are_what_lua_takes_for_such() {
        for (text, limit) in [
            ("100", 100),
            ("100.0", 100),
            (" 7\n", 7),
            ("1e3", 1_000),
            ("12.9", 12),
            ("-5", 0),
            ("2000000000", 1_000_000_000),
            ("1e999", 1_000_000_000),
        ] {
            assert_eq!(found(&[("max_requests", text)]), Ok(Some((limit, None))), "{text:?}");
        }
        for text in ["", "many", "1e", ".", "0x10", "inf", "nan", "1 2", "\u{a0}5"] {
            assert!(found(&[("max_requests", text)]).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_window_is_cut_to_what_one_can_be() {
        let windows = [("60", 60_000), ("0", 1), ("-1", 1), ("1.5", 1_500), ("63072000", 31_622_400_000)];
        for (text, millis) in windows {
            let fields = [("max_requests", "5"), ("expiry", text)];
            assert_eq!(found(&fields), Ok(Some((5, Some(millis)))), "{text:?}");
        }
    }

    #[test]
    fn milliseconds_count_only_beside_the_seconds_they_belong_to() {
        for (seconds, millis, window) in [("2", "1500", 1_500), ("120", "1500", 120_000), ("2", "x", 2_000)] {
            let fields = [("max_requests", "5"), ("expiry", seconds), ("window_ms", millis)];
            assert_eq!(found(&fields), Ok(Some((5, Some(window)))), "{seconds} and {millis}");
        }
        assert_eq!(found(&[("max_requests", "5"), ("window_ms", "1500")]), Ok(Some((5, None))));
    }

    #[test]
    fn what_is_not_there_is_told() {
        assert_eq!(found(&[("note", "x")]), Ok(None));
        assert!(found(&[("expiry", "5")]).unwrap_err().contains("no max_requests"));
        assert!(found(&[("max_requests", "5"), ("expires_at", "soon")]).unwrap_err().contains("soon"));
    }

    #[test]
    fn the_key_says_when_it_ends_and_we_say_it_exactly() {
        let at = |micros| Some(Timestamp::from_micros(micros));
        assert_eq!(end(at(5_000_123), at(5_001_000)), at(5_000_123));
        assert_eq!(end(at(5_000_123), at(90_000_000)), at(90_000_000), "given a longer life");
        assert_eq!(end(at(90_000_000), at(5_000_000)), at(5_000_000), "or a shorter one");
        assert_eq!((end(None, at(7)), end(at(7), None)), (at(7), None));
    }
}
