//! Notices arrive, signed; and a receiver that is slow, wrong or away disturbs nobody.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Kept, channel};
use std::time::{Duration, Instant};

use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper::{MemoryStore, RedisStore, Store};
use ratekeeper_server::serve::api::Api;
use ratekeeper_server::serve::{Listener, NOTICES_MAX, Receiver, Resp, Sending, Stop, serve_all};
use ratekeeper_testkit::servers::{Flavour, Server};
use ratekeeper_testkit::wait::until;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value as Json, json};

use crate::binary::{Running, command};
use crate::client::PATIENCE;
use crate::resp::{Reply, RespClient};
use crate::rig::RUNTIME;

const SECRET: &str = "a secret of the test, long enough";
const DOCS: &str = include_str!("../../../../docs/notices.md");

/// What arrived: header fields by name, and the body.
struct Arrived {
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Arrived {
    fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("{name}: {:?}", self.fields)).1
    }

    fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A receiver that answers as it is told by how many came before, and keeps what it is sent.
fn receiver(mut answer: impl FnMut(usize, &mut TcpStream) + Send + 'static) -> (SocketAddr, Kept<Arrived>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (keep, kept) = channel();
    // It ends with the test, which nobody waits for any more then.
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let Some((arrived, mut stream)) = receive(stream) else { continue };
            if keep.send(arrived).is_err() {
                return;
            }
            answer(number, &mut stream);
        }
    });
    (address, kept)
}

fn receive<S: Read>(stream: S) -> Option<(Arrived, S)> {
    let mut reader = BufReader::new(stream);
    let mut fields = Vec::new();
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    assert!(line.starts_with("POST /hook?of=ops HTTP/1.1"), "{line}");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        fields.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = fields.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((Arrived { fields, body }, reader.into_inner()))
}

fn ok(stream: &mut impl Write) {
    // One that has gone away is not answered.
    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
}

fn secret_file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    (folder, file)
}

/// An API in this process, whose notices go to an address; it waits for a millisecond before it sends again.
fn api(address: SocketAddr, store: Arc<dyn Store>, quiet: Duration) -> (Arc<Api>, Sending) {
    let _within = RUNTIME.enter();
    let (_folder, secret) = secret_file();
    let receiver = Receiver::at(&format!("http://{address}/hook?of=ops"), None, &secret).unwrap();
    let receiver = receiver.patience(Duration::from_millis(1), quiet);
    let policies = Policies::builder().mode(None).build().unwrap();
    let (api, notifying) = Api::new(PolicyLimiter::on(store, policies)).notifying(receiver);
    let api = Arc::new(api);
    let sending = notifying.start(&api, &Stop::default());
    (api, sending)
}

fn in_memory(address: SocketAddr) -> (Arc<Api>, Sending) {
    api(address, Arc::new(MemoryStore::new()), Duration::from_secs(1))
}

fn charge(api: &Api, key: &str, quota: &str) -> u16 {
    let call = json!({ "charges": [{ "key": key, "quota": quota, "name": "n" }] });
    RUNTIME.block_on(api.limit(call.to_string().as_bytes())).status
}

fn next(kept: &Kept<Arrived>) -> Json {
    kept.recv_timeout(PATIENCE).unwrap().json()
}

/// What metrics say of notices: sent, failed, dropped.
fn counts(api: &Api) -> [u64; 3] {
    let answer =
        RUNTIME.block_on(api.answer(&ratekeeper_server::serve::Caller::named("test"), "/metrics", b""));
    let text = String::from_utf8(answer.unwrap().body).unwrap();
    ["sent", "failed", "dropped"].map(|result| {
        let start = format!("ratekeeper_notices_total{{result=\"{result}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start}: {text}")).parse().unwrap()
    })
}

