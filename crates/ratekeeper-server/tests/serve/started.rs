//! How it starts: who wins where settings disagree, what the system gives, what is logged.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use ratekeeper_server::serve::{Role, Token};
use ratekeeper_testkit::servers::{Flavour, Server};
use serde_json::json;

use crate::binary::{Running, command, refused};
use crate::client::{Client, PATIENCE};

const OUTSIDE: &str = "0.0.0.0:0";
const INSIDE: &str = "127.0.0.1:0";
const TOKEN: &str = "the-token-of-operators";

fn stopped(server: Running) -> String {
    server.signal("TERM");
    let (status, logged) = server.end();
    assert_eq!(status, Some(0), "{logged}");
    logged
}

#[test]
fn header_fields_of_old_are_sent_if_that_is_wanted() {
    let call = json!({ "charges": [{ "key": "ann", "quota": "5/min" }] });
    let wanted = ["--http", INSIDE, "--legacy-headers", "x-ratelimit", "--legacy-reset", "epoch"];
    let server = Running::start(&mut command(&wanted));
    let answer = server.client().call("/v1/limit", &call);
    let field = |name: &str| answer.header(name).unwrap_or_else(|| panic!("{name}")).to_owned();
    assert_eq!(
        (field("x-ratelimit-limit"), field("x-ratelimit-remaining")),
        ("5".to_owned(), "4".to_owned())
    );
    let reset: u64 = field("x-ratelimit-reset").parse().unwrap();
    assert!(reset > 1_700_000_000, "{reset} seconds since 1970");
    assert!(answer.header("ratelimit").is_some(), "beside the standard ones");
    stopped(server);
    let server = Running::start(command(&["--http", INSIDE]).env("RATEKEEPER_LEGACY_HEADERS", "ratelimit"));
    let answer = server.client().call("/v1/limit", &call);
    let reset: u64 = answer.header("ratelimit-reset").unwrap().parse().unwrap();
    assert!(reset <= 60, "{reset} seconds from now");
}

#[test]
fn whoever_says_that_operators_are_served_after_all_wins_over_those_below() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ratekeeper.toml");
    std::fs::write(&file, "no_admin = true\n").unwrap();
    let file = file.to_str().unwrap();
    let open = "can be reached from outside";
    let over_file =
        refused(command(&["--http", OUTSIDE, "--config", file]).env("RATEKEEPER_NO_ADMIN", "false"));
    assert!(over_file.contains(open), "{over_file}");
    let over_environment =
        refused(command(&["--http", OUTSIDE, "--no-admin=false"]).env("RATEKEEPER_NO_ADMIN", "true"));
    assert!(over_environment.contains(open), "{over_environment}");
    let nonsense = refused(command(&["--http", INSIDE]).env("RATEKEEPER_NO_ADMIN", "nonsense"));
    assert!(nonsense.contains("nonsense") && nonsense.contains("--no-admin"), "{nonsense}");
    for words in [&["--http", OUTSIDE, "--no-admin"][..], &["--http", OUTSIDE, "--config", file]] {
        let server = Running::start(&mut command(words));
        assert_eq!(server.client().get("/v1/hot-keys").status, 403, "{words:?}");
    }
}

#[test]
fn of_two_tokens_a_flags_counts_and_one_that_is_of_no_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "another-token-of-theirs").unwrap();
    let file = file.to_str().unwrap();
    let mut with_flag = command(&["--http", INSIDE, "--admin-token-file", file]);
    let server = Running::start(with_flag.env("RATEKEEPER_ADMIN_TOKEN", TOKEN));
    let asked = |token: &str| {
        let bearer = format!("Bearer {token}");
        server.client().ask("GET", "/v1/hot-keys", &[("authorization", &bearer)], b"").status
    };
    assert_eq!((asked("another-token-of-theirs"), asked(TOKEN)), (200, 401));

    let mut both = command(&["--http", INSIDE]);
    both.env("RATEKEEPER_ADMIN_TOKEN", TOKEN).env("RATEKEEPER_ADMIN_TOKEN_FILE", file);
    assert!(refused(&mut both).contains("expected one of them"));
    // As the image has it, with a token beside it.
    let mut off = command(&["--http", OUTSIDE]);
    off.env("RATEKEEPER_ADMIN_TOKEN", TOKEN).env("RATEKEEPER_NO_ADMIN", "true");
    let error = refused(&mut off);
    assert!(error.contains("no-admin: ") && error.contains("hint: ") && !error.contains(TOKEN), "{error}");
    let server = Running::start(off.arg("--no-admin=false"));
    assert_eq!(server.client().get("/v1/hot-keys").status, 401);
}

