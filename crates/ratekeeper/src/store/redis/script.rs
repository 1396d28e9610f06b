//! The script, put together from its parts, and the layouts it shares with the library.

/// The script, for those who want to read what runs on their server.
///
/// Most checks go the short way, at the end. Everything else is in a function, so that its parts cost
/// the short way nothing: the server runs the whole text with each call.
pub const SCRIPT: &str = concat!(
    include_str!("script/contract.lua"),
    "\nlocal function general()\n",
    include_str!("script/layout.lua"),
    include_str!("script/batch.lua"),
    include_str!("script/writing.lua"),
    include_str!("script/numbers.lua"),
    include_str!("script/bucket.lua"),
    include_str!("script/fixed.lua"),
    include_str!("script/sliding.lua"),
    include_str!("script/step.lua"),
    include_str!("script/overrides.lua"),
    include_str!("script/kit.lua"),
    include_str!("script/ordinary.lua"),
    "\n-- What is left: clocks that step, quotas that change, logs and leases, ids, refunds. Made only\n",
    "-- when it is needed, because making functions takes time.\n",
    "local function prepare_careful()\n",
    include_str!("script/calendar.lua"),
    include_str!("script/charges.lua"),
    include_str!("script/list.lua"),
    include_str!("script/blocks.lua"),
    include_str!("script/log.lua"),
    include_str!("script/leases.lua"),
    include_str!("script/lists_written.lua"),
    include_str!("script/record.lua"),
    include_str!("script/admit.lua"),
    include_str!("script/debts.lua"),
    include_str!("script/penalties.lua"),
    include_str!("script/judge.lua"),
    include_str!("script/ids.lua"),
    include_str!("script/adjust.lua"),
    "end\n\n",
    include_str!("script/frame.lua"),
    "end\n\n",
    include_str!("script/layout.lua"),
    include_str!("script/short.lua"),
    include_str!("script/short_overrides.lua"),
    include_str!("script/short_items.lua"),
    include_str!("script/short_writes.lua"),
);

// The layouts of `script/layout.lua`, `script/batch.lua` and `script/adjust.lua`, whose tests are below.

