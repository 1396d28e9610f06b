//! Where counters live.

mod checks;
pub(crate) mod control;
pub(crate) mod health;
mod kept;
pub(crate) mod overrides;

use std::sync::Arc;

use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ratekeeper::bounds::MAX_KEYS_DEFAULT;
use ratekeeper::metrics::Metrics;
use ratekeeper::store::open;
use ratekeeper::store::redis::{DEADLINE_DEFAULT, QUEUE_MAX_DEFAULT};
use ratekeeper::{
    BreakerPolicy, Engine, Field, InvalidInput, MemoryStore, MemoryStoreBuilder, OpenOptions, OpenedStore,
    StoreUrl,
};

use self::health::{Health, ManualClock, Metric, metric};
use crate::arguments::{duration, fitting, float, float_or_none, seconds, type_name, whole};
use crate::error::Failure;
use crate::policy::Policies;
use crate::runtime::{PerProcess, Reach, fenced, within};

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
    Memory(Live),
    Server(Box<Server>),
}

#[derive(Debug)]
struct Server {
    url: StoreUrl,
    options: OpenOptions,
    live: PerProcess<Live>,
}

/// What a process has of a store, and what decides on charges in it.
#[derive(Clone, Debug)]
struct Live {
    opened: OpenedStore,
    engine: Arc<Engine>,
}

impl Live {
    fn open(url: &StoreUrl, options: &OpenOptions) -> PyResult<Self> {
        // Memory needs no runtime, so none is started for it.
        let opened = if url.is_memory() { open(url, options) } else { within(|| open(url, options))? };
        Ok(Self::on(opened.map_err(Failure::from)?))
    }

    fn on(opened: OpenedStore) -> Self {
        Self { engine: Arc::new(Engine::new(opened.store())), opened }
    }
}

impl Store {
    /// A store in memory, of the size that is usual.
    pub(crate) fn in_memory() -> Self {
        Self::on(MemoryStore::new())
    }

    fn on(store: MemoryStore) -> Self {
        Self(Backing::Memory(Live::on(OpenedStore::Memory(Arc::new(store)))))
    }

    fn at(url: StoreUrl, options: OpenOptions) -> PyResult<Self> {
        let live = Live::open(&url, &options)?;
        Ok(Self(match &live.opened {
            OpenedStore::Memory(_) => Backing::Memory(live),
            _ => Backing::Server(Box::new(Server { url, options, live: PerProcess::new(live) })),
        }))
    }

    fn of_process(&self) -> PyResult<Live> {
        match &self.0 {
            Backing::Memory(live) => Ok(live.clone()),
            Backing::Server(server) => server.live.get_or(|| Live::open(&server.url, &server.options)),
        }
    }

    /// What decides on charges, in this process.
    fn deciding(&self) -> PyResult<Arc<Engine>> {
        match &self.0 {
            Backing::Memory(live) => Ok(Arc::clone(&live.engine)),
            Backing::Server(_) => Ok(self.of_process()?.engine),
        }
    }

    /// The store of this process.
    pub(crate) fn live(&self) -> PyResult<Shared> {
        Ok(Arc::clone(self.deciding()?.store()))
    }

    pub(crate) fn reach(&self) -> Reach {
        match &self.0 {
            Backing::Memory(_) => Reach::Memory,
            Backing::Server(_) => Reach::Far,
        }
    }
}

#[pymethods]
impl Store {
    /// Counters of this process, at most `max_keys` of them.
    #[staticmethod]
    #[pyo3(signature = (*, max_keys = 1_000_000, clock = None))]
    fn memory(
        #[pyo3(from_py_with = whole)] max_keys: i64,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        Ok(Self::on(memory_of(max_keys, clock)?.build()))
    }