#[test]
fn an_empty_variable_says_nothing() {
    let mut command = command(&["--http", INSIDE]);
    for name in ["CONFIG", "STORE", "POLICY", "THREADS", "NO_ADMIN", "ADMIN_TOKEN", "ADMIN_TOKEN_FILE", "LOG"]
    {
        command.env(format!("RATEKEEPER_{name}"), "");
    }
    let server = Running::start(&mut command);
    assert_eq!(server.client().get("/v1/hot-keys").status, 403, "no token, and nothing lets anybody in");
}

#[test]
fn without_a_token_operators_are_served_where_that_is_said() {
    let server = Running::start(&mut command(&["--http", INSIDE]));
    let refusal = server.client().get("/v1/hot-keys");
    assert_eq!(refusal.status, 403);
    assert!(refusal.text().contains("--tokens FILE"), "{}", refusal.text());
    let server = Running::start(&mut command(&["--http", INSIDE, "--admin-without-token"]));
    assert_eq!(server.client().get("/v1/hot-keys").status, 200);
    let error = refused(&mut command(&["--http", OUTSIDE, "--admin-without-token"]));
    assert!(error.contains("expected a loopback address"), "{error}");
}

/// Each listener serves its own calls, and monitoring is served on both.
#[test]
fn operators_have_a_listener_of_their_own_if_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let (token, kept) = Token::random("ann", Role::Read).unwrap();
    std::fs::write(&file, kept.line()).unwrap();
    let file = file.to_str().unwrap();
    let words = ["--http", INSIDE, "--admin-http", INSIDE, "--tokens", file];
    let server = Running::start(&mut command(&words));
    let said = server.said.iter().find(|line| line.trim_start().starts_with("operators")).unwrap();
    let address = said.rsplit("http://").next().unwrap().trim().parse().unwrap();
    let bearer = format!("Bearer {token}");
    let hot =
        |client: &mut Client| client.ask("GET", "/v1/hot-keys", &[("authorization", &bearer)], b"").status;
    let call = json!({ "charges": [{ "key": "k", "quota": "1/h" }] });
    let (mut callers, mut operators) = (server.client(), Client::connect(address));
    assert_eq!((hot(&mut callers), hot(&mut operators)), (404, 200));
    assert_eq!(callers.get("/healthz").status, 200);
    assert_eq!(operators.get("/healthz").status, 200);
    assert_eq!(server.client().call("/v1/limit", &call).status, 200);
    assert_eq!(Client::connect(address).call("/v1/limit", &call).status, 404);
}

