//! A limit for every project, counted in Redis for all instances of a service together, and
//! other limits for some projects, which hold at once and everywhere.
//!
//! ```sh
//! REDIS_URL=redis://127.0.0.1 cargo run -p ratekeeper-web --features axum --example axum_redis [ADDRESS]
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, put};
use axum::{Router, serve};
use ratekeeper::{Override, OverrideScope, RedisStore, Store};
use ratekeeper_web::Identity;
use ratekeeper_web::axum::rate_limit;
use ratekeeper_web::ready::ProjectLimit;
use tokio::net::TcpListener;

const SEARCH: &str = "/datasets/{id}/search";

/// Stands for authentication: `x-project: ORGANISATION/PROJECT`.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let project = request.headers().get("x-project").and_then(|value| value.to_str().ok());
    if let Some((org, project)) = project.and_then(|value| value.split_once('/')) {
        let identity = Identity::new().org(org.to_owned()).project(project.to_owned());
        request.extensions_mut().insert(identity);
    }
    next.run(request).await
}

/// Gives a project another limit on the search. For operators only, in a real service.
async fn set_limit(
    State(store): State<Arc<dyn Store>>,
    Path((org, project, limit)): Path<(String, String, u64)>,
) -> Result<&'static str, (StatusCode, String)> {
    let wrong = |error: &dyn Error| (StatusCode::BAD_REQUEST, error.to_string());
    let scope = OverrideScope::project(SEARCH, &org, &project).map_err(|error| wrong(&error))?;
    store.overrides().set(scope, Override::limit(limit)).await.map_err(|error| wrong(&error))?;
    Ok("done\n")
}

fn app(store: Arc<dyn Store>) -> Result<Router, Box<dyn Error>> {
    let limit = ProjectLimit::new(3).expiry(Duration::from_secs(60)).gate(Arc::clone(&store))?;
    Ok(Router::new()
        .route(SEARCH, get(|| async { "found\n" }))
        .route_layer(rate_limit(limit))
        .route("/limits/{org}/{project}/{limit}", put(set_limit))
        .layer(from_fn(authenticate))
        .with_state(store))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let mut store = RedisStore::builder(&url);
    // How long to wait for Redis, if not as long as usual.
    if let Ok(millis) = std::env::var("REDIS_DEADLINE_MS") {
        store = store.deadline(Duration::from_millis(millis.parse()?));
    }
    let store = store.build()?;
    store.ping().await?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("try: curl -i -H 'x-project: 1/2' http://{address}/datasets/7/search");
    println!("and: curl -X PUT http://{address}/limits/1/2/1000");
    serve(listener, app(Arc::new(store))?).await?;
    Ok(())
}
