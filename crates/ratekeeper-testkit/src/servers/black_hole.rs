//! A server that is there and says nothing.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use super::listen;

/// Accepts every connection on a loopback port, keeps it open and never answers.
/// Dropping it closes them all.
#[derive(Debug)]
pub struct BlackHole {
    address: SocketAddr,
    /// The listener, as what can be shut down.
    socket: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl BlackHole {
    #[must_use]
    pub fn start() -> Self {
        let listener = listen();
        let address = listener.local_addr().expect("the address just bound");
        let socket = listener.try_clone().expect("another handle of the listener");
        let thread = thread::spawn(move || swallow(&listener));
        Self { address, socket: TcpStream::from(OwnedFd::from(socket)), thread: Some(thread) }
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

fn swallow(listener: &TcpListener) {
    let mut open = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        open.push(stream);
    }
    for stream in open {
        // The client may be gone already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Drop for BlackHole {
    /// Shuts the sockets down rather than close our handles of them: a process that is just being
    /// started elsewhere in the test has copies of all handles until it becomes another program.
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