#[test]
fn a_key_that_passes_shares_of_a_quota_is_noticed_once_for_each() {
    let (address, kept) = receiver(|_, stream| ok(stream));
    let (api, _sending) = in_memory(address);
    for _ in 0..30 {
        charge(&api, "ann", "10/h fixed_window");
    }
    charge(&api, "bob", "10/h fixed_window");
    // Blocked, and nothing of its quota used.
    let blocked = r#"{"charges":[{"key":"cyd","quota":"10/h","name":"n","emergency":"block"}]}"#;
    assert_eq!(RUNTIME.block_on(api.limit(blocked.as_bytes())).status, 429);
    let (first, second) = (next(&kept), next(&kept));
    assert_eq!(first["type"], "quota.passed");
    assert_eq!(
        (&first["data"]["percent"], &first["data"]["remaining"], &first["data"]["enforced"]),
        (&json!(80), &json!(2), &json!(true))
    );
    assert_eq!((&second["data"]["percent"], &second["data"]["used_percent"]), (&json!(100), &json!(100)));
    for name in ["rule", "key", "quota", "percent", "used_percent", "limit", "remaining", "enforced"] {
        assert!(DOCS.contains(&format!("\"{name}\": ")) && !first["data"][name].is_null(), "{name}");
    }
    assert_eq!((&first["data"]["rule"], &first["data"]["key"]), (&json!("/limit/n"), &json!("ann")));
    until("both are counted", || counts(&api) == [2, 0, 0]);
    assert!(kept.try_recv().is_err(), "neither the busy one again, nor the others");
}

