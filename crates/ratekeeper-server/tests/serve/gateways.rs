//! The configurations in `deploy` in real gateways: nginx, Caddy and `HAProxy`, in front of a service.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use ratekeeper::RedisStore;
use ratekeeper_testkit::servers::{executable, free_port};
use ratekeeper_testkit::wait::until;

use crate::client::{Client, PATIENCE, Reply};
use crate::rig::{RUNTIME, Rig, Setup};

const NGINX: &str = include_str!("../../../../deploy/nginx/ratekeeper.conf");
const CADDY: &str = include_str!("../../../../deploy/caddy/Caddyfile");
const HAPROXY: &str = include_str!("../../../../deploy/haproxy/haproxy.cfg");
const HAPROXY_LUA: &str = include_str!("../../../../deploy/haproxy/ratekeeper.lua");
/// What docs/gateways.md says is enough for Caddy.
const CADDY_SHORT: &str = "{\n\tadmin off\n\tauto_https off\n}\n:8000 {\n\tbind 127.0.0.1\n\tforward_auth 127.0.0.1:8080 {\n\
    \t\turi /v1/forward-auth?service=shop\n\t}\n\treverse_proxy 127.0.0.1:9000\n}\n";

const POLICY: &str = r#"
service = "shop"

[[rules]]
name = "per-ip"
when = "path != '/long'"
keys = "ip:{client.ip}"
quota = "6/h"

[[rules]]
name = "search"
when = "path == '/search' && method == 'POST' && query.q == 'x' && header['x-team'] == 'blue'"
keys = "all"
quota = "1/h"

[[rules]]
name = "long"
when = "path == '/long'"
keys = "all"
quota = "9/h"

[[rules]]
name = "bulk"
when = "path == '/bulk' && body.bulk == true"
keys = "all"
quota = "1/h"
"#;

/// A service that answers everything; what is below /forbidden with 403.
fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let head: Vec<String> =
        reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let Some(first) = head.first() else { return };
    let lengths = head.iter().filter_map(|line| line.split_once(": "));
    let mut length = lengths
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map(|(_, length)| length.parse());
    // All of the request is read, so that the answer arrives.
    let _ = reader.read_exact(&mut vec![0; length.next_back().map_or(0, Result::unwrap)]);
    let status = if first.contains("/forbidden") { "403 Forbidden" } else { "200 OK" };
    let body = format!("served {first}");
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
}

/// A gateway that is gone with the test.
struct Gateway {
    process: Child,
    address: SocketAddr,
    rig: Rig,
    _folder: tempfile::TempDir,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Gateway {
    /// Starts one whose configuration is `write`'s; it is told where to listen, whom to ask and what is behind it.
    fn start(rig: Rig, command: impl FnOnce(&Path, &dyn Fn(&str) -> String) -> Command) -> Self {
        let (behind, folder) = (service(), tempfile::tempdir().unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let here = |text: &str| {
            let told = [(":8000", address), (":8080", rig.address), (":9000", behind)];
            told.iter().fold(text.to_owned(), |text, (written, real)| {
                assert!(text.contains(written), "{written}");
                text.replace(written, &format!(":{}", real.port()))
            })
        };
        let mut command = command(folder.path(), &here);
        let mut process =
            command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(process.try_wait().unwrap().is_none(), "it does not start: {command:?}");
            assert!(start.elapsed() < PATIENCE, "it does not listen: {command:?}");
            thread::yield_now();
        }
        Self { process, address, rig, _folder: folder }
    }

    fn ask(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
        self.ask_with(method, path, fields, b"")
    }

    /// A request that the gateway may refuse before it has read all of it.
    fn try_ask(&self, fields: &[(&str, &str)]) -> Option<Reply> {
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut client = Client::connect(self.address);
        let head = format!("GET /long HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}\r\n");
        client.try_send(head.as_bytes()).then(|| client.reply())?
    }

    fn ask_with(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Reply {
        let fields = [fields, &[("Connection", "close")]].concat();
        Client::connect(self.address).ask(method, path, &fields, body)
    }
}

/// What holds for every gateway: limits, what the client is told, and that nothing which a client sends is believed.
fn limits(gateway: &Gateway) {
    let first = gateway.ask("GET", "/a?b=c", &[]);
    assert_eq!(first.status, 200);
    assert!(first.text().starts_with("served GET /a?b=c HTTP/1."), "{}", first.text());
    assert!(first.header("ratelimit").unwrap().contains("r=5"), "{first:?}");
    assert!(first.header("ratelimit-policy").is_some(), "{first:?}");
    let forbidden = gateway.ask("GET", "/forbidden", &[]);
    assert_eq!(forbidden.status, 403, "what the service says is the service's");

    // By path, method, query and header of the request: once.
    let blue = [("X-Team", "blue")];
    assert_eq!(gateway.ask("POST", "/search?q=x", &blue).status, 200);
    // The other fields are made up, and so would be a request that is not limited.
    let made_up = [
        ("X-Team", "blue"),
        ("X-Forwarded-Uri", "/"),
        ("X-Forwarded-Method", "GET"),
        ("X-Forwarded-For", "192.0.2.77"),
        ("X-Original-URI", "/"),
        ("X-Original-Method", "GET"),
    ];
    let denied = gateway.ask("POST", "/search?q=x", &made_up);
    assert_eq!(denied.status, 429, "{denied:?}");
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert_eq!(denied.json()["status"], 429);
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3_600).contains(&wait) && denied.header("ratelimit").is_some(), "{denied:?}");

