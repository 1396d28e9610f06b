//! The fuzz targets on random input, in every test run. `make fuzz TARGET=json_calls`, `resp_commands` or `grpc_calls` runs one
//! for as long as one likes.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::google::protobuf::UInt64Value;
use proptest::prelude::{Strategy, any, prop, prop_oneof};
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use ratekeeper_server::serve::fuzz::{grpc_calls, json_calls, resp_commands};
use serde_json::Value as Json;

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

/// The calls of the examples: what mostly works is where most can go wrong.
fn examples() -> Vec<String> {
    let document: Json = serde_json::from_str(include_str!("../../src/serve/openapi.json")).unwrap();
    let paths = document["paths"].as_object().unwrap().values();
    let examples = paths.filter_map(|item| {
        item["post"]["requestBody"]["content"]["application/json"]["examples"].as_object()
    });
    examples.flat_map(serde_json::Map::values).map(|example| example["value"].to_string()).collect()
}

#[test]
fn any_bytes_are_answered() {
    runner(2_000)
        .run(&prop::collection::vec(any::<u8>(), 0..200), |bytes| {
            json_calls(&bytes);
            Ok(())
        })
        .unwrap();
}

/// Messages of the whole API with bytes changed, and any bytes.
#[test]
fn any_message_is_answered_or_refused() {
    use crate::grpc::{call, descriptor};
    use prost::Message as _;
    let entries = prop::collection::vec((select(vec!["a", "b", ""]), select(vec!["x", "", "y,%"])), 0..4);
    let one = (entries, any::<bool>(), prop::option::of(any::<u64>()), prop::option::of(any::<(u32, i32)>()));
    let message = prop::collection::vec(one, 0..4).prop_map(|descriptors| {
        let descriptors: Vec<_> = descriptors
            .into_iter()
            .map(|(entries, is_negative_hits, hits, limit)| {
                let mut made = descriptor(&entries);
                made.is_negative_hits = is_negative_hits;
                made.hits_addend = hits.map(|value| UInt64Value { value });
                made.limit = limit
                    .map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit: unit % 9 });
                made
            })
            .collect();
        call(&descriptors).encode_to_vec()
    });
    let changed = (message, prop::collection::vec((any::<Index>(), any::<u8>()), 0..3)).prop_map(
        |(mut bytes, changes)| {
            for (index, byte) in changes {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        },
    );
    let any_bytes = prop::collection::vec(any::<u8>(), 0..200);
    runner(4_000)
        .run(&prop_oneof![3 => changed, 1 => any_bytes], |bytes| {
            grpc_calls(&bytes);
            Ok(())
        })
        .unwrap();
}

/// Examples with pieces cut out, put in, and taken from others.
#[test]
fn calls_that_are_almost_right_are_answered() {
    let pieces = vec![
        "null",
        "-1",
        "1e400",
        "99999999999999999999",
        "\"\"",
        "[]",
        "{}",
        "\\u0000",
        "\u{e9}",
        "\"",
        ",",
        ":",
        "{\"limits\":[]}",
        "1000000000",
        "0",
        "true",
        "concurrency",
        "5/s leaky_bucket queue 1",
        "1700000060000000.0",
        "9007199254740992.4294967295",
        "0.0",
    ];
    let cut = (any::<Index>(), any::<Index>(), select(pieces));
    let mutated = (select(examples()), select(examples()), prop::collection::vec(cut, 0..4), any::<bool>());
    let mutated = mutated.prop_map(|(example, other, cuts, is_spliced)| {
        let mut bytes = example.into_bytes();
        for (from, to, piece) in cuts {
            let (one, two) = (from.index(bytes.len() + 1), to.index(bytes.len() + 1));
            let (from, to) = (one.min(two), one.max(two).min(one.min(two) + 12));
            bytes.splice(from..to, piece.bytes());
        }
        if is_spliced {
            let at = bytes.len() / 2;
            bytes.truncate(at);
            bytes.extend_from_slice(&other.as_bytes()[other.len() / 2..]);
        }
        bytes
    });
    runner(5_000)
        .run(&mutated, |bytes| {
            json_calls(&bytes);
            Ok(())
        })
        .unwrap();
}

