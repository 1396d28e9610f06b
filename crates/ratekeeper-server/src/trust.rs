//! Whom to trust when this program asks somebody else over TLS.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::files::{self, AUTHORITIES_BYTES_MAX};

/// What encrypts connections to servers whose certificates are signed by those in a file; without one, by those that the
/// system trusts.
///
/// # Errors
/// If the file cannot be read, or there is nobody to trust.
pub fn connector(authority: Option<&Path>) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(path) => {
            let pem = files::bytes(path, AUTHORITIES_BYTES_MAX)?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.with_context(|| format!("{}: expected PEM", path.display()))?;
                roots.add(certificate).with_context(|| path.display().to_string())?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        bail!("there is no certificate to trust; expected some in PEM form");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}
