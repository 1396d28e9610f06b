//! What is read again while the server runs: certificates now and then, and everything
//! at once when the system says so (SIGHUP).

use std::sync::Arc;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::api::Api;
use super::listener::Stop;
use super::sources::Sources;
use super::tls::{CERTIFICATE_LOOK_EVERY, Certificates, Reread};

/// Everything that can be read again.
pub(super) struct Rereading {
    hangup: Signal,
    certificates: Option<Arc<Certificates>>,
    sources: Arc<Sources>,
    api: Arc<Api>,
}

impl Rereading {
    /// From now on, the signal that ends other programs does not end this one.
    ///
    /// # Errors
    /// If the system does not let it.
    pub(super) fn new(
        certificates: Option<Arc<Certificates>>,
        sources: Arc<Sources>,
        api: Arc<Api>,
    ) -> anyhow::Result<Self> {
        let hangup = signal(SignalKind::hangup()).context("SIGHUP")?;
        let rereading = Self { hangup, certificates, sources, api };
        rereading.note_expiry();
        Ok(rereading)
    }

    /// Until the server finishes.
    pub(super) async fn follow(mut self, stop: Stop) {
        let mut finishing = std::pin::pin!(stop.finishing().wait());
        loop {
            let is_told = tokio::select! {
                () = &mut finishing => return,
                _ = self.hangup.recv() => true,
                () = tokio::time::sleep(CERTIFICATE_LOOK_EVERY) => false,
            };
            let certificate = self.certificates().await;
            if is_told {
                let policies = self.sources.read_again().await;
                let error = policies.as_ref().err().map(|error| format!("{error:#}"));
                let (policies, certificate) = (if error.is_none() { "read" } else { "refused" }, certificate);
                tracing::info!(policies, error, certificate, "told to read everything again");
            }
        }
    }

    /// What became of the certificate, in a word.
    async fn certificates(&self) -> &'static str {
        let Some(certificates) = self.certificates.clone() else { return "none" };
        let reread = tokio::task::spawn_blocking(move || certificates.read_again()).await;
        self.note_expiry();
        match reread {
            Ok(Reread::Same) => "same",
            Ok(Reread::Renewed) => "renewed",
            Ok(Reread::Refused) | Err(_) => "refused",
        }
    }

    fn note_expiry(&self) {
        if let Some(certificates) = &self.certificates {
            self.api.metrics.certificate_expires(certificates.expires());
        }
    }
}
