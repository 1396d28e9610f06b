//! Quotas as people write them: `100/60s`, `10/s burst 20`, `1000 per hour`,
//! `500 per calendar month +02:00`, `5/s leaky_bucket queue 10`,
//! `100/15min fixed_window aligned`, and the tiers
//! `{rps=20, rpm=1000}`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Algorithm, Quota, Quotas, TIERS, seconds};
use crate::calendar::{Calendar, CalendarUnit};
use crate::error::{Field, InvalidInput};

/// The longest text that is read as a quota, in bytes.
const TEXT_BYTES_MAX: usize = 256;

const GRAMMAR: &str = "`<limit>/<window>` such as `100/60s`, `10/s burst 20`, `1000 per hour`, \
     `500 per calendar month +02:00`, `5/s leaky_bucket queue 10`";
/// What may stand there as well, where there may be several.
const TIERS_GRAMMAR: &str = ", or `{rps=20, rpm=1000}`";

impl FromStr for Quota {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let mut reader = Reader::new(text)?;
        if reader.peek() == Some(Token::Symbol('{')) {
            return Err(reader.wrong("one quota, and tiers are several"));
        }
        let quota = reader.quota()?;
        reader.end()?;
        Ok(quota)
    }
}

impl FromStr for Quotas {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let mut reader = Reader { tiers: TIERS_GRAMMAR, ..Reader::new(text)? };
        if reader.peek() != Some(Token::Symbol('{')) {
            let quota = reader.quota()?;
            reader.end()?;
            return Ok(quota.into());
        }
        let quotas = reader.tiers()?;
        reader.end()?;
        Ok(quotas)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Number(u64),
    Word(&'a str),
    Symbol(char),
}

/// Reads tokens off the front of a text.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    /// What an error says of tiers.
    tiers: &'static str,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Result<Self, InvalidInput> {
        if text.len() > TEXT_BYTES_MAX {
            let got = format!("{} bytes", text.len());
            return Err(InvalidInput::new(Field::QuotaText, got, format!("at most {TEXT_BYTES_MAX} bytes")));
        }
        Ok(Self { text, rest: text.trim(), tiers: "" })
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.token().map(|(token, _)| token)
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let (token, rest) = self.token()?;
        self.rest = rest;
        Some(token)
    }

    fn token(&self) -> Option<(Token<'a>, &'a str)> {
        let rest = self.rest.trim_start();
        let first = rest.chars().next()?;
        let run = |belongs: fn(&u8) -> bool| rest.bytes().take_while(belongs).count();
        if first.is_ascii_digit() {
            let (digits, rest) = rest.split_at(run(|byte| byte.is_ascii_digit() || *byte == b'_'));
            let digits = digits.bytes().filter(u8::is_ascii_digit).map(|digit| u64::from(digit - b'0'));
            // A number beyond 64 bits is beyond every bound, too.
            let number = digits.fold(0, |number: u64, digit| number.saturating_mul(10).saturating_add(digit));
            return Some((Token::Number(number), rest));
        }
        if first.is_ascii_alphabetic() {
            let (word, rest) = rest.split_at(run(|byte| byte.is_ascii_alphabetic() || *byte == b'_'));
            return Some((Token::Word(word), rest));
        }
        Some((Token::Symbol(first), &rest[first.len_utf8()..]))
    }

    fn eat(&mut self, wanted: Token<'_>) -> bool {
        match self.token() {
            Some((token, rest)) if token == wanted => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn number(&mut self, after: &str) -> Result<u64, InvalidInput> {
        match self.next() {
            Some(Token::Number(number)) => Ok(number),
            _ => Err(self.wrong(&format!("a whole number after `{after}`"))),
        }
    }

    fn wrong(&self, expected: &str) -> InvalidInput {
        InvalidInput::new(
            Field::QuotaText,
            format!("`{}`", self.text),
            format!("{expected}; write {GRAMMAR}{}", self.tiers),
        )
    }

    fn end(&mut self) -> Result<(), InvalidInput> {
        if self.rest.trim().is_empty() {
            Ok(())
        } else {
            Err(self.wrong(&format!("nothing at `{}`", self.rest.trim())))
        }
    }

    fn quota(&mut self) -> Result<Quota, InvalidInput> {
        let Some(Token::Number(limit)) = self.next() else {
            return Err(self.wrong("a whole number first"));
        };
        if !self.eat(Token::Symbol('/')) && !self.eat(Token::Word("per")) {
            return Err(self.wrong("`/` or `per` after the limit"));
        }
        if self.eat(Token::Word("calendar")) {
            let quota = Quota::calendar(limit, self.calendar()?)?;
            let shape = self.options(Algorithm::FixedWindow)?;
            if shape.algorithm != Algorithm::FixedWindow {
                let got = format!("a calendar window on {}", shape.algorithm);
                return Err(InvalidInput::new(
                    Field::Algorithm,
                    got,
                    "fixed_window: only it can follow the calendar",
                ));
            }
            return shape.apply(quota);
        }
        let window = self.window()?;
        let shape = self.options(Algorithm::TokenBucket)?;
        shape.apply(Quota::new(shape.algorithm, limit, window)?)
    }

    fn window(&mut self) -> Result<Duration, InvalidInput> {
        let count = match self.peek() {
            Some(Token::Number(count)) => {
                self.next();
                count
            }
            _ => 1,
        };
        let micros = match self.next() {
            Some(Token::Word("ms" | "millisecond" | "milliseconds")) => 1_000,
            Some(Token::Word("s" | "sec" | "secs" | "second" | "seconds")) => seconds(1),
            Some(Token::Word("m" | "min" | "mins" | "minute" | "minutes")) => seconds(60),
            Some(Token::Word("h" | "hr" | "hour" | "hours")) => seconds(3_600),
            Some(Token::Word("d" | "day" | "days")) => seconds(86_400),
            Some(Token::Word("w" | "week" | "weeks")) => seconds(7 * 86_400),
            Some(Token::Word("month" | "months")) => {
                return Err(self.wrong("`calendar month`, or days: a month has no fixed length"));
            }
            _ => return Err(self.wrong("ms, s, min, h, d or w in the window")),
        };
        Ok(Duration::from_micros(count.saturating_mul(micros)))
    }

    fn calendar(&mut self) -> Result<Calendar, InvalidInput> {
        let unit = match self.next() {
            Some(Token::Word("minute")) => CalendarUnit::Minute,
            Some(Token::Word("hour")) => CalendarUnit::Hour,
            Some(Token::Word("day")) => CalendarUnit::Day,
            Some(Token::Word("week")) => CalendarUnit::Week,
            Some(Token::Word("month")) => CalendarUnit::Month,
            _ => return Err(self.wrong("minute, hour, day, week or month after `calendar`")),
        };
        let sign = match self.peek() {
            Some(Token::Symbol('+')) => 1,
            Some(Token::Symbol('-')) => -1,
            _ => return Ok(Calendar::utc(unit)),
        };
        self.next();
        let hours = self.number("+")?;
        let minutes = if self.eat(Token::Symbol(':')) { self.number(":")? } else { 0 };
        if minutes >= 60 {
            return Err(self.wrong("an offset such as +02:00"));
        }
        let offset = i16::try_from(hours.saturating_mul(60).saturating_add(minutes)).unwrap_or(i16::MAX);
        Calendar::with_offset(unit, sign * offset)
    }

    fn options(&mut self, algorithm: Algorithm) -> Result<Shape, InvalidInput> {
        let mut named: Option<Algorithm> = None;
        let mut shape = Shape { algorithm, burst: None, queue: None, aligned: false };
        while let Some(Token::Word(word)) = self.peek() {
            self.next();
            let is_twice = match word {
                "aligned" => std::mem::replace(&mut shape.aligned, true),
                "burst" => shape.burst.replace(self.number("burst")?).is_some(),
                "queue" => shape.queue.replace(self.number("queue")?).is_some(),
                name => named.replace(name.parse()?).is_some(),
            };
            if is_twice {
                return Err(self.wrong("each word once, and one algorithm at most"));
            }
        }
        Ok(Shape { algorithm: named.unwrap_or(algorithm), ..shape })
    }

    fn tiers(&mut self) -> Result<Quotas, InvalidInput> {
        self.next();
        let mut limits = Vec::with_capacity(TIERS.len());
        while let Some(Token::Word(name)) = self.peek() {
            self.next();
            if !self.eat(Token::Symbol('=')) && !self.eat(Token::Symbol(':')) {
                return Err(self.wrong(&format!("`=` after `{name}`")));
            }
            limits.push((name, self.number(name)?));
            if !self.eat(Token::Symbol(',')) {
                break;
            }
        }
        if !self.eat(Token::Symbol('}')) {
            return Err(self.wrong("`}` after the tiers"));
        }
        let algorithm = match self.peek() {
            Some(Token::Word(name)) => {
                self.next();
                name.parse()?
            }
            _ => Algorithm::TokenBucket,
        };
        Quotas::tiers(algorithm, &limits)
    }
}

/// What stands behind the window.
struct Shape {
    algorithm: Algorithm,
    burst: Option<u64>,
    queue: Option<u64>,
    aligned: bool,
}

impl Shape {
    fn apply(&self, quota: Quota) -> Result<Quota, InvalidInput> {
        let quota = if self.aligned { quota.aligned()? } else { quota };
        let quota = self.burst.map_or(Ok(quota), |burst| quota.with_burst(burst))?;
        self.queue.map_or(Ok(quota), |queue| quota.with_queue(queue))
    }
}

impl fmt::Display for Quota {
    /// Writes what [`FromStr`] reads back as the same quota.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.limit)?;
        if let Some(calendar) = self.calendar {
            return write!(f, "{calendar}");
        }
        let (count, unit) = window_words(self.window_micros);
        if count > 1 {
            write!(f, "{count}")?;
        }
        f.write_str(unit)?;
        match self.algorithm {
            Algorithm::TokenBucket if self.extra == self.limit => Ok(()),
            Algorithm::TokenBucket => write!(f, " burst {}", self.extra),
            Algorithm::LeakyBucket if self.extra > 0 => write!(f, " leaky_bucket queue {}", self.extra),
            algorithm if self.aligned => write!(f, " {algorithm} aligned"),
            algorithm => write!(f, " {algorithm}"),
        }
    }
}

