//! actix-web with a limit for every project on every endpoint, and another on how many
//! elements a batch has, which is known only when its body has been read.
//!
//! ```sh
//! cargo run -p ratekeeper-web --features actix --example actix [ADDRESS]
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::{Next, from_fn};
use actix_web::{App, HttpMessage as _, HttpServer, web};
use ratekeeper::MemoryStore;
use ratekeeper_web::actix::{Apply, RateLimit, Refused};
use ratekeeper_web::ready::ProjectLimit;
use ratekeeper_web::{Gate, Identity};

const MINUTE: Duration = Duration::from_secs(60);

/// Stands for authentication, which puts an [`Identity`] into the requests it knows the
/// sender of: here `x-project: ORGANISATION/PROJECT`.
async fn authenticate(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let project = request.headers().get("x-project").and_then(|value| value.to_str().ok());
    let identity = project
        .and_then(|project| project.split_once('/'))
        .map(|(org, project)| Identity::new().org(org.to_owned()).project(project.to_owned()));
    if let Some(identity) = identity {
        request.extensions_mut().insert(identity);
    }
    next.call(request).await
}

async fn search(dataset: web::Path<String>) -> String {
    format!("nothing in {dataset}\n")
}

/// Counts what is in the body, under the same project and endpoint.
async fn geocode(
    elements: web::Data<Gate>,
    apply: Apply,
    addresses: web::Json<Vec<String>>,
) -> Result<String, Refused> {
    apply.cost(&elements, addresses.len() as u64).await?;
    Ok(format!("{} addresses\n", addresses.len()))
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(MemoryStore::new());
    // Made once: the closure below runs for every worker, and all of them must count together.
    let requests = RateLimit::new(ProjectLimit::new(5).expiry(MINUTE).gate(store.clone())?);
    let elements = ProjectLimit::new(100).expiry(MINUTE).key_suffix("/elements").gate(store)?;
    let elements = web::Data::new(elements);

    let app = move || {
        App::new()
            // What is added last comes first: authentication, then limits.
            .wrap(requests.clone())
            .wrap(from_fn(authenticate))
            .app_data(elements.clone())
            .route("/datasets/{id}/search", web::get().to(search))
            .route("/geocode/batch", web::post().to(geocode))
    };
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let server = HttpServer::new(app).bind(address)?;
    for address in server.addrs() {
        println!("listening on http://{address}");
        println!("try: curl -i -H 'x-project: 1/2' http://{address}/datasets/7/search");
    }
    server.run().await?;
    Ok(())
}
