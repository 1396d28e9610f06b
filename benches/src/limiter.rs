//! Our `Limiter::check_now` with one rule: what a rule costs on top of a store.
//!
//! The one place to fill in once `ratekeeper::Limiter` exists; until then the
//! row and its target are reported as absent. Build the limiter over
//! [`ours::filled_store`], so that its counters are there before the measuring
//! (same name, same quota: see [`ours::one_quota`]), and put the check into
//! [`Work::drive`], as [`ours::TryCheck`] does.
//!
//! [`ours::filled_store`]: crate::ours::filled_store
//! [`ours::one_quota`]: crate::ours::one_quota
//! [`ours::TryCheck`]: crate::ours::TryCheck
//! [`Work::drive`]: crate::measure::Work::drive

use crate::Result;
use crate::measure::Contestant;
use crate::scenario::Load;

/// The limiter with the counters of all `keys`, or `None` while there is none.
///
/// # Errors
/// If it cannot be set up.
pub fn contestant(_load: Load, _keys: u32) -> Result<Option<Box<dyn Contestant>>> {
    Ok(None)
}
