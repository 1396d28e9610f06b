//! Real connections on a loopback port: clients that hang up, bodies that stream.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpResponse, HttpServer, web};
use bytes::Bytes;
use futures_util::stream;
use ratekeeper::{MemoryStore, Store};
use ratekeeper_web::Gate;
use ratekeeper_web::actix::RateLimit;

use crate::remote::Remote;
use crate::support::gate_on;

/// How long something may take that happens as soon as it can.
const PATIENCE: Duration = Duration::from_secs(10);
const ONE_AT_A_TIME: &str = "[[rules]]\nname = 'busy'\nkeys = 'all'\nquota = '1/600s concurrency'\n";

/// A server in a thread of its own, until it is dropped.
struct Server {
    address: SocketAddr,
    handle: ServerHandle,
}

impl Server {
    fn start(gate: Gate, half_closed: bool) -> Self {
        let limit = RateLimit::new(gate);
        let (sender, started) = mpsc::channel();
        std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let app = move || {
                    App::new()
                        .wrap(limit.clone())
                        .route("/", web::get().to(|| async { "ok" }))
                        .route("/empty", web::get().to(|| async { HttpResponse::NoContent().finish() }))
                        .route("/drip", web::get().to(drip))
                        .route("/forever", web::get().to(forever))
                        .route("/panic", web::get().to(panics))
                };
                let server = HttpServer::new(app).workers(1).h1_allow_half_closed(half_closed);
                let server = server.bind("127.0.0.1:0").unwrap();
                let address = server.addrs()[0];
                let running = server.run();
                sender.send((address, running.handle())).unwrap();
                running.await.unwrap();
            });
        });
        let (address, handle) = started.recv_timeout(PATIENCE).unwrap();
        Self { address, handle }
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
        stream
    }

    fn status(&self, request: &str) -> String {
        let head = head(&mut self.send(request));
        head.split(' ').nth(1).unwrap_or("none").to_owned()
    }

    /// Waits until there is room again. Leases are longer than anybody waits here.
    fn becomes_free(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.status("GET /") != "200" {
            assert!(Instant::now() < deadline, "the place comes back");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The command is sent when it is called; nobody waits for the server to end.
        drop(self.handle.stop(false));
    }
}

/// A body that sends a little, again and again.
async fn drip() -> HttpResponse {
    HttpResponse::Ok().streaming(stream::unfold((), async |()| {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Some((Ok::<_, actix_web::Error>(Bytes::from_static(b"drip")), ()))
    }))
}

/// How many requests have reached the handler that never answers.
static FOREVER: AtomicUsize = AtomicUsize::new(0);

async fn forever() -> &'static str {
    FOREVER.fetch_add(1, Ordering::SeqCst);
    std::future::pending().await
}

async fn panics() -> &'static str {
    panic!("this panic is part of the test")
}

/// The first bytes of the answer, to the end of the head at least.
fn head(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut buffer = [0; 4_096];
        let length = stream.read(&mut buffer).unwrap_or(0);
        if length == 0 {
            break;
        }
        read.extend_from_slice(&buffer[..length]);
    }
    String::from_utf8_lossy(&read).into_owned()
}

fn stores() -> [Arc<dyn Store>; 2] {
    [Arc::new(MemoryStore::new()), Remote::new()]
}

#[test]
fn who_hangs_up_in_the_middle_of_a_response_gives_back_what_was_held() {
    for store in stores() {
        let server = Server::start(gate_on(store, ONE_AT_A_TIME), true);
        let mut stream = server.send("GET /drip");
        assert!(head(&mut stream).contains("200 OK"));
        assert_eq!(server.status("GET /"), "429");
        drop(stream);
        server.becomes_free();
    }
}

/// A server that takes a closed half of a connection for a client that has gone.
#[test]
fn who_hangs_up_before_the_response_gives_back_what_was_held() {
    for store in stores() {
        let server = Server::start(gate_on(store, ONE_AT_A_TIME), false);
        let before = FOREVER.load(Ordering::SeqCst);
        let stream = server.send("GET /forever");
        let deadline = Instant::now() + PATIENCE;
        while FOREVER.load(Ordering::SeqCst) == before {
            assert!(Instant::now() < deadline, "the place is taken");
            std::thread::yield_now();
        }
        assert_eq!(server.status("GET /"), "429");
        drop(stream);
        server.becomes_free();
    }
}

#[test]
fn a_panic_gives_back_what_was_held_and_the_server_lives_on() {
    for store in stores() {
        let server = Server::start(gate_on(store, ONE_AT_A_TIME), true);
        assert_eq!(server.status("GET /panic"), "none");
        server.becomes_free();
    }
}

#[test]
fn a_response_without_a_body_gives_back_what_was_held() {
    for store in stores() {
        let server = Server::start(gate_on(store, ONE_AT_A_TIME), true);
        assert_eq!(server.status("GET /empty"), "204");
        server.becomes_free();
        assert_eq!(server.status("HEAD /"), "404");
        server.becomes_free();
    }
}

/// Headers that actix itself does not take never reach the middleware.
#[test]
fn the_server_outlives_absurd_requests() {
    let server = Server::start(gate_on(Arc::new(MemoryStore::new()), ONE_AT_A_TIME), true);
    let long = "k".repeat(100_000);
    for line in
        [format!("x-key: {long}"), "x-key: \u{fe}\u{ff}".into(), "content-length: -1".into(), "\0".into()]
    {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may hang up before it has read everything.
        let _ = write!(stream, "GET / HTTP/1.1\r\nhost: test\r\n{line}\r\n\r\n");
        let answer = head(&mut stream);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 "), "{answer}");
        server.becomes_free();
    }
}