/// The server with a limit on file descriptors, as `ulimit` sets it.
fn limited(limit: &str, arguments: &[&str]) -> Command {
    let serve = command(arguments);
    let mut shell = Command::new("sh");
    // What this process inherited and passes on (make's, a lock's) would count as well.
    let inherited: String = (3..10).map(|descriptor| format!(" {descriptor}>&-")).collect();
    shell.args(["-c", &format!("ulimit {limit} && exec{inherited} && exec \"$0\" \"$@\"")]);
    shell.arg(serve.get_program()).args(serve.get_args());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

#[test]
fn connections_stay_within_what_the_system_gives() {
    let server = Running::start(&mut limited("-n 40", &["--http", INSIDE]));
    let mut connections: Vec<TcpStream> =
        (0..60).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let start = Instant::now();
    // Those beyond are told so, which takes a descriptor as well.
    assert_eq!(server.client().reply().unwrap().status, 503);
    connections.clear();
    let is_served = || server.client().try_get("/healthz").is_some_and(|reply| reply.status == 200);
    while !is_served() {
        assert!(start.elapsed() < PATIENCE, "it does not recover");
    }
    let logged = stopped(server);
    assert_eq!(logged.matches(" WARN ").count(), 2, "{logged}");
    assert!(logged.contains("connections_max=20 asked_for=16384 descriptors=40"), "{logged}");
    assert!(logged.contains("as many connections are open as there may be"), "{logged}");
}

#[test]
fn a_limit_that_may_be_raised_is_raised() {
    let server = Running::start(&mut limited("-S -n 40", &["--http", INSIDE, "--connections-max", "200"]));
    let connections: Vec<TcpStream> = (0..150).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert_eq!(server.client().get("/healthz").status, 200);
    let logged = stopped(server);
    assert!(!logged.contains(" WARN "), "{logged}");
    drop(connections);
}

#[test]
fn what_is_wrong_is_said_once_and_with_a_hint() {
    let taken = std::net::TcpListener::bind(INSIDE).unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let endless = ["--http", INSIDE, "--tls-cert", "/dev/zero", "--tls-key", "/dev/zero"];
    let cases: [(&[&str], &str); 5] = [
        (&endless, "tls-cert: /dev/zero: expected at most "),
        (&["--http", &taken], "hint: another program listens there"),
        (&["--http", INSIDE, "--store", "bogus"], "error: store: got "),
        (&["--http", INSIDE, "--policy", "/nope.toml"], "error: policy: /nope.toml: no such file\n"),
        (&["--http", INSIDE, "--admin-token-file", "/dev/zero"], "/dev/zero: expected at most "),
    ];
    for (arguments, expected) in cases {
        let error = refused(&mut command(arguments));
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

/// One line, which says what to do; nothing was in force for a moment, so nothing is said to be gone.
#[test]
fn two_files_for_one_service_are_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "service = \"maps\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"7/min\"\n";
    let (first, second) = (folder.path().join("a.toml"), folder.path().join("b.toml"));
    std::fs::write(&first, policy).unwrap();
    std::fs::write(&second, policy).unwrap();
    let error = refused(&mut command(&["--http", INSIDE, "--policy", folder.path().to_str().unwrap()]));
    let (first, second) = (first.display(), second.display());
    let expected =
        format!("error: policy: {second}: service: got \"maps\", which has its policy in {first}; ");
    assert!(error.starts_with(&expected) && error.contains("or remove one"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn who_is_denied_together_does_not_come_back_together() {
    let server = Running::start(&mut command(&["--http", INSIDE, "--retry-after-spread", "100"]));
    let call = json!({ "charges": [{ "key": "k", "quota": "1/h fixed_window" }] });
    let mut client = server.client();
    assert_eq!(client.call("/v1/limit", &call).status, 200);
    let waits: Vec<u64> = (0..30)
        .map(|_| client.call("/v1/limit", &call).header("retry-after").unwrap().parse().unwrap())
        .collect();
    assert!(waits.iter().all(|wait| (3_590..=7_200).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
}

#[test]
fn what_an_operator_does_is_on_record_without_a_key() {
    let server = Running::start(&mut command(&["--http", INSIDE, "--admin-without-token"]));
    let call = r#"{"charges":[{"key":"a-key-of-somebody","quota":"1/min"}]}"#;
    assert_eq!(server.client().post("/v1/limit", call).status, 200);
    assert_eq!(server.client().post("/v1/reset", call).status, 200);
    assert_eq!(server.client().post("/v1/reset", "{\"charges\":[]}").status, 422);
    let logged = stopped(server);
    assert!(logged.contains("an operator had counters forgotten forgotten=1 by=\"local\"\n"), "{logged}");
    assert!(logged.contains("an operator could not have counters forgotten status=422"), "{logged}");
    assert_eq!(logged.matches("had counters forgotten").count(), 1, "{logged}");
    assert!(!logged.contains("a-key-of-somebody"), "{logged}");
}

#[test]
fn where_the_store_is_is_for_operators() {
    let mut store = Server::start(Flavour::Redis7);
    let server = Running::start(&mut command(&["--http", INSIDE, "--store", &store.url()]));
    store.kill();
    let mut client = server.client();
    let ready = client.get("/readyz/store");
    let settled = client.post("/v1/settle", r#"{"id":"i","actual":1}"#);
    let address = store.url().replace("redis://", "");
    let port = address.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    for reply in [ready, settled] {
        assert_eq!(reply.status, 503, "{}", reply.text());
        assert!(reply.text().contains("it cannot be reached"), "{}", reply.text());
        assert!(!reply.text().contains(&port) && !reply.text().contains("127.0.0.1"), "{}", reply.text());
    }
}

#[test]
fn what_is_logged_is_a_level() {
    let error = refused(&mut command(&["--http", INSIDE, "--log", "verbose"]));
    assert!(error.contains("log: got `verbose`; expected a level"), "{error}");
}

#[test]
fn an_event_is_one_line_whatever_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    let policy = "service = \"s\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"7/min\"\n";
    std::fs::write(&path, policy).unwrap();
    let words = ["--http", INSIDE, "--admin-without-token", "--policy", path.to_str().unwrap()];
    let server = Running::start(&mut command(&words));
    std::fs::write(&path, policy.replace("keys", "kyes").replace("quota", "qouta")).unwrap();
    let start = Instant::now();
    while server.client().get("/v1/policies").json()["services"][0]["refused"] == 0 {
        assert!(start.elapsed() < PATIENCE, "the policy is not refused");
    }
    let logged = stopped(server);
    assert!(logged.contains("kyes") && logged.contains("qouta") && logged.contains("\\n"), "{logged}");
    for line in logged.lines() {
        // A time, a level and so on.
        let level = line.split_whitespace().nth(1);
        assert!(level.is_some_and(|level| ["INFO", "WARN"].contains(&level)), "{line}");
    }
}
