//! The configurations in `deploy` in real gateways: nginx, Caddy and `HAProxy`, in front of a service.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use ratekeeper_testkit::servers::{executable, free_port};

use crate::client::{Client, PATIENCE, Reply};
use crate::rig::{Rig, Setup};

const NGINX: &str = include_str!("../../../../deploy/nginx/ratekeeper.conf");
const CADDY: &str = include_str!("../../../../deploy/caddy/Caddyfile");
const HAPROXY: &str = include_str!("../../../../deploy/haproxy/haproxy.cfg");
const HAPROXY_LUA: &str = include_str!("../../../../deploy/haproxy/ratekeeper.lua");

const POLICY: &str = r#"
service = "shop"

[[rules]]
name = "per-ip"
keys = "ip:{client.ip}"
quota = "5/h"

[[rules]]
name = "search"
when = "path == '/search' && method == 'POST' && query.q == 'x' && header['x-team'] == 'blue'"
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
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let _ = lines.find(String::is_empty);
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
    fn start(command: impl FnOnce(&Path, &dyn Fn(&str) -> String) -> Command) -> Self {
        let (rig, _) = Setup::policy(POLICY).in_memory();
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
        let fields = [fields, &[("Connection", "close")]].concat();
        Client::connect(self.address).ask(method, path, &fields, b"")
    }
}

/// What holds for every gateway: limits, what the client is told, and that nothing which a client sends is believed.
fn limits(gateway: &Gateway) {
    let first = gateway.ask("GET", "/a?b=c", &[]);
    assert_eq!(first.status, 200);
    assert!(first.text().starts_with("served GET /a?b=c HTTP/1."), "{}", first.text());
    assert!(first.header("ratelimit").unwrap().contains("r=4"), "{first:?}");
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

    // By address: five in all, whatever the client says that it is.
    let last: Vec<u16> =
        (0..4).map(|_| gateway.ask("GET", "/", &[("X-Forwarded-For", "192.0.2.78")]).status).collect();
    assert_eq!(last, [200, 200, 429, 429]);
}

fn nginx() -> Gateway {
    Gateway::start(|folder, here| {
        let shipped = here(NGINX);
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
    limits(&nginx());
}

#[test]
fn behind_nginx_requests_pass_while_the_server_is_away() {
    let gateway = nginx();
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

#[test]
fn caddy_hands_a_denial_on() {
    limits(&Gateway::start(|folder, here| {
        std::fs::write(folder.join("Caddyfile"), here(CADDY)).unwrap();
        let mut command = Command::new(executable("caddy"));
        command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]).stderr(Stdio::null());
        command.env("HOME", folder).env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
        command
    }));
}

#[test]
fn haproxy_answers_a_denial() {
    let gateway = Gateway::start(|folder, here| {
        std::fs::write(folder.join("haproxy.cfg"), here(HAPROXY)).unwrap();
        std::fs::write(folder.join("ratekeeper.lua"), HAPROXY_LUA).unwrap();
        let mut command = Command::new(executable("haproxy"));
        command.args(["-db", "-q", "-f", "haproxy.cfg"]);
        command
    });
    limits(&gateway);
    gateway.rig.stop.finish();
    let start = Instant::now();
    while gateway.ask("GET", "/", &[]).status != 200 {
        assert!(start.elapsed() < PATIENCE, "it is never noticed that the server is away");
    }
}
