//! The Redis store as an engine of the test kit, at an instant the test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratekeeper::store::open;
use ratekeeper::store::redis::SCRIPT;
use ratekeeper::{
    Algorithm, Check, Decision, Key, ManualClock, OpenOptions, OpenedStore, Override, OverrideScope,
    RedisStore, RedisStoreBuilder, Reservation, Settled, SpreadStore, Store, StoreError, StoreFuture,
    Timestamp,
};
use ratekeeper_testkit::servers::Server;
/// Stores wait so long, too: what is tested here is the answer, not when it comes.
pub(crate) use ratekeeper_testkit::wait::PATIENCE;
use ratekeeper_testkit::{Asked, Engine, Told};
use tokio::runtime::Runtime;

pub(crate) struct RedisEngine {
    store: Arc<dyn Store>,
    clock: ManualClock,
    runtime: Arc<Runtime>,
}

/// The script, or the one in the file that the variable `RATEKEEPER_SCRIPT` names: the tests of
/// the tests bring wrong ones, which must not pass, without building anything anew.
pub(crate) fn script() -> String {
    match std::env::var_os("RATEKEEPER_SCRIPT") {
        None => SCRIPT.to_owned(),
        Some(file) => std::fs::read_to_string(file).unwrap(),
    }
}

/// A store on the server at `url`, with time enough to answer.
pub(crate) fn builder(url: &str) -> RedisStoreBuilder {
    RedisStore::builder(url).deadline(PATIENCE).script(&script())
}

/// The URL of several servers.
pub(crate) fn urls_of(servers: &[Server]) -> String {
    servers.iter().map(Server::url).collect::<Vec<_>>().join(",")
}

/// One store over several servers, with time enough to answer unless the settings say otherwise.
pub(crate) fn spread_over(
    urls: &str,
    settings: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
) -> SpreadStore {
    let options = OpenOptions::new().redis(|redis| settings(redis.deadline(PATIENCE).script(&script())));
    match open(&urls.parse().unwrap(), &options).unwrap() {
        OpenedStore::Spread(store) => store,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn runtime() -> Arc<Runtime> {
    Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
}

/// A prefix no other store of this process has.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("t{}:", NEXT.fetch_add(1, Ordering::Relaxed))
}

impl RedisEngine {
    /// A store of its own on the server at `url`.
    pub(crate) fn new(url: &str, runtime: &Arc<Runtime>) -> Self {
        Self::with(builder(url), runtime)
    }

    pub(crate) fn with(builder: RedisStoreBuilder, runtime: &Arc<Runtime>) -> Self {
        let clock = ManualClock::default();
        let _inside = runtime.enter();
        let builder = builder.clock(Arc::new(clock.clone())).prefix(&fresh_prefix());
        let store = builder.build().unwrap();
        // Once connected, calls go out in the order they were made.
        runtime.block_on(store.ping()).unwrap();
        Self { store: Arc::new(store), clock, runtime: Arc::clone(runtime) }
    }

    /// A store over what a URL names: several servers, or a cluster.
    pub(crate) fn spread(urls: &str, runtime: &Arc<Runtime>) -> Self {
        let clock = ManualClock::default();
        let _inside = runtime.enter();
        let settings =
            |builder: RedisStoreBuilder| builder.clock(Arc::new(clock.clone())).prefix(&fresh_prefix());
        let store = spread_over(urls, settings);
        runtime.block_on(store.ping()).unwrap();
        Self { store: Arc::new(store), clock, runtime: Arc::clone(runtime) }
    }

    fn wait<T>(&self, answer: StoreFuture<'_, T>) -> Result<T, String> {
        self.runtime.block_on(answer).map_err(|error| text(&error))
    }
}

fn told<T>(answer: Result<T, StoreError>) -> Result<T, String> {
    answer.map_err(|error| text(&error))
}

fn text(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl Engine for RedisEngine {
    fn set_now(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    fn check(&mut self, check: &Check<'_>) -> Result<Decision, String> {
        self.wait(self.store.check(check))
    }

    /// All are asked for before the first is answered, so they travel together.
    fn together(&mut self, asked: &[Asked<'_>]) -> Vec<Told> {
        let store = &self.store;
        let answers = asked.iter().map(|asked| async move {
            match asked {
                Asked::Nothing => Told::Nothing,
                Asked::Check(check) => Told::Decision(told(store.check(check).await)),
                Asked::Under(check, under) => Told::Decision(told(store.reserve(check, under).await)),
                Asked::Refund(check, decision, units) => {
                    Told::GivenBack(told(store.refund(check, decision, *units).await))
                }
                Asked::Reset(key, algorithm) => Told::Reset(told(store.reset(*key, *algorithm).await)),
            }
        });
        self.runtime.block_on(async {
            // Whatever earlier calls left to be done, lest it overtakes these.
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
            futures_util::future::join_all(answers).await
        })
    }

    fn reserve(&mut self, check: &Check<'_>, reservation: &Reservation<'_>) -> Result<Decision, String> {
        self.wait(self.store.reserve(check, reservation))
    }

    fn settle(&mut self, id: &[u8], actual: Option<u32>) -> Result<Settled, String> {
        self.wait(self.store.settle(id, actual))
    }

    fn refund(&mut self, check: &Check<'_>, decision: &Decision, units: u32) -> Result<u64, String> {
        self.wait(self.store.refund(check, decision, units))
    }

    fn reset(&mut self, key: Key<'_>, algorithm: Algorithm) -> Result<bool, String> {
        self.wait(self.store.reset(key, algorithm))
    }

    fn set_override(&mut self, scope: OverrideScope<'_>, to: Option<Override>) -> Result<(), String> {
        match to {
            Some(to) => self.wait(self.store.overrides().set(scope, to)),
            None => self.wait(self.store.overrides().delete(scope)).map(|_| ()),
        }
    }
}
