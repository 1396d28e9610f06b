//! Limits that live outside the code: files, folders, MongoDB.

mod asked;
mod keys;
pub(crate) mod limiter;
pub(crate) mod request;
pub(crate) mod service;
mod watch;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use ratekeeper::Mode;
use ratekeeper::policy::{Format, KeyHashing, PolicySpec};

use self::keys::key_function;
use self::watch::{Following, MongoSettings, Origin};
use crate::arguments::{choice, duration, float, float_or_none, mode as mode_of, type_name, whole};
use crate::awaiting::{awaited, block};
use crate::environment;
use crate::error::Failure;
use crate::logging;
use crate::quota::Quota;
use crate::runtime::{Reach, fenced, generation};

pub(crate) use self::watch::PolicyWatch;

/// The policies in force, one for each service; each is swapped whole.
///
/// `key_functions`: by the name of a rule with `caller_key`, from `Request.context` (or the
/// Request) to a key or None. `mode`: of all services; None is what RATE_LIMIT_MODE says, read with
/// every check, and if that says nothing what the policies say. `hash_secret`: for `hash_keys`.
/// `unknown_services`: what a service without a policy means, whose name may be mistyped: "log" says once that it
/// is not limited, "refuse" raises ValueError.
#[pyclass(module = "ratekeeper", frozen)]
#[derive(Debug)]
pub(crate) struct Policies {
    pub(crate) inner: ratekeeper::policy::Policies,
    /// Whether the environment says their mode.
    follows_environment: bool,
    /// What is followed: until it is stopped, and in children too.
    followed: Mutex<Vec<Arc<Following>>>,
    followed_in: AtomicU64,
}

impl Policies {
    /// Sees to it that this process follows what its parent did.
    pub(crate) fn follow(&self) -> PyResult<()> {
        let generation = generation();
        if self.followed_in.swap(generation, Ordering::AcqRel) == generation {
            return Ok(());
        }
        let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for following in followed {
            following.resume(&self.inner)?;
        }
        Ok(())
    }

    /// The mode that they have just now, if it is not the one they were given.
    #[inline]
    pub(crate) fn mode_now(&self, py: Python<'_>) -> PyResult<Option<Mode>> {
        if self.follows_environment { environment::mode_now(py) } else { Ok(None) }
    }

    /// Remembers what is followed now, for children to follow it too. Not before it is: nobody
    /// could stop what has failed.
    fn watched(this: Py<Self>, following: Arc<Following>) -> PolicyWatch {
        let mut followed = this.get().followed.lock().unwrap_or_else(PoisonError::into_inner);
        followed.retain(|following| !following.is_stopped());
        followed.push(Arc::clone(&following));
        drop(followed);
        PolicyWatch::new(following, this)
    }

    fn followed_mongodb<'p>(
        this: &Bound<'p, Self>,
        settings: MongoSettings,
    ) -> PyResult<(Arc<Following>, impl Future<Output = Result<(), Failure>> + Send + use<>)> {
        settings.source()?;
        let policies = this.get();
        policies.follow()?;
        let following = Arc::new(Following::new(Origin::MongoDb(settings)));
        let (task, policies) = (Arc::clone(&following), policies.inner.clone());
        Ok((following, async move { task.start_mongodb(&policies).await }))
    }
}

const FORMATS: [(&str, Format); 3] = [("toml", Format::Toml), ("yaml", Format::Yaml), ("json", Format::Json)];

