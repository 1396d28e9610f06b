//! What must hold whatever happens: the decision contract as properties of
//! random histories.
//!
//! The vectors say what single decisions are; the properties here say what no
//! history may ever bring about. Each is tested for each algorithm by itself,
//! so that a failure names the algorithm. Seeds are fixed: set
//! `PROPTEST_RNG_SEED` to look elsewhere.

#[macro_use]
mod support;

mod bounds;
mod changes;
mod clocks;
mod denial;
mod drift;
mod idle;
mod layers;
mod ledger;
mod naive;
mod poisoned;
mod refunds;
mod retry;
