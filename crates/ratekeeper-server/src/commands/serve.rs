//! `ratekeeper serve`: the decision engine over the network, until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::BoolishValueParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use ratekeeper_server::serve::{self, Said, Secret, Settings, Source};

/// What can be said on the command line; the environment and a file can say it too.
#[derive(Debug, Args)]
#[allow(clippy::doc_markdown, reason = "it is read in a terminal")]
pub(crate) struct ServeOptions {
    /// Settings in a TOML file; flags and the environment win over it
    #[arg(long, value_name = "FILE", env = "RATEKEEPER_CONFIG")]
    config: Option<PathBuf>,

    /// Where HTTP is spoken [default: 127.0.0.1:8080]; port 0 picks one and says which
    #[arg(long, value_name = "ADDR", env = "RATEKEEPER_HTTP")]
    http: Option<String>,

    /// Where Envoy's rate limit service is spoken: comes later
    #[arg(long, value_name = "ADDR", env = "RATEKEEPER_GRPC", hide = true)]
    grpc: Option<String>,

    /// Where the Redis protocol is spoken: comes later
    #[arg(long, value_name = "ADDR", env = "RATEKEEPER_RESP", hide = true)]
    resp: Option<String>,

    /// A policy, a folder of policies, or the URL of a MongoDB that has them
    #[arg(long, value_name = "FILE|FOLDER|URL", env = "RATEKEEPER_POLICY", hide_env_values = true)]
    policy: Option<String>,

    /// Where counters live, such as redis://127.0.0.1:6379 [default: what the policy names, else memory]
    #[arg(long, value_name = "URL", env = "RATEKEEPER_STORE", hide_env_values = true)]
    store: Option<String>,

    /// Who signs the certificate of the store's server, in PEM
    #[arg(long, value_name = "FILE", env = "RATEKEEPER_STORE_CA")]
    store_ca: Option<PathBuf>,

    /// Milliseconds that the store has for an answer; then failure policies decide [default: 25]
    #[arg(long, value_name = "MS", env = "RATEKEEPER_STORE_DEADLINE")]
    store_deadline: Option<u64>,

    /// What every key in the store begins with, to share it with others [default: nothing]
    #[arg(long, value_name = "TEXT", env = "RATEKEEPER_STORE_PREFIX")]
    store_prefix: Option<String>,

    /// Connections to the store [default: 1]
    #[arg(long, value_name = "N", env = "RATEKEEPER_STORE_CONNECTIONS")]
    store_connections: Option<usize>,

    /// Counters that are kept if they are in memory [default: 1000000]
    #[arg(long, value_name = "N", env = "RATEKEEPER_MEMORY_KEYS")]
    memory_keys: Option<usize>,

    /// Ids and reservations that are kept if they are in memory [default: 100000]
    #[arg(long, value_name = "N", env = "RATEKEEPER_MEMORY_IDS")]
    memory_ids: Option<usize>,

    /// How many servers share the limits: each has that part of them while the store is away [default: 1]
    #[arg(long, value_name = "N", env = "RATEKEEPER_INSTANCES")]
    instances: Option<u32>,

    /// The certificate for TLS on every listener, in PEM, with its chain
    #[arg(long, value_name = "FILE", env = "RATEKEEPER_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// The private key that goes with it, in PEM
    #[arg(long, value_name = "FILE", env = "RATEKEEPER_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// The token of operators is in this file; or in RATEKEEPER_ADMIN_TOKEN itself
    #[arg(long, value_name = "FILE", env = "RATEKEEPER_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,

    /// Serves nothing that is for operators alone; =false serves it after all
    #[arg(long, value_name = "BOOL", env = "RATEKEEPER_NO_ADMIN")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    no_admin: Option<bool>,

    /// What is logged: off, error, warn, info, debug or trace, also by module [default: info]
    #[arg(long, value_name = "LEVEL", env = "RATEKEEPER_LOG")]
    log: Option<String>,

    /// How it is logged: text or json [default: text]
    #[arg(long, value_name = "FORMAT", env = "RATEKEEPER_LOG_FORMAT")]
    log_format: Option<String>,

    /// Threads that serve requests [default: one for each processor]
    #[arg(long, value_name = "N", env = "RATEKEEPER_THREADS")]
    threads: Option<usize>,

    /// Connections that are served at once [default: 16384]
    #[arg(long, value_name = "N", env = "RATEKEEPER_CONNECTIONS_MAX")]
    connections_max: Option<usize>,

    /// Seconds that everything is served as before when it is told to stop, while /readyz says so [default: 0]
    #[arg(long, value_name = "SECONDS", env = "RATEKEEPER_DRAIN_SECONDS")]
    drain_seconds: Option<u64>,

    /// Seconds that requests under way have after that [default: 10]
    #[arg(long, value_name = "SECONDS", env = "RATEKEEPER_SHUTDOWN_SECONDS")]
    shutdown_seconds: Option<u64>,

    /// Sends traces and metrics to an OpenTelemetry collector, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", env = "RATEKEEPER_OTLP", hide_env_values = true)]
    otlp: Option<String>,
}

pub(crate) fn run(options: ServeOptions, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let file = options.config;
    let source = |id: &str| {
        let of_serve = matches.subcommand().map(|(_, matches)| matches);
        match of_serve.and_then(|matches| matches.value_source(id)) {
            Some(ValueSource::EnvVariable) => Source::Environment,
            _ => Source::Flag,
        }
    };
    let said = Settings {
        http: options.http,
        grpc: options.grpc,
        resp: options.resp,
        policy: options.policy.map(Secret),
        store: options.store.map(Secret),
        store_ca: options.store_ca,
        store_deadline: options.store_deadline,
        store_prefix: options.store_prefix,
        store_connections: options.store_connections,
        memory_keys: options.memory_keys,
        memory_ids: options.memory_ids,
        instances: options.instances,
        tls_cert: options.tls_cert,
        tls_key: options.tls_key,
        admin_token_file: options
            .admin_token_file
            .map(|value| Said { value, by: source("admin_token_file") }),
        no_admin: options.no_admin.map(|value| Said { value, by: source("no_admin") }),
        log: options.log,
        log_format: options.log_format,
        threads: options.threads,
        connections_max: options.connections_max,
        drain_seconds: options.drain_seconds,
        shutdown_seconds: options.shutdown_seconds,
        otlp: options.otlp.map(Secret),
    };
    serve::run(said, file.as_deref())?;
    Ok(ExitCode::SUCCESS)
}
