//! Where counters live.

pub(crate) mod control;
pub(crate) mod overrides;

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use ratekeeper::store::redis::{DEADLINE_DEFAULT, QUEUE_MAX_DEFAULT};
use ratekeeper::{
    BreakerPolicy, BreakerState, LIMIT_MAX, MAX_KEYS_DEFAULT, MemoryStore, RedisStore, RedisStoreBuilder,
    Reservation, Settled, Timestamp,
};

use crate::arguments::{duration, seconds, type_name, units};
use crate::awaiting::{awaited, block};
use crate::decision::{About, Decision};
use crate::error::Failure;
use crate::quota::{Asked, Charge, charges, charges_of, terms_of};
use crate::runtime::{PerProcess, Reach, within};

/// The store as the library has it.
pub(crate) type Shared = Arc<dyn ratekeeper::Store>;

/// Where counters live.
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

    /// Counters on Redis (6.2 or later) or Valkey.
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

    #[getter]
    fn kind(&self) -> &'static str {
        match &self.0 {
            Backing::Memory(_) => "memory",
            Backing::Redis(_) => "redis",
        }
    }

    #[getter]
    fn now(&self) -> PyResult<f64> {
        Ok(seconds(self.live()?.now().as_micros()))
    }

    #[getter]
    fn health(&self) -> PyResult<Health> {
        Ok(Health(self.live()?.health()))
    }

    /// Raises `StoreError` if the store cannot be asked.
    fn ping(&self, py: Python<'_>) -> PyResult<()> {
        block(py, self.reach(), self.pinged()?, |()| ())
    }

    fn aping<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach(), self.pinged()?, |()| ())
    }

    /// All or nothing: every charge is admitted, or none is charged.
    fn check(&self, py: Python<'_>, charges: &Bound<'_, PyAny>) -> PyResult<Decision> {
        block(py, self.reach(), self.decided(charges, Way::Check)?, about_charges)
    }

    fn acheck<'py>(&self, py: Python<'py>, charges: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach(), self.decided(charges, Way::Check)?, about_charges)
    }

    /// The same, but nothing is charged or written.
    fn peek(&self, py: Python<'_>, charges: &Bound<'_, PyAny>) -> PyResult<Decision> {
        block(py, self.reach(), self.decided(charges, Way::Peek)?, about_charges)
    }

    fn apeek<'py>(&self, py: Python<'py>, charges: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach(), self.decided(charges, Way::Peek)?, about_charges)
    }

    /// Charged once however often it is sent under the same id within `keep` seconds.
    #[pyo3(signature = (charges, id, keep = 600.0))]
    fn once(&self, py: Python<'_>, charges: &Bound<'_, PyAny>, id: String, keep: f64) -> PyResult<Decision> {
        let way = Way::Once(id, duration("keep", keep)?);
        block(py, self.reach(), self.decided(charges, way)?, about_charges)
    }

    #[pyo3(signature = (charges, id, keep = 600.0))]
    fn aonce<'py>(
        &self,
        py: Python<'py>,
        charges: &Bound<'_, PyAny>,
        id: String,
        keep: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let way = Way::Once(id, duration("keep", keep)?);
        awaited(py, self.reach(), self.decided(charges, way)?, about_charges)
    }

    /// Charges an estimate that is settled or cancelled within `hold` seconds, or lapses and stays.
    fn reserve(
        &self,
        py: Python<'_>,
        charges: &Bound<'_, PyAny>,
        id: String,
        hold: f64,
    ) -> PyResult<Decision> {
        let way = Way::Reserve(id, duration("hold", hold)?);
        block(py, self.reach(), self.decided(charges, way)?, about_charges)
    }

    fn areserve<'py>(
        &self,
        py: Python<'py>,
        charges: &Bound<'_, PyAny>,
        id: String,
        hold: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let way = Way::Reserve(id, duration("hold", hold)?);
        awaited(py, self.reach(), self.decided(charges, way)?, about_charges)
    }

    /// Makes a reservation's charge the actual amount.
    fn settle(&self, py: Python<'_>, id: String, actual: i64) -> PyResult<&'static str> {
        block(py, self.reach(), self.settled(id, Some(actual))?, settled_word)
    }

    fn asettle<'py>(&self, py: Python<'py>, id: String, actual: i64) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach(), self.settled(id, Some(actual))?, settled_word)
    }

    fn cancel(&self, py: Python<'_>, id: String) -> PyResult<&'static str> {
        block(py, self.reach(), self.settled(id, None)?, settled_word)
    }

    fn acancel<'py>(&self, py: Python<'py>, id: String) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach(), self.settled(id, None)?, settled_word)
    }

    /// Gives up to `units` (None: all) of each charge of a decision of this store back.
    #[pyo3(signature = (decision, units = None))]
    fn refund(&self, py: Python<'_>, decision: &Bound<'_, Decision>, units: Option<i64>) -> PyResult<()> {
        block(py, self.reach(), self.refunded(decision, units)?, |()| ())
    }

    #[pyo3(signature = (decision, units = None))]
    fn arefund<'py>(
        &self,
        py: Python<'py>,
        decision: &Bound<'_, Decision>,
        units: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach(), self.refunded(decision, units)?, |()| ())
    }

    /// Forgets a counter; says whether there was one.
    fn reset(&self, py: Python<'_>, charge: &Bound<'_, Charge>) -> PyResult<bool> {
        block(py, self.reach(), self.forgotten(charge)?, |was_there| was_there)
    }

    fn areset<'py>(&self, py: Python<'py>, charge: &Bound<'_, Charge>) -> PyResult<Bound<'py, PyAny>> {
        awaited(py, self.reach(), self.forgotten(charge)?, |was_there| was_there)
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

/// What is done with charges.
enum Way {
    Check,
    Peek,
    Once(String, Duration),
    Reserve(String, Duration),
}

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

    fn decided(
        &self,
        asked: &Bound<'_, PyAny>,
        way: Way,
    ) -> PyResult<impl Future<Output = Result<(ratekeeper::Decision, Asked), Failure>> + Send + use<>> {
        let (store, asked) = (self.live()?, charges_of(asked)?);
        Ok(async move {
            let decision = {
                let charges = charges(&asked)?;
                let check = charges.check()?;
                match &way {
                    Way::Check => store.check(&check).await?,
                    Way::Peek => store.check(&check.peek()).await?,
                    Way::Once(id, keep) => store.reserve(&check, &Reservation::once(id, *keep)?).await?,
                    Way::Reserve(id, hold) => store.reserve(&check, &Reservation::hold(id, *hold)?).await?,
                }
            };
            Ok((decision, asked))
        })
    }

    fn settled(
        &self,
        id: String,
        actual: Option<i64>,
    ) -> PyResult<impl Future<Output = Result<Settled, Failure>> + Send + use<>> {
        let (store, actual) = (self.live()?, actual.map(bounded_amount).transpose()?);
        Ok(async move { Ok(store.settle(id.as_bytes(), actual).await?) })
    }

    fn refunded(
        &self,
        decision: &Bound<'_, Decision>,
        units: Option<i64>,
    ) -> PyResult<impl Future<Output = Result<(), Failure>> + Send + use<>> {
        let About::Charges(asked) = &decision.get().about else {
            let message = "decision: got one of a limiter; expected one of `Store.check`";
            return Err(Failure::Input(message.to_owned()).into());
        };
        let (store, asked, decision) = (self.live()?, Arc::clone(asked), decision.get().inner.clone());
        let units = refund_units(units)?;
        Ok(async move {
            let charges = charges(&asked)?;
            Ok(store.refund(&charges.check()?, &decision, units).await?)
        })
    }

    fn forgotten(
        &self,
        charge: &Bound<'_, Charge>,
    ) -> PyResult<impl Future<Output = Result<bool, Failure>> + Send + use<>> {
        let (store, terms) = (self.live()?, terms_of(charge));
        Ok(async move {
            let charge = terms.charge()?;
            Ok(store.reset(charge.key(), charge.quota().algorithm()).await?)
        })
    }
}

