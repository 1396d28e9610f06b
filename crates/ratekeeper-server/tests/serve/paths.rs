//! One spelling of a path in calls: the table of `testdata/paths.toml`.

use ratekeeper_testkit::paths::spellings;
use serde_json::json;

use crate::calls::remaining;
use crate::rig::Setup;

#[test]
fn every_spelling_of_the_table_is_one_path() {
    let policy = "service = \"s\"\n[[rules]]\nname = \"r\"\nkeys = \"{path}\"\nquota = \"1000/h fixed_window\"\n\
        [[rules]]\nname = \"e\"\nwhen = \"path == '/expensive'\"\nkeys = \"all\"\nquota = \"1000/h fixed_window\"\n";
    let (rig, _) = Setup::policy(policy).in_memory();
    let mut client = rig.client();
    let mut left = |path: &str| remaining(&client.call("/v1/check", &json!({ "path": path })).json());
    for row in spellings() {
        let before = left(&row.path);
        assert_eq!(before.len(), if row.path == "/expensive" { 2 } else { 1 }, "{}", row.path);
        let after: Vec<u64> = before.iter().map(|left| left - 1).collect();
        assert_eq!(left(&row.sent), after, "{} is {}", row.sent, row.path);
    }
}

/// The same by way of a gateway, whose fields are ASCII.
#[test]
fn every_spelling_is_one_path_to_a_gateway() {
    let policy =
        "service = \"s\"\n[[rules]]\nname = \"r\"\nkeys = \"{path}\"\nquota = \"1000/h fixed_window\"\n";
    let (rig, _) = Setup::policy(policy).in_memory();
    let mut client = rig.client();
    let mut rows = spellings();
    rows.retain(|row| row.sent.is_ascii());
    assert!(rows.len() > 20, "{} rows", rows.len());
    for row in rows {
        let before = remaining(&client.call("/v1/check", &json!({ "path": row.path })).json());
        for (family, method, uri) in [
            ("forwarded", "X-Forwarded-Method", "X-Forwarded-Uri"),
            ("original", "X-Original-Method", "X-Original-URI"),
        ] {
            let call = format!("/v1/forward-auth?service=s&fields={family}");
            let fields = [(method, "GET"), (uri, &*row.sent), ("X-Forwarded-For", "192.0.2.1")];
            let told = client.ask("GET", &call, &fields, b"");
            assert_eq!(told.status, 200, "{}: {told:?}", row.sent);
        }
        let after = remaining(&client.call("/v1/check", &json!({ "path": row.path })).json());
        assert_eq!(after[0] + 3, before[0], "{} is {}", row.sent, row.path);
    }
}

/// A client may name the host in the first line of a request; servers route it by its path.
#[test]
fn a_host_before_the_path_is_no_part_of_it() {
    let policy = "service = \"s\"\n[[rules]]\nname = \"e\"\nwhen = \"path == '/expensive' && query.q == 'a/b'\"\n\
        keys = \"all\"\nquota = \"1000/h fixed_window\"\n";
    let (rig, _) = Setup::policy(policy).in_memory();
    let mut client = rig.client();
    let mut is_limited = |path: &str| {
        let reply = client.call("/v1/check", &json!({ "path": path })).json();
        !remaining(&reply).is_empty()
    };
    for path in ["/expensive?q=a/b", "http://evil/expensive?q=a/b", "HTTPS://u@evil:80/%65xpensive?q=a/b"] {
        assert!(is_limited(path), "{path}");
    }
    for path in ["http://evil", "http://evil?q=a/b", "://x/expensive?q=a/b", "/http://evil/expensive?q=a/b"] {
        assert!(!is_limited(path), "{path}");
    }
}
