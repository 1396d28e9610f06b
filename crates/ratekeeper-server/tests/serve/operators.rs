//! Operators' calls without a token: for whoever is on the machine, and for nobody else.

use ratekeeper_server::serve::{CALLS, Method};

use crate::client::Client;
use crate::rig::{Rig, Setup};

fn answered(rig: &Rig, request: &str) -> u16 {
    let mut client: Client = rig.client();
    client.send(request.as_bytes());
    client.reply().expect("an answer").status
}

#[test]
fn what_a_proxy_passes_on_is_refused() {
    let (rig, _) = Setup::default().in_memory();
    let hot = |fields: &str| {
        answered(&rig, &format!("GET /v1/hot-keys HTTP/1.1\r\nhost: 127.0.0.1\r\n{fields}\r\n"))
    };
    assert_eq!(hot(""), 200);
    let fields = [
        "x-forwarded-for: 203.0.113.9",
        "X-Forwarded-Prefix: /limits",
        "X-Forwarded-Scheme: https",
        "X-Forwarded-Client-Cert: By=x",
        "via: 1.1 proxy",
        "sec-fetch-site: cross-site",
    ];
    for field in fields {
        assert_eq!(hot(&format!("{field}\r\n")), 403, "{field}");
    }
    for host in ["[::1]evil", "localhost:x@evil", "127.0.0.1:80:80", "evil"] {
        let request = format!("GET /v1/hot-keys HTTP/1.1\r\nhost: {host}\r\n\r\n");
        assert_eq!(answered(&rig, &request), 403, "{host}");
    }
    for target in ["http://evil/v1/hot-keys", "http://localhost/v1/hot-keys"] {
        let request = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert_eq!(answered(&rig, &request), 403, "{target}");
    }
    // As nginx does unless it is told otherwise.
    let nginx = "GET /v1/hot-keys HTTP/1.0\r\nhost: 127.0.0.1:8080\r\nconnection: close\r\n\r\n";
    assert_eq!(answered(&rig, nginx), 403);
    assert_eq!(answered(&rig, "GET /healthz HTTP/1.0\r\n\r\n"), 200, "what is for everybody is");
}

#[test]
fn who_is_asked_is_said_exactly_once() {
    let (rig, _) = Setup::default().in_memory();
    for path in ["/healthz", "/v1/hot-keys", "/nowhere"] {
        assert_eq!(answered(&rig, &format!("GET {path} HTTP/1.1\r\n\r\n")), 400, "{path}");
        let twice = format!("GET {path} HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n");
        assert_eq!(answered(&rig, &twice), 400, "{path}");
    }
}

/// A page of any site can send `text/plain` without asking first.
#[test]
fn pages_in_browsers_reach_no_call_that_writes() {
    const CALL: &str = r#"{"charges":[{"key":"k","quota":"1/h"}]}"#;
    let (rig, _) = Setup::default().in_memory();
    let posts = CALLS.iter().filter(|call| call.method == Method::Post);
    for (call, fields) in posts.flat_map(|call| {
        let of_pages = [
            &[("origin", "http://evil"), ("content-type", "text/plain")][..],
            &[("origin", "null"), ("content-type", "application/json")],
            // A name that was made to resolve to this machine.
            &[("origin", "http://localhost"), ("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "cross-site"), ("content-type", "text/plain")],
            &[("sec-fetch-site", "same-site")],
        ];
        of_pages.map(|fields| (call, fields))
    }) {
        let reply = rig.client().ask("POST", call.path, fields, CALL.as_bytes());
        assert_eq!(reply.status, 403, "{} {fields:?}", call.path);
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    }
    // Nothing was charged, and programs are served: also those that name no type, as curl does.
    for fields in [&[][..], &[("content-type", "text/plain")], &[("sec-fetch-mode", "cors")]] {
        let call = CALL.replace("\"k\"", &format!("\"{}\"", fields.len()));
        assert_ne!(rig.client().ask("POST", "/v1/peek", fields, call.as_bytes()).status, 403, "{fields:?}");
    }
    assert_eq!(rig.client().post("/v1/limit", CALL).status, 200);
}
