//! From settings to a server that runs, and to one that has stopped.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::OptionFuture;
use ratekeeper::policy::PolicyLimiter;
use ratekeeper_http::HttpOptions;
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;

use super::api::Api;
use super::dashboard::Shown;
use super::http::Http;
use super::introduction::Introduction;
use super::listener::{Listener, Stop, serve_all};
use super::notices::{Notifying, Receiver, Sending};
use super::otlp::Exporting;
use super::reread::Rereading;
use super::settings::{Config, Settings, Source};
use super::sources::Sources;
use super::store::Opened;
use super::tls::Certificates;
use super::{admin, dashboard, descriptors, health, logs, reread};

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

/// An API with the keys that sign receipts, if they are in a file, and with someone who receives notices, if there is.
fn ready(
    api: Api,
    receipt_keys: Option<&Path>,
    notify: Option<Receiver>,
) -> anyhow::Result<(Arc<Api>, Option<Notifying>)> {
    let api = match receipt_keys {
        Some(file) => api.with_receipt_keys(file)?,
        None => api,
    };
    Ok(match notify {
        Some(receiver) => {
            let (api, notifying) = api.notifying(receiver);
            (Arc::new(api), Some(notifying))
        }
        None => (Arc::new(api), None),
    })
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let hangup = reread::hangup()?;
    let sources = Arc::new(Sources::open(&config).await?);
    let store = Opened::new(&config.store, &sources.policies)?;
    let limiter = PolicyLimiter::on(Arc::clone(&store.store), sources.policies.clone());
    let options = HttpOptions::default().retry_after_spread(config.retry_after_spread);
    let options = options.legacy(config.legacy.0).legacy_reset(config.legacy.1);
    let shown = Shown::of(&sources.description, &store.description);
    let api = Api::new(limiter).with_options(options).with_shown(shown);
    let (api, notifying) = ready(api, config.receipt_keys.as_deref(), config.notify)?;
    if config.demo_load {
        api.offer_demo();
    }
    let certificates =
        config.tls.map(|(certificate, key)| Certificates::read(certificate, key)).transpose()?;
    let certificates = certificates.map(Arc::new);
    let tls = encrypted(certificates.as_ref(), &["h2", "http/1.1"])?;
    let stop = Stop::default();
    let notifying = notifying.map(|notifying| notifying.start(&api, &stop));
    let admin = Arc::new(config.admin);
    let http = Http::new(Arc::clone(&api), Arc::clone(&admin), stop.clone()).gateways(config.gateways);
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
    let listener = Listener::bind(config.http, tls.clone(), Arc::new(http))?;
    let operators =
        operators.map(|(address, http)| Listener::bind(address, tls, Arc::new(http))).transpose()?;
    let shown_at = admin.lets_someone_in().then(|| operators.as_ref().unwrap_or(&listener).address());
    let password = config.resp.as_ref().and_then(|resp| resp.password.clone());
    let tls = (encrypted(certificates.as_ref(), &[])?, encrypted(certificates.as_ref(), &["h2"])?);
    let resp = config.resp.map(|resp| resp.bind(&api, tls.0)).transpose()?;
    let grpc = config.grpc.map(|grpc| grpc.bind(&api, &stop, tls.1)).transpose()?.flatten();
    let rereading =
        Rereading { certificates, admin, sources: Arc::clone(&sources), api: Arc::clone(&api), password };
    rereading.start(hangup, &stop);
    look_after(api, &stop, shown_at.is_some(), store.deadline);
    // Before anybody knows that it serves: whoever then tells it to stop is heard.
    let told_again = told_to_stop(&stop, config.drain)?;
    // A reader that has gone away is no reason not to serve.
    let introduction = Introduction {
        listener: &listener,
        operators: operators.as_ref(),
        grpc: grpc.as_ref(),
        resp: resp.as_ref(),
        shown_at,
        policy: &sources.description,
        store: &store.description,
        has_demo: config.demo_load,
    };
    let _ = introduction.print();
    let listeners = [Some(listener), operators, grpc, resp].into_iter().flatten().collect();
    let ended = served(listeners, &stop, connections_max, config.grace, (notifying, exporting));
    tokio::select! {
        () = ended => {}
        () = told_again => tracing::warn!("told to stop again: stopped at once, whatever was under way"),
    }
    store.finish();
    Ok(())
}

/// Looks at the store now and then, and at what the dashboard shows, if there is one.
fn look_after(api: Arc<Api>, stop: &Stop, has_dashboard: bool, deadline: Option<Duration>) {
    if has_dashboard {
        tokio::spawn(dashboard::watch(Arc::clone(&api), stop.clone()));
    }
    tokio::spawn(health::watch(api, stop.clone(), deadline));
}

/// What encrypts connections, if they are, of clients that choose from these protocols.
fn encrypted(
    certificates: Option<&Arc<Certificates>>,
    spoken: &[&str],
) -> anyhow::Result<Option<TlsAcceptor>> {
    certificates.map(|certificates| certificates.acceptor(spoken)).transpose()
}

/// Serves until all is finished, and sends what is left to those who are told of it.
async fn served(
    listeners: Vec<Listener>,
    stop: &Stop,
    connections_max: usize,
    grace: Duration,
    (notifying, exporting): (Option<Sending>, Option<Exporting>),
) {
    if serve_all(listeners, stop, connections_max, grace).await {
        tracing::info!("stopped; everything under way was finished");
    } else {
        tracing::warn!("stopped; some connections were cut");
    }
    let sent = OptionFuture::from(notifying.map(Sending::finish));
    tokio::join!(sent, OptionFuture::from(exporting.map(Exporting::finish)));
}

/// Tells the server to stop when the system says so, first to drain and then to finish;
/// returns when the system says it a second time.
fn told_to_stop(stop: &Stop, drain: Duration) -> anyhow::Result<impl Future<Output = ()> + use<>> {
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
