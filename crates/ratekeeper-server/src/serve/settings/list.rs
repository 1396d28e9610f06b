//! The list of settings. Each is written here, once.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;
use serde::Deserialize;

/// Makes the struct of all settings. Each is optional: what one source leaves out, the next may have.
macro_rules! settings {
    ($(#[$of_struct:meta])* pub struct $name:ident { $($(#[$of_field:meta])* pub $field:ident: $type:ty,)+ }) => {
        $(#[$of_struct])*
        pub struct $name {
            $($(#[$of_field])* #[arg(long)] pub $field: Option<$type>,)+
        }

        impl $name {
            /// These settings, and those of `below` where they have none.
            #[must_use]
            pub fn over(self, below: Self) -> Self {
                Self { $($field: self.$field.or(below.$field),)+ }
            }
        }
    };
}

settings! {
    /// Every setting: its flag, its variable and its help, and its field in a file.
    #[derive(Args, Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(clippy::doc_markdown, rustdoc::bare_urls, reason = "it is read in a terminal")]
    pub struct Settings {
        /// Where HTTP is spoken [default: 127.0.0.1:8080]; port 0 picks one and says which
        #[arg(value_name = "ADDR", env = "RATEKEEPER_HTTP")]
        pub http: String,

        /// Where Envoy's rate limit service is spoken, or off [default: 127.0.0.1:8081, if it is free]
        #[arg(value_name = "ADDR", env = "RATEKEEPER_GRPC")]
        pub grpc: String,

        /// Takes negative hits of Envoy's, which give back without a receipt: whoever can call then can lift limits; =false
        /// does not after all [default: false]
        #[arg(value_name = "BOOL", env = "RATEKEEPER_GRPC_REFUNDS")]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true)]
        pub grpc_refunds: bool,

        /// Judges each of Envoy's descriptors as a check of its own, rather than all of a call as one [default: false]
        #[arg(value_name = "BOOL", env = "RATEKEEPER_GRPC_EACH_DESCRIPTOR")]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true)]
        pub grpc_each_descriptor: bool,

        /// Where the Redis protocol is spoken, for CL.THROTTLE [default: nowhere]
        #[arg(value_name = "ADDR", env = "RATEKEEPER_RESP")]
        pub resp: String,

        /// The password of the Redis protocol is in this file, of at least 16 characters; without one, only a loopback
        /// address may speak it
        #[arg(value_name = "FILE", env = "RATEKEEPER_RESP_PASSWORD_FILE")]
        pub resp_password_file: PathBuf,

        /// What CL.THROTTLE answers while the store is away: allow, local or deny [default: allow]
        #[arg(value_name = "HOW", env = "RATEKEEPER_RESP_ON_OUTAGE")]
        pub resp_on_outage: String,

        /// A policy, a folder of policies, or the URL of a MongoDB that has them
        #[arg(value_name = "FILE|FOLDER|URL", env = "RATEKEEPER_POLICY", hide_env_values = true)]
        pub policy: Secret,

        /// The database of a MongoDB that has the policies [default: ratekeeper]
        #[arg(value_name = "NAME", env = "RATEKEEPER_MONGODB_DATABASE")]
        pub mongodb_database: String,

        /// The collection of a MongoDB that has the policies [default: policies]
        #[arg(value_name = "NAME", env = "RATEKEEPER_MONGODB_COLLECTION")]
        pub mongodb_collection: String,

        /// Milliseconds between looks at a MongoDB that has the policies [default: 30000]
        #[arg(value_name = "MS", env = "RATEKEEPER_MONGODB_INTERVAL")]
        pub mongodb_interval: u64,

        /// Keeps the last good policies of a MongoDB in this file, so that the server starts while it is away
        #[arg(value_name = "FILE", env = "RATEKEEPER_MONGODB_COPY")]
        pub mongodb_copy: PathBuf,

        /// Where counters live, such as redis://127.0.0.1:6379 or redis+sentinel://host:26379/service [default: what the policy names, else memory]
        #[arg(value_name = "URL", env = "RATEKEEPER_STORE", hide_env_values = true)]
        pub store: Secret,

        /// Keeps counters, overrides, switches and ids of a store in memory in this directory, through restarts and
        /// crashes; the same as --store memory+dir://DIR
        #[arg(value_name = "DIR", env = "RATEKEEPER_DATA")]
        pub data: PathBuf,

        /// Who signs the certificate of the store's server, in PEM
        #[arg(value_name = "FILE", env = "RATEKEEPER_STORE_CA")]
        pub store_ca: PathBuf,

        /// The password of the store is in this file, which is read again for every new connection
        #[arg(value_name = "FILE", env = "RATEKEEPER_STORE_PASSWORD_FILE")]
        pub store_password_file: PathBuf,

        /// Milliseconds that the store may be silent; then failure policies decide [default: 25]
        #[arg(value_name = "MS", env = "RATEKEEPER_STORE_DEADLINE")]
        pub store_deadline: u64,

        /// Milliseconds that a call to the store may take in all, in our own queue too [default: four deadlines]
        #[arg(value_name = "MS", env = "RATEKEEPER_STORE_TOTAL")]
        pub store_total: u64,

        /// What every key in the store begins with, to share it with others [default: nothing]
        #[arg(value_name = "TEXT", env = "RATEKEEPER_STORE_PREFIX")]
        pub store_prefix: String,

        /// Checks that may wait for a connection to the store; more are an overload at once [default: 10000]
        #[arg(value_name = "N", env = "RATEKEEPER_STORE_QUEUE")]
        pub store_queue: usize,

        /// Connections to the store [default: 1]
        #[arg(value_name = "N", env = "RATEKEEPER_STORE_CONNECTIONS")]
        pub store_connections: usize,

        /// Replicas that must have a charge before it is answered (WAIT); a failover to one of them loses none [default: 0]
        #[arg(value_name = "N", env = "RATEKEEPER_STORE_REPLICAS")]
        pub store_replicas: usize,

        /// Counters that are kept if they are in memory [default: 1000000]
        #[arg(value_name = "N", env = "RATEKEEPER_MEMORY_KEYS")]
        pub memory_keys: usize,

        /// Ids and reservations that are kept if they are in memory [default: 100000]
        #[arg(value_name = "N", env = "RATEKEEPER_MEMORY_IDS")]
        pub memory_ids: usize,

        /// How many servers share the limits: each has that part of them while the store is away [default: 1]
        #[arg(value_name = "N", env = "RATEKEEPER_INSTANCES")]
        pub instances: u32,

        /// The certificate for TLS on every listener, in PEM, with its chain
        #[arg(value_name = "FILE", env = "RATEKEEPER_TLS_CERT")]
        pub tls_cert: PathBuf,

        /// The private key that goes with it, in PEM
        #[arg(value_name = "FILE", env = "RATEKEEPER_TLS_KEY")]
        pub tls_key: PathBuf,

        /// Where operators' calls are served, on a listener of their own and nowhere else [default: beside all other calls]
        #[arg(value_name = "ADDR", env = "RATEKEEPER_ADMIN_HTTP")]
        pub admin_http: String,

        /// Tokens with their roles (read, operate, usage) are in this file, hashed, as `ratekeeper token new` prints them
        #[arg(value_name = "FILE", env = "RATEKEEPER_TOKENS")]
        pub tokens: PathBuf,

        /// The token of operators is in this file, in the clear; or in RATEKEEPER_ADMIN_TOKEN itself
        #[arg(value_name = "FILE", env = "RATEKEEPER_ADMIN_TOKEN_FILE")]
        pub admin_token_file: PathBuf,

        /// Receipts are signed with the key in this file, of at least 32 characters; while it changes, the one before
        /// stands in the second line [default: a key that the store keeps]
        #[arg(value_name = "FILE", env = "RATEKEEPER_RECEIPT_KEY_FILE")]
        pub receipt_key_file: PathBuf,

        /// Serves nothing that is for operators alone; =false serves it after all
        #[arg(value_name = "BOOL", env = "RATEKEEPER_NO_ADMIN")]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true)]
        pub no_admin: bool,

        /// Lets everybody on this machine do what operators do, if nobody else can reach them
        #[arg(value_name = "BOOL", env = "RATEKEEPER_ADMIN_WITHOUT_TOKEN")]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true)]
        pub admin_without_token: bool,

        /// Lets operators start a load of one minute from the dashboard, on a policy made for it: to look around, not for
        /// production [default: false]
        #[arg(value_name = "BOOL", env = "RATEKEEPER_DEMO_LOAD")]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true)]
        pub demo_load: bool,
        /// The networks that gateways call /v1/forward-auth from, with commas between them, or none [default: 127.0.0.0/8,::1]
        #[arg(value_name = "NETWORKS", env = "RATEKEEPER_FORWARD_AUTH_FROM")]
        pub forward_auth_from: String,

        /// What is logged: off, error, warn, info, debug or trace, also by module [default: info]
        #[arg(value_name = "LEVEL", env = "RATEKEEPER_LOG")]
        pub log: String,

        /// How it is logged: text or json [default: text]
        #[arg(value_name = "FORMAT", env = "RATEKEEPER_LOG_FORMAT")]
        pub log_format: String,

        /// Threads that serve requests [default: one for each processor]
        #[arg(value_name = "N", env = "RATEKEEPER_THREADS")]
        pub threads: usize,

        /// Connections that are served at once [default: 16384]
        #[arg(value_name = "N", env = "RATEKEEPER_CONNECTIONS_MAX")]
        pub connections_max: usize,

        /// Header fields of old beside the standard ones: off, ratelimit or x-ratelimit [default: off]
        #[arg(value_name = "FIELDS", env = "RATEKEEPER_LEGACY_HEADERS")]
        pub legacy_headers: String,

        /// What the Reset of those fields counts: delta, seconds from now, or epoch, seconds since 1970 [default: delta]
        #[arg(value_name = "COUNT", env = "RATEKEEPER_LEGACY_RESET")]
        pub legacy_reset: String,

        /// Percent by which each Retry-After is lengthened at random, so that the denied do not return together [default: 0]
        #[arg(value_name = "PERCENT", env = "RATEKEEPER_RETRY_AFTER_SPREAD")]
        pub retry_after_spread: u64,

        /// Seconds that everything is served as before when it is told to stop, while /readyz says so [default: 0]
        #[arg(value_name = "SECONDS", env = "RATEKEEPER_DRAIN_SECONDS")]
        pub drain_seconds: u64,

        /// Seconds that requests under way have after that [default: 10]
        #[arg(value_name = "SECONDS", env = "RATEKEEPER_SHUTDOWN_SECONDS")]
        pub shutdown_seconds: u64,

        /// Sends traces and metrics to an OpenTelemetry collector, such as http://127.0.0.1:4318 or https://collector:4318
        #[arg(value_name = "URL", env = "RATEKEEPER_OTLP", hide_env_values = true)]
        pub otlp: Secret,

        /// Who signs the certificate of an https:// collector, in PEM [default: whom the system trusts]
        #[arg(value_name = "FILE", env = "RATEKEEPER_OTLP_CA")]
        pub otlp_ca: PathBuf,

        /// How what is sent to a collector is compressed: none or gzip [default: none]
        #[arg(value_name = "HOW", env = "RATEKEEPER_OTLP_COMPRESSION")]
        pub otlp_compression: String,

        /// Posts notices to this URL, http:// or https://: a key has passed 80 or 100 percent of a quota, the circuit breaker
        /// changes, an outage lifts limits, a policy is refused
        #[arg(value_name = "URL", env = "RATEKEEPER_NOTIFY_URL", hide_env_values = true)]
        pub notify_url: Secret,

        /// Notices are signed with the secret in this file, of at least 24 characters
        #[arg(value_name = "FILE", env = "RATEKEEPER_NOTIFY_SECRET_FILE")]
        pub notify_secret_file: PathBuf,

        /// Who signs the certificate of an https:// receiver of notices, in PEM [default: whom the system trusts]
        #[arg(value_name = "FILE", env = "RATEKEEPER_NOTIFY_CA")]
        pub notify_ca: PathBuf,

        /// Which shares of a quota are noticed, in percent, 50 to 100 [default: 80,100]
        #[arg(value_name = "PERCENTS", env = "RATEKEEPER_NOTIFY_AT")]
        pub notify_at: String,
    }
}

/// A text that may hold a password, and is therefore not printed.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct Secret(pub String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(...)")
    }
}
