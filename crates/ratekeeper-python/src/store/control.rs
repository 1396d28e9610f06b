//! Switches that operators throw.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use ratekeeper::{Emergency, Mode};

use super::Store;
use crate::arguments::{
    duration, emergency as emergency_of, float_or_none, mode as mode_of, seconds as seconds_since,
    whole_or_none,
};
use crate::error::Failure;
use crate::runtime::{Reach, drive};

/// What an operator has set for a rule, a service (`service/*`) or all rules (`*`).
#[pyclass(module = "ratekeeper", frozen, eq)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Switch(ratekeeper::Switch);

#[pymethods]
impl Switch {
    /// The mode that is in force instead; None: as configured.
    #[getter]
    fn mode(&self) -> Option<&'static str> {
        self.0.mode.map(Mode::as_str)
    }

    /// The share of keys that limits are enforced for; None: all.
    #[getter]
    fn enforce_percent(&self) -> Option<u8> {
        self.0.enforce_percent
    }

    /// "lift" lets everything pass, "block" nothing.
    #[getter]
    fn emergency(&self) -> &'static str {
        match self.0.emergency {
            Emergency::Off => "off",
            Emergency::Lift => "lift",
            Emergency::Block => "block",
        }
    }

    /// When it ends, seconds since 1970; None: when it is cleared.
    #[getter]
    fn until(&self) -> Option<f64> {
        self.0.until.map(|until| seconds_since(until.as_micros()))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.to_string().hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<Switch: {}>", self.0)
    }
}

both_forms! { Store:
    /// For a rule, `service/*`, or `*`: a mode, a share of the keys to enforce for, a lift or a
    /// block; for `seconds`, or until it is cleared.
    fn set_switch / aset_switch (rule = "*", *, mode = None, enforce_percent = None, emergency = "off",
        seconds = None)
    (self, py, rule: &str, mode: Option<&str>,
        #[pyo3(from_py_with = whole_or_none)] enforce_percent: Option<i64>, emergency: &str,
        #[pyo3(from_py_with = float_or_none)] seconds: Option<f64>) -> () {
        let (store, rule) = (self.live()?, rule.to_owned());
        let life = seconds.map(|seconds| duration("seconds", seconds)).transpose()?;
        let switch = ratekeeper::Switch {
            mode: mode.map(mode_of).transpose()?,
            enforce_percent: enforce_percent.map(percent_of).transpose()?,
            emergency: emergency_of(emergency)?,
            until: life.map(|life| store.now().after(life)),
        };
        async move { Ok(store.control().set_switch(&rule, switch).await?) }
    }

    /// Says whether there was one.
    fn clear_switch / aclear_switch (rule = "*") (self, py, rule: &str) -> bool {
        let (store, rule) = (self.live()?, rule.to_owned());
        async move { Ok(store.control().clear_switch(&rule).await?) }
    }
}

fn percent_of(percent: i64) -> PyResult<u8> {
    let bounded = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
    Ok(bounded.ok_or_else(|| Failure::Input(format!("enforce_percent: got {percent}; expected 0 to 100")))?)
}

#[pymethods]
impl Store {
    /// As this process knows them.
    fn switches(&self) -> PyResult<HashMap<String, Switch>> {
        let live = self.live()?;
        if self.reach() == Reach::Far {
            drive()?;
        }
        let switches = live.control().switches();
        let each = switches.iter().flat_map(|switches| switches.iter());
        Ok(each.map(|(rule, switch)| (rule.to_owned(), Switch(*switch))).collect())
    }
}
