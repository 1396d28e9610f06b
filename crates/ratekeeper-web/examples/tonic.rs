//! Limits for a gRPC service: the health service that comes with tonic, for every address.
//!
//! ```sh
//! cargo run -p ratekeeper-web --features tower --example tonic [ADDRESS]
//! ```

use std::error::Error;
use std::sync::Arc;

use ratekeeper::MemoryStore;
use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper_web::Gate;
use ratekeeper_web::tower::{Peer, RateLimitLayer};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tower::util::MapRequestLayer;

// The route of a call is its path: `/package.Service/Method`.
const POLICY: &str = r#"
    service = "grpc"
    [[rules]]
    name = "checks"
    when = "route == '/grpc.health.v1.Health/Check'"
    keys = "ip:{client.ip}"
    quota = "3/min fixed_window"
"#;

fn gate() -> Result<Gate, Box<dyn Error>> {
    let policies = Policies::builder().build()?;
    policies.install("policy", PolicySpec::read("policy", Format::Toml, POLICY.as_bytes()), None)?;
    Ok(Gate::new(PolicyLimiter::on(Arc::new(MemoryStore::new()), policies).service("grpc")?))
}

/// Tells the limits who is at the other end, as tonic has it.
fn with_peer<B>(mut request: http::Request<B>) -> http::Request<B> {
    let peer = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
    if let Some(peer) = peer {
        request.extensions_mut().insert(Peer(peer.ip()));
    }
    request
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:50051".into());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("try: grpc_health_probe -addr={address}");
    println!("or:  grpcurl -plaintext -proto health.proto {address} grpc.health.v1.Health/Check");
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(MapRequestLayer::new(with_peer)).layer(RateLimitLayer::new(gate()?));
    server.serve_with_incoming(health, TcpIncoming::from(listener)).await?;
    Ok(())
}
