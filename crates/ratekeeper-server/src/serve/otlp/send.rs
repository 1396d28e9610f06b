//! Posting JSON to a collector.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tokio::net::TcpStream;

/// How long a collector has to take what it is sent.
const SEND_WAIT: Duration = Duration::from_secs(5);
/// Where OTLP over HTTP is spoken.
const PORT_DEFAULT: u16 = 4_318;

/// Where documents of one kind go.
#[derive(Debug)]
pub(super) struct Path {
    base: Uri,
    path: &'static str,
    is_failing: bool,
}

impl Path {
    /// `path` below `base`.
    pub(super) fn new(base: Uri, path: &'static str) -> Self {
        Self { base, path, is_failing: false }
    }

    /// Posts `document`; says whether it was taken. A line when it begins to fail and one
    /// when that is over, not one every time.
    pub(super) async fn send(&mut self, document: &Json) -> bool {
        let path = self.path;
        let sent = tokio::time::timeout(SEND_WAIT, posted(&self.base, path, document)).await;
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

async fn posted(base: &Uri, path: &str, document: &Json) -> anyhow::Result<()> {
    let host = base.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = base.port_u16().unwrap_or(PORT_DEFAULT);
    let stream = TcpStream::connect((host, port)).await.context("cannot connect")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let target = format!("{}{path}", base.path().trim_end_matches('/'));
    let request = Request::post(target)
        .header(HOST, base.authority().map_or("", http::uri::Authority::as_str))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(document.to_string())))?;
    let response = sender.send_request(request).await;
    // What it says beyond the status does not matter.
    connection.abort();
    let status = response?.status();
    if !status.is_success() {
        bail!("it answers {status}");
    }
    Ok(())
}