#[pymethods]
impl Policies {
    #[new]
    #[pyo3(signature = (*, instances = 1, mode = None, key_functions = None, hash_secret = None,
        unknown_services = "log"))]
    fn new(
        #[pyo3(from_py_with = whole)] instances: i64,
        mode: Option<&str>,
        key_functions: Option<&Bound<'_, PyMapping>>,
        hash_secret: Option<&[u8]>,
        unknown_services: &str,
    ) -> PyResult<Self> {
        let instances = u32::try_from(instances).ok().and_then(NonZeroU32::new).ok_or_else(|| {
            Failure::Input(format!("instances: got {instances}; expected a whole number of at least 1"))
        })?;
        let given = mode.map(mode_of).transpose()?;
        let refuse = choice("unknown_services", unknown_services, &[("log", false), ("refuse", true)])?;
        let mut builder = ratekeeper::policy::Policies::builder().instances(instances).mode(given);
        builder = builder.refuse_unknown_services(refuse).fence(|step| fenced(step));
        if let Some(secret) = hash_secret {
            let wrong = |error| Failure::Input(format!("hash_secret: {error}"));
            builder = builder.hashing(KeyHashing::secret(secret).map_err(wrong)?);
        }
        for item in key_functions.map(PyMappingMethods::items).transpose()?.iter().flatten() {
            let (rule, function): (String, Bound<'_, PyAny>) = item.extract()?;
            builder = builder.key_function(rule, key_function(&function)?);
        }
        let inner = builder.build().map_err(Failure::from)?;
        Ok(Self {
            inner,
            follows_environment: given.is_none(),
            followed: Mutex::default(),
            followed_in: AtomicU64::new(generation()),
        })
    }

    /// Puts a policy into force, or raises PolicyError with everything that is wrong; says of which service.
    #[pyo3(signature = (document, format = "toml", *, source = "code"))]
    fn install(&self, document: &Bound<'_, PyAny>, format: &str, source: &str) -> PyResult<String> {
        let format = choice("format", format, &FORMATS)?;
        let bytes = match document.extract::<&str>() {
            Ok(text) => text.as_bytes().to_vec(),
            Err(_) => document.extract::<Vec<u8>>().map_err(|_| {
                let got = type_name(document);
                PyTypeError::new_err(format!("document: expected str or bytes, got {got}"))
            })?,
        };
        let read = PolicySpec::read(source, format, &bytes);
        let service = read.as_ref().map(|spec| spec.service.clone()).unwrap_or_default();
        // A fork may wait for it, and has the interpreter's lock then.
        let installed = document.py().detach(|| self.inner.install(source, read, None));
        logging::tell(document.py());
        installed.map_err(Failure::policy)?;
        Ok(service)
    }

    /// A file, or a folder with a file for each service. Raises PolicyError if something is wrong now.
    #[pyo3(signature = (path, *, format = None, debounce = 0.1, poll = 10.0))]
    fn watch_file(
        this: &Bound<'_, Self>,
        path: PathBuf,
        format: Option<&str>,
        #[pyo3(from_py_with = float)] debounce: f64,
        #[pyo3(from_py_with = float)] poll: f64,
    ) -> PyResult<PolicyWatch> {
        let origin = Origin::File {
            path,
            format: format.map(|format| choice("format", format, &FORMATS)).transpose()?,
            debounce: duration("debounce", debounce)?,
            poll: duration("poll", poll)?,
        };
        let policies = this.get();
        policies.follow()?;
        let following = Arc::new(Following::new(origin));
        let inner = policies.inner.clone();
        let started = this.py().detach(|| following.start_file(&inner));
        logging::tell(this.py());
        started?;
        Ok(Self::watched(this.clone().unbind(), following))
    }

    /// Documents in MongoDB, one for each service, polled; `copy`: a file to start from while it is away.
    #[pyo3(signature = (url, *, database = None, collection = None, services = None, interval = None,
        deadline = None, copy = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn watch_mongodb(
        this: &Bound<'_, Self>,
        url: String,
        database: Option<String>,
        collection: Option<String>,
        services: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = float_or_none)] interval: Option<f64>,
        #[pyo3(from_py_with = float_or_none)] deadline: Option<f64>,
        copy: Option<PathBuf>,
    ) -> PyResult<PolicyWatch> {
        let settings = MongoSettings::new(url, (database, collection), services, (interval, deadline), copy)?;
        let (following, started) = Self::followed_mongodb(this, settings)?;
        block(this.py(), Reach::Far, started)?;
        Ok(Self::watched(this.clone().unbind(), following))
    }

    /// `watch_mongodb`, to be awaited.
    #[pyo3(signature = (url, *, database = None, collection = None, services = None, interval = None,
        deadline = None, copy = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn awatch_mongodb<'py>(
        this: &Bound<'py, Self>,
        url: String,
        database: Option<String>,
        collection: Option<String>,
        services: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = float_or_none)] interval: Option<f64>,
        #[pyo3(from_py_with = float_or_none)] deadline: Option<f64>,
        copy: Option<PathBuf>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let settings = MongoSettings::new(url, (database, collection), services, (interval, deadline), copy)?;
        let (following, started) = Self::followed_mongodb(this, settings)?;
        let policies = this.clone().unbind();
        let watched = async move { started.await.map(|()| Self::watched(policies, following)) };
        awaited(this.py(), Reach::Far, watched)
    }

    /// What became of the policies: for each service `service`, `in_force`, `source`, `installed`,
    /// `refused`, `last_refusal`, `warnings`, `rules`.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        logging::tell(py);
        let status = self.inner.status_in(self.mode_now(py)?);
        status.iter().map(|service| service_status(py, service)).collect()
    }

    fn __repr__(&self) -> String {
        format!("<Policies: {:?}>", self.inner)
    }

    /// The quotas of a service that could apply to an endpoint, for documentation.
    fn endpoint_limits(&self, service: &str, method: &str, route: &str) -> Vec<(&'static str, Quota)> {
        let limits = self.inner.policy(service).map(|policy| policy.limits_for(method, route));
        let quotas = limits.into_iter().flatten().flat_map(|limits| limits.quotas);
        quotas.map(|(name, quota)| (name, Quota(quota))).collect()
    }
}

fn service_status<'py>(
    py: Python<'py>,
    service: &ratekeeper::policy::ServiceStatus,
) -> PyResult<Bound<'py, PyDict>> {
    let status = PyDict::new(py);
    status.set_item("service", &service.service)?;
    status.set_item("in_force", service.in_force)?;
    status.set_item("source", &service.source)?;
    status.set_item("installed", service.installed)?;
    status.set_item("refused", service.refused)?;
    status.set_item("last_refusal", &service.last_refusal)?;
    let warnings: Vec<String> = service.warnings.iter().map(ToString::to_string).collect();
    status.set_item("warnings", warnings)?;
    let rules = service.rules.iter().map(|rule| {
        let status = PyDict::new(py);
        status.set_item("name", &rule.name)?;
        status.set_item("mode", Mode::as_str(rule.mode))?;
        status.set_item("unresolved", rule.unresolved)?;
        status.set_item("failed", rule.failed)?;
        status.set_item("beyond_budget", rule.beyond_budget)?;
        status.set_item("last_failure", &rule.last_failure)?;
        status.set_item("denied", rule.denied)?;
        status.set_item("over_limit", rule.over_limit)?;
        status.set_item("penalties", rule.penalties)?;
        Ok(status)
    });
    status.set_item("rules", rules.collect::<PyResult<Vec<_>>>()?)?;
    Ok(status)
}