/// What a call can say.
#[rustfmt::skip]
const MEMBERS: [&str; 20] = [
    "charges", "on_outage", "service", "method", "path", "route", "query", "headers", "client", "identity", "body", "body_unreadable",
    "key", "cost", "id", "keep_seconds", "hold_seconds", "actual", "units", "decision",
];
/// What a charge can, and what was told of one.
#[rustfmt::skip]
const CHARGE: [&str; 10] =
    ["key", "quota", "algorithm", "cost", "name", "shadow", "flat", "emergency", "overrides", "receipt"];

/// Values of any kind in every member of a call.
#[test]
fn members_of_any_kind_are_answered() {
    let value = prop_oneof![
        any::<u64>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        any::<bool>().prop_map(Json::from),
        "\\PC{0,20}".prop_map(Json::from),
        "[0-9]{1,10}/[0-9]{0,3}(s|min|d)( burst [0-9]{1,9})?".prop_map(Json::from),
        select(vec!["fixed_window", "sliding_log", "concurrency", "lift", "k", "/x?q=1"])
            .prop_map(Json::from),
        select(vec![
            Json::Null,
            serde_json::json!([]),
            serde_json::json!({}),
            serde_json::json!({ "user": "a" })
        ]),
    ];
    let (members, inner) = (select(MEMBERS.to_vec()), select(CHARGE.to_vec()));
    let call = prop::collection::vec((members, value.clone()), 0..5);
    let charge = prop::collection::vec((inner, value), 0..4);
    runner(5_000)
        .run(&(call, charge), |(call, charge)| {
            let object = |members: Vec<(&str, Json)>| -> serde_json::Map<String, Json> {
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            };
            let mut told = object(call);
            let mut inner = object(vec![
                ("key", "k".into()),
                ("quota", "5/s".into()),
                ("name", "n".into()),
                ("cost", 1.into()),
            ]);
            inner.extend(object(charge));
            // Names are few, and this test is not about that.
            inner.insert("name".to_owned(), "n".into());
            json_calls(Json::Object(told.clone()).to_string().as_bytes());
            told.insert("charges".to_owned(), serde_json::json!([inner.clone()]));
            json_calls(Json::Object(told.clone()).to_string().as_bytes());
            told.insert("decision".to_owned(), serde_json::json!({ "limits": [inner] }));
            json_calls(Json::Object(told).to_string().as_bytes());
            Ok(())
        })
        .unwrap();
}

/// Commands of the Redis protocol, cut, joined and changed.
#[test]
fn anything_that_is_almost_a_command_has_a_reply() {
    let pieces = vec![
        "*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$1\r\n9\r\n$2\r\n30\r\n$2\r\n60\r\n",
        "*1\r\n$4\r\nPING\r\n",
        "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n",
        "*2\r\n$7\r\nCOMMAND\r\n$4\r\nDOCS\r\n",
        "*3\r\n$4\r\nECHO\r\n$0\r\n\r\n",
        "cl.throttle k 1 1 1\r\n",
        "*2\r\n$4\r\nAUTH\r\n$21\r\ncorrect-horse-battery\r\n",
        "*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$4\r\nauth\r\n",
        "auth default correct-horse-batter\r\n",
        "HELLO 3 AUTH default correct-horse-battery SETNAME a\r\n",
        "*1\r\n$5\r\nRESET\r\n",
        "POST / HTTP/1.1\r\n",
        "CLIENT SETNAME \"a\\x0a\"\n",
        "info\r\n",
        "*",
        "$",
        "\r\n",
        "-1",
        "0",
        "99999999999",
        "'",
        "\"",
        "\u{0}",
        "x\r\ny",
    ];
    let cut = (any::<Index>(), any::<Index>(), select(pieces.clone()));
    let many = (prop::collection::vec(select(pieces), 0..12), prop::collection::vec(cut, 0..4));
    let changed = many.prop_map(|(pieces, cuts)| {
        let mut bytes = pieces.concat().into_bytes();
        for (from, to, piece) in cuts {
            let (one, two) = (from.index(bytes.len() + 1), to.index(bytes.len() + 1));
            let (from, to) = (one.min(two), one.max(two).min(one.min(two) + 6));
            bytes.splice(from..to, piece.bytes());
        }
        bytes
    });
    let run = |bytes: Vec<u8>| {
        resp_commands(&bytes);
        Ok(())
    };
    runner(10_000).run(&changed, run).unwrap();
    runner(2_000).run(&prop::collection::vec(any::<u8>(), 0..200), run).unwrap();
    resp_commands(&b"PING\r\n".repeat(20_000));
}
