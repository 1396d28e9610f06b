//! From settings to a server that runs, and to one that has stopped.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use ratekeeper::policy::PolicyLimiter;
use ratekeeper_http::HttpOptions;
use tokio::signal::unix::{SignalKind, signal};

use super::api::Api;
use super::http::Http;
use super::listener::{Listener, Stop, serve_all};
use super::reread::Rereading;
use super::settings::{Config, Settings, Source};
use super::sources::Sources;
use super::store::Opened;
use super::tls::Certificates;
use super::{admin, descriptors, health, logs, reread};

/// Serves until it is told to stop, by settings of the command line and the environment, and of a file
/// where they have none; `source` has where a setting comes from.
///
/// # Errors
/// If it cannot start.
pub fn run(typed: Settings, file: Option<&Path>, source: impl Fn(&str) -> Source) -> anyhow::Result<()> {
    let settings = match file {
        Some(file) => typed.over(Settings::read(file)?),
        None => typed,
    };
    let token = std::env::var(admin::TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    let config = settings.check(token.as_deref(), source)?;
    logs::start(&config)?;
    let threads = config.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let runtime = match threads {
        // One thread needs no queues between threads.
        Some(1) => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        threads => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.unwrap_or(2))
            .enable_all()
            .build(),
    };
    runtime.context("the threads of the server")?.block_on(serve(config))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let hangup = reread::hangup()?;
    let sources = Arc::new(Sources::open(&config).await?);
    let store = Opened::new(&config.store, &sources.policies)?;
    let limiter = PolicyLimiter::on(Arc::clone(&store.store), sources.policies.clone());
    let options = HttpOptions::default().retry_after_spread(config.retry_after_spread);
    let options = options.legacy(config.legacy.0).legacy_reset(config.legacy.1);
    let api = Api::new(limiter).with_options(options);
    let api = Arc::new(match &config.receipt_keys {
        Some(file) => api.with_receipt_keys(file)?,
        None => api,
    });
    let certificates =
        config.tls.map(|(certificate, key)| Certificates::read(certificate, key)).transpose()?;
    let certificates = certificates.map(Arc::new);
    let tls = certificates.as_ref().map(Certificates::acceptor).transpose()?;
    let stop = Stop::default();
    let admin = Arc::new(config.admin);
    let http = Http::new(Arc::clone(&api), Arc::clone(&admin), stop.clone());
    let (http, exporting) = match config.otlp {
        Some(collector) => {
            let (http, exporting) = http.traced(collector);
            (http, Some(exporting))
        }
        None => (http, None),
    };
    let connections_max = descriptors::for_connections(config.connections_max);
    let (http, operators) = match config.admin_http {
        Some(address) => {
            let (http, operators) = http.operators_apart();
            (http, Some((address, operators)))
        }
        None => (http, None),
    };
    let (listener, tls_of_resp) = (Listener::bind(config.http, tls.clone(), Arc::new(http))?, tls.clone());
    let operators =
        operators.map(|(address, http)| Listener::bind(address, tls, Arc::new(http))).transpose()?;
    let password = config.resp.as_ref().and_then(|resp| resp.password.clone());
    let resp = config.resp.map(|resp| resp.bind(&api, tls_of_resp)).transpose()?;
    let rereading =
        Rereading { certificates, admin, sources: Arc::clone(&sources), api: Arc::clone(&api), password };
    rereading.start(hangup, &stop);
    tokio::spawn(health::watch(api, stop.clone(), store.deadline));
    // Before anybody knows that it serves: whoever then tells it to stop is heard.
    let told_again = told_to_stop(&stop, config.drain)?;
    // A reader that has gone away is no reason not to serve.
    let _ = introduce(&listener, operators.as_ref(), resp.as_ref(), &sources.description, &store.description);
    let ended = async {
        if serve_all(
            [Some(listener), operators, resp].into_iter().flatten().collect(),
            &stop,
            connections_max,
            config.grace,
        )
        .await
        {
            tracing::info!("stopped; everything under way was finished");
        } else {
            tracing::warn!("stopped; some connections were cut");
        }
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = told_again => tracing::warn!("told to stop again: stopped at once, whatever was under way"),
    }
    store.finish();
    Ok(())
}

/// Says what listens where, and what to try.
fn introduce(
    listener: &Listener,
    operators: Option<&Listener>,
    resp: Option<&Listener>,
    policy: &str,
    store: &str,
) -> std::io::Result<()> {
    let scheme = if listener.is_encrypted() { "https" } else { "http" };
    let base = format!("{scheme}://{}", reachable(listener.address()));
    let insecure = if listener.is_encrypted() { "k" } else { "" };
    let mut out = std::io::stdout().lock();
    writeln!(out, "ratekeeper {} serves", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "  HTTP       {base}  (calls: /openapi.json, metrics: /metrics)")?;
    if let Some(operators) = operators {
        writeln!(out, "  operators  {scheme}://{}", reachable(operators.address()))?;
    }
    if let Some(resp) = resp {
        let scheme = if resp.is_encrypted() { "rediss" } else { "redis" };
        writeln!(out, "  RESP       {scheme}://{}", reachable(resp.address()))?;
    }
    writeln!(out, "  policy     {policy}")?;
    writeln!(out, "  store      {store}")?;
    writeln!(out, "try")?;
    writeln!(
        out,
        "  curl -si{insecure} {base}/v1/limit -d '{{\"charges\":[{{\"key\":\"user:42\",\"quota\":\"3/min\"}}]}}'"
    )?;
    out.flush()
}

/// An address that can be asked: everywhere is also here.
fn reachable(address: std::net::SocketAddr) -> std::net::SocketAddr {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        let here: std::net::IpAddr = match address {
            std::net::SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        reachable.set_ip(here);
    }
    reachable
}

/// Tells the server to stop when the system says so, first to drain and then to finish;
/// returns when the system says it a second time.
fn told_to_stop(stop: &Stop, drain: std::time::Duration) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let stop = stop.clone();
    Ok(async move {
        let mut told = async || tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} };
        told().await;
        tracing::info!(drain_seconds = drain.as_secs(), "told to stop");
        stop.drain(drain);
        let again = async {
            told().await;
        };
        let finished = async {
            tokio::time::sleep(drain).await;
            stop.finish();
            std::future::pending::<()>().await;
        };
        tokio::select! { () = again => {} () = finished => {} }
        stop.finish();
    })
}
