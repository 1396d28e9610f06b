//! Reading what a node says of its cluster. It may be anybody who says so.

use std::collections::{BTreeSet, HashMap};

use ::redis::{ErrorKind, RedisError, Value, from_redis_value};

use super::super::super::redirect::{HOST_BYTES_MAX, Place};
use super::super::super::tag::SLOTS;
use super::super::NODES_MAX;
use super::{Range, Survey};

/// Ranges of slots in one answer: each slot alone at most.
const RANGES_MAX: usize = SLOTS as usize;

/// What a node has answered to `CLUSTER INFO` and `CLUSTER SLOTS`.
pub(super) fn read(info: Value, slots: Value) -> Result<Survey, RedisError> {
    let info: String = from_redis_value(info).map_err(|_| garbled())?;
    let fields: HashMap<&str, &str> = info.lines().filter_map(|line| line.trim().split_once(':')).collect();
    let epoch = fields.get("cluster_current_epoch").and_then(|epoch| epoch.parse().ok());
    let epoch = epoch.ok_or_else(garbled)?;
    let is_ok = fields.get("cluster_state") == Some(&"ok");
    let Value::Array(rows) = slots else { return Err(garbled()) };
    if rows.len() > RANGES_MAX {
        return Err(garbled());
    }
    let ranges = rows.into_iter().map(|row| range(row).ok_or_else(garbled));
    // A node that cannot be named cannot be connected to.
    let ranges = ranges.filter(|range| !matches!(range, Ok(None)));
    let ranges = ranges.map(|range| range?.ok_or_else(garbled)).collect::<Result<Vec<_>, _>>()?;
    let places: BTreeSet<&Place> = ranges.iter().map(|range| &range.place).collect();
    if places.len() > NODES_MAX {
        let got = format!("{} nodes with slots; expected at most {NODES_MAX}", places.len());
        return Err((ErrorKind::UnexpectedReturnType, "names too many nodes", got).into());
    }
    Ok(Survey { epoch, is_ok, ranges })
}

fn garbled() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "no answer of a node of a cluster").into()
}

/// First and last slot, then the primary and its replicas, each with host and port. The inside is `None` of a node
/// whose host is not known; an empty host is that of the node that was asked.
fn range(row: Value) -> Option<Option<Range>> {
    let Value::Array(row) = row else { return None };
    let mut row = row.into_iter();
    let slot = |value: Value| number(value).filter(|slot| *slot < SLOTS);
    let (first, last) = (slot(row.next()?)?, slot(row.next()?)?);
    let Value::Array(primary) = row.next()? else { return None };
    let mut primary = primary.into_iter();
    let host: Option<String> = from_redis_value(primary.next()?).ok()?;
    let port = number(primary.next()?)?;
    if first > last {
        return None;
    }
    let host = host.unwrap_or_default();
    if host == "?" || port == 0 {
        return Some(None);
    }
    // It is connected to, and stands in logs.
    let is_host = host.len() <= HOST_BYTES_MAX && host.bytes().all(|byte| byte.is_ascii_graphic());
    is_host.then_some(Some(Range { first, last, place: Place { host, port } }))
}

