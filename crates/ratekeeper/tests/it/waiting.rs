//! Waiting on a store that takes its time.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::bounds::SECRET_BYTES;
use ratekeeper::{
    Algorithm, Audit, Charge, Check, Control, Decision, Key, Limiter, ManualClock, MemoryStore, Overrides,
    Reservation, Rule, Settled, Store, StoreError, StoreFuture, Timestamp,
};

/// A store that answers every check after `takes`.
#[derive(Debug)]
struct Slow {
    inner: MemoryStore,
    clock: ManualClock,
    takes: Duration,
}

impl Slow {
    fn new(takes: Duration) -> Self {
        let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
        Self { inner: MemoryStore::with_clock(10_000, Arc::new(clock.clone())), clock, takes }
    }

    async fn pause(&self) {
        tokio::time::sleep(self.takes).await;
        self.clock.advance(self.takes);
    }
}

impl Store for Slow {
    fn needs_io(&self) -> bool {
        true
    }

    fn try_check(&self, _: &Check<'_>, _: &mut Decision) -> Option<Result<(), StoreError>> {
        None
    }

    fn check<'a>(&'a self, check: &'a Check<'a>) -> StoreFuture<'a, Decision> {
        StoreFuture::pending(async move {
            self.pause().await;
            self.inner.check(check).await
        })
    }

    fn reserve<'a>(&'a self, check: &'a Check<'a>, by: &'a Reservation<'a>) -> StoreFuture<'a, Decision> {
        StoreFuture::pending(async move {
            self.pause().await;
            self.inner.reserve(check, by).await
        })
    }

    fn settle<'a>(&'a self, id: &'a [u8], actual: Option<u32>) -> StoreFuture<'a, Settled> {
        self.inner.settle(id, actual)
    }

    fn refund<'a>(
        &'a self,
        check: &'a Check<'a>,
        decision: &'a Decision,
        units: u32,
    ) -> StoreFuture<'a, u64> {
        self.inner.refund(check, decision, units)
    }

    fn shared_secret(&self) -> StoreFuture<'_, [u8; SECRET_BYTES]> {
        self.inner.shared_secret()
    }

    fn number_of(&self, charge: &Charge<'_>) -> u64 {
        self.inner.number_of(charge)
    }

    fn reset<'a>(&'a self, key: Key<'a>, algorithm: Algorithm) -> StoreFuture<'a, bool> {
        self.inner.reset(key, algorithm)
    }

    fn overrides(&self) -> &dyn Overrides {
        self.inner.overrides()
    }

    fn control(&self) -> &dyn Control {
        self.inner.control()
    }

    fn audit(&self) -> &dyn Audit {
        self.inner.audit()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}

/// The time that a store takes was not counted: a slow one made a caller wait far beyond its patience.
#[tokio::test(start_paused = true)]
async fn patience_counts_what_the_store_takes() {
    let takes = Duration::from_millis(1_500);
    let store: Arc<dyn Store> = Arc::new(Slow::new(takes));
    let rule = Rule::new("per-user", |user: &str| Some(user.into())).quotas("1/4s fixed_window");
    let limiter: Limiter<str> = Limiter::builder_on(store).rule(rule).build().unwrap();
    assert!(limiter.check("ann").await.unwrap().is_allowed());

    // 1.5 s after the window began it is over in 2.5 s, and of the patience 2.4 s are left.
    let (clock, patience) = (tokio::time::Instant::now(), Duration::from_millis(3_900));
    let denied = limiter.until_allowed("ann", patience).await.unwrap();
    assert!(!denied.is_allowed(), "{denied}");
    assert_eq!(clock.elapsed(), takes, "a wait that would not suffice is not begun");

    // 3 s after it began it is over in 1 s, and 1.1 s of the patience are left.
    let (clock, patience) = (tokio::time::Instant::now(), Duration::from_millis(2_600));
    assert!(limiter.until_allowed("ann", patience).await.unwrap().is_allowed());
    assert!(clock.elapsed() >= takes * 2 + Duration::from_secs(1), "{:?}", clock.elapsed());
}
