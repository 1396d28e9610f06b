//! A server in this process, on a real socket, with a clock of the test.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper::{ManualClock, MemoryStore, Store, Timestamp};
use ratekeeper_server::serve::api::Api;
use ratekeeper_server::serve::{
    Admin, BODIES_BYTES_MAX, CONNECTIONS_MAX_DEFAULT, Grpc, Http, Listener, Stop, serve_all,
};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::client::{Client, PATIENCE};

/// When the clock of the test starts.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// Signs receipts.
const RECEIPT_KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/receipt.key");

/// Servers run beside the tests, which wait for them.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// How a server is set up.
pub(crate) struct Setup {
    pub(crate) admin: Admin,
    pub(crate) idle: Duration,
    pub(crate) body_wait: Duration,
    pub(crate) bodies_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) policies: Vec<&'static str>,
    /// The networks of gateways.
    pub(crate) gateways: Vec<&'static str>,
    /// What is made of Envoy's rate limit service.
    pub(crate) grpc: fn(Grpc) -> Grpc,
    /// Where that is to be.
    pub(crate) grpc_at: Option<SocketAddr>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            admin: Admin::Local,
            idle: PATIENCE,
            body_wait: PATIENCE,
            bodies_max: BODIES_BYTES_MAX,
            connections_max: CONNECTIONS_MAX_DEFAULT,
            policies: Vec::new(),
            gateways: vec!["127.0.0.0/8"],
            grpc: |grpc| grpc,
            grpc_at: None,
        }
    }
}

/// A server that is told to stop when the test is over.
pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    /// Where Envoy's rate limit service is.
    pub(crate) grpc: SocketAddr,
    pub(crate) api: Arc<Api>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stop: Stop,
    pub(crate) served: Option<JoinHandle<bool>>,
}

impl Setup {
    pub(crate) fn policy(policy: &'static str) -> Self {
        Self { policies: vec![policy], ..Self::default() }
    }

    pub(crate) fn start(self, store: Arc<dyn Store>) -> Rig {
        let _within = RUNTIME.enter();
        let policies = Policies::builder().mode(None).build().unwrap();
        for policy in &self.policies {
            policies
                .install("test", PolicySpec::read("test", Format::Toml, policy.as_bytes()), None)
                .unwrap();
        }
        let limiter = PolicyLimiter::on(Arc::clone(&store), policies);
        let api = Api::new(limiter);
        // The same receipts in every run, because documents show some. On a real server, the key is the server's.
        let api = if store.needs_io() {
            api
        } else {
            fastrand::seed(1_700_000_000);
            api.with_receipt_keys(Path::new(RECEIPT_KEY)).unwrap()
        };
        let api = Arc::new(api);
        let stop = Stop::default();
        let http = Http::new(Arc::clone(&api), self.admin, stop.clone())
            .patience(self.idle, self.body_wait)
            .bodies_max(self.bodies_max)
            .gateways(self.gateways.iter().map(|network| network.parse().unwrap()).collect());
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::bind(anywhere, None, Arc::new(http)).unwrap();
        let address = listener.address();
        let grpc = (self.grpc)(Grpc::new(Arc::clone(&api), stop.clone()));
        let of_envoy = Listener::bind(self.grpc_at.unwrap_or(anywhere), None, Arc::new(grpc)).unwrap();
        let grpc = of_envoy.address();
        let (stopping, connections) = (stop.clone(), self.connections_max);
        let served = RUNTIME.spawn(async move {
            serve_all(vec![listener, of_envoy], &stopping, connections, PATIENCE).await
        });
        Rig { address, grpc, api, store, stop, served: Some(served) }
    }

    /// On a store in memory, with a clock that only the test moves.
    pub(crate) fn in_memory(self) -> (Rig, ManualClock) {
        let clock = ManualClock::starting_at(START);
        let store = MemoryStore::with_clock(10_000, Arc::new(clock.clone()));
        (self.start(Arc::new(store)), clock)
    }
}

impl Rig {
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.finish();
    }
}
