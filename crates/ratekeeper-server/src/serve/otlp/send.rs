//! Posting documents to a collector.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value as Json;

use crate::serve::post::{Named, Target};

/// How settings call a collector.
pub(super) const COLLECTOR: Named =
    Named { url: "otlp", authority: "otlp-ca", example: "http://127.0.0.1:4318", port_default: 4_318 };

/// Where documents of one kind go.
#[derive(Debug)]
pub(super) struct Path {
    target: Target,
    path: &'static str,
    is_compressed: bool,
    is_failing: bool,
}

impl Path {
    /// `path` of a collector.
    pub(super) fn new(target: Target, path: &'static str, is_compressed: bool) -> Self {
        Self { target, path, is_compressed, is_failing: false }
    }

    /// Posts `document`; says whether it was taken. A line when it begins to fail and one
    /// when that is over, not one every time.
    pub(super) async fn send(&mut self, document: &Json) -> bool {
        let path = self.path;
        let sent = self.post(document).await;
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

    async fn post(&self, document: &Json) -> anyhow::Result<()> {
        let (mut fields, mut body) = (Vec::new(), document.to_string().into_bytes());
        if self.is_compressed {
            fields.push(("content-encoding", "gzip".to_owned()));
            body = gzipped(&body)?;
        }
        self.target.post(&self.target.below(self.path), &fields, body).await
    }
}

fn gzipped(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}
