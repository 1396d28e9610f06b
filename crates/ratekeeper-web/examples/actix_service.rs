//! A whole small service on actix-web: one decision on address and user, plans, a handler that settles what a request
//! turned out to cost, and an end that loses no request (actix-web waits for them by itself).
//!
//! ```sh
//! cargo run -p ratekeeper-web --features actix,policy --example actix_service [ADDRESS]
//! ```

use std::error::Error;
use std::sync::Arc;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::{Next, from_fn};
use actix_web::{App, HttpMessage as _, HttpServer, web};
use ratekeeper::MemoryStore;
use ratekeeper_web::actix::{Admission, RateLimit, Refused};
use ratekeeper_web::{DenialBody, Gate, Identity};

// Two rules of one policy are one decision: a request that one of them denies is charged by neither.
const POLICY: &str = r#"
    service = "notes"

    [[rules]]
    name = "per-ip"
    keys = "ip:{client.ip}"
    quota = "50/s burst 100"

    [[rules]]
    name = "per-user"
    keys = ["user:{identity.user}", "ip:{client.ip}"]
    quota = "5/min fixed_window"

    [rules.plans]
    paid = "20/min fixed_window"
"#;

/// Stands for authentication, which puts an [`Identity`] into the requests it knows the sender of.
async fn authenticate(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let identity = match token.and_then(|token| token.strip_prefix("Bearer ")) {
        Some("ann") => Some(Identity::new().user("ann").plan("free")),
        Some("bob") => Some(Identity::new().user("bob").plan("paid")),
        _ => None,
    };
    if let Some(identity) = identity {
        request.extensions_mut().insert(identity);
    }
    next.call(request).await
}

/// Each page costs one, and what is in the cache costs nothing: the layer has charged one already.
async fn export(pages: web::Path<u64>, admission: Admission) -> Result<String, Refused> {
    admission.settle(*pages).await?;
    Ok(format!("{} of {pages} pages\n", admission.charged()))
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    // Made once: the closure below runs for every worker, and all of them must count together.
    let own_words = |denial: &ratekeeper_web::Denial<'_>| {
        let seconds = denial.retry_after().unwrap_or(0);
        Some(DenialBody::json(format!(r#"{{"error":"slow down","seconds":{seconds}}}"#)))
    };
    let gate = Gate::from_toml(Arc::new(MemoryStore::new()), POLICY)?.denial_body(own_words);
    let limits = RateLimit::new(gate);
    let app = move || {
        App::new()
            .route("/export/{pages}", web::get().to(export))
            .route("/notes", web::get().to(|| async { "no notes\n" }))
            // What is added last comes first: authentication, then limits.
            .wrap(limits.clone())
            .wrap(from_fn(authenticate))
    };
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let server = HttpServer::new(app).bind(address)?;
    for address in server.addrs() {
        println!("listening on http://{address}");
        println!("try: curl -i -H 'authorization: Bearer ann' http://{address}/notes");
        println!("and: curl -i -H 'authorization: Bearer bob' http://{address}/export/12");
    }
    server.run().await?;
    Ok(())
}
