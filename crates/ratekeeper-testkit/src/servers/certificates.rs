//! An authority and a server's certificate that it signed, new for each server.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::executable;

pub(super) const AUTHORITY: &str = "ca.pem";

/// What makes Redis use them. Clients need no certificate; nodes of a cluster show each other theirs.
pub(super) const DIRECTIVES: &str = "\
tls-ca-cert-file ca.pem
tls-cert-file server.pem
tls-key-file server.key
tls-auth-clients no";

/// What the certificates may be used for; the machine's own settings play no part.
const CONFIG: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = ratekeeper tests
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
";

/// Makes `ca.pem`, `server.pem` and `server.key` in a folder.
pub(super) fn make(dir: &Path) {
    fs::write(dir.join("openssl.cnf"), CONFIG).expect("write the settings for openssl");
    certify(dir, &["-extensions", "authority", "-keyout", "ca.key", "-out", AUTHORITY]);
    let signed = ["-CA", AUTHORITY, "-CAkey", "ca.key"];
    let server = ["-extensions", "server", "-keyout", "server.key", "-out", "server.pem"];
    certify(dir, &[signed.as_slice(), &server].concat());
}

/// Uses those that were made in another folder.
pub(super) fn copy(from: &Path, to: &Path) {
    for name in [AUTHORITY, "server.pem", "server.key"] {
        fs::copy(from.join(name), to.join(name)).expect("copy a certificate");
    }
}

fn certify(dir: &Path, arguments: &[&str]) {
    let mut command = Command::new(executable("openssl"));
    command.args(["req", "-x509", "-config", "openssl.cnf", "-days", "30", "-noenc"]);
    command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]).args(arguments);
    let output = command.current_dir(dir).stdin(Stdio::null()).output().expect("run openssl");
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}
