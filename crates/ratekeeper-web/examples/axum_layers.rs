//! Three layers of limits in one process: by address before anything else is known, by user
//! once that is known, and for one endpoint that is expensive.
//!
//! ```sh
//! cargo run -p ratekeeper-web --features axum --example axum_layers [ADDRESS]
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Path, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use axum::{Router, serve};
use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper::{MemoryStore, Store};
use ratekeeper_web::axum::rate_limit;
use ratekeeper_web::{Gate, Identity};
use tokio::net::TcpListener;

const BY_ADDRESS: &str = r#"
    service = "addresses"
    [[rules]]
    name = "per-ip"
    keys = "ip:{client.ip}"
    quota = "50/s burst 100"
"#;

const BY_USER: &str = r#"
    service = "users"
    [[rules]]
    name = "per-user"
    keys = "user:{identity.user}"
    quota = "10/min fixed_window"
"#;

// Whoever has no name is counted by address.
const EXPENSIVE: &str = r#"
    service = "reports"
    [[rules]]
    name = "reports"
    keys = ["user:{identity.user}", "ip:{client.ip}"]
    quota = "2/min fixed_window"
"#;

fn gate(store: &Arc<dyn Store>, policy: &str) -> Result<Gate, Box<dyn Error>> {
    let policies = Policies::builder().build()?;
    let policy = PolicySpec::read("policy", Format::Toml, policy.as_bytes())?;
    let service = policy.service.clone();
    policies.install("policy", Ok(policy), None)?;
    Ok(Gate::new(PolicyLimiter::on(Arc::clone(store), policies).service(&service)?))
}

/// Stands for authentication, which puts an [`Identity`] into the requests it knows the sender of.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    if let Some(user) = token.and_then(|token| token.strip_prefix("Bearer ")) {
        let identity = Identity::new().user(user.to_owned());
        request.extensions_mut().insert(identity);
    }
    next.run(request).await
}

fn app() -> Result<Router, Box<dyn Error>> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    Ok(Router::new()
        .route("/reports/{id}", get(|Path(id): Path<String>| async move { format!("report {id}\n") }))
        .route_layer(rate_limit(gate(&store, EXPENSIVE)?))
        .route("/", get(|| async { "hello\n" }))
        // What is added last comes first: addresses, then authentication, then users.
        .layer(rate_limit(gate(&store, BY_USER)?))
        .layer(from_fn(authenticate))
        .layer(rate_limit(gate(&store, BY_ADDRESS)?)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("try: curl -i -H 'authorization: Bearer ann' http://{address}/reports/1");
    // With the peer's address, which the first layer counts by.
    serve(listener, app()?.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
