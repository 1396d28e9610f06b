//! A certificate with its chain, and its key, as they stand in files.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};

use crate::files;

/// The longest file with a certificate and its chain, or with a key, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

pub(super) struct Pair {
    pub(super) certified: CertifiedKey,
    /// When the certificate ends, in seconds since 1970.
    pub(super) expires: u64,
}

impl Pair {
    pub(super) fn read(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let pem = files::bytes(certificate, PEM_BYTES_MAX).context("tls-cert")?;
        let (chain, expires) = chain(&pem).with_context(|| format!("tls-cert: {}", certificate.display()))?;
        let pem = files::bytes(key, PEM_BYTES_MAX).context("tls-key")?;
        let private = private(&pem).with_context(|| format!("tls-key: {}", key.display()))?;
        let certified =
            CertifiedKey::from_der(chain, private, &default_provider()).map_err(|error| match error {
                Error::InconsistentKeys(_) => anyhow!(
                    "tls-key: the key in {} is not that of the certificate in {} (tls-cert)",
                    key.display(),
                    certificate.display()
                ),
                error => anyhow!("tls-key: {}: {error}", key.display()),
            })?;
        Ok(Self { certified, expires })
    }
}

/// The certificate and those that vouch for it, and when it ends.
fn chain(pem: &[u8]) -> anyhow::Result<(Vec<CertificateDer<'static>>, u64)> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| anyhow!("{error}; expected PEM"))?;
    let certificate = chain.first().context("there is no certificate in it; expected PEM")?;
    let expires = expires(certificate)?;
    Ok((chain, expires))
}

fn private(pem: &[u8]) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        _ if String::from_utf8_lossy(pem).contains("ENCRYPTED") => anyhow!(
            "the key is encrypted, and nobody is here to type its passphrase; expected one that is not\n\
             hint: `openssl pkey -in KEY -out PLAIN` decrypts it; keep the file to the server's user"
        ),
        PemError::NoItemsFound => anyhow!("there is no private key in it; expected PEM"),
        error => anyhow!("{error}; expected PEM"),
    })
}

/// When a certificate ends. Whoever verifies one says so if it has: at the end of time all
/// have, and before anything else about them is looked at.
fn expires(certificate: &CertificateDer<'_>) -> anyhow::Result<u64> {
    let parsed = ParsedCertificate::try_from(certificate).map_err(|error| match error {
        error if format!("{error:?}").contains("UnsupportedCertVersion") => {
            anyhow!("it is a certificate of an old version; expected X.509 version 3")
        }
        error => anyhow!("{error}; expected an X.509 certificate"),
    })?;
    let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let verified =
        verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], end_of_time, &[]);
    match verified {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Ok(not_after.as_secs())
        }
        Err(error) => Err(anyhow!("{error}; expected a certificate with a time it lasts to")),
        Ok(()) => Ok(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use ratekeeper_testkit::servers::{Flavour, Server};

    use super::*;

    fn openssl(folder: &Path, arguments: &[&str]) {
        let output = Command::new("openssl").current_dir(folder).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn refused(certificate: &Path, key: &Path) -> String {
        format!("{:#}", Pair::read(certificate, key).err().unwrap())
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_setting() {
        let (one, other) = (Server::start_tls(Flavour::Redis7), Server::start_tls(Flavour::Redis7));
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (certificate, key) = (one.dir().join("server.pem"), one.dir().join("server.key"));
        assert!(Pair::read(&certificate, &key).is_ok());
        let error = refused(&certificate, &other.dir().join("server.key"));
        assert!(error.starts_with("tls-key: the key in ") && error.contains("(tls-cert)"), "{error}");
        let plain = key.to_str().unwrap();
        openssl(folder.path(), &["pkey", "-in", plain, "-aes128", "-passout", "pass:x", "-out", "pkcs8"]);
        openssl(folder.path(), &["ec", "-in", plain, "-aes128", "-passout", "pass:x", "-out", "sec1"]);
        for name in ["pkcs8", "sec1"] {
            let error = refused(&certificate, &at(name));
            assert!(error.starts_with("tls-key: ") && error.contains("the key is encrypted"), "{error}");
            assert!(error.contains("hint: `openssl pkey"), "{error}");
        }
        let error = refused(&certificate, &certificate);
        assert!(error.starts_with("tls-key: ") && error.contains("there is no private key"), "{error}");
        let error = refused(&key, &key);
        assert!(error.starts_with("tls-cert: ") && error.contains("there is no certificate"), "{error}");
        openssl(folder.path(), &["req", "-new", "-key", plain, "-subj", "/CN=x", "-out", "csr"]);
        openssl(folder.path(), &["x509", "-req", "-in", "csr", "-signkey", plain, "-out", "v1"]);
        let error = refused(&at("v1"), &key);
        assert!(error.starts_with("tls-cert: ") && error.contains("expected X.509 version 3"), "{error}");
        fs::write(at("none"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        let error = refused(&at("none"), &key);
        assert!(error.contains("expected an X.509 certificate"), "{error}");
    }

    #[test]
    fn the_end_of_a_certificate_is_known() {
        let server = Server::start_tls(Flavour::Redis7);
        let pair = Pair::read(&server.dir().join("server.pem"), &server.dir().join("server.key")).unwrap();
        let (now, day) = (UnixTime::now().as_secs(), 86_400);
        assert!((now + 29 * day..=now + 30 * day).contains(&pair.expires), "{}", pair.expires);
    }
}
