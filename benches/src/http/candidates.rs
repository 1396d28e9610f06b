//! The services that are compared.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::routing::get;
use axum::{Router, ServiceExt};
use ratekeeper::MemoryStore;
use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper_web::axum::rate_limit;
use ratekeeper_web::tower::{Axum, RateLimitLayer};
use ratekeeper_web::{Gate, HttpOptions, Legacy};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_layer::Layer as _;

use crate::Result;

/// The service without limits.
pub(super) const BARE: &str = "bare";

pub(super) struct Candidate {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
}

pub(super) const CANDIDATES: [Candidate; 9] = [
    Candidate { name: "again", what: "the bare service again: what is noise" },
    Candidate { name: "ratekeeper-quiet", what: "ratekeeper allows, no fields" },
    Candidate { name: "ratekeeper-allows", what: "ratekeeper allows, all fields" },
    Candidate { name: "ratekeeper-denies", what: "ratekeeper denies, all fields, problem document" },
    Candidate { name: "around-allows", what: "ratekeeper around the router allows, all fields" },
    Candidate {
        name: "around-denies",
        what: "ratekeeper around the router denies, all fields, problem document",
    },
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
    let app = Router::new().route("/", get(|| async { "ok" }));
    let around = match name {
        "around-allows" => Some(ours(PLENTY, all_fields())?),
        "around-denies" => Some(ours(NOTHING, all_fields())?),
        _ => None,
    };
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}/", listener.local_addr()?);
        match around {
            Some(limits) => {
                let app = ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(
                    limits.layer(app),
                );
                axum::serve(listener, app).await?;
            }
            None => {
                let app = with_limits(name, app)?;
                axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
            }
        }
        Ok(())
    })
}

const PLENTY: &str = "1000000000/s";
/// One a day: whoever asks twice is denied.
const NOTHING: &str = "1/d";

fn all_fields() -> HttpOptions {
    HttpOptions::default().legacy(Legacy::XRateLimit)
}

fn with_limits(name: &str, app: Router) -> Result<Router> {
    let all = all_fields();
    Ok(match name {
        BARE | "again" => app,
        "ratekeeper-quiet" => app.layer(ours(PLENTY, HttpOptions::without_fields())?),
        "ratekeeper-allows" => app.layer(ours(PLENTY, all)?),
        "ratekeeper-denies" => app.layer(ours(NOTHING, all)?),
        "governor-quiet" => {
            let config =
                GovernorConfigBuilder::default().per_nanosecond(1).burst_size(1_000_000_000).finish();
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

fn ours(quota: &str, options: HttpOptions) -> Result<RateLimitLayer<Axum>> {
    let policy = format!(
        "service = 'bench'\n[[rules]]\nname = 'per-ip'\nkeys = 'ip:{{client.ip}}'\nquota = '{quota}'\n"
    );
    let policies = Policies::builder().mode(None).build()?;
    policies.install("bench", PolicySpec::read("bench", Format::Toml, policy.as_bytes()), None)?;
    let service = PolicyLimiter::new(MemoryStore::new(), policies).service("bench")?;
    Ok(rate_limit(Gate::new(service).options(options)))
}
