//! What the other side says of its limits, in the fields of a response.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use ratekeeper_http::field;

use super::RETRY_AFTER_MAX;

/// Policies of the other side that are looked at in one response.
pub(super) const POLICIES_MAX: usize = 8;
/// Above this, a reset of old fields is an instant since 1970, not a number of seconds from now: it is September 2001.
const EPOCH_MIN: u64 = 1_000_000_000;

/// What a response says: how many more requests go through, and until when that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) requests: u64,
    pub(super) within: Duration,
}

/// What a response says of the limits of the other side.
pub(super) fn told_by(status: StatusCode, headers: &HeaderMap) -> Vec<Left> {
    let mut told = standard(headers);
    if told.is_empty() {
        told.extend(old(headers, &field::LEGACY).or_else(|| old(headers, &field::LEGACY_X)));
    }
    let is_busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status);
    if is_busy && let Some(within) = retry_after(headers, SystemTime::now()) {
        told.push(Left { requests: 0, within });
    }
    for left in &mut told {
        left.within = left.within.min(RETRY_AFTER_MAX);
    }
    told
}

/// Seconds from now, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(secs) = text.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    // A date has whole seconds: rounded up, nobody is too early.
    Some(date.duration_since(now).unwrap_or_default())
}

/// `RateLimit`: a list of policies, each with what is left and for how long. What cannot be read is not there.
fn standard(headers: &HeaderMap) -> Vec<Left> {
    let lines = headers.get_all(field::RATELIMIT).iter().filter_map(|line| line.to_str().ok());
    let policies = lines.flat_map(|line| pieces(line, b','));
    policies.filter_map(policy).take(POLICIES_MAX).collect()
}

/// `"default";r=50;t=30`: the `t` may be missing where no wait helps.
fn policy(text: &str) -> Option<Left> {
    let mut parameters = pieces(text, b';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let (mut requests, mut within) = (None, None);
    parameters.by_ref().for_each(|(name, value)| match name.trim() {
        "r" => requests = value.trim().parse().ok(),
        "t" => within = value.trim().parse().ok(),
        _ => {}
    });
    Some(Left { requests: requests?, within: Duration::from_secs(within?) })
}

/// The parts of a text between separators that stand outside of quotation marks.
fn pieces(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |letter: char| {
        let escaped = is_escaped;
        is_escaped = is_quoted && letter == '\\' && !escaped;
        if letter == '"' && !escaped {
            is_quoted = !is_quoted;
        }
        letter == char::from(separator) && !is_quoted
    })
}

/// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`, or the same with `X-`.
fn old(headers: &HeaderMap, [_, remaining, reset]: &[&'static str; 3]) -> Option<Left> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let (requests, reset) = (number(remaining)?, number(reset)?);
    let within = match reset {
        EPOCH_MIN.. => {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(reset.min(u32::MAX.into()));
            at.duration_since(SystemTime::now()).unwrap_or_default()
        }
        secs => Duration::from_secs(secs),
    };
    Some(Left { requests, within })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: u16, fields: &[(&'static str, &str)]) -> Vec<(u64, u64)> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        let told = told_by(StatusCode::from_u16(status).unwrap(), &headers);
        told.iter().map(|left| (left.requests, left.within.as_secs())).collect()
    }

    #[test]
    fn the_fields_of_the_standard_are_read() {
        for (value, expected) in [
            (r#""default";r=50;t=30"#, vec![(50, 30)]),
            (r#""a, b";r=1;t=2 , "c\";r=9";t=4;r=3"#, vec![(1, 2), (3, 4)]),
            (r#""never";r=0"#, vec![]),
            (r#""a";r=x;t=1, "b";r=1;t=-1"#, vec![]),
            ("", vec![]),
            (r#""long";r=0;t=999999"#, vec![(0, 3_600)]),
        ] {
            assert_eq!(told(200, &[("ratelimit", value)]), expected, "{value}");
        }
        let lines = [("ratelimit", r#""a";r=1;t=2"#), ("ratelimit", r#""b";r=3;t=4"#)];
        assert_eq!(told(200, &lines), [(1, 2), (3, 4)]);
        let many = (0..100).map(|_| r#""a";r=1;t=2"#).collect::<Vec<_>>().join(",");
        assert_eq!(told(200, &[("ratelimit", &many)]).len(), POLICIES_MAX);
    }

    #[test]
    fn retry_after_counts_where_the_other_side_is_busy() {
        let after = [("retry-after", "7")];
        assert_eq!((told(429, &after), told(503, &after)), (vec![(0, 7)], vec![(0, 7)]));
        assert_eq!(told(301, &after), [], "there it means something else");
        assert_eq!(told(429, &[("retry-after", "soon")]), []);
        assert_eq!(told(429, &[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]), [(0, 0)]);
        assert_eq!(told(429, &[("retry-after", "Wed, 21 Oct 2099 07:28:00 GMT")]), [(0, 3_600)]);
    }

    #[test]
    fn fields_of_old_are_read_where_there_are_no_others() {
        let old = [("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "20")];
        assert_eq!(told(200, &old), [(3, 20)]);
        let both = [old[0], old[1], ("ratelimit", r#""a";r=1;t=2"#)];
        assert_eq!(told(200, &both), [(1, 2)]);
        let epoch = [("ratelimit-remaining", "3"), ("ratelimit-reset", "1000000001")];
        assert_eq!(told(200, &epoch), [(3, 0)], "long ago");
    }
}