/// The example of the documentation is run as it stands there.
#[test]
fn signatures_are_verified_by_the_documented_example() {
    let (address, kept) = receiver(|_, stream| ok(stream));
    let (api, _sending) = in_memory(address);
    charge(&api, "zoë", "1/h");
    let arrived = kept.recv_timeout(PATIENCE).unwrap();
    let (_, example) = DOCS.split_once("```python\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let verify = |secret: &str, body: &[u8]| {
        let headers: Vec<String> = ["webhook-id", "webhook-timestamp", "webhook-signature"]
            .map(|name| format!("{name:?}: {:?}", arrived.field(name)))
            .to_vec();
        let program = format!(
            "{example}\nimport sys\nheaders = {{{}}}\nprint(is_genuine({secret:?}.encode(), headers, sys.stdin.buffer.read()))",
            headers.join(", ")
        );
        let mut python = Command::new("python3")
            .args(["-c", &program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        python.stdin.take().unwrap().write_all(body).unwrap();
        let output = python.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(verify(SECRET, &arrived.body), "True");
    assert_eq!(verify("another secret of this length too", &arrived.body), "False");
    let other = String::from_utf8(arrived.body.clone()).unwrap().replace("100", "101");
    assert_eq!(verify(SECRET, other.as_bytes()), "False");
    assert_eq!(arrived.field("webhook-id"), arrived.json()["id"].as_str().unwrap());
}

#[test]
fn what_is_not_taken_is_sent_again_under_the_same_id() {
    let (address, kept) = receiver(|number, stream| {
        let wrong: [&[u8]; 4] = [
            b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
            // It closes.
            b"",
            b"no HTTP at all\r\n\r\n\0\xff",
            b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
        ];
        match wrong.get(number) {
            Some(wrong) => stream.write_all(wrong).unwrap(),
            None => ok(stream),
        }
    });
    let (api, _sending) = in_memory(address);
    charge(&api, "ann", "1/h");
    let ids: Vec<Json> = (0..5).map(|_| next(&kept)["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    until("it is counted", || counts(&api) == [1, 0, 0]);
}

/// Charges of the Redis protocol leave notices as others do, and are among the keys that are near their limits.
#[test]
fn keys_of_the_redis_protocol_are_noticed_and_shown() {
    let (address, kept) = receiver(|_, stream| ok(stream));
    let (api, _sending) = in_memory(address);
    let resp = {
        let _within = RUNTIME.enter();
        let resp = Resp::new(Arc::clone(&api), None);
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None, Arc::new(resp)).unwrap();
        let address = listener.address();
        RUNTIME.spawn(async move { serve_all(vec![listener], &Stop::default(), 10, PATIENCE).await });
        address
    };
    let mut client = RespClient::connect(resp);
    // Five units, of which one comes back in an hour.
    let replies = (0..6).map(|_| client.call("CL.THROTTLE ann 4 1 3600"));
    assert_eq!(replies.filter(|reply| *reply == Reply::Null).count(), 0);
    let (first, second) = (next(&kept), next(&kept));
    assert_eq!(
        (&first["type"], &first["data"]["rule"], &first["data"]["key"]),
        (&json!("quota.passed"), &json!("/limit/cl.throttle"), &json!("ann"))
    );
    assert_eq!((&first["data"]["percent"], &first["data"]["limit"]), (&json!(80), &json!(5)));
    assert_eq!((&second["data"]["percent"], &second["data"]["remaining"]), (&json!(100), &json!(0)));
    let caller = ratekeeper_server::serve::Caller::named("test");
    let shown = RUNTIME.block_on(api.answer(&caller, "/v1/dashboard", b"")).unwrap();
    let near = &serde_json::from_slice::<Json>(&shown.body).unwrap()["near_keys"]["list"][0];
    assert_eq!(
        (&near["rule"], &near["key"], &near["remaining"]),
        (&json!("/limit/cl.throttle"), &json!("ann"), &json!(0))
    );
}

/// Slow is not wrong: what is answered in time counts, and nothing is sent twice.
#[test]
fn a_receiver_that_answers_slowly_but_in_time_is_sent_each_once() {
    let (address, kept) = receiver(|_, stream| {
        // A tenth of what it may take, by a byte at a time.
        for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" {
            std::thread::sleep(Duration::from_millis(12));
            let _ = stream.write_all(&[*byte]);
        }
    });
    let (api, _sending) = in_memory(address);
    for key in ["ann", "bob", "cyd"] {
        charge(&api, key, "1/h");
    }
    let keys: Vec<Json> = (0..3).map(|_| next(&kept)["data"]["key"].clone()).collect();
    assert_eq!(keys, ["ann", "bob", "cyd"]);
    until("all are counted", || counts(&api) == [3, 0, 0]);
    assert!(kept.try_recv().is_err(), "each once");
}

#[test]
fn a_receiver_that_is_away_costs_notices_and_no_requests() {
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (api, _sending) = in_memory(nowhere);
    assert_eq!((charge(&api, "ann", "1/h"), charge(&api, "ann", "1/h")), (200, 429));
    until("it is given up", || counts(&api) == [0, 1, 0]);
}

#[test]
fn a_receiver_that_is_silent_fills_the_queue_and_no_request_waits() {
    let (hold, held) = channel::<TcpStream>();
    let (address, kept) = receiver(move |_, stream| {
        let _ = hold.send(stream.try_clone().unwrap());
    });
    let (api, _sending) = in_memory(address);
    charge(&api, "first", "1/h");
    next(&kept);
    let begun = Instant::now();
    for key in 0..NOTICES_MAX + 7 {
        assert_eq!(charge(&api, &key.to_string(), "1/h"), 200);
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    // The receiver is waited for, five seconds each time: at most a few were taken out meanwhile.
    let [_, failed, dropped] = counts(&api);
    assert!(failed == 0 && (1..=7).contains(&dropped), "{failed} {dropped}");
    drop(held);
}

#[test]
fn outages_and_breakers_are_noticed_when_they_begin_and_end() {
    let (address, kept) = receiver(|_, stream| ok(stream));
    let mut server = Server::start(Flavour::Redis7);
    let url = server.url();
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder(&url).deadline(Duration::from_millis(500)).build().unwrap()
    };
    let (api, _sending) = api(address, Arc::new(store), Duration::from_millis(1));
    until("the store answers", || {
        charge(&api, "ann", "1000000/h") == 200 && api.limiter().outages().allowed == 0
    });
    server.kill();
    until("requests are let through", || {
        charge(&api, "ann", "1000000/h");
        api.limiter().outages().allowed > 0
    });
    let mut told = Vec::new();
    let mut wait_for = |kind: &str, to: Option<&str>| loop {
        let notice = next(&kept);
        let is_it = notice["type"] == kind && to.is_none_or(|to| notice["data"]["to"] == to);
        told.push(notice);
        if is_it {
            return told.last().cloned().unwrap();
        }
    };
    wait_for("limits.lifted", None);
    server.restart();
    let restored = wait_for("limits.restored", None);
    assert!(restored["data"]["let_through"].as_u64().unwrap() > 0, "{restored}");
    let opened = told.iter().find(|notice| notice["type"] == "breaker.changed").unwrap();
    assert_eq!(opened["data"]["from"], "closed", "{told:?}");
    let closed = told.iter().rev().find(|notice| notice["type"] == "breaker.changed").unwrap();
    assert_eq!(closed["data"]["to"], "closed", "{told:?}");
}

#[test]
fn a_refused_policy_is_noticed() {
    let (address, kept) = receiver(|_, stream| ok(stream));
    let (api, _sending) = in_memory(address);
    let policies = api.limiter().policies();
    let install = |text: &str| {
        policies.install(
            "search.toml",
            PolicySpec::read("search.toml", Format::Toml, text.as_bytes()),
            Some("search"),
        )
    };
    install("service = \"search\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"5/s\"\n").unwrap();
    install("service = \"search\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"5/parsec\"\n")
        .unwrap_err();
    let notice = next(&kept);
    assert_eq!((&notice["type"], &notice["data"]["service"]), (&json!("policy.refused"), &json!("search")));
    assert_eq!(notice["data"]["source"], "search.toml");
    assert!(notice["data"]["refusal"].as_str().unwrap().contains("parsec"), "{notice}");
}

/// A receiver that speaks TLS with the certificate of a test server.
fn encrypted_receiver(certified: &Server) -> (SocketAddr, Kept<Arrived>) {
    let at = |name: &str| certified.dir().join(name);
    let certificate = CertificateDer::from_pem_file(at("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(at("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (keep, kept) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            // One that does not trust the certificate goes away.
            if stream.conn.complete_io(&mut stream.sock).is_err() {
                continue;
            }
            let Some((arrived, mut stream)) = receive(stream) else { continue };
            if keep.send(arrived).is_err() {
                return;
            }
            ok(&mut stream);
        }
    });
    (address, kept)
}

#[test]
fn a_receiver_is_spoken_to_over_tls_if_its_authority_is_trusted() {
    let certified = Server::start_tls(Flavour::Redis7);
    let (address, kept) = encrypted_receiver(&certified);
    let (_folder, file) = secret_file();
    let serve = |authority: &Path| {
        let mut command = command(&["--http", "127.0.0.1:0", "--notify-secret-file", file.to_str().unwrap()]);
        command.env("RATEKEEPER_NOTIFY_URL", format!("https://{address}/hook?of=ops"));
        Running::start(command.arg("--notify-ca").arg(authority))
    };
    let call = r#"{"charges":[{"key":"ann","quota":"1/min"}]}"#;
    let server = serve(&certified.ca_file());
    assert_eq!(server.client().post("/v1/limit", call).status, 200);
    let arrived = kept.recv_timeout(PATIENCE).unwrap();
    assert_eq!(arrived.json()["data"]["key"], "ann");
    assert!(arrived.field("webhook-signature").starts_with("v1,"));
    server.signal("TERM");
    let (status, logged) = server.end();
    assert!(status == Some(0) && !logged.contains("the receiver of notices does not take"), "{logged}");

    let other = Server::start_tls(Flavour::Redis7);
    let server = serve(&other.ca_file());
    assert_eq!(server.client().post("/v1/limit", call).status, 200);
    server.signal("TERM");
    let (status, logged) = server.end();
    assert!(status == Some(0) && logged.contains("cannot agree on TLS"), "{logged}");
    assert_eq!(kept.try_iter().count(), 0);
}

/// The binary: its settings, its end, and its log.
#[test]
fn secrets_are_in_no_log_and_what_is_left_is_sent_at_the_end() {
    let (address, kept) = receiver(|number, stream| match number {
        0 => drop(stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")),
        _ => ok(stream),
    });
    let (_folder, file) = secret_file();
    let url = format!("http://{address}/hook?of=ops");
    let arguments =
        ["--http", "127.0.0.1:0", "--log", "trace", "--notify-secret-file", file.to_str().unwrap()];
    let mut command = command(&arguments);
    command.env("RATEKEEPER_NOTIFY_URL", &url).env("RATEKEEPER_NOTIFY_AT", "90");
    let server = Running::start(&mut command);
    let call = r#"{"charges":[{"key":"a-key-of-somebody","quota":"1/min"}]}"#;
    assert_eq!(server.client().post("/v1/limit", call).status, 200);
    let first = next(&kept);
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");
    let last = next(&kept);
    assert_eq!((&first["id"], &last["data"]["percent"]), (&last["id"], &json!(90)));
    for secret in [SECRET, "of=ops", "a-key-of-somebody"] {
        assert!(!logged.contains(secret), "{logged}");
    }
    assert_eq!(
        logged.matches("the receiver of notices does not take what it is sent").count(),
        1,
        "{logged}"
    );
}
