//! Exact, explained, all-or-nothing rate limits: any set of limits on any key,
//! in one atomic decision.
//!
//! ```
//! use ratekeeper::{Limiter, MemoryStore, Rule};
//!
//! // Three layers, decided together: all of them let a request in, or nothing
//! // is charged anywhere.
//! let limiter = Limiter::<str>::builder(MemoryStore::new())
//!     .rule(Rule::new("per-user", |user: &str| Some(user.into())).quotas("2/s"))
//!     .rule(Rule::global("global").quotas("{rps=100, rpm=1000}"))
//!     .build()?;
//!
//! assert!(limiter.check_now("ann")?.is_allowed());
//! assert!(limiter.check_now("ann")?.is_allowed());
//! let denied = limiter.check_now("ann")?;
//! assert!(denied.explain().starts_with("denied by per-user: 0 of 2 left (2/s), 1 asked for"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//! None is on unless you ask for it: limits in code, in memory, need none.
//!
//! | feature | what it adds |
//! |---|---|
//! | `redis` | limits that hold across machines: [`RedisStore`](https://docs.rs/ratekeeper/latest/ratekeeper/struct.RedisStore.html), on Redis and Valkey, with Sentinel and Cluster |
//! | `policy` | limits that live outside the code: policies in TOML, YAML and JSON, with conditions and costs in CEL |
//! | `policy-core` | the part of it that needs neither CEL, regular expressions, TOML nor YAML: policies put together in code, or read from JSON, without conditions. `ratekeeper-web` is built on it |
//! | `watch` | policies in files that are watched, or in folders of them (with `policy`) |
//! | `mongodb` | policies as documents in MongoDB (with `policy`) |
//! | `mongodb-srv` | the same for URLs that begin with `mongodb+srv://` |
//! | `data-dir` | a store in memory that outlives its process, in a directory |
//! | `prometheus` | metrics as a collector for the registry of prometheus-client |
//! | `opentelemetry` | metrics as instruments of an OpenTelemetry meter |
//!
//! In front of web services there is the crate `ratekeeper-web`: axum, tower, tonic, actix-web, and clients.
//!
//! # Layout
//! - [`Limiter`] and [`Rule`]: limits in code; what most programs use;
//! - `policy` (features `policy` and `policy-core`): limits that live outside the code;
//! - [`store`]: the seam to where counters live; [`MemoryStore`], the default;
//! - [`metrics`]: what can be shown of all that, for Prometheus and OpenTelemetry;
//! - [`testing`]: a store for your tests, whose clock is yours and which fails when you say so;
//! - [`SystemClock`], and [`ManualClock`] for tests;
//! - the types of `ratekeeper-core`, which is where the arithmetic is;
//! - [`bounds`]: everything that is bounded, and how.

#![forbid(unsafe_code)]

mod audit;
pub mod bounds;
mod clock;
mod control;
mod engine;
#[cfg(any(feature = "data-dir", feature = "policy-core"))]
mod fence;
mod limiter;
pub mod metrics;
#[cfg(feature = "policy-core")]
pub mod policy;
pub mod store;
pub mod testing;

pub use audit::Audit;
pub use clock::SystemClock;
pub use control::{
    ALL_RULES, Control, MODE_VARIABLE, Mode, Switch, Switched, Switches, all_rules_of, emergency_of,
    emergency_of_key, key_of_switch, rule_of_switch,
};
pub use engine::{
    Admission, CounterName, Demand, DemandRule, Engine, Hold, Now, OnOutage, Outages, RawCharge, Started,
    Strict, StrictNow,
};
pub use limiter::{BuildError, Limiter, LimiterBuilder, Owner, Rule};
pub use ratekeeper_core::{
    Algorithm, AsCase, Begin, CONDITION_BUDGET, Calendar, CalendarUnit, Case, Charge, Charges, Check, Clock,
    CounterChange, Decision, DecisionParts, Emergency, Enforcement, Field, GiveBack, Held, InvalidInput, Key,
    Labels, Ledger, Level, ManualClock, Model, Name, Origin, Outcome, Override, OverrideScope, Penalty,
    PenaltyCase, Quota, Quotas, RawName, Receipt, ReceiptNote, Reservation, Settled, State, Status, Strike,
    Timestamp, Verdict, VerdictParts, Wait, algorithm, judge, judge_one, judge_penal, printable, resolve,
};
pub use store::memory::{MemoryStore, MemoryStoreBuilder};
#[cfg(feature = "redis")]
pub use store::redis::{BreakerPolicy, RedisStore, RedisStoreBuilder, SpreadStore};
pub use store::{
    BreakerState, CounterClaim, CounterClaims, DataHealth, FailureKinds, Health, OpenOptions, OpenedStore,
    Overrides, ScopedOverride, Store, StoreError, StoreErrorKind, StoreFuture, StoreUrl, StoredCounter,
    StoredFilter, StoredKey, StoredList, StoredPage,
};

/// The examples of the documentation compile. Those of other documents do in `ratekeeper-web`.
#[cfg(all(doctest, feature = "mongodb", feature = "redis", feature = "watch"))]
mod docs {
    #[doc = include_str!("../../../docs/policies.md")]
    struct Policies;
    #[doc = include_str!("../../../docs/redis.md")]
    struct Redis;
}