    // A body may come with any method.
    let bulk = [(); 2].map(|()| {
        gateway
            .ask_with("GET", "/bulk", &[("Content-Length", "2"), ("X-Forwarded-Content-Length", "0")], b"{}")
            .status
    });
    assert_eq!(bulk, [200, 429]);

    refuses_what_is_not_understood(gateway);

    // By address: six in all, whatever the client says that it is.
    let last: Vec<u16> =
        (0..4).map(|_| gateway.ask("GET", "/", &[("X-Forwarded-For", "192.0.2.78")]).status).collect();
    assert_eq!(last, [200, 200, 429, 429]);
}

/// Requests that gateways take, and Ratekeeper does not: nobody passes uncounted by one.
fn refuses_what_is_not_understood(gateway: &Gateway) {
    let names: Vec<String> = (0..70).map(|index| format!("X-Field-{index}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let refused = gateway.ask("GET", "/", &many);
    assert!(matches!(refused.status, 431 | 500), "{refused:?}");
    for length in [7_000, 7_400, 7_600] {
        let long = "x".repeat(length);
        // The gateway itself may say that it is too long.
        let Some(reply) = gateway.try_ask(&[("X-Long", &long), ("X-Longer", &long)]) else { continue };
        assert!(reply.status != 200 || reply.header("ratelimit").is_some(), "{length}: {}", reply.status);
    }
}

fn in_memory() -> Rig {
    Setup::policy(POLICY).in_memory().0
}

/// One whose store is away, with a rule that denies then.
fn without_store() -> Rig {
    let policy = "service = \"shop\"\n[[rules]]\nname = \"r\"\nkeys = \"all\"\nquota = \"9/h\"\non_outage = \"deny\"\n";
    let store = {
        let _within = RUNTIME.enter();
        RedisStore::builder("redis://127.0.0.1:1").build().unwrap()
    };
    Setup::policy(policy).start(Arc::new(store))
}

/// One that believes no gateway.
fn distrustful() -> Rig {
    Setup { gateways: vec![], ..Setup::policy(POLICY) }.in_memory().0
}

fn nginx(rig: Rig, shipped: &str) -> Gateway {
    Gateway::start(rig, |folder, here| {
        let shipped = here(shipped);
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {}/{what};\n", folder.display()))
            .concat();
        let whole = format!(
            "daemon off; master_process off; error_log stderr; pid {0}/pid;\nevents {{}}\n\
             http {{ access_log off;\n{temporary}{shipped}\n}}\n",
            folder.display()
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, whole).unwrap();
        let mut command = Command::new(executable("nginx"));
        command.arg("-p").arg(folder).arg("-c").arg(file);
        command
    })
}

#[test]
fn nginx_turns_a_denial_into_a_429() {
    limits(&nginx(in_memory(), NGINX));
}

#[test]
fn nginx_tells_the_other_answers_apart() {
    let away = nginx(without_store(), NGINX).ask("GET", "/", &[]);
    assert_eq!((away.status, away.header("retry-after")), (503, Some("1")), "{away:?}");
    assert_eq!(away.json()["status"], 503);
    let unbelieved = nginx(distrustful(), NGINX).ask("GET", "/", &[]);
    assert_eq!((unbelieved.status, &unbelieved.json()["status"]), (500, &500.into()), "{unbelieved:?}");
    // What nginx itself forbids.
    let shut = NGINX.replace(
        "        auth_request /_ratekeeper;",
        "        deny all;\n        auth_request /_ratekeeper;",
    );
    let forbidden = nginx(in_memory(), &shut).ask("GET", "/", &[]);
    assert_eq!((forbidden.status, forbidden.header("retry-after")), (403, None), "{forbidden:?}");
}

#[test]
fn behind_nginx_requests_pass_while_the_server_is_away() {
    let gateway = nginx(in_memory(), NGINX);
    for _ in 0..6 {
        gateway.ask("GET", "/", &[]);
    }
    assert_eq!(gateway.ask("GET", "/", &[]).status, 429);
    gateway.rig.stop.finish();
    let start = Instant::now();
    loop {
        let reply = gateway.ask("GET", "/", &[]);
        assert!(matches!(reply.status, 200 | 429), "{reply:?}");
        if reply.status == 200 {
            assert_eq!(reply.header("ratelimit"), None, "nothing was decided");
            return;
        }
        assert!(start.elapsed() < PATIENCE, "it is never noticed");
    }
}

fn caddy(rig: Rig, config: &str) -> Gateway {
    Gateway::start(rig, |folder, here| {
        std::fs::write(folder.join("Caddyfile"), here(config)).unwrap();
        let mut command = Command::new(executable("caddy"));
        command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]).stderr(Stdio::null());
        command.env("HOME", folder).env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
        command
    })
}

