//! A server that is asked over HTTP.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ratekeeper_server::serve::{TOKEN_VARIABLE, Token};
use ratekeeper_server::{files, trust};
use rustls::pki_types::ServerName;
use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::cli::operate::TargetOptions;
use crate::failure::Failure;

/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

pub(in crate::commands) struct Remote {
    uri: Uri,
    authorization: Option<HeaderValue>,
    tls: Option<TlsConnector>,
    timeout: Duration,
}

impl Remote {
    pub(super) fn new(server: &str, options: &TargetOptions) -> Result<Self, Failure> {
        let uri = address(server)?;
        let is_tls = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
        let tls = is_tls.then(|| trust::connector(options.server_ca.as_deref())).transpose();
        let tls = tls.map_err(|error| Failure::new(format!("--server-ca {error:#}")))?;
        Ok(Self {
            uri,
            authorization: authorization(options)?,
            tls,
            timeout: Duration::from_millis(options.store.timeout),
        })
    }

    /// The status of the answer, and its body.
    pub(super) async fn call(&self, path: &str, body: Option<&Json>) -> Result<(u16, Json), Failure> {
        let answer = tokio::time::timeout(self.timeout, self.answer(path, body)).await;
        let answer = answer.with_context(|| format!("no answer within {:?}", self.timeout)).flatten();
        answer.map_err(|error| {
            Failure::new(format!("--server {}: {error:#}", self.uri))
                .hint("is `ratekeeper serve` running there? --timeout waits longer")
        })
    }

    async fn answer(&self, path: &str, body: Option<&Json>) -> anyhow::Result<(u16, Json)> {
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.uri.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((host.as_str(), port)).await.context("cannot connect")?;
        match &self.tls {
            None => self.exchange(stream, path, body).await,
            Some(tls) => {
                let name = ServerName::try_from(host).context("cannot be the name of a certificate")?;
                let stream = tls.connect(name, stream).await.context("cannot agree on TLS")?;
                self.exchange(stream, path, body).await
            }
        }
    }

    async fn exchange<S>(&self, stream: S, path: &str, body: Option<&Json>) -> anyhow::Result<(u16, Json)>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let target = format!("{}{path}", self.uri.path().trim_end_matches('/'));
        let authority = self.uri.authority().map_or("", http::uri::Authority::as_str);
        let mut request = match body {
            Some(_) => Request::post(target).header(CONTENT_TYPE, "application/json"),
            None => Request::get(target),
        }
        .header(HOST, authority);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let response = sender.send_request(request.body(Full::new(body))?).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        connection.abort();
        let Ok(body) = body else {
            bail!("the answer ends too early, or is longer than {ANSWER_BYTES_MAX} bytes")
        };
        let body = serde_json::from_slice(&body.to_bytes());
        Ok((
            status,
            body.with_context(|| format!("it answers {status} without JSON; expected a Ratekeeper server"))?,
        ))
    }
}

fn address(server: &str) -> Result<Uri, Failure> {
    let uri = server.parse::<Uri>().ok().filter(|uri| {
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        is_http && uri.query().is_none() && uri.authority().is_some_and(|of| !of.as_str().contains('@'))
    });
    uri.ok_or_else(|| {
        Failure::new("--server: got what is no address; expected http://HOST:PORT or https://HOST:PORT")
            .hint("a token stands in --admin-token-file or the environment, never in the address")
    })
}

/// The token, from a file or the environment. It is checked as the server checks its own.
fn authorization(options: &TargetOptions) -> Result<Option<HeaderValue>, Failure> {
    let text = match &options.admin_token_file {
        Some(path) => Some(files::text(path, 4_096).map_err(|error| {
            Failure::new(format!("--admin-token-file {error:#}"))
                .hint("it is a file with nothing but the token in it")
        })?),
        None => std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()),
    };
    let Some(text) = text else { return Ok(None) };
    Token::new(&text).map_err(|error| Failure::new(format!("the token of operators: {error:#}")))?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim())).map_err(Failure::new)?;
    value.set_sensitive(true);
    Ok(Some(value))
}
