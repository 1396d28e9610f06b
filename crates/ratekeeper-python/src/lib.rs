//! The native module of the Python package: `ratekeeper._native`.
//!
//! It turns Python's arguments into those of `ratekeeper`, and its answers into
//! Python's objects; it decides nothing itself. `python/ratekeeper/_native.pyi` says
//! what every call does.
//!
//! - `runtime`: the threads behind it, and what becomes of them at a fork;
//! - `awaiting`: answers for event loops;
//! - `logging`: what the engine has to say;
//! - the rest: one module for each subject.
//!
//! No thread of ours ever takes the interpreter's lock: what they have to say waits
//! until a thread of Python comes for it. So none can hang or crash an interpreter that ends.
//!
//! What is written above classes and members is their docstring in Python, with that
//! language's names; the stubs have the same.
#![allow(clippy::doc_markdown, reason = "docstrings of Python")]

#[macro_use]
mod forms;

mod addresses;
mod arguments;
mod awaiting;
mod decision;
mod environment;
mod error;
mod http;
mod limiter;
mod logging;
mod policy;
mod quota;
mod runtime;
mod store;
mod verbs;

use pyo3::prelude::*;

/// The engine, in Rust.
#[pymodule]
mod _native {
    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_export]
    use crate::addresses::Addresses;
    #[pymodule_export]
    use crate::decision::{Decision, Verdict, decision_of, verdict_of};
    #[pymodule_export]
    use crate::environment::mode_from_environment;
    #[pymodule_export]
    use crate::http::{Denial, HttpOptions, Tally, denial_of};
    #[pymodule_export]
    use crate::limiter::{Limiter, Outages, Rule};
    #[pymodule_export]
    use crate::policy::limiter::PolicyLimiter;
    #[pymodule_export]
    use crate::policy::request::Request;
    #[pymodule_export]
    use crate::policy::service::{Needs, ServiceLimiter};
    #[pymodule_export]
    use crate::policy::{Policies, PolicyWatch};
    #[pymodule_export]
    use crate::quota::{Charge, Quota};
    #[pymodule_export]
    use crate::store::control::Switch;
    #[pymodule_export]
    use crate::store::health::{Health, ManualClock};
    #[pymodule_export]
    use crate::store::overrides::Override;
    #[pymodule_export]
    use crate::store::{Store, server_arguments};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("EXPOSE_HEADERS", ratekeeper_http::field::EXPOSE)?;
        module.add("STORE_SCHEMES", crate::store::schemes(module.py())?)?;
        crate::error::register(module)?;
        crate::logging::register(module)?;
        crate::runtime::register(module.py())
    }
}