#[test]
fn caddy_hands_a_denial_on() {
    let gateway = caddy(in_memory(), CADDY);
    limits(&gateway);
    gateway.rig.stop.finish();
    until("it is noticed that the server is away", || gateway.ask("GET", "/", &[]).status == 502);
}

#[test]
fn caddy_hands_on_the_other_answers() {
    let away = caddy(without_store(), CADDY).ask("GET", "/", &[]);
    assert_eq!((away.status, away.header("retry-after")), (503, Some("1")), "{away:?}");
    assert_eq!(caddy(distrustful(), CADDY).ask("GET", "/", &[]).status, 403);
}

#[test]
fn the_short_form_of_caddy_limits_too() {
    let gateway = caddy(in_memory(), CADDY_SHORT);
    let blue = [("X-Team", "blue"), ("X-Forwarded-Uri", "/"), ("X-Forwarded-Method", "GET")];
    assert_eq!(gateway.ask("POST", "/search?q=x", &blue).status, 200);
    let denied = gateway.ask("POST", "/search?q=x", &blue);
    assert_eq!((denied.status, denied.header("retry-after").is_some()), (429, true), "{denied:?}");
    gateway.rig.stop.finish();
    until("it is noticed that the server is away", || gateway.ask("GET", "/", &[]).status == 502);
}

fn haproxy(rig: Rig) -> Gateway {
    Gateway::start(rig, |folder, here| {
        std::fs::write(folder.join("haproxy.cfg"), here(HAPROXY)).unwrap();
        std::fs::write(folder.join("ratekeeper.lua"), HAPROXY_LUA).unwrap();
        let mut command = Command::new(executable("haproxy"));
        command.args(["-db", "-q", "-f", "haproxy.cfg"]);
        command
    })
}

#[test]
fn haproxy_answers_a_denial() {
    let gateway = haproxy(in_memory());
    limits(&gateway);
    gateway.rig.stop.finish();
    until("it is noticed that the server is away", || gateway.ask("GET", "/", &[]).status == 200);
}

#[test]
fn haproxy_tells_the_other_answers_apart() {
    let away = haproxy(without_store()).ask("GET", "/", &[]);
    assert_eq!((away.status, away.header("retry-after")), (503, Some("1")), "{away:?}");
    assert_eq!(haproxy(distrustful()).ask("GET", "/", &[]).status, 500);
}
