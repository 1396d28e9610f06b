//! Operators' calls without a token: for whoever is on the machine, and for nobody else.

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
    for field in ["x-forwarded-for: 203.0.113.9", "via: 1.1 proxy", "sec-fetch-site: cross-site"] {
        assert_eq!(hot(&format!("{field}\r\n")), 403, "{field}");
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
