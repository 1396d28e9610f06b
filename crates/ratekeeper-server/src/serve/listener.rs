//! What listens: sockets, TLS, how many connections at once, and how it all ends.
//!
//! A listener knows nothing of what is spoken on it. Another protocol is another
//! [`Protocol`], and gets TLS, the bound on connections and the graceful end with it.

pub(super) mod activity;
mod episode;
pub(super) mod linger;
mod places;
mod stop;

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use self::episode::{Crowd, Exhaustion};
use self::places::Places;
pub use self::places::{Place, Spare};
pub(super) use self::stop::{FIRST_REQUEST_WAIT, leaves_after};
pub use self::stop::{Finishing, Stop};

/// Connections that are served at once, unless told otherwise.
pub const CONNECTIONS_MAX_DEFAULT: usize = 16_384;
/// Connections that the system keeps waiting to be accepted, at most.
const BACKLOG_MAX: u32 = 1_024;
/// How long a client has for its part of a TLS handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// How long a connection in a spare place has for each thing that it has to do.
pub(super) const SPARE_WAIT: Duration = Duration::from_secs(1);
/// How long to wait before accepting again when the system has nothing to give.
const EXHAUSTED_WAIT: Duration = Duration::from_millis(50);

/// Serving one connection.
pub type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is spoken on a listener.
pub trait Protocol: Send + Sync + 'static {
    /// What people call it.
    fn name(&self) -> &'static str;

    /// A connection was accepted.
    fn opened(&self) {}

    /// It is over.
    fn closed(&self) {}

    /// What to say to a connection that is one too many.
    fn refused(&self) -> &'static [u8];

    /// Serves a connection until it is over; when it is time to finish, no later than
    /// after what is under way.
    fn serve(self: Arc<Self>, stream: Stream, finishing: Finishing, place: Place) -> Serving;
}

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// The address at the other end.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        stream.peer_addr().ok().map(|address| address.ip())
    }
}

/// A socket, and what is spoken on it.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    protocol: Arc<dyn Protocol>,
}

impl Listener {
    /// Listens at an address; port 0 picks one.
    ///
    /// # Errors
    /// If nobody can listen there.
    pub fn bind(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        protocol: Arc<dyn Protocol>,
    ) -> anyhow::Result<Self> {
        let bound = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG_MAX)
        };
        let socket = bound().map_err(|error| {
            let hint = match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "\nhint: another program listens there; port 0 picks a free one"
                }
                std::io::ErrorKind::PermissionDenied => {
                    "\nhint: ports below 1024 take a privilege; 8080 does not"
                }
                std::io::ErrorKind::AddrNotAvailable => {
                    "\nhint: it is no address of this machine; 0.0.0.0 is all of them"
                }
                _ => "",
            };
            anyhow::anyhow!("cannot listen on {address} for {}: {error}{hint}", protocol.name())
        })?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address, tls, protocol })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether what is sent is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Accepts until the server finishes, and then what the system has accepted by itself: it would be reset.
    async fn accept_all(self, places: Arc<Places>, stop: Stop) {
        let mut finishing = std::pin::pin!(stop.finishing().wait());
        let mut accepting = Accepting {
            places,
            stop: stop.clone(),
            exhaustion: Exhaustion::default(),
            crowd: Crowd::default(),
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut finishing => break,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => accepting.begin(&self, stream).await,
                Err(error) => {
                    // Mostly: no file descriptor is left. Some will be when connections end.
                    accepting.exhaustion.goes_on(&error);
                    tokio::time::sleep(EXHAUSTED_WAIT).await;
                }
            }
        }
        // So that the runtime has looked at the socket.
        tokio::task::yield_now().await;
        for _ in 0..BACKLOG_MAX {
            let waiting = tokio::task::unconstrained(self.socket.accept()).now_or_never();
            let Some(Ok((stream, _))) = waiting else { break };
            accepting.begin(&self, stream).await;
        }
    }
}

/// What a listener keeps while it accepts.
struct Accepting {
    places: Arc<Places>,
    stop: Stop,
    exhaustion: Exhaustion,
    crowd: Crowd,
}

impl Accepting {
    /// Serves a connection in a place of its own, or turns it away.
    async fn begin(&mut self, listener: &Listener, stream: TcpStream) {
        self.exhaustion.may_be_over();
        let place = self.places.take().await;
        match &place {
            Some((Place::Ordinary, _)) => self.crowd.may_be_over(),
            _ => self.crowd.goes_on(self.places.ordinary_max()),
        }
        let Some(place) = place else {
            let words = listener.protocol.refused();
            if listener.tls.is_none() {
                // What does not fit into the socket's buffer now is not waited for.
                let _ = stream.try_write(words);
            }
            return;
        };
        // Answers are small, and whoever asked waits for them.
        let _ = stream.set_nodelay(true);
        let (protocol, tls) = (Arc::clone(&listener.protocol), listener.tls.clone());
        tokio::spawn(serve(protocol, tls, stream, self.stop.finishing(), place));
    }
}

async fn serve(
    protocol: Arc<dyn Protocol>,
    tls: Option<TlsAcceptor>,
    stream: TcpStream,
    finishing: Finishing,
    (place, _permit): (Place, OwnedSemaphorePermit),
) {
    protocol.opened();
    let stream = match tls {
        None => Some(Stream::Plain(stream)),
        Some(tls) => handshake(&tls, stream, finishing.clone(), &place).await,
    };
    if let Some(stream) = stream {
        Arc::clone(&protocol).serve(stream, finishing, place).await;
    }
    protocol.closed();
}

/// The encrypted connection. Nothing is under way on one that is not there yet, so
/// whoever finishes does not wait for it.
async fn handshake(
    tls: &TlsAcceptor,
    stream: TcpStream,
    finishing: Finishing,
    place: &Place,
) -> Option<Stream> {
    let wait = if place.is_spare() { SPARE_WAIT } else { HANDSHAKE_WAIT };
    tokio::select! {
        done = tls.accept(stream) => match done {
            Ok(stream) => Some(Stream::Tls(Box::new(stream))),
            Err(error) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
        },
        () = tokio::time::sleep(wait) => None,
        () = finishing.wait() => None,
        () = place.needed() => None,
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("protocol", &self.protocol.name())
            .field("address", &self.address)
            .finish()
    }
}

/// Serves on all listeners until `stop` says to finish, and then until all connections
/// are over or `grace` has passed. Says whether all were over.
///
/// # Panics
/// If `connections_max` is beyond what a semaphore can count, some 2^60.
pub async fn serve_all(
    listeners: Vec<Listener>,
    stop: &Stop,
    connections_max: usize,
    grace: Duration,
) -> bool {
    let places = Arc::new(Places::of(connections_max));
    let accepting =
        listeners.into_iter().map(|listener| listener.accept_all(Arc::clone(&places), stop.clone()));
    let accepting: Vec<_> = accepting.map(tokio::spawn).collect();
    stop.finishing().wait().await;
    for task in accepting {
        let _ = task.await;
    }
    tokio::time::timeout(grace, places.all_free()).await.is_ok()
}
