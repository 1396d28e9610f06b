//! A connection: how it is made, who it logs in as, and the task that reads and writes for it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::{fmt, io};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::password::Password;
use super::socket::{Socket, Traffic};

/// Where a server is, and who we are to it.
#[derive(Clone)]
pub(super) struct Address {
    info: ConnectionInfo,
    tls: Option<TlsConnector>,
    password: Option<Password>,
}

/// A connection and its task, which ends with it.
#[derive(Debug)]
pub(super) struct Wire {
    /// Where it goes.
    pub(super) server: String,
    pub(super) connection: MultiplexedConnection,
    pub(super) traffic: Arc<Traffic>,
    task: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Address {
    /// Without the password that the URL may hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.server()).finish()
    }
}

impl Address {
    /// Or what is wrong with the certificate authority.
    pub(super) fn new(
        info: ConnectionInfo,
        authority: Option<&[u8]>,
        password: Option<Password>,
    ) -> Result<Self, String> {
        let tls = match info.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err("a URL that trusts any certificate".to_owned());
            }
            ConnectionAddr::TcpTls { .. } => Some(connector(authority)?),
            _ => None,
        };
        Ok(Self { info, tls, password })
    }

    /// The same somewhere else.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let place = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        Self { info: self.info.clone().set_addr(place), ..self.clone() }
    }

    /// The server, without secrets.
    pub(super) fn server(&self) -> String {
        self.info.addr().to_string()
    }

    /// A new connection, with the password as it is now. `ended` is called when its task is over.
    pub(super) async fn connect(
        &self,
        config: AsyncConnectionConfig,
        runtime: &Handle,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Wire, RedisError> {
        match (self.info.addr(), &self.tls) {
            (ConnectionAddr::Tcp(host, port), _) => {
                let socket = tcp(host, *port).await?;
                let traffic = socket.traffic();
                self.log_in(socket, traffic, config, runtime, ended).await
            }
            (ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let socket = tcp(host, *port).await?;
                let traffic = socket.traffic();
                let stream = tls.connect(name, socket).await?;
                self.log_in(stream, traffic, config, runtime, ended).await
            }
            #[cfg(unix)]
            (ConnectionAddr::Unix(path), _) => {
                let socket = Socket::new(tokio::net::UnixStream::connect(path).await?)?;
                let traffic = socket.traffic();
                self.log_in(socket, traffic, config, runtime, ended).await
            }
            _ => Err((ErrorKind::InvalidClientConfig, "such an address is not supported here").into()),
        }
    }

    async fn log_in(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        traffic: Arc<Traffic>,
        config: AsyncConnectionConfig,
        runtime: &Handle,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Wire, RedisError> {
        let mut user = self.info.redis_settings().clone();
        if let Some(password) = &self.password {
            user = user.set_password(password.read()?);
        }
        let (connection, task) = MultiplexedConnection::new_with_config(&user, stream, config).await?;
        let noted = Arc::clone(&traffic);
        let task = runtime.spawn(async move {
            let mut task = pin!(task);
            poll_fn(|context| noted.run(|| task.as_mut().poll(context))).await;
            ended();
        });
        Ok(Wire { server: self.server(), connection, traffic, task })
    }
}

async fn tcp(host: &str, port: u16) -> io::Result<Socket<TcpStream>> {
    let stream = TcpStream::connect((host, port)).await?;
    // Else a small packet waits for the acknowledgement of the last.
    stream.set_nodelay(true)?;
    Socket::new(stream)
}

/// Trusts the authorities of a PEM, or those of the system.
fn connector(authority: Option<&[u8]>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| error.to_string())?;
                roots.add(certificate).map_err(|error| error.to_string())?;
            }
        }
        None => {
            // One that cannot be read is left out: a server that needs it is refused by name.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err("no certificate that can be trusted".to_owned());
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
