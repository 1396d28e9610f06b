//! Limits for a gRPC service: the health service that comes with tonic, for every address.
//!
//! ```sh
//! cargo run -p ratekeeper-web --features tonic,policy --example tonic [ADDRESS]
//! ```

use std::error::Error;
use std::sync::Arc;

use ratekeeper::MemoryStore;
use ratekeeper_web::Gate;
use ratekeeper_web::tonic::{RateLimitLayer, per_ip};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

// The route of a call is its path: `/package.Service/Method`.
const POLICY: &str = r#"
    service = "grpc"
    [[rules]]
    name = "checks"
    when = "route == '/grpc.health.v1.Health/Check'"
    keys = "ip:{client.ip}"
    quota = "3/min fixed_window"
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:50051".into());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("try: grpc_health_probe -addr={address}");
    println!("or:  grpcurl -plaintext -proto health.proto {address} grpc.health.v1.Health/Check");
    let (_reporter, health) = tonic_health::server::health_reporter();
    let gate = Gate::from_toml(Arc::new(MemoryStore::new()), POLICY).map_err(|error| error.to_string())?;
    // First what an address may call of all methods together, then the policy, which limits one of them.
    let server = Server::builder().layer(per_ip("100/min")?).layer(RateLimitLayer::new(gate));
    server.serve_with_incoming(health, TcpIncoming::from(listener)).await?;
    Ok(())
}
