//! The services that are compared.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use ratekeeper::MemoryStore;
use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper_web::tower::RateLimitLayer;
use ratekeeper_web::{Gate, HttpOptions, Legacy};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use crate::Result;

/// The service without limits.
pub(super) const BARE: &str = "bare";

pub(super) struct Candidate {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
}

pub(super) const CANDIDATES: [Candidate; 7] = [
    Candidate { name: "again", what: "the bare service again: what is noise" },
    Candidate { name: "ratekeeper-quiet", what: "ratekeeper allows, no fields" },
    Candidate { name: "ratekeeper-allows", what: "ratekeeper allows, all fields" },
    Candidate { name: "ratekeeper-denies", what: "ratekeeper denies, all fields, problem document" },
    Candidate { name: "governor-quiet", what: "tower_governor allows, no headers" },
    Candidate { name: "governor-allows", what: "tower_governor allows, headers" },
    Candidate { name: "governor-denies", what: "tower_governor denies, headers" },
];

/// Is the service of that name until it is killed; says first where.
///
/// # Errors
/// If there is none of that name, or it cannot listen.
pub fn serve(name: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let app = with_limits(name, Router::new().route("/", get(|| async { "ok" })))?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}/", listener.local_addr()?);
        axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
        Ok(())
    })
}

fn with_limits(name: &str, app: Router) -> Result<Router> {
    const PLENTY: &str = "1000000000/s";
    // One a day: whoever asks twice is denied.
    const NOTHING: &str = "1/d";
    let all = HttpOptions::default().legacy(Legacy::XRateLimit);
    Ok(match name {
        BARE | "again" => app,
        "ratekeeper-quiet" => app.layer(ours(PLENTY, HttpOptions::without_fields())?),
        "ratekeeper-allows" => app.layer(ours(PLENTY, all)?),
        "ratekeeper-denies" => app.layer(ours(NOTHING, all)?),
        "governor-quiet" => {
            let config = GovernorConfigBuilder::default().per_nanosecond(1).burst_size(1_000_000_000).finish();
            app.layer(GovernorLayer::new(Arc::new(config.ok_or("governor's quota")?)))
        }
        "governor-allows" => {
            let mut builder = GovernorConfigBuilder::default();
            let config = builder.per_nanosecond(1).burst_size(1_000_000_000).use_headers().finish();
            app.layer(GovernorLayer::new(Arc::new(config.ok_or("governor's quota")?)))
        }
        "governor-denies" => {
            let mut builder = GovernorConfigBuilder::default();
            let config = builder.per_second(86_400).burst_size(1).use_headers().finish();
            app.layer(GovernorLayer::new(Arc::new(config.ok_or("governor's quota")?)))
        }
        _ => return Err(format!("there is no service {name}").into()),
    })
}

fn ours(quota: &str, options: HttpOptions) -> Result<RateLimitLayer> {
    let policy = format!("service = 'bench'\n[[rules]]\nname = 'per-ip'\nkeys = 'ip:{{client.ip}}'\nquota = '{quota}'\n");
    let policies = Policies::builder().mode(None).build()?;
    policies.install("bench", PolicySpec::read("bench", Format::Toml, policy.as_bytes()), None)?;
    let service = PolicyLimiter::new(MemoryStore::new(), policies).service("bench")?;
    Ok(RateLimitLayer::new(Gate::new(service).options(options)))
}
