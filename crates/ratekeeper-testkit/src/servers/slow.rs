//! A way to a server that takes its time, or ends in the middle.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{POLL, listen};

/// Passes connections on to a server. What the server answers comes later by a delay; on connections that are cut
/// off it never comes. Dropping it closes them all.
#[derive(Debug)]
pub struct SlowWay {
    address: SocketAddr,
    /// The listener, as what can be shut down.
    socket: TcpStream,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    delay_micros: AtomicU64,
    /// Connections before this one are cut off.
    cut_before: AtomicUsize,
    /// Whether what clients send waits, ...
    holds_calls: AtomicBool,
    /// ... and what the server answers.
    holds_answers: AtomicBool,
    is_severed: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl SlowWay {
    /// A way to a port of this machine.
    #[must_use]
    pub fn to(port: u16, delay: Duration) -> Self {
        let listener = listen();
        let address = listener.local_addr().expect("the address just bound");
        let socket = listener.try_clone().expect("another handle of the listener");
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, port, &shared)
        });
        let way =
            Self { address, socket: TcpStream::from(OwnedFd::from(socket)), shared, thread: Some(thread) };
        way.delay(delay);
        way
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Changes the delay of what the server answers from now on.
    pub fn delay(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).expect("a short delay");
        self.shared.delay_micros.store(micros, Ordering::Relaxed);
    }

    /// Cuts off the first `connections` that were made: they stay open and nothing comes back on them.
    pub fn cut_off(&self, connections: usize) {
        self.shared.cut_before.store(connections, Ordering::Relaxed);
    }

    /// Whether what clients send waits here, and whether what the server answers does. As on a network that loses
    /// packets, it arrives when it no longer has to wait.
    pub fn hold(&self, calls: bool, answers: bool) {
        self.shared.holds_calls.store(calls, Ordering::Relaxed);
        self.shared.holds_answers.store(answers, Ordering::Relaxed);
    }

    /// Ends all connections, and new ones at once, until it is mended.
    pub fn sever(&self) {
        self.shared.is_severed.store(true, Ordering::Relaxed);
        self.shared.end_all();
    }

    /// Passes connections on again.
    pub fn mend(&self) {
        self.shared.is_severed.store(false, Ordering::Relaxed);
    }

    /// How many connections were made since it was severed, if it was.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.open().len() / 2
    }
}

impl Shared {
    fn open(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_all(&self) {
        for stream in self.open().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, port: u16, shared: &Arc<Shared>) {
    let mut number = 0;
    while let Ok((client, _)) = listener.accept() {
        // As a proxy whose server is away: the client sees its connection end.
        let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        if shared.is_severed.load(Ordering::Relaxed) {
            continue;
        }
        let copy = |stream: &TcpStream| stream.try_clone().expect("another handle of a stream");
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        shared.open().extend([copy(&client), copy(&server)]);
        let (from_client, to_server) = (copy(&client), copy(&server));
        let calls = Arc::clone(shared);
        thread::spawn(move || pass(from_client, to_server, || wait_while(&calls.holds_calls)));
        let (answers, delayed) = channel();
        let of_reader = Arc::clone(shared);
        thread::spawn(move || {
            read(server, |bytes| {
                wait_while(&of_reader.holds_answers);
                let delay = Duration::from_micros(of_reader.delay_micros.load(Ordering::Relaxed));
                let _ = answers.send((Instant::now() + delay, bytes.to_vec()));
            });
        });
        let of_writer = Arc::clone(shared);
        thread::spawn(move || {
            write_when_due(client, &delayed, || number >= of_writer.cut_before.load(Ordering::Relaxed));
        });
        number += 1;
    }
    shared.end_all();
}

fn wait_while(is_held: &AtomicBool) {
    while is_held.load(Ordering::Relaxed) {
        thread::sleep(POLL);
    }
}

/// Passes bytes on as they come, each time after waiting for its turn.
fn pass(from: TcpStream, mut to: TcpStream, wait: impl Fn()) {
    read(from, |bytes| {
        wait();
        let _ = to.write_all(bytes);
    });
    let _ = to.shutdown(Shutdown::Both);
}

/// Reads until the other side ends.
fn read(mut from: TcpStream, mut take: impl FnMut(&[u8])) {
    let mut bytes = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        take(&bytes[..count]);
    }
    let _ = from.shutdown(Shutdown::Both);
}

/// Writes each answer when it is due, if it is passed on at all. Answers wait beside each other, as on a long line: one
/// that is late holds up no other.
fn write_when_due(mut to: TcpStream, delayed: &Receiver<(Instant, Vec<u8>)>, is_passed: impl Fn() -> bool) {
    while let Ok((due, bytes)) = delayed.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if is_passed() && to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

impl Drop for SlowWay {
    fn drop(&mut self) {
        self.hold(false, false);
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