/// The client's own way to smaller numbers cuts off what is too much.
fn number(value: Value) -> Option<u16> {
    u16::try_from(from_redis_value::<i64>(value).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_current_epoch:7\r\n";

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), text("0123456789abcdef"), Value::Array(Vec::new())])
    }

    fn row(first: i64, last: i64, primary: Value) -> Value {
        let replica = node(text("replica"), 7);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary, replica])
    }

    fn survey(rows: Vec<Value>) -> Result<Survey, String> {
        read(text(INFO), Value::Array(rows)).map_err(|error| error.to_string())
    }

    fn place(host: &str, port: u16) -> Place {
        Place { host: host.to_owned(), port }
    }

    #[test]
    fn primaries_have_slots() {
        let rows = vec![row(0, 99, node(text("a"), 6_379)), row(100, 16_383, node(text("::1"), 65_535))];
        let survey = survey(rows).unwrap();
        assert_eq!((survey.epoch, survey.is_ok, survey.covered()), (7, true, 16_384));
        let ranges = [(0, 99, place("a", 6_379)), (100, 16_383, place("::1", 65_535))];
        assert_eq!(survey.ranges, ranges.map(|(first, last, place)| Range { first, last, place }));
        assert_eq!(survey.trouble(), None);
    }

    /// A null is what a node says that wants to be asked at whatever address it was found.
    #[test]
    fn a_host_that_is_not_said_is_the_one_that_was_asked() {
        for host in [Value::Nil, text("")] {
            let survey = survey(vec![row(0, 1, node(host, 6_379))]).unwrap();
            assert_eq!(survey.ranges[0].place, place("", 6_379));
            assert_eq!(survey.asked_at("10.0.0.7:7000").ranges[0].place, place("10.0.0.7", 6_379));
        }
    }

    #[test]
    fn a_node_that_cannot_be_found_has_its_slots_to_itself() {
        for unknown in [node(text("?"), 6_379), node(text("a"), 0)] {
            let survey = survey(vec![row(0, 9, unknown), row(10, 11, node(text("b"), 1))]).unwrap();
            assert_eq!((survey.ranges.len(), survey.covered()), (1, 2));
            assert!(survey.trouble().unwrap().starts_with("2 of 16384 slots are on a node"));
        }
    }

    #[test]
    fn ranges_that_overlap_do_not_hide_what_is_missing() {
        let one = || row(0, 8_191, node(text("a"), 1));
        let survey = survey(vec![one(), one(), row(8_000, 8_200, node(text("b"), 1))]).unwrap();
        assert_eq!(survey.covered(), 8_201);
        assert!(survey.trouble().unwrap().starts_with("8201 of 16384 slots are on a node"));
    }

    #[test]
    fn what_is_no_answer_of_a_node_is_refused() {
        let good = || node(text("a"), 6_379);
        let short = |length: usize| match row(0, 1, good()) {
            Value::Array(mut row) => {
                row.truncate(length);
                Value::Array(row)
            }
            other => other,
        };
        let long_host = "h".repeat(HOST_BYTES_MAX + 1);
        let rows = [
            Value::Nil,
            text("0 1"),
            Value::Array(Vec::new()),
            short(1),
            short(2),
            row(1, 0, good()),
            row(-1, 0, good()),
            row(0, 16_384, good()),
            row(0, 65_536, good()),
            Value::Array(vec![text("a"), Value::Int(1), good()]),
            row(0, 1, Value::Nil),
            row(0, 1, Value::Array(Vec::new())),
            row(0, 1, Value::Array(vec![text("a")])),
            row(0, 1, node(text("a"), -1)),
            row(0, 1, node(text("a"), 65_536)),
            row(0, 1, node(Value::Array(Vec::new()), 1)),
            row(0, 1, node(Value::BulkString(vec![0xff]), 1)),
            row(0, 1, node(text("a\nb"), 1)),
            row(0, 1, node(text("a b"), 1)),
            row(0, 1, node(text(&long_host), 1)),
        ];
        for wrong in rows {
            let error = survey(vec![row(0, 1, good()), wrong.clone()]).unwrap_err();
            assert!(error.contains("no answer of a node of a cluster"), "{wrong:?}: {error}");
        }
        for info in ["", "cluster_state:ok", "cluster_current_epoch:x", "cluster_current_epoch:-1"] {
            assert!(read(text(info), Value::Array(Vec::new())).is_err(), "{info}");
        }
        assert!(read(text(INFO), Value::Nil).is_err());
        assert!(read(Value::Nil, Value::Array(Vec::new())).is_err());
        let fail = INFO.replace(":ok", ":fail");
        assert!(!read(text(&fail), Value::Array(Vec::new())).unwrap().is_ok);
    }

    #[test]
    fn an_answer_is_bounded() {
        let rows = |count: usize, ports: usize| -> Vec<Value> {
            let row = |slot: usize| row(slot as i64, slot as i64, node(text("a"), (slot % ports + 1) as i64));
            (0..count).map(|slot| row(slot % RANGES_MAX)).collect()
        };
        let full = survey(rows(RANGES_MAX, NODES_MAX)).unwrap();
        assert_eq!((full.ranges.len(), full.covered()), (RANGES_MAX, RANGES_MAX));
        let error = survey(rows(RANGES_MAX, NODES_MAX + 1)).unwrap_err();
        assert!(error.contains("1001 nodes with slots; expected at most 1000"), "{error}");
        assert!(survey(rows(RANGES_MAX + 1, 1)).is_err());
    }
}
