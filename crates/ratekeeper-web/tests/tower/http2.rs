//! Streams of HTTP/2, many on one connection: a client that gives up one of them.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Store;
use ratekeeper_web::tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status, Streaming};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::{Remote, gate_on, store};

/// How long something may take that happens as soon as it can.
const PATIENCE: Duration = Duration::from_secs(10);
const ONE_AT_A_TIME: &str = "[[rules]]\nname = 'busy'\nkeys = 'all'\nquota = '1/600s concurrency'\n";

async fn client_of(store: Arc<dyn Store>) -> HealthClient<Channel> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let layer = RateLimitLayer::new(gate_on(store, ONE_AT_A_TIME));
    tokio::spawn(async move {
        let (_reporter, health) = tonic_health::server::health_reporter();
        Server::builder().layer(layer).serve_with_incoming(health, TcpIncoming::from(listener)).await
    });
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    HealthClient::new(channel)
}

async fn watch(client: &mut HealthClient<Channel>) -> Result<Streaming<HealthCheckResponse>, Status> {
    client.watch(HealthCheckRequest { service: String::new() }).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_stream_that_the_client_gives_up_gives_its_place_back() {
    let stores: [Arc<dyn Store>; 2] = [store().0, Remote::new()];
    for store in stores {
        let mut client = client_of(store).await;
        let mut stream = watch(&mut client).await.unwrap();
        assert!(stream.message().await.unwrap().is_some());
        assert_eq!(watch(&mut client).await.unwrap_err().code(), Code::ResourceExhausted);
        drop(stream);
        let again = async {
            while let Err(denied) = watch(&mut client).await {
                assert_eq!(denied.code(), Code::ResourceExhausted);
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, again).await.expect("the place comes back");
    }
}