fn about_charges((inner, asked): (ratekeeper::Decision, Asked)) -> Decision {
    Decision { inner, about: About::Charges(asked) }
}

/// How many units to give back: all, if nothing is said.
pub(crate) fn refund_units(asked: Option<i64>) -> PyResult<u32> {
    let Some(asked) = asked else { return Ok(LIMIT_MAX) };
    Ok(u32::try_from(units("units", asked)?).map_or(LIMIT_MAX, |units| units.min(LIMIT_MAX)))
}

fn bounded_amount(actual: i64) -> PyResult<u32> {
    let bounded = u32::try_from(actual).ok().filter(|actual| *actual <= LIMIT_MAX);
    Ok(bounded.ok_or_else(|| {
        Failure::Input(format!("actual: got {actual}; expected a whole number from 0 to {LIMIT_MAX}"))
    })?)
}

pub(crate) fn settled_word(settled: Settled) -> &'static str {
    match settled {
        Settled::Done => "done",
        Settled::Already => "already",
        Settled::Lapsed => "lapsed",
        Settled::Unknown => "unknown",
    }
}

fn bytes_of(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let text = value.extract::<String>().map(String::into_bytes);
    text.or_else(|_| value.extract::<Vec<u8>>()).map_err(|_| {
        PyTypeError::new_err(format!("{argument}: expected str or bytes, got {}", type_name(value)))
    })
}

/// How a store is doing.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct Health(ratekeeper::Health);

#[pymethods]
impl Health {
    #[getter]
    fn breaker(&self) -> &'static str {
        match self.0.breaker {
            BreakerState::Closed => "closed",
            BreakerState::HalfOpen => "half_open",
            BreakerState::Open => "open",
        }
    }

    #[getter]
    fn breaker_opened(&self) -> u64 {
        self.0.breaker_opened
    }

    #[getter]
    fn timeouts(&self) -> u64 {
        self.0.timeouts
    }

    #[getter]
    fn failures(&self) -> u64 {
        self.0.failures
    }

    #[getter]
    fn batches(&self) -> u64 {
        self.0.batches
    }

    #[getter]
    fn batched(&self) -> u64 {
        self.0.batched
    }

    #[getter]
    fn waiting(&self) -> usize {
        self.0.waiting
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.0)
    }
}

/// A clock for tests: it stands still until it is moved.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct ManualClock(ratekeeper::ManualClock);

#[pymethods]
impl ManualClock {
    #[new]
    #[pyo3(signature = (seconds = 1_700_000_000.0))]
    fn new(seconds: f64) -> PyResult<Self> {
        let since = duration("seconds", seconds)?;
        Ok(Self(ratekeeper::ManualClock::starting_at(Timestamp::from_micros(0).after(since))))
    }

    fn advance(&self, seconds: f64) -> PyResult<()> {
        self.0.advance(duration("seconds", seconds)?);
        Ok(())
    }

    fn set_micros(&self, micros: u64) {
        self.0.set(Timestamp::from_micros(micros));
    }

    #[getter]
    fn micros(&self) -> u64 {
        ratekeeper::Clock::now(&self.0).as_micros()
    }
}