fn window_words(micros: u64) -> (u64, &'static str) {
    [("d", seconds(86_400)), ("h", seconds(3_600)), ("min", seconds(60)), ("s", seconds(1))]
        .into_iter()
        .find(|(_, size)| micros.is_multiple_of(*size))
        .map_or((micros / 1_000, "ms"), |(unit, size)| (micros / size, unit))
}

impl fmt::Display for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [("", quota)] => write!(f, "{quota}"),
            tiers => {
                for (index, (name, quota)) in tiers.iter().enumerate() {
                    let lead = if index == 0 { "{" } else { ", " };
                    write!(f, "{lead}{name}={}", quota.limit)?;
                }
                f.write_str("}")?;
                match tiers.first().map(|(_, quota)| quota.algorithm) {
                    None | Some(Algorithm::TokenBucket) => Ok(()),
                    Some(algorithm) => write!(f, " {algorithm}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, canonical: &str) {
        let quotas: Quotas = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(quotas.to_string(), canonical, "{text}");
        assert_eq!(canonical.parse::<Quotas>().unwrap(), quotas, "{canonical}");
    }

    #[test]
    fn quotas_are_read_as_people_write_them() {
        check("100/60s", "100/min");
        check("10/s burst 20", "10/s burst 20");
        check("1000 per hour", "1000/h");
        check(" 7 per 3 seconds ", "7/3s");
        check("1_000_000/day", "1000000/d");
        check("5/500ms fixed_window", "5/500ms fixed_window");
        check("1/w sliding_log", "1/7d sliding_log");
        check("20/30s concurrency", "20/30s concurrency");
        check("5/s leaky_bucket queue 10", "5/s leaky_bucket queue 10");
        check("5/s leaky_bucket", "5/s leaky_bucket");
        check("100/15min fixed_window aligned", "100/15min fixed_window aligned");
        check("100 per 7 s aligned fixed_window", "100/7s fixed_window aligned");
        check("0/s", "0/s");
        check("0 per calendar month", "0/calendar month");
        check("0/s leaky_bucket queue 0", "0/s leaky_bucket");
        check("{rps=0, rpm=1000}", "{rps=0, rpm=1000}");
        check("500 per calendar month", "500/calendar month");
        check("500/calendar day +05:30", "500/calendar day +05:30");
        check("500/calendar day -8 fixed_window", "500/calendar day -08:00");
        check("{rps=20, rpm=1000, rph=50000, rpd=100000}", "{rps=20, rpm=1000, rph=50000, rpd=100000}");
        check("{rpd: 7} fixed_window", "{rpd=7} fixed_window");
    }

    #[test]
    fn tiers_are_recommended_only_where_they_may_stand() {
        for text in ["{rps=20, rpm=1000}", "fast"] {
            let error = text.parse::<Quota>().unwrap_err();
            assert!(!error.expected.contains("rps"), "{error}");
        }
        let error = "{rps=20, rpm=1000}".parse::<Quota>().unwrap_err();
        assert!(error.expected.starts_with("one quota, and tiers are several; write"), "{error}");
        assert!("fast".parse::<Quotas>().unwrap_err().expected.contains("`{rps=20, rpm=1000}`"));
    }

    #[test]
    fn wrong_text_is_told_what_would_be_right() {
        let cases = [
            ("", "a whole number first"),
            ("abc", "a whole number first"),
            ("-1/s", "a whole number first"),
            ("1.5/s", "`/` or `per` after the limit"),
            ("100", "`/` or `per` after the limit"),
            ("1000000001/s", "from 0 to 1000000000"),
            ("99999999999999999999999/s", "limit: got 18446744073709551615; expected"),
            ("1/0s", "window: got 0ns"),
            ("1/367d", "366 days"),
            ("1/18446744073709551615d", "366 days"),
            ("1/5us", "ms, s, min, h, d or w in the window"),
            ("1/month", "a month has no fixed length"),
            ("1/s burst", "a whole number after `burst`"),
            ("1/s burst 0", "burst: got 0"),
            ("1/s fixed_window burst 3", "burst: got a burst on fixed_window"),
            ("1/s queue 3", "queue: got a queue on token_bucket"),
            ("1/s tokenbucket", "one of fixed_window, sliding_window"),
            ("1/s !", "nothing at `!`"),
            ("1/calendar year", "after `calendar`"),
            ("1/calendar day +15:00", "offset: got 900"),
            ("1/calendar day +1:75", "an offset such as +02:00"),
            ("1/calendar day token_bucket", "only it can follow the calendar"),
            ("10001/s sliding_log", "from 0 to 10000"),
            ("5/s burst 3 burst 4", "each word once, and one algorithm at most"),
            ("5/s leaky_bucket queue 3 queue 3", "each word once, and one algorithm at most"),
            ("5/s fixed_window sliding_log", "each word once, and one algorithm at most"),
            ("5/s token_bucket burst 3 token_bucket", "each word once, and one algorithm at most"),
            ("{rps=1} fixed_window sliding_log", "nothing at `sliding_log`"),
            ("5/s aligned", "got aligned windows of token_bucket; expected fixed_window off the calendar"),
            ("5/calendar day aligned", "got aligned windows of fixed_window on the calendar"),
            ("5/s fixed_window aligned aligned", "each word once, and one algorithm at most"),
            ("0/s burst 3", "burst: got 3 on a limit of 0; expected none: nothing passes"),
            ("0/s leaky_bucket queue 3", "queue: got 3 on a limit of 0; expected none: nothing passes"),
            ("{}", "at least one of rps"),
            ("{rps=1, rps=2}", "each tier once"),
            ("{rpx=1}", "rps, rpm, rph or rpd"),
            ("{rps}", "`=` after `rps`"),
            ("{rps=1", "`}` after the tiers"),
            ("{rps=x}", "a whole number after `rps`"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Quotas>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?} gave {error:?}, without {expected:?}");
        }
        assert!("1".repeat(TEXT_BYTES_MAX + 1).parse::<Quota>().is_err());
    }
}
