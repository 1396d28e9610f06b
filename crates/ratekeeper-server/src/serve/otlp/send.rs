//! Posting JSON to a collector.

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::{Request, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a collector has to take what it is sent.
const SEND_WAIT: Duration = Duration::from_secs(5);
/// Where OTLP over HTTP is spoken.
const PORT_DEFAULT: u16 = 4_318;

/// The port of https://, where a URL says none.
const PORT_TLS: u16 = 443;

/// A collector, and how it is spoken to.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) base: Uri,
    pub(super) tls: Option<TlsConnector>,
    pub(super) is_compressed: bool,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("host", &self.base.host()).finish_non_exhaustive()
    }
}

/// Where documents of one kind go.
#[derive(Debug)]
pub(super) struct Path {
    target: Target,
    path: &'static str,
    is_failing: bool,
}

impl Path {
    /// `path` of a collector.
    pub(super) fn new(target: Target, path: &'static str) -> Self {
        Self { target, path, is_failing: false }
    }

    /// Posts `document`; says whether it was taken. A line when it begins to fail and one
    /// when that is over, not one every time.
    pub(super) async fn send(&mut self, document: &Json) -> bool {
        let path = self.path;
        let sent = tokio::time::timeout(SEND_WAIT, self.target.post(path, document)).await;
        let sent = sent.with_context(|| format!("no answer within {SEND_WAIT:?}")).flatten();
        match &sent {
            Err(error) if !self.is_failing => {
                let error = format!("{error:#}");
                tracing::warn!(path, error, "the collector does not take what it is sent");
            }
            Ok(()) if self.is_failing => tracing::info!(path, "the collector takes what it is sent again"),
            _ => {}
        }
        self.is_failing = sent.is_err();
        sent.is_ok()
    }
}

impl Target {
    async fn post(&self, path: &str, document: &Json) -> anyhow::Result<()> {
        let host = self.base.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.base.port_u16().unwrap_or(if self.tls.is_some() { PORT_TLS } else { PORT_DEFAULT });
        let stream = TcpStream::connect((host.as_str(), port)).await.context("cannot connect")?;
        match &self.tls {
            None => self.post_over(stream, path, document).await,
            Some(tls) => {
                let name =
                    ServerName::try_from(host).context("its host cannot be the name of a certificate")?;
                let stream = tls.connect(name, stream).await.context("cannot agree on TLS")?;
                self.post_over(stream, path, document).await
            }
        }
    }

    async fn post_over<S>(&self, stream: S, path: &str, document: &Json) -> anyhow::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let target = format!("{}{path}", self.base.path().trim_end_matches('/'));
        let mut request = Request::post(target)
            .header(HOST, self.base.authority().map_or("", http::uri::Authority::as_str))
            .header(CONTENT_TYPE, "application/json");
        let mut body = document.to_string().into_bytes();
        if self.is_compressed {
            request = request.header(CONTENT_ENCODING, "gzip");
            body = gzipped(&body)?;
        }
        let response = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await;
        // What it says beyond the status does not matter.
        connection.abort();
        let status = response?.status();
        if !status.is_success() {
            bail!("it answers {status}");
        }
        Ok(())
    }
}

fn gzipped(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}
