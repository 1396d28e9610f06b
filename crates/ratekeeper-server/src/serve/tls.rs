//! Certificates for listeners. Whoever renews them puts new ones where the old ones
//! were, so they are read again now and then.

mod pair;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use self::pair::Pair;
use super::reread::Reread;

/// How long before its end a certificate that is still there is told of.
const ENDS_SOON: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The certificate that is shown, and where the next one will be.
pub(super) struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    shown: RwLock<Arc<CertifiedKey>>,
    expires: AtomicU64,
    /// What was logged last: a line when something changes, not one every time.
    told: Mutex<Life>,
}

/// How long a certificate lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Long,
    Short,
    Over,
}

impl Certificates {
    /// Reads a certificate with its chain, and its key.
    ///
    /// # Errors
    /// If a file cannot be read, is not what it should be, or the two do not fit.
    pub(super) fn read(certificate: PathBuf, key: PathBuf) -> anyhow::Result<Self> {
        let Pair { certified, expires } = Pair::read(&certificate, &key)?;
        let certificates = Self {
            certificate,
            key,
            shown: RwLock::new(Arc::new(certified)),
            expires: AtomicU64::new(expires),
            told: Mutex::default(),
        };
        certificates.tell_of_life(UnixTime::now());
        Ok(certificates)
    }

    /// What encrypts connections with the certificate that is shown at the time.
    /// `spoken` has the protocols that a client may choose from, the best first; without any, it need not.
    pub(super) fn acceptor(self: &Arc<Self>, spoken: &[&str]) -> anyhow::Result<TlsAcceptor> {
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?;
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::clone(self) as _);
        config.alpn_protocols = spoken.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// When the certificate that is shown ends, in seconds since 1970.
    pub(super) fn expires(&self) -> u64 {
        self.expires.load(Ordering::Relaxed)
    }

    /// Reads them again.
    ///
    /// # Errors
    /// If they cannot be used; then the ones before stay.
    pub(super) fn read_again(&self) -> anyhow::Result<Reread> {
        let reread = Pair::read(&self.certificate, &self.key).map(|pair| self.show(pair));
        self.tell_of_life(UnixTime::now());
        reread
    }

    fn show(&self, Pair { certified, expires }: Pair) -> Reread {
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        if shown.cert == certified.cert {
            return Reread::Same;
        }
        *shown = Arc::new(certified);
        self.expires.store(expires, Ordering::Relaxed);
        Reread::Renewed
    }

    fn tell_of_life(&self, now: UnixTime) {
        let expires = self.expires();
        let left = expires.saturating_sub(now.as_secs());
        let life = match left {
            0 => Life::Over,
            left if left < ENDS_SOON.as_secs() => Life::Short,
            _ => Life::Long,
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *told, life) == life {
            return;
        }
        let certificate = self.certificate.display();
        match life {
            Life::Over => {
                tracing::warn!(%certificate, expires, "the certificate has expired: clients refuse it");
            }
            Life::Short => {
                tracing::warn!(%certificate, expires, hours = left / 3_600, "the certificate expires soon");
            }
            Life::Long => {}
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ratekeeper_testkit::servers::{Flavour, Server};

    use super::*;
    use crate::serve::logs::tests::told;

    /// Puts the certificate of a server where another one was, as whoever renews it does.
    fn renew(folder: &std::path::Path, with: &Server, files: &[&str]) {
        for file in files {
            fs::copy(with.dir().join(file), folder.join("new")).unwrap();
            fs::rename(folder.join("new"), folder.join(file)).unwrap();
        }
    }

    #[test]
    fn a_new_pair_is_shown_and_its_end_is_told_of_once() {
        let (one, other) = (Server::start_tls(Flavour::Redis7), Server::start_tls(Flavour::Redis7));
        let folder = tempfile::tempdir().unwrap();
        let (pem, key) = ("server.pem", "server.key");
        renew(folder.path(), &one, &[pem, key]);
        let certificates = Certificates::read(folder.path().join(pem), folder.path().join(key)).unwrap();
        let shown = || certificates.shown.read().unwrap().cert[0].clone();
        let first = shown();
        assert_eq!(certificates.read_again().unwrap(), Reread::Same);
        // Only half of it is there yet.
        renew(folder.path(), &other, &[pem]);
        assert!(certificates.read_again().is_err());
        assert_eq!(shown(), first);
        renew(folder.path(), &other, &[key]);
        assert_eq!(certificates.read_again().unwrap(), Reread::Renewed);
        assert_ne!(shown(), first);
        // They are made for 30 days.
        let days = |days: u64| {
            UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs() + days * 86_400))
        };
        let lines = |now: UnixTime| told(|| (0..3).for_each(|_| certificates.tell_of_life(now)));
        assert_eq!(lines(days(20)), "");
        let soon = lines(days(27));
        assert!(soon.lines().count() == 1 && soon.contains("WARN the certificate expires soon"), "{soon}");
        let over = lines(days(31));
        assert!(over.lines().count() == 1 && over.contains("WARN the certificate has expired"), "{over}");
    }
}
