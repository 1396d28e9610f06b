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

pub(super) const CANDIDATES: [Candidate; 10] = [
    Candidate { name: "again", what: "the bare service again: what is noise" },
    Candidate { name: "ratekeeper-quiet", what: "ratekeeper allows, no fields" },
    Candidate { name: "ratekeeper-allows", what: "ratekeeper allows, the two standard fields" },
    Candidate { name: "ratekeeper-all-fields", what: "ratekeeper allows, these and three legacy fields" },
    Candidate {
        name: "ratekeeper-denies",
        what: "ratekeeper denies, the two standard fields, problem document",
    },
    Candidate { name: "around-allows", what: "ratekeeper around the router allows, the two standard fields" },
    Candidate {
        name: "around-denies",
        what: "ratekeeper around the router denies, the two standard fields, problem document",
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
    let around = match name {
        "around-allows" => Some(ours(PLENTY, HttpOptions::default())?),
        "around-denies" => Some(ours(NOTHING, HttpOptions::default())?),
        _ => None,
    };
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}/", listener.local_addr()?);
        match around {
            Some(limits) => {
                let app = ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(
                    limits.layer(bare()),
                );
                axum::serve(listener, app).await?;
            }
            None => {
                let app = router(name, PLENTY)?;
                axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
            }
        }
        Ok(())
    })
}

/// So much that nobody is denied, and slow enough that a counter once made stays in use, as it does under real limits.
const PLENTY: &str = "1000000000/d";
/// One a day: whoever asks twice is denied.
const NOTHING: &str = "1/d";

fn bare() -> Router {
    Router::new().route("/", get(|| async { "ok" }))
}

/// The service of that name, with its limits on the route. `plenty` is what ours allow.
pub(super) fn router(name: &str, plenty: &str) -> Result<Router> {
    let (app, standard) = (bare(), HttpOptions::default());
    Ok(match name {
        BARE | "again" => app,
        "ratekeeper-quiet" => app.layer(ours(plenty, HttpOptions::without_fields())?),
        "ratekeeper-allows" => app.layer(ours(plenty, standard)?),
        "ratekeeper-all-fields" => app.layer(ours(plenty, standard.legacy(Legacy::XRateLimit))?),
        "ratekeeper-denies" => app.layer(ours(NOTHING, standard)?),
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
