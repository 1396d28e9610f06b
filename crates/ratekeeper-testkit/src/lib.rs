//! What the tests of all crates share.
//!
//! - [`Engine`]: anything that can make decisions; stores and surfaces wrap
//!   themselves in it;
//! - [`vectors`]: the decision tables of `testdata/vectors`, run on an engine;
//! - [`history`]: random histories, run on an engine and on the model at once;
//! - [`paths`]: the spellings of `testdata/paths.toml`;
//! - [`penal`]: rules with penalties;
//! - [`poison`]: states that no history makes;
//! - [`servers`]: real servers for a test, and one that is silent;
//! - [`store_urls`]: the URLs of `testdata/store_urls.toml`;
//! - [`wait`]: how tests wait for what must happen;
//! - [`allocations`]: an allocator that counts;
//! - [`cpu`]: what work costs, where time on a clock would tell of the machine;
//! - [`fuzz`]: what the fuzz targets run.

#![allow(missing_docs, reason = "the names of test plans say what they are")]

pub mod allocations;
pub mod cpu;
pub mod fuzz;
pub mod history;
pub mod paths;
pub mod penal;
pub mod poison;
pub mod servers;
pub mod store_urls;
pub mod vectors;
pub mod wait;

use ratekeeper_core::{
    Algorithm, Check, Decision, Key, Model, Override, OverrideScope, Reservation, Settled, Timestamp,
};

/// Anything that decides. Errors are text, because surfaces have no other.
pub trait Engine {
    /// Sets the instant of what follows.
    fn set_now(&mut self, now: Timestamp);
    /// Judges a check.
    fn check(&mut self, check: &Check<'_>) -> Result<Decision, String>;
    /// Judges a check under an id.
    fn reserve(&mut self, check: &Check<'_>, reservation: &Reservation<'_>) -> Result<Decision, String>;
    /// Settles (`Some`) or cancels (`None`) a reservation.
    fn settle(&mut self, id: &[u8], actual: Option<u32>) -> Result<Settled, String>;
    /// Gives up to `units` of each charge back; says how many in all.
    fn refund(&mut self, check: &Check<'_>, decision: &Decision, units: u32) -> Result<u64, String>;
    /// Forgets a counter; says whether something counted in it.
    fn reset(&mut self, key: Key<'_>, algorithm: Algorithm) -> Result<bool, String>;
    /// Sets (`Some`) or deletes (`None`) an override.
    fn set_override(&mut self, scope: OverrideScope<'_>, to: Option<Override>) -> Result<(), String>;

    /// What it answers to one thing.
    fn answer(&mut self, asked: &Asked<'_>) -> Told {
        match asked {
            Asked::Nothing => Told::Nothing,
            Asked::Check(check) => Told::Decision(self.check(check)),
            Asked::Under(check, under) => Told::Decision(self.reserve(check, under)),
            Asked::Refund(check, decision, units) => Told::GivenBack(self.refund(check, decision, *units)),
            Asked::Reset(key, algorithm) => Told::Reset(self.reset(*key, *algorithm)),
        }
    }

    /// What it answers to several things in this order; an engine that can sends them together.
    fn together(&mut self, asked: &[Asked<'_>]) -> Vec<Told> {
        asked.iter().map(|asked| self.answer(asked)).collect()
    }
}

/// Something that can be asked together with others.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    Nothing,
    Check(Check<'a>),
    /// Under an id.
    Under(Check<'a>, Reservation<'a>),
    /// Up to so many units of each charge.
    Refund(Check<'a>, &'a Decision, u32),
    Reset(Key<'a>, Algorithm),
}

/// The answer to it.
#[derive(Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "short-lived, and tests only")]
pub enum Told {
    Nothing,
    Decision(Result<Decision, String>),
    GivenBack(Result<u64, String>),
    Reset(Result<bool, String>),
}

/// The model as an engine.
#[derive(Debug, Default)]
pub struct ModelEngine {
    model: Model,
    now: Timestamp,
}

impl ModelEngine {
    /// Whether a store may have forgotten a counter of a key that the model remembers.
    pub(crate) fn has_expired(&self, key: Key<'_>, algorithm: Algorithm) -> bool {
        self.model.has_expired(key, algorithm, self.now)
    }
}

impl Engine for ModelEngine {
    fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    fn check(&mut self, check: &Check<'_>) -> Result<Decision, String> {
        self.model.check(check, self.now).map_err(|error| error.to_string())
    }

    fn reserve(&mut self, check: &Check<'_>, reservation: &Reservation<'_>) -> Result<Decision, String> {
        self.model.reserve(check, reservation, self.now).map_err(|error| error.to_string())
    }

    fn settle(&mut self, id: &[u8], actual: Option<u32>) -> Result<Settled, String> {
        Ok(self.model.settle(id, actual, self.now))
    }

    fn refund(&mut self, check: &Check<'_>, decision: &Decision, units: u32) -> Result<u64, String> {
        Ok(self.model.refund(check, decision, units, self.now))
    }

    fn reset(&mut self, key: Key<'_>, algorithm: Algorithm) -> Result<bool, String> {
        Ok(self.model.reset(key, algorithm, self.now))
    }

    fn set_override(&mut self, scope: OverrideScope<'_>, to: Option<Override>) -> Result<(), String> {
        self.model.set_override(scope, to).map_err(|error| error.to_string())
    }
}
