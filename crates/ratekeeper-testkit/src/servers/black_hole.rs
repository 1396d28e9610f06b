//! A server that is there and says nothing.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::listen;

/// Accepts every connection on a loopback port, keeps it open and never answers.
/// Dropping it closes them all.
#[derive(Debug)]
pub struct BlackHole {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BlackHole {
    #[must_use]
    pub fn start() -> Self {
        let listener = listen();
        let address = listener.local_addr().expect("the address just bound");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || swallow(&listener, &stopped));
        Self { address, stop, thread: Some(thread) }
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

fn swallow(listener: &TcpListener, stopped: &AtomicBool) {
    let mut open = Vec::new();
    while !stopped.load(Ordering::Acquire) {
        // Accepting fails if the client is gone already: nothing to keep.
        open.extend(listener.accept().ok());
    }
}

impl Drop for BlackHole {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // One more connection, so that it looks.
        let woken = TcpStream::connect(self.address).is_ok();
        if let (true, Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}
