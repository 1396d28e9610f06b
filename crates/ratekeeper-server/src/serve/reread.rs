//! What is read again while the server runs: certificates, the token and keys of receipts now and then, and
//! everything at once when the system says so (SIGHUP).

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::admin::{Admin, Keyring};
use super::api::Api;
use super::listener::Stop;
use super::sources::Sources;
use super::tls::Certificates;

/// How often certificates and the token of operators are read again.
pub const REREAD_EVERY: Duration = Duration::from_secs(30);

/// What became of reading something again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reread {
    /// There is nothing to read.
    None,
    Same,
    Renewed,
}

/// The signal that ends other programs, and from now on does not end this one.
///
/// # Errors
/// If the system does not let it.
pub(super) fn hangup() -> anyhow::Result<Signal> {
    signal(SignalKind::hangup()).context("SIGHUP")
}

/// Everything that can be read again.
pub(super) struct Rereading {
    pub(super) certificates: Option<Arc<Certificates>>,
    pub(super) admin: Arc<Admin>,
    pub(super) sources: Arc<Sources>,
    pub(super) api: Arc<Api>,
    /// The password of the Redis protocol.
    pub(super) password: Option<Arc<Keyring>>,
}

impl Rereading {
    /// Reads again until the server finishes.
    pub(super) fn start(self, hangup: Signal, stop: &Stop) {
        self.note_expiry();
        tokio::spawn(self.follow(hangup, stop.clone()));
    }

    async fn follow(self, mut hangup: Signal, stop: Stop) {
        let mut finishing = std::pin::pin!(stop.finishing().wait());
        let (mut certificate, mut token) = (Told::new("certificate"), Told::new("token"));
        let (mut receipt_key, mut password) = (Told::new("receipt key"), Told::new("resp password"));
        loop {
            let is_told = tokio::select! {
                () = &mut finishing => return,
                _ = hangup.recv() => true,
                () = tokio::time::sleep(REREAD_EVERY) => false,
            };
            let (certificates, admin) = (self.certificates.clone(), Arc::clone(&self.admin));
            let (api, keyring) = (Arc::clone(&self.api), self.password.clone());
            let read = tokio::task::spawn_blocking(move || {
                let certificate = certificates.map_or(Ok(Reread::None), |pair| pair.read_again());
                let password = keyring.map_or(Ok(Reread::None), |keyring| keyring.read_again());
                (certificate, admin.read_again(), api.read_keys_again(), password)
            });
            let Ok(read) = read.await else { continue };
            self.note_expiry();
            let (certificate, token) = (certificate.note(&read.0), token.note(&read.1));
            let (receipt_key, password) = (receipt_key.note(&read.2), password.note(&read.3));
            if is_told {
                let error = self.sources.read_again().await.err().map(|error| format!("{error:#}"));
                let policies = if error.is_none() { "read" } else { "refused" };
                tracing::info!(
                    policies,
                    certificate,
                    token,
                    receipt_key,
                    password,
                    error,
                    "told to read everything again"
                );
            }
        }
    }

    fn note_expiry(&self) {
        if let Some(certificates) = &self.certificates {
            self.api.metrics.certificate_expires(certificates.expires());
        }
    }
}

/// What was last logged of something: a line when that changes, not one every time.
struct Told {
    what: &'static str,
    failure: Option<String>,
}

impl Told {
    fn new(what: &'static str) -> Self {
        Self { what, failure: None }
    }

    /// Notes what became of it; says it in a word.
    fn note(&mut self, read: &anyhow::Result<Reread>) -> &'static str {
        let what = self.what;
        let failure = read.as_ref().err().map(|error| format!("{error:#}"));
        let before = std::mem::replace(&mut self.failure, failure);
        match read {
            Ok(Reread::None) => "none",
            Ok(Reread::Same) => "same",
            Ok(Reread::Renewed) => {
                tracing::info!(what, "renewed: from now on the new one counts");
                "renewed"
            }
            Err(_) => {
                if let Some(error) = self.failure.as_ref().filter(|error| before.as_ref() != Some(error)) {
                    tracing::warn!(what, error, "it cannot be read again: the one before stays");
                }
                "refused"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::logs::tests::told;

    #[test]
    fn what_cannot_be_read_is_told_of_once() {
        let mut certificate = Told::new("certificate");
        let logged = told(|| {
            for _ in 0..3 {
                assert_eq!(certificate.note(&Err(anyhow::anyhow!("torn"))), "refused");
            }
            assert_eq!(certificate.note(&Err(anyhow::anyhow!("worn"))), "refused");
            assert_eq!(certificate.note(&Ok(Reread::Renewed)), "renewed");
            assert_eq!(certificate.note(&Ok(Reread::Same)), "same");
            assert_eq!(certificate.note(&Err(anyhow::anyhow!("worn"))), "refused");
        });
        let lines: Vec<&str> = logged.lines().collect();
        assert_eq!(lines.len(), 4, "{logged}");
        assert!(lines[0].contains("WARN") && lines[0].contains("torn"), "{logged}");
        assert!(lines[2].contains("INFO renewed") && lines[3].contains("worn"), "{logged}");
    }
}
