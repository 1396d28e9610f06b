//! Posting JSON to a server that somebody else runs: a collector, or the receiver of notices.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::trust;

/// How long it has to take what it is sent, from connecting to its answer.
pub(super) const POST_WAIT: Duration = Duration::from_secs(5);
/// The port of https://, where a URL says none.
const PORT_TLS: u16 = 443;

/// A server, and how it is spoken to. What is printed of it is its host alone: the rest of a URL may be a secret.
#[derive(Clone)]
pub(super) struct Target {
    base: Uri,
    tls: Option<TlsConnector>,
    port_default: u16,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("host", &self.base.host()).finish_non_exhaustive()
    }
}

/// What settings say of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// The setting of its URL, ...
    pub(super) url: &'static str,
    /// ... that of the certificate that it is trusted by, ...
    pub(super) authority: &'static str,
    /// ... and a URL that would be right.
    pub(super) example: &'static str,
    /// The port of http://, where a URL says none.
    pub(super) port_default: u16,
}

impl Target {
    /// The server at a URL, where `authority` is a file with those to trust for https://; without one, the system's.
    pub(super) fn at(named: Named, url: &str, authority: Option<&Path>) -> anyhow::Result<Self> {
        let Named { url: setting, authority: trusted, example, port_default } = named;
        let expected = format!("expected http://HOST:PORT or https://HOST:PORT, such as {example}");
        let base: Uri = url
            .parse()
            .ok()
            .with_context(|| format!("{setting}: got something else than a URL; {expected}"))?;
        let has_host = base.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        let tls = match base.scheme_str() {
            Some("http") if has_host && authority.is_some() => bail!(
                "{trusted}: got one for http://, where nothing is encrypted; expected https:// in {setting}"
            ),
            Some("http") if has_host => None,
            Some("https") if has_host => Some(trust::connector(authority).context(trusted)?),
            _ => bail!("{setting}: got a URL without http:// or https:// and a host alone; {expected}"),
        };
        Ok(Self { base, tls, port_default })
    }

    /// A path below that of the URL.
    pub(super) fn below(&self, path: &str) -> String {
        format!("{}{path}", self.base.path().trim_end_matches('/'))
    }

    /// What the URL names itself.
    pub(super) fn itself(&self) -> String {
        self.base.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned()
    }

    /// Posts a document with header fields of its own; an error if it is not taken in time.
    pub(super) async fn post(
        &self,
        target: &str,
        fields: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> anyhow::Result<()> {
        let posted = tokio::time::timeout(POST_WAIT, self.connect_and_post(target, fields, body)).await;
        posted.with_context(|| format!("no answer within {POST_WAIT:?}")).flatten()
    }

    async fn connect_and_post(
        &self,
        target: &str,
        fields: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> anyhow::Result<()> {
        let mut request = Request::post(target)
            .header(HOST, self.base.authority().map_or("", http::uri::Authority::as_str))
            .header(CONTENT_TYPE, "application/json");
        for (name, value) in fields {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let host = self.base.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port =
            self.base.port_u16().unwrap_or(if self.tls.is_some() { PORT_TLS } else { self.port_default });
        let stream = TcpStream::connect((host.as_str(), port)).await.context("cannot connect")?;
        match &self.tls {
            None => send_over(stream, request).await,
            Some(tls) => {
                let name =
                    ServerName::try_from(host).context("its host cannot be the name of a certificate")?;
                send_over(tls.connect(name, stream).await.context("cannot agree on TLS")?, request).await
            }
        }
    }
}

async fn send_over<S>(stream: S, request: Request<Full<Bytes>>) -> anyhow::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await;
    // What it says beyond the status does not matter.
    connection.abort();
    let status = response?.status();
    if !status.is_success() {
        bail!("it answers {status}");
    }
    Ok(())
}
