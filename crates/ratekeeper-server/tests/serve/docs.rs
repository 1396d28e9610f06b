//! The examples in `docs/http-api.md`, in order, on one server.

use clap::Args as _;
use ratekeeper_server::serve::api::{
    BATCH_MAX, CLAIMS_MAX, HEADERS_MAX, KEY_BYTES_MAX, LIMIT_SERIES_MAX, PARAMETERS_MAX,
};
use ratekeeper_server::serve::{
    BATCH_BYTES_MAX, BODIES_BYTES_MAX, BODY_BYTES_MAX, CALLS, CONNECTIONS_MAX_DEFAULT, HEAD_BYTES_MAX,
    HEAD_LINES_MAX, HOT_KEYS_MAX, SPANS_MAX, Settings,
};
use serde_json::Value as Json;

use crate::rig::Setup;

const HTTP_API: &str = include_str!("../../../../docs/http-api.md");
const SERVER: &str = include_str!("../../../../docs/server.md");

/// The fenced blocks of a kind.
fn blocks(kind: &str) -> impl Iterator<Item = &'static str> {
    let fence = format!("```{kind}\n");
    HTTP_API.match_indices(&fence).map(|(at, _)| at + fence.len()).collect::<Vec<_>>().into_iter().map(
        |start| {
            let rest = &HTTP_API[start..];
            &rest[..rest.find("```").unwrap()]
        },
    )
}

/// Whether everything that is expected was told; more may have been.
fn tells(told: &Json, expected: &Json) -> bool {
    match (told, expected) {
        (Json::Object(told), Json::Object(expected)) => {
            expected.iter().all(|(name, value)| told.get(name).is_some_and(|told| tells(told, value)))
        }
        (Json::Array(told), Json::Array(expected)) => {
            told.len() == expected.len()
                && told.iter().zip(expected).all(|(told, expected)| tells(told, expected))
        }
        (told, expected) => told == expected,
    }
}

#[test]
fn examples_are_answered_as_they_say() {
    let (rig, _) = Setup::policy(blocks("toml").next().unwrap()).in_memory();
    let mut client = rig.client();
    let mut count = 0;
    for block in blocks("http") {
        let (call, answer) = block.split_once("\n\n").unwrap();
        let (head, body) = call.split_once('\n').unwrap_or((call, ""));
        let (method, path) = head.split_once(' ').unwrap();
        let (status, expected) = answer.split_once('\n').unwrap();
        let reply = client.ask(method, path, &[], body.as_bytes());
        assert_eq!(reply.status.to_string(), status, "{call}\n{}", reply.text());
        let expected: Json =
            serde_json::from_str(expected).unwrap_or_else(|error| panic!("{error}: {expected}"));
        assert!(tells(&reply.json(), &expected), "{call}\n{}", reply.text());
        count += 1;
    }
    assert_eq!(count, HTTP_API.matches("```http").count());
    for path in CALLS.iter().map(|call| call.path).filter(|path| path.starts_with("/v1/")) {
        assert!(
            blocks("http").any(|block| block.lines().next().unwrap().ends_with(&format!(" {path}"))),
            "{path}"
        );
    }
}

#[test]
fn bounds_are_those_that_hold() {
    let told = |text: &str| assert!(HTTP_API.contains(text) || SERVER.contains(text), "{text}");
    told(&format!(
        "{} KiB, batches {} MiB and {BATCH_MAX} checks",
        BODY_BYTES_MAX >> 10,
        BATCH_BYTES_MAX >> 20
    ));
    told(&format!("share {} MiB", BODIES_BYTES_MAX >> 20));
    told(&format!("requests {HEADERS_MAX} headers,\n{PARAMETERS_MAX} parameters and {CLAIMS_MAX} claims"));
    told(&format!("up to {KEY_BYTES_MAX} bytes"));
    told(&format!("metrics tell {LIMIT_SERIES_MAX} apart"));
    told(&format!("Connections: {CONNECTIONS_MAX_DEFAULT}"));
    told(&format!("at most {} KiB and {HEAD_LINES_MAX} lines", HEAD_BYTES_MAX >> 10));
    told(&format!("At most {SPANS_MAX} spans"));
    told(&format!("at most {HOT_KEYS_MAX}, in constant memory"));
}

/// Every setting is a flag, a variable and a field of a file of the same name, and so it is in the table.
#[test]
fn settings_are_those_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ratekeeper.toml");
    let (_, table) = SERVER.split_once("| flag | variable | in the file | default |\n").unwrap();
    let table: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    let command = Settings::augment_args(clap::Command::new("serve"));
    let mut count = 0;
    for argument in command.get_arguments() {
        let field = argument.get_id().as_str();
        let (flag, variable) = (field.replace('_', "-"), format!("RATEKEEPER_{}", field.to_uppercase()));
        assert_eq!(argument.get_long(), Some(flag.as_str()));
        assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(variable.as_str()), "{flag}");
        std::fs::write(&path, format!("{field} = [[]]\n")).unwrap();
        let error = Settings::read(&path).unwrap_err().to_string();
        assert!(error.contains("invalid type"), "the file has it, too: {error}");
        if !argument.is_hide_set() {
            let rows = [format!("| `--{flag} "), format!("| `--{flag}[=")];
            let row = table.iter().find(|row| rows.iter().any(|start| row.starts_with(start.as_str())));
            let row = row.unwrap_or_else(|| panic!("there is no row for --{flag}"));
            assert!(row.contains(&format!("| `{variable}` | `{field}` |")), "{row}");
            count += 1;
        }
    }
    // The token is in the environment alone.
    assert_eq!(table.len(), count + 1);
}
