//! Where counters live.

mod checks;
pub(crate) mod control;
pub(crate) mod health;
pub(crate) mod overrides;

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use ratekeeper::store::redis::{DEADLINE_DEFAULT, QUEUE_MAX_DEFAULT};
use ratekeeper::{
    BreakerPolicy, LIMIT_MAX, MAX_KEYS_DEFAULT, MemoryStore, RedisStore, RedisStoreBuilder, Settled,
};

use self::health::{Health, ManualClock};
use crate::arguments::{duration, seconds, type_name, units};
use crate::awaiting::{awaited, block};
use crate::error::Failure;
use crate::runtime::{PerProcess, Reach, within};

/// The store as the library has it.
pub(crate) type Shared = Arc<dyn ratekeeper::Store>;

/// Where counters live. Made by `Store.memory`, `Store.redis` or `Store.open`.
///
/// After a fork the child connects anew. What is in memory is copied by the fork, and
/// counts for each process alone from then on.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct Store(Backing);

#[derive(Debug)]
enum Backing {
    Memory(Arc<MemoryStore>),
    Redis(Box<Redis>),
}

#[derive(Debug)]
struct Redis {
    builder: RedisStoreBuilder,
    live: PerProcess<RedisStore>,
}

impl Redis {
    fn build(builder: &RedisStoreBuilder) -> PyResult<RedisStore> {
        Ok(within(|| builder.clone().build())?.map_err(Failure::from)?)
    }

    fn live(&self) -> PyResult<RedisStore> {
        self.live.get_or(|| Self::build(&self.builder))
    }
}

impl Store {
    /// A store in memory, of the size that is usual.
    pub(crate) fn in_memory() -> Self {
        Self(Backing::Memory(Arc::new(MemoryStore::new())))
    }

    /// The store of this process.
    pub(crate) fn live(&self) -> PyResult<Shared> {
        Ok(match &self.0 {
            Backing::Memory(store) => Arc::clone(store) as Shared,
            Backing::Redis(redis) => Arc::new(redis.live()?),
        })
    }

    pub(crate) fn reach(&self) -> Reach {
        match &self.0 {
            Backing::Memory(_) => Reach::Memory,
            Backing::Redis(_) => Reach::Far,
        }
    }
}

/// Valkey's names for what Redis calls otherwise.
fn as_redis_url(url: &str) -> String {
    let schemes =
        [("valkey://", "redis://"), ("valkeys://", "rediss://"), ("valkey+unix://", "redis+unix://")];
    let known =
        schemes.iter().find_map(|(valkey, redis)| Some(format!("{redis}{}", url.strip_prefix(valkey)?)));
    known.unwrap_or_else(|| url.to_owned())
}

#[pymethods]
impl Store {
    /// Counters of this process, at most `max_keys` of them.
    #[staticmethod]
    #[pyo3(signature = (*, max_keys = 1_000_000, clock = None))]
    fn memory(max_keys: i64, clock: Option<&Bound<'_, ManualClock>>) -> PyResult<Self> {
        let max_keys =
            usize::try_from(max_keys).ok().filter(|keys| (1..=MAX_KEYS).contains(keys)).ok_or_else(|| {
                Failure::Input(format!(
                    "max_keys: got {max_keys}; expected a whole number from 1 to {MAX_KEYS}"
                ))
            })?;
        Ok(Self(Backing::Memory(Arc::new(match clock {
            Some(clock) => MemoryStore::with_clock(max_keys, Arc::new(clock.get().0.clone())),
            None => MemoryStore::with_max_keys(max_keys),
        }))))
    }