    /// Counters on Redis (6.2 or later) or Valkey: redis://, rediss://, redis+unix://,
    /// and valkey://, valkeys://, valkey+unix://, which mean the same; or
    /// redis+sentinel://host:26379,host:26379/service, where sentinels say which server it is; or
    /// redis+cluster://host:6379,host:6379, nodes of a cluster; or
    /// redis://host,redis://other, several servers that share the counters.
    ///
    /// Keys are those of Application Kit where that has them, behind `prefix`. A server
    /// that is silent for longer than `deadline` is an outage; no call takes longer than
    /// `total`, which is four deadlines unless given. A server that keeps failing is
    /// not asked again until a probe reaches it (the breaker). A server that is down
    /// is no error here. `password_file` is read again for every new connection. What is
    /// admitted is told once `replicas` of the server have it (`WAIT`); see docs/redis.md.
    #[staticmethod]
    #[pyo3(signature = (url, *, prefix = "", deadline = 0.025, total = None, password_file = None, connections = 1,
        queue_max = 10_000, replicas = 0, breaker_consecutive = 5, breaker_failure_percent = 50,
        breaker_calls_min = 20, breaker_period = 5.0, breaker_probe_after = 0.05, breaker_probe_after_max = 2.0,
        certificate_authority = None, clock = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn redis(
        url: &str,
        prefix: &str,
        #[pyo3(from_py_with = float)] deadline: f64,
        #[pyo3(from_py_with = float_or_none)] total: Option<f64>,
        password_file: Option<std::path::PathBuf>,
        #[pyo3(from_py_with = whole)] connections: i64,
        #[pyo3(from_py_with = whole)] queue_max: i64,
        #[pyo3(from_py_with = whole)] replicas: i64,
        #[pyo3(from_py_with = whole)] breaker_consecutive: i64,
        #[pyo3(from_py_with = whole)] breaker_failure_percent: i64,
        #[pyo3(from_py_with = whole)] breaker_calls_min: i64,
        #[pyo3(from_py_with = float)] breaker_period: f64,
        #[pyo3(from_py_with = float)] breaker_probe_after: f64,
        #[pyo3(from_py_with = float)] breaker_probe_after_max: f64,
        certificate_authority: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let breaker = BreakerPolicy {
            consecutive: fitting("breaker_consecutive", breaker_consecutive, SMALL)?,
            failure_percent: fitting("breaker_failure_percent", breaker_failure_percent, SMALL)?,
            calls_min: fitting("breaker_calls_min", breaker_calls_min, SMALL)?,
            period: duration("breaker_period", breaker_period)?,
            probe_after: duration("breaker_probe_after", breaker_probe_after)?,
            probe_after_max: duration("breaker_probe_after_max", breaker_probe_after_max)?,
        };
        let deadline = duration("deadline", deadline)?;
        let connections = fitting("connections", connections, "1 to 64 connections")?;
        let queue_max = fitting("queue_max", queue_max, SMALL)?;
        let replicas = fitting("replicas", replicas, "0 to 16 replicas")?;
        let mut options = OpenOptions::new().redis(|redis| {
            let redis = redis.prefix(prefix).deadline(deadline).breaker(breaker);
            redis.connections(connections).queue_max(queue_max).replicas(replicas)
        });
        if let Some(total) = total {
            let total = duration("total", total)?;
            options = options.redis(|redis| redis.total(total));
        }
        if let Some(file) = password_file {
            options = options.redis(|redis| redis.password_file(file));
        }
        if let Some(pem) = certificate_authority {
            let pem = bytes_of("certificate_authority", pem)?;
            options = options.redis(|redis| redis.certificate_authority(pem));
        }
        if let Some(clock) = clock {
            options = options.redis(|redis| redis.clock(Arc::new(clock.get().0.clone())));
        }
        Self::at(StoreUrl::server(url).map_err(Failure::from)?, options)
    }

    /// `memory`, `memory://`, a URL of `Store.redis`, or `memory+dir://` and the path of a directory: then what is in
    /// memory is kept there, through restarts and crashes, for one process at a time. `memory` and `redis` are options of
    /// `Store.memory` and `Store.redis`: those hold that are for what the URL means.
    #[staticmethod]
    #[pyo3(signature = (url, *, memory = None, redis = None))]
    fn open<'py>(
        py: Python<'py>,
        url: &str,
        memory: Option<&Bound<'py, PyDict>>,
        redis: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let parsed: StoreUrl = url.parse().map_err(|error: InvalidInput| Failure::from(error))?;
        let class = py.get_type::<Self>();
        if parsed.directory().is_some() {
            return wrap_pyfunction!(in_directory, py)?.call((url,), memory);
        }
        if parsed.is_memory() {
            return class.call_method("memory", (), memory);
        }
        class.call_method("redis", (url,), redis)
    }

    /// Saves in the directory of the store what changed within the last second. The end of the program does it, too.
    /// Raises StoreError if the directory cannot be written.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let Backing::Memory(live) = &self.0 else { return Ok(()) };
        py.detach(|| live.opened.flush()).map_err(|error| Failure::from(error).into())
    }

    /// Whether what is in memory is kept in a directory.
    #[getter]
    fn kept(&self) -> bool {
        match &self.0 {
            Backing::Memory(live) => live.opened.store().outlives_process(),
            Backing::Server(_) => false,
        }
    }

    /// "memory" or "redis".
    #[getter]
    pub(crate) fn kind(&self) -> &'static str {
        match &self.0 {
            Backing::Memory(_) => "memory",
            Backing::Server(_) => "redis",
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

    /// The metrics of this process: of the store, of decisions by rule, of requests that were decided without the store,
    /// and of `policies`. For `ratekeeper.prometheus` and `ratekeeper.opentelemetry`.
    #[pyo3(signature = (policies = None))]
    fn metrics(&self, policies: Option<&Bound<'_, Policies>>) -> PyResult<Vec<Metric>> {
        let mut metrics = Metrics::new(self.live()?);
        if let Some(policies) = policies {
            metrics = metrics.with_policies(policies.get().inner.clone());
        }
        Ok(metrics.families().into_iter().map(metric).collect())
    }

    fn __repr__(&self) -> String {
        format!("<Store: {}>", self.kind())
    }
}