/// The format of values that the script writes.
pub(super) const FORMAT: u8 = 2;
/// Bytes of a batch before its plans.
pub(super) const HEADER_BYTES: usize = 20;
/// Bytes of a plan before its groups.
pub(super) const PLAN_BYTES: usize = 6;
/// Bytes of a group before its values' beginning.
pub(super) const GROUP_BYTES: usize = 3;
/// Bytes of how a group's value is told, behind its beginning.
pub(super) const TOLD_BYTES: usize = 3;
/// Bytes of a counter's terms in a group.
pub(super) const TERMS_BYTES: usize = 28;
/// Bytes of a charge.
pub(super) const CHARGE_BYTES: usize = 55;
/// Bytes of a value before its counters.
pub(super) const HEAD_BYTES: usize = 4;
/// Bytes of the part of a counter that seldom changes.
pub(super) const FIXED_BYTES: usize = 20;
/// Bytes of the time to live, between the parts that seldom change and those that do.
pub(super) const TTL_BYTES: usize = 8;
/// Bytes of the number between those: how far ahead a bucket may be, the length of a fixed window,
/// the present count of a sliding one.
pub(super) const B_BYTES: usize = 8;
/// Bytes of the part of a counter that changes with every charge.
pub(super) const MOVING_BYTES: usize = 12;
/// The most counters of a rule and key in which something counts: how many there are is told in a byte.
pub(super) const COUNTERS_MAX: u8 = u8::MAX;
/// Keys live at least so many milliseconds if the caller brings the time.
pub(super) const TEST_TTL_MILLIS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ratekeeper_core::algorithm::DEBT_WINDOWS_MAX;
    use ratekeeper_core::{Algorithm, ENTRIES_MAX, LIMIT_MAX, WINDOW_MILLIS_MAX, WINDOWS_MAX};

    use super::super::override_hash::RENEWED_MICROS;
    use super::super::{answer, encode, penal};
    use super::*;

    /// The names that lines `local A, B = 1, 'x'` at the left margin of a part define.
    fn defined(part: &str) -> HashMap<&str, &str> {
        let assignments = part.lines().filter_map(|line| line.strip_prefix("local ")?.split_once(" = "));
        let pairs = assignments.flat_map(|(names, values)| {
            let values = values.split("--").next().unwrap_or_default();
            names.split(',').zip(values.split(',')).map(|(name, value)| (name.trim(), value.trim()))
        });
        pairs.filter(|(name, _)| !name.bytes().any(|byte| byte.is_ascii_lowercase())).collect()
    }

    fn layout() -> HashMap<&'static str, &'static str> {
        let parts = [
            include_str!("script/layout.lua"),
            include_str!("script/batch.lua"),
            include_str!("script/charges.lua"),
            include_str!("script/list.lua"),
            include_str!("script/record.lua"),
            include_str!("script/penalties.lua"),
            include_str!("script/ids.lua"),
            include_str!("script/adjust.lua"),
            include_str!("script/short.lua"),
        ];
        parts.into_iter().flat_map(defined).collect()
    }

    /// How many bytes a format of Lua's `struct` has.
    fn bytes_of(format: &str) -> usize {
        let mut bytes = 0;
        let mut letters = format.trim_matches('\'').trim_start_matches('<').chars().peekable();
        while let Some(letter) = letters.next() {
            let digit = letters.next_if(char::is_ascii_digit).and_then(|digit| digit.to_digit(10));
            bytes += match (letter, digit) {
                ('B', None) => 1,
                ('h', None) => 2,
                ('d', None) => 8,
                ('I' | 'c', Some(size)) => size as usize,
                other => panic!("{other:?} in {format}"),
            };
        }
        bytes
    }

    #[test]
    fn the_script_and_the_library_have_the_same_layouts() {
        let layout = layout();
        let number = |name: &str| layout[name].parse::<u64>().unwrap();
        let expected: [(&str, u64); 22] = [
            ("FORMAT", FORMAT.into()),
            ("PLAN_BYTES", PLAN_BYTES as u64),
            ("GROUP_BYTES", GROUP_BYTES as u64),
            ("TOLD_BYTES", TOLD_BYTES as u64),
            ("TERMS_BYTES", TERMS_BYTES as u64),
            ("CHARGE_BYTES", CHARGE_BYTES as u64),
            ("HEAD_BYTES", HEAD_BYTES as u64),
            ("FIXED_BYTES", FIXED_BYTES as u64),
            ("TTL_BYTES", TTL_BYTES as u64),
            ("B_BYTES", B_BYTES as u64),
            ("MOVING_BYTES", MOVING_BYTES as u64),
            ("WINDOWS_MAX", WINDOWS_MAX as u64),
            ("COUNTERS_MAX", COUNTERS_MAX.into()),
            ("TEST_TTL", TEST_TTL_MILLIS),
            ("LIMIT_MAX", LIMIT_MAX.into()),
            ("ENTRIES_MAX", ENTRIES_MAX.into()),
            ("WINDOW_MAX", WINDOW_MILLIS_MAX * 1_000),
            ("U32_MAX", u32::MAX.into()),
            ("RENEWED", RENEWED_MICROS / 1_000),
            ("DEBT_WINDOWS_MAX", DEBT_WINDOWS_MAX),
            ("KIT", encode::KIT.into()),
            ("CHANGE_BYTES", encode::CHANGE_BYTES as u64),
        ];
        for (name, value) in expected {
            assert_eq!(number(name), value, "{name}");
        }
        let algorithms = ["FIXED", "SLIDING", "LOG", "TOKEN", "LEAKY", "LEASES"].map(number);
        assert_eq!(algorithms, Algorithm::ALL.map(|algorithm| algorithm as u64));
    }

    #[test]
    fn formats_have_the_bytes_that_are_said_of_them() {
        let layout = layout();
        let formats = [
            ("PLAN", "PLAN_BYTES"),
            ("TERMS", "TERMS_BYTES"),
            ("CHARGE", "CHARGE_BYTES"),
            ("HEAD", "HEAD_BYTES"),
            ("FIXED_PART", "FIXED_BYTES"),
            ("TTL", "TTL_BYTES"),
            ("NUMBER_PART", "B_BYTES"),
            ("MOVING_PART", "MOVING_BYTES"),
            ("PENALTY", "PENALTY_BYTES"),
            ("ID", "ID_BYTES"),
            ("LIST", "LIST_BYTES"),
            ("INDEX", "INDEX_BYTES"),
            ("BLOCK", "BLOCK_BYTES"),
            ("ENTRY", "ENTRY_BYTES"),
            ("HOLDER", "HOLDER_BYTES"),
            ("NOTE", "NOTE_BYTES"),
            ("ADJUST", "ADJUST_BYTES"),
            ("CHANGE", "CHANGE_BYTES"),
        ];
        for (format, bytes) in formats {
            assert_eq!(bytes_of(layout[format]), layout[bytes].parse::<usize>().unwrap(), "{format}");
        }
        assert_eq!(bytes_of(layout["HEADER"]), HEADER_BYTES);
    }

    /// What the script takes for a flag is what the library sets.
    #[test]
    fn the_script_and_the_library_have_the_same_flags() {
        // One bit: the remainder by the next one tells it, if that is not beyond the highest.
        let is_set = |flag: u8| match u16::from(flag) * 2 {
            2 => "flags % 2 == 1".to_owned(),
            beyond => format!("flags % {beyond} >= {flag}"),
        };
        let of_charges = include_str!("script/charges.lua");
        let named = [
            ("shadow", encode::SHADOW),
            ("overridable", encode::OVERRIDABLE),
            ("lifted", encode::LIFTED),
            ("blocked", encode::BLOCKED),
            ("closed", encode::CLOSED_BUCKET),
        ];
        for (name, flag) in named {
            let expected = format!("{name} = {}", is_set(flag));
            assert!(of_charges.contains(&expected), "{expected}");
        }
        let expected = format!("if {} then", is_set(encode::BY_THE_CLOCK));
        assert!(of_charges.contains(&expected), "{expected}");
        let expected = format!("any_window = flags >= {},", encode::ANY_WINDOW);
        assert!(of_charges.contains(&expected) && encode::ANY_WINDOW == 64, "{expected}: the highest");
        assert!(of_charges.contains(&format!("aligned = parts[14] == {}", encode::ALIGNED)));
        let of_penalties = include_str!("script/penalties.lua");
        for (name, flag) in [("shadow", penal::SHADOW), ("counts", penal::COUNTS)] {
            let expected = format!("{name} = {}", is_set(flag));
            assert!(of_penalties.contains(&expected), "{expected}");
        }
        assert!(of_penalties.contains(&format!("offences = flags >= {} and", penal::GROWS)));
        // The ordinary way takes charges with no other flags than these.
        let ordinary = include_str!("script/ordinary.lua");
        assert!(ordinary.contains(&format!("if flags > {} or", encode::SHADOW | encode::OVERRIDABLE)));
        assert!(ordinary.contains(&format!("if flags >= {} then pos = pos + 4 end", encode::OVERRIDABLE)));
    }

    /// Every status of an answer is written where the script says so, and nowhere else.
    #[test]
    fn the_script_and_the_library_have_the_same_statuses() {
        let written = [
            ("script/judge.lua", include_str!("script/judge.lua"), vec![answer::ALLOWED, answer::DENIED]),
            (
                "script/ordinary.lua",
                include_str!("script/ordinary.lua"),
                vec![answer::ALLOWED, answer::DENIED],
            ),
            (
                "script/short_items.lua",
                include_str!("script/short_items.lua"),
                vec![answer::ALLOWED, answer::DENIED],
            ),
            (
                "script/ids.lua",
                include_str!("script/ids.lua"),
                vec![answer::OTHER_CHECK, answer::TOO_MANY_WINDOWS, answer::TOO_MANY_COUNTERS],
            ),
            (
                "script/adjust.lua",
                include_str!("script/adjust.lua"),
                vec![
                    answer::ADJUSTED,
                    answer::ALREADY,
                    answer::LAPSED,
                    answer::UNKNOWN,
                    answer::COUNTED,
                    answer::NOTHING_COUNTED,
                ],
            ),
        ];
        for (name, part, statuses) in written {
            for status in statuses {
                assert!(part.contains(&format!("'\\{status}'")), "{name}: {status}");
            }
        }
        assert!(SCRIPT.contains(&format!("pack('<BI2', {}, k)", answer::UNREADABLE)));
        assert!(SCRIPT.contains(&format!("pack('<BI4', {}, #known.value)", answer::REPEATED)));
        let refused = SCRIPT.matches("pack('<BB', ").count();
        let expected = format!("pack('<BB', {}, #deny_writes)", answer::NOT_WRITTEN);
        assert_eq!(SCRIPT.matches(&expected).count(), refused, "{expected}");
    }

    /// The short way has some lengths as texts.
    #[test]
    fn the_short_way_knows_the_layout() {
        let layout = layout();
        let moving_at = |count| HEAD_BYTES + (FIXED_BYTES + B_BYTES) * count + TTL_BYTES;
        assert_eq!(layout["ONE_AT"], format!("'{}'", moving_at(1)));
        assert_eq!(layout["FOUR_AT"], format!("'{}'", moving_at(4)));
        // A record begins with its tag, and behind that is its window.
        let record = layout["FIXED_PART"].trim_matches('\'');
        let (tag, _) = record.split_once('d').unwrap();
        assert_eq!(layout["TAG_BYTES"], bytes_of(tag).to_string());
        assert_eq!(layout["NUMBER_PART"], "'<d'", "a window");
        let charge = layout["CHARGE"].trim_matches('\'');
        let before_cost = bytes_of(charge.strip_suffix("I4I4ddI4dI4I4Bh").unwrap());
        assert!(SCRIPT.contains(&format!("local COST_AFTER = {before_cost} ")));
        let plan = layout["PLAN"].trim_matches('\'').to_owned();
        assert_eq!(layout["FIRST_GROUP"], format!("'{plan}{}'", "B".repeat(GROUP_BYTES)));
        let terms = layout["TERMS"].trim_matches('\'');
        // Of the numbers of quotas that most rules have, the format is written out.
        for size in [1, 3, 4] {
            let front = HEAD_BYTES + (FIXED_BYTES + B_BYTES) * size;
            let expected = format!("'<c{front}c{TOLD_BYTES}{}'", terms.repeat(size));
            assert!(SCRIPT.contains(&expected), "{expected}");
        }
    }
}
