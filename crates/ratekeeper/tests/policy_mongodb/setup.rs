//! A server, a book of policies, and a source between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mongodb::bson::{Bson, Document, doc};
use mongodb::{Client, Collection};
use ratekeeper::MemoryStore;
use ratekeeper::policy::source::mongodb::{MongoSource, MongoSourceBuilder, MongoWatch};
use ratekeeper::policy::{Policies, Policy, PolicyLimiter};
use ratekeeper_testkit::servers::MongoServer;

/// Nobody waits for it: tests poll when they want to.
const INTERVAL: Duration = Duration::from_secs(3_600);
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Setup {
    pub(crate) server: MongoServer,
    pub(crate) policies: Policies,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::on(MongoServer::start())
    }

    /// On a server that can be ended.
    pub(crate) fn own() -> Self {
        Self::on(MongoServer::start_own())
    }

    fn on(server: MongoServer) -> Self {
        Self { server, policies: book() }
    }

    pub(crate) fn source(&self) -> MongoSourceBuilder {
        let source = MongoSource::builder(self.server.url()).database(self.server.database());
        source.interval(INTERVAL).deadline(DEADLINE)
    }

    pub(crate) async fn start(&self) -> MongoWatch {
        self.source().build().unwrap().start(&self.policies).await.unwrap()
    }

    pub(crate) async fn collection(&self) -> Collection<Document> {
        let client = Client::with_uri_str(self.server.url()).await.unwrap();
        client.database(self.server.database()).collection("policies")
    }

    /// Puts a document in place of the one with its `_id`, if there is one.
    pub(crate) async fn put(&self, document: Document) {
        let id = document.get("_id").cloned().unwrap();
        let collection = self.collection().await;
        collection.replace_one(doc! { "_id": id }, document).upsert(true).await.unwrap();
    }

    pub(crate) async fn delete(&self, service: &str) {
        self.collection().await.delete_one(doc! { "_id": service }).await.unwrap();
    }

    pub(crate) fn policy(&self, service: &str) -> Option<Arc<Policy>> {
        self.policies.policy(service)
    }

    /// The limits that hold for a key, in the order of their windows.
    pub(crate) async fn limits(&self, service: &str, key: &str) -> Vec<u32> {
        let limiter = PolicyLimiter::new(MemoryStore::new(), self.policies.clone());
        let decision = limiter.check(service, key).await.unwrap();
        decision.verdicts().iter().map(|verdict| verdict.quota().limit()).collect()
    }

    pub(crate) fn refusal(&self, service: &str) -> Option<String> {
        self.policies.status_of(service)?.last_refusal
    }

    /// How many documents of a service were refused.
    pub(crate) fn refused(&self, service: &str) -> u64 {
        self.policies.status_of(service).map_or(0, |status| status.refused)
    }

    /// Why the source cannot be reached, if it cannot.
    pub(crate) fn failure(&self) -> Option<String> {
        let mut sources = self.policies.sources_status();
        assert_eq!(sources.len(), 1, "{sources:?}");
        sources.remove(0).failure
    }
}

pub(crate) fn book() -> Policies {
    Policies::builder().mode(None).build().unwrap()
}

/// A document with one limit.
pub(crate) fn document(service: &str, updated: impl Into<Bson>, rps: impl Into<Bson>) -> Document {
    doc! { "_id": service, "last_updated": updated.into(), "general_rate_limit": { "rps": rps.into() } }
}

pub(crate) async fn wait_until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < end, "still waiting until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