    /// Counters on Redis (6.2 or later) or Valkey: redis://, rediss://, redis+unix://,
    /// and valkey://, valkeys://, valkey+unix://, which mean the same.
    ///
    /// Keys are those of Application Kit where that has them, behind `prefix`. A call
    /// that takes longer than `deadline` is an outage; a server that keeps failing is
    /// not asked again until a probe reaches it (the breaker). A server that is down
    /// is no error here.
    #[staticmethod]
    #[pyo3(signature = (url, *, prefix = "", deadline = 0.025, connections = 1,
        queue_max = 10_000, breaker_consecutive = 5, breaker_failure_percent = 50,
        breaker_calls_min = 20, breaker_period = 5.0, breaker_probe_after = 0.05, breaker_probe_after_max = 2.0,
        certificate_authority = None, clock = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn redis(
        url: &str,
        prefix: &str,
        deadline: f64,
        connections: usize,
        queue_max: usize,
        breaker_consecutive: u32,
        breaker_failure_percent: u32,
        breaker_calls_min: u32,
        breaker_period: f64,
        breaker_probe_after: f64,
        breaker_probe_after_max: f64,
        certificate_authority: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let breaker = BreakerPolicy {
            consecutive: breaker_consecutive,
            failure_percent: breaker_failure_percent,
            calls_min: breaker_calls_min,
            period: duration("breaker_period", breaker_period)?,
            probe_after: duration("breaker_probe_after", breaker_probe_after)?,
            probe_after_max: duration("breaker_probe_after_max", breaker_probe_after_max)?,
        };
        let mut builder = RedisStore::builder(&as_redis_url(url))
            .prefix(prefix)
            .deadline(duration("deadline", deadline)?)
            .connections(connections)
            .queue_max(queue_max)
            .breaker(breaker);
        if let Some(pem) = certificate_authority {
            builder = builder.certificate_authority(bytes_of("certificate_authority", pem)?);
        }
        if let Some(clock) = clock {
            builder = builder.clock(Arc::new(clock.get().0.clone()));
        }
        let live = PerProcess::new(Redis::build(&builder)?);
        Ok(Self(Backing::Redis(Box::new(Redis { builder, live }))))
    }

    /// `memory`, `memory://`, or a URL of `Store.redis`.
    #[staticmethod]
    fn open(url: &str) -> PyResult<Self> {
        if matches!(url, "memory" | "memory://") {
            return Ok(Self::in_memory());
        }
        let builder = RedisStore::builder(&as_redis_url(url));
        let live = PerProcess::new(Redis::build(&builder)?);
        Ok(Self(Backing::Redis(Box::new(Redis { builder, live }))))
    }

    /// "memory" or "redis".
    #[getter]
    pub(crate) fn kind(&self) -> &'static str {
        match &self.0 {
            Backing::Memory(_) => "memory",
            Backing::Redis(_) => "redis",
        }
    }

    /// The time by the clock of the store, seconds since 1970.
    #[getter]
    fn now(&self) -> PyResult<f64> {
        Ok(seconds(self.live()?.now().as_micros()))
    }

    /// How it is doing, in this process.
    #[getter]
    fn health(&self) -> PyResult<Health> {
        Ok(Health(self.live()?.health()))
    }

    /// Raises StoreError if the store cannot be asked.
    fn ping(&self, py: Python<'_>) -> PyResult<()> {
        block(py, self.reach(), self.pinged()?, |()| ())
    }

    /// `ping`, to be awaited.
    fn aping<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach(), self.pinged()?, |()| ())
    }

    fn __repr__(&self) -> String {
        format!("<Store: {}>", self.kind())
    }
}

// Python shows defaults only if they are written out.
const _: () = assert!(MAX_KEYS_DEFAULT == 1_000_000 && QUEUE_MAX_DEFAULT == 10_000);
const _: () = assert!(DEADLINE_DEFAULT.as_millis() == 25);

/// The most counters in memory: about 40 GB of them.
const MAX_KEYS: usize = 1_000_000_000;

impl Store {
    fn pinged(&self) -> PyResult<impl Future<Output = Result<(), Failure>> + Send + use<>> {
        let store = match &self.0 {
            Backing::Memory(_) => None,
            Backing::Redis(redis) => Some(redis.live()?),
        };
        Ok(async move {
            match store {
                Some(store) => Ok(store.ping().await?),
                None => Ok(()),
            }
        })
    }
}

/// How many units to give back: all, if nothing is said.
pub(crate) fn refund_units(asked: Option<i64>) -> PyResult<u32> {
    let Some(asked) = asked else { return Ok(LIMIT_MAX) };
    Ok(u32::try_from(units("units", asked)?).map_or(LIMIT_MAX, |units| units.min(LIMIT_MAX)))
}

pub(crate) fn settled_word(settled: Settled) -> &'static str {
    settled.as_str()
}

fn bytes_of(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let text = value.extract::<String>().map(String::into_bytes);
    text.or_else(|_| value.extract::<Vec<u8>>()).map_err(|_| {
        PyTypeError::new_err(format!("{argument}: expected str or bytes, got {}", type_name(value)))
    })
}
