//! Certificates for listeners.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::files;

/// The longest file with a certificate and its chain, or with a key, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// What encrypts connections with this certificate.
///
/// # Errors
/// If a file cannot be read, is not what it should be, or the two do not fit.
pub(super) fn acceptor(certificate: &Path, key: &Path) -> anyhow::Result<TlsAcceptor> {
    let in_file = |setting: &str, path: &Path| format!("{setting}: {}", path.display());
    let pem = files::bytes(certificate, PEM_BYTES_MAX).context("tls-cert")?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.with_context(|| in_file("tls-cert", certificate))?;
    if chain.is_empty() {
        bail!("{}: there is no certificate in it; expected PEM", in_file("tls-cert", certificate));
    }
    let pem = files::bytes(key, PEM_BYTES_MAX).context("tls-key")?;
    let private = PrivateKeyDer::from_pem_slice(&pem).with_context(|| in_file("tls-key", key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, private).with_context(|| {
        format!("the key in {} for the certificate in {}", key.display(), certificate.display())
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
