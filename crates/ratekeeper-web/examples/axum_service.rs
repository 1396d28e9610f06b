//! A whole small service: a limit for each address before anybody is known, one for each user by plan, both in Redis for
//! all instances together, a handler that charges what a request turns out to cost, and an end that loses no request.
//!
//! ```sh
//! REDIS_URL=redis://127.0.0.1 cargo run -p ratekeeper-web --features axum,policy --example axum_service [ADDRESS]
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use axum::{Router, serve};
use ratekeeper::{RedisStore, Store};
use ratekeeper_web::axum::{Admission, Refused, per_ip, rate_limit};
use ratekeeper_web::{Gate, Identity};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

// Whoever has no name counts by address. While Redis is away, requests go on: the service matters more than its limits.
const POLICY: &str = r#"
    service = "notes"
    on_outage = "allow"

    [[rules]]
    name = "per-user"
    keys = ["user:{identity.user}", "ip:{client.ip}"]
    quota = "5/min fixed_window"

    [rules.plans]
    paid = "20/min fixed_window"
"#;

/// Stands for authentication, which puts an [`Identity`] into the requests it knows the sender of.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let identity = match token.and_then(|token| token.strip_prefix("Bearer ")) {
        Some("ann") => Some(Identity::new().user("ann").plan("free")),
        Some("bob") => Some(Identity::new().user("bob").plan("paid")),
        _ => None,
    };
    if let Some(identity) = identity {
        request.extensions_mut().insert(identity);
    }
    next.run(request).await
}

/// Each page costs one. The layer has charged one already.
async fn export(Path(pages): Path<u64>, admission: Admission) -> Result<String, Refused> {
    admission.charge(pages.saturating_sub(1)).await?;
    Ok(format!("{pages} pages\n"))
}

/// Takes its time, so that somebody is there when the service ends.
async fn slow(Path(millis): Path<u64>) -> &'static str {
    tokio::time::sleep(Duration::from_millis(millis.min(10_000))).await;
    "done\n"
}

fn app(store: Arc<dyn Store>) -> Result<Router, Box<dyn Error + Send + Sync>> {
    let by_user = Gate::from_toml(Arc::clone(&store), POLICY)?;
    let by_address = per_ip("50/s burst 100")?.store(store)?;
    Ok(Router::new()
        .route("/notes", get(|| async { "no notes\n" }))
        .route("/export/{pages}", get(export))
        // What is added last comes first: addresses, then authentication, then users.
        .layer(rate_limit(by_user))
        .layer(from_fn(authenticate))
        .route("/slow/{millis}", get(slow))
        .layer(by_address)
        // Not limited: whoever looks after the service asks often.
        .route("/health", get(|| async { "ok\n" })))
}

/// Ctrl-C, or what systemd and Kubernetes send.
async fn asked_to_end() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let mut store = RedisStore::builder(&url);
    // How long to wait for Redis, if not as long as usual.
    if let Ok(millis) = std::env::var("REDIS_DEADLINE_MS") {
        store = store.deadline(Duration::from_millis(millis.parse()?));
    }
    let app = app(Arc::new(store.build()?))?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("try: curl -i -H 'authorization: Bearer ann' http://{address}/notes");
    println!("and: curl -i -H 'authorization: Bearer bob' http://{address}/export/12");
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    serve(listener, service).with_graceful_shutdown(asked_to_end()).await?;
    Ok(())
}
