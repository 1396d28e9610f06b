//! What a server is told: by flags, by the environment, by a file, in this order.

use std::path::PathBuf;

use serde::Deserialize;

/// The longest settings file, in bytes.
pub const SETTINGS_BYTES_MAX: u64 = 64 << 10;

/// Settings as they are written; whoever says nothing of one leaves it to the others.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where HTTP is spoken.
    pub http: Option<String>,
    /// Where Envoy's rate limit service is spoken.
    pub grpc: Option<String>,
    /// Where the Redis protocol is spoken.
    pub resp: Option<String>,
    /// A policy, a folder of them, or the URL of a `MongoDB`.
    pub policy: Option<String>,
    /// Where counters live.
    pub store: Option<String>,
    /// The certificate, with its chain.
    pub tls_cert: Option<PathBuf>,
    /// Its private key.
    pub tls_key: Option<PathBuf>,
    /// The token of operators is in this file.
    pub admin_token_file: Option<PathBuf>,
    /// Serves nothing that is for operators alone.
    pub no_admin: Option<bool>,
    /// What is logged.
    pub log: Option<String>,
    /// `text` or `json`.
    pub log_format: Option<String>,
    /// Threads that serve requests.
    pub threads: Option<usize>,
    /// Connections that are served at once.
    pub connections_max: Option<usize>,
    /// Seconds that requests under way have when the server is told to stop.
    pub shutdown_seconds: Option<u64>,
    /// Where traces and metrics are sent.
    pub otlp: Option<String>,
}