both_forms! { Store:
    /// Raises StoreError if the store cannot be asked.
    fn ping / aping () (self, py) -> () {
        let opened = self.of_process()?.opened;
        async move { Ok(opened.ping().await?) }
    }
}

// Python shows defaults only if they are written out.
const _: () = assert!(MAX_KEYS_DEFAULT == 1_000_000 && QUEUE_MAX_DEFAULT == 10_000);
const _: () = assert!(DEADLINE_DEFAULT.as_millis() == 25);

const SMALL: &str = "a whole number from 0 to 4294967295";

/// What a memory is made of.
fn memory_of(max_keys: i64, clock: Option<&Bound<'_, ManualClock>>) -> PyResult<MemoryStoreBuilder> {
    let bounded = usize::try_from(max_keys).ok().filter(|keys| (1..=MAX_KEYS).contains(keys));
    let max_keys = bounded.ok_or_else(|| {
        Failure::Input(format!("max_keys: got {max_keys}; expected a whole number from 1 to {MAX_KEYS}"))
    })?;
    let memory = MemoryStore::builder().max_keys(max_keys);
    Ok(match clock {
        Some(clock) => memory.clock(Arc::new(clock.get().0.clone())),
        None => memory,
    })
}

/// A memory that is kept in the directory of a URL; a function of Python, so that it takes keywords.
#[pyfunction]
#[pyo3(signature = (url, *, max_keys = 1_000_000, clock = None))]
fn in_directory(
    py: Python<'_>,
    url: &str,
    #[pyo3(from_py_with = whole)] max_keys: i64,
    clock: Option<&Bound<'_, ManualClock>>,
) -> PyResult<Store> {
    let memory = memory_of(max_keys, clock)?.fence(|step| fenced(step));
    let url: StoreUrl = url.parse().map_err(|error: InvalidInput| Failure::from(error))?;
    let store = Store::at(url, OpenOptions::new().memory(|_| memory))?;
    if let Backing::Memory(live) = &store.0 {
        kept::register(py, &live.opened)?;
    }
    Ok(store)
}

/// The most counters in memory: about 40 GB of them.
const MAX_KEYS: usize = 1_000_000_000;

/// Every scheme that `Store.open` knows.
pub(crate) fn schemes(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, ratekeeper::store::schemes().collect::<Vec<_>>())
}

/// The server of a URL, as arguments of `redis.Redis`, or of `redis.sentinel.Sentinel` and its `service_name`: for
/// administrative calls that the engine has not.
#[pyfunction]
pub(crate) fn server_arguments<'py>(py: Python<'py>, url: &str) -> PyResult<Bound<'py, PyDict>> {
    let url = StoreUrl::server(url).map_err(Failure::from)?;
    if url.has_several() {
        let one =
            InvalidInput::new(Field::Store, &url, "one server: each of several has a client of its own");
        return Err(Failure::from(one).into());
    }
    let parts = url.server_parts().ok_or(Failure::Lost)?;
    if !parts.nodes.is_empty() {
        let message = "reset() of a storage on a cluster is not supported: name its keys instead";
        return Err(PyNotImplementedError::new_err(message));
    }
    let arguments = PyDict::new(py);
    match (parts.socket, parts.sentinels) {
        (Some(path), _) => arguments.set_item("unix_socket_path", path.to_string_lossy())?,
        (None, Some(sentinels)) => {
            let login = PyDict::new(py);
            login.set_item("username", sentinels.user)?;
            login.set_item("password", sentinels.password)?;
            login.set_item("ssl", parts.is_tls)?;
            arguments.set_item("sentinels", sentinels.hosts)?;
            arguments.set_item("service_name", sentinels.service)?;
            arguments.set_item("sentinel_kwargs", login)?;
            arguments.set_item("ssl", parts.is_tls)?;
        }
        (None, None) => {
            arguments.set_item("host", parts.host)?;
            arguments.set_item("port", parts.port)?;
            arguments.set_item("ssl", parts.is_tls)?;
        }
    }
    arguments.set_item("username", parts.user)?;
    arguments.set_item("password", parts.password)?;
    arguments.set_item("db", parts.database)?;
    Ok(arguments)
}

fn bytes_of(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let text = value.extract::<String>().map(String::into_bytes);
    text.or_else(|_| value.extract::<Vec<u8>>()).map_err(|_| {
        PyTypeError::new_err(format!("{argument}: expected str or bytes, got {}", type_name(value)))
    })
}
