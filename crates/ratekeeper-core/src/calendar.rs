//! Windows that begin on the clock: the minute, hour, day, week, month.
//!
//! Integer civil-date arithmetic (proleptic Gregorian), so that a script in a
//! store can repeat it exactly. Offsets from UTC are fixed: a window that
//! follows daylight saving would be an hour longer once a year.

use std::fmt;

use crate::error::{Field, InvalidInput};
use crate::time::MICROS_PER_SECOND;

/// The furthest an offset may be from UTC, in minutes (as in ISO 8601).
pub const OFFSET_MINUTES_MAX: i16 = 14 * 60;

const DAY: u64 = 86_400 * MICROS_PER_SECOND;

/// The part of the calendar a window covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From second 0 to second 0.
    Minute,
    /// From minute 0 to minute 0.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From Monday's midnight to the next (ISO 8601 weeks).
    Week,
    /// From the first of the month to the first of the next.
    Month,
}

impl CalendarUnit {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            CalendarUnit::Minute => "minute",
            CalendarUnit::Hour => "hour",
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
        }
    }

    /// The longest it can be, in microseconds (31 days for a month).
    #[must_use]
    pub const fn longest_micros(self) -> u64 {
        match self {
            CalendarUnit::Minute => 60 * MICROS_PER_SECOND,
            CalendarUnit::Hour => 3_600 * MICROS_PER_SECOND,
            CalendarUnit::Day => DAY,
            CalendarUnit::Week => 7 * DAY,
            CalendarUnit::Month => 31 * DAY,
        }
    }
}

/// A calendar unit in a fixed offset from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    unit: CalendarUnit,
    offset_minutes: i16,
}

impl Calendar {
    /// `unit` in UTC.
    #[must_use]
    pub const fn utc(unit: CalendarUnit) -> Self {
        Self { unit, offset_minutes: 0 }
    }

    /// `unit` in a zone `offset_minutes` east of UTC (negative: west).
    ///
    /// # Errors
    /// If the offset is beyond fourteen hours.
    pub fn with_offset(unit: CalendarUnit, offset_minutes: i16) -> Result<Self, InvalidInput> {
        if offset_minutes.unsigned_abs() > OFFSET_MINUTES_MAX.unsigned_abs() {
            let expected = format!("minutes from -{OFFSET_MINUTES_MAX} to {OFFSET_MINUTES_MAX}");
            return Err(InvalidInput::new(Field::Offset, offset_minutes, expected));
        }
        Ok(Self { unit, offset_minutes })
    }

    /// The unit.
    #[must_use]
    pub const fn unit(self) -> CalendarUnit {
        self.unit
    }

    /// Minutes east of UTC.
    #[must_use]
    pub const fn offset_minutes(self) -> i16 {
        self.offset_minutes
    }

    /// The window that holds `now`: its first instant and the first after it.
    ///
    /// Both in microseconds since the epoch; the start is cut at 0.
    #[must_use]
    pub fn window_at(self, now_micros: u64) -> (u64, u64) {
        let offset = i64::from(self.offset_minutes) * 60 * MICROS_PER_SECOND.cast_signed();
        let local = now_micros.cast_signed() + offset;
        let (start, end) = match self.unit {
            CalendarUnit::Month => month_around(local),
            // 1970-01-01 was a Thursday: Monday's count starts four days later.
            CalendarUnit::Week => multiple_around(local, 7 * DAY.cast_signed(), 4 * DAY.cast_signed()),
            unit => multiple_around(local, unit.longest_micros().cast_signed(), 0),
        };
        (to_utc(start, offset), to_utc(end, offset))
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "calendar {}", self.unit.as_str())?;
        if self.offset_minutes != 0 {
            let sign = if self.offset_minutes < 0 { '-' } else { '+' };
            let minutes = self.offset_minutes.unsigned_abs();
            write!(f, " {sign}{:02}:{:02}", minutes / 60, minutes % 60)?;
        }
        Ok(())
    }
}

fn to_utc(local: i64, offset: i64) -> u64 {
    (local - offset).max(0).cast_unsigned()
}

fn multiple_around(local: i64, length: i64, phase: i64) -> (i64, i64) {
    let start = (local - phase).div_euclid(length) * length + phase;
    (start, start + length)
}

fn month_around(local: i64) -> (i64, i64) {
    let day = DAY.cast_signed();
    let (year, month) = civil_from_days(local.div_euclid(day));
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    (days_from_civil(year, month) * day, days_from_civil(next_year, next_month) * day)
}

/// Days from the epoch to the first of a month.
///
/// Years are counted from March, so that the leap day is the last of the year
/// and the months before it follow one line: `(153 m + 2) / 5` days.
fn days_from_civil(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The year and month of a day counted from the epoch.
fn civil_from_days(days: i64) -> (i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(calendar: Calendar, now_secs: u64, start_secs: u64, end_secs: u64) {
        let (start, end) = calendar.window_at(now_secs * MICROS_PER_SECOND);
        let found = (start / MICROS_PER_SECOND, end / MICROS_PER_SECOND);
        assert_eq!(found, (start_secs, end_secs), "{calendar} at {now_secs}");
    }

    // The instants come from `date -u -d ... +%s`.
    #[test]
    fn windows_begin_on_the_clock() {
        let noon = 1_709_208_000; // 2024-02-29T12:00:00Z, a Thursday
        check(Calendar::utc(CalendarUnit::Minute), noon + 59, noon, noon + 60);
        check(Calendar::utc(CalendarUnit::Hour), noon + 3_599, noon, noon + 3_600);
        check(Calendar::utc(CalendarUnit::Day), noon, 1_709_164_800, 1_709_251_200);
        check(Calendar::utc(CalendarUnit::Week), noon, 1_708_905_600, 1_709_510_400);
        check(Calendar::utc(CalendarUnit::Month), noon, 1_706_745_600, 1_709_251_200);
    }

    #[test]
    fn an_offset_moves_midnight() {
        let noon = 1_709_208_000;
        let day = |minutes| Calendar::with_offset(CalendarUnit::Day, minutes).unwrap();
        check(day(120), noon, 1_709_157_600, 1_709_244_000);
        check(day(-330), noon, 1_709_184_600, 1_709_271_000);
        // In Auckland's winter it is already Friday, 1 March, past 13:00 UTC.
        let month = Calendar::with_offset(CalendarUnit::Month, 720).unwrap();
        check(month, noon, 1_709_208_000, 1_711_886_400);
        for beyond in [841, -841, i16::MAX, i16::MIN] {
            let error = Calendar::with_offset(CalendarUnit::Day, beyond).unwrap_err().to_string();
            assert_eq!(error, format!("offset: got {beyond}; expected minutes from -840 to 840"));
        }
    }

    #[test]
    fn months_follow_one_another_for_a_century() {
        let month = Calendar::utc(CalendarUnit::Month);
        let mut start = 0;
        let mut lengths = [0u32; 32];
        for _ in 0..1_200 {
            let (found, end) = month.window_at(start);
            assert_eq!(found, start);
            assert_eq!(month.window_at(end - 1), (start, end));
            lengths[usize::try_from((end - start) / DAY).unwrap()] += 1;
            start = end;
        }
        assert_eq!(start / DAY, 36_525, "1970 to 2069: 25 leap days");
        assert_eq!((lengths[28], lengths[29], lengths[30], lengths[31]), (75, 25, 400, 700));
    }
}
