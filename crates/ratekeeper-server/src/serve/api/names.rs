//! The names of charges without a policy: what metrics count under each.
//!
//! A name is the caller's and is kept no longer than its call, except by metrics, which tell a bounded number apart.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use ratekeeper::bounds::{CHARGES_MAX, NAME_BYTES_MAX};
use ratekeeper::{Decision, Verdict};

use crate::serve::metrics::{OTHER, Outcomes};

/// Names that metrics tell apart, besides that of charges without one; those that are
/// charged later are counted together.
pub const LIMIT_SERIES_MAX: usize = 1_000;
/// The longest name of a charge, in bytes.
pub const LIMIT_NAME_BYTES_MAX: usize = 120;
/// The name of charges that have none.
pub const NAME_DEFAULT: &str = "limit";
/// What the second and further charges without a name are called in an answer, by their index in the call.
static NUMBERED: LazyLock<Vec<String>> =
    LazyLock::new(|| (1..=CHARGES_MAX).map(|number| format!("{NAME_DEFAULT}-{number}")).collect());
/// The name of charges of `CL.THROTTLE`.
pub(super) const NAME_THROTTLE: &str = "cl.throttle";
/// What stands before all names: nothing that a policy could say.
pub const SPACE: &str = "/limit";
const _: () = assert!(SPACE.len() + 1 + LIMIT_NAME_BYTES_MAX <= NAME_BYTES_MAX, "there is room for both");

/// What an answer calls the charge at that index, which has no name and is not the first without one. It is counted
/// under the name of all that have none.
pub(super) fn numbered(index: usize) -> &'static str {
    NUMBERED.get(index).map_or(NAME_DEFAULT, String::as_str)
}

/// Whether an answer calls charges without a name so.
pub(super) fn is_unnamed(name: &str) -> bool {
    name == NAME_DEFAULT || NUMBERED.iter().any(|numbered| numbered == name)
}

/// What was decided under each name.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Everybody knows of it, so it is shown before it is charged.
    unnamed: Outcomes,
    /// Of its own, because its callers ask most: no lock and no look into a table.
    throttle: Outcomes,
    others: RwLock<HashMap<Box<str>, Arc<Outcomes>>>,
    rest: Outcomes,
}

impl Names {
    /// Notes what became of a charge under `name`.
    pub(super) fn note(&self, name: &str, decision: &Decision, verdict: Option<&Verdict>) {
        if name == NAME_DEFAULT {
            return self.unnamed.note(decision, verdict);
        }
        if name == NAME_THROTTLE {
            return self.throttle.note(decision, verdict);
        }
        let known = self.others.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone);
        match known.or_else(|| self.found(name)) {
            Some(own) => own.note(decision, verdict),
            None => self.rest.note(decision, verdict),
        }
    }

    /// A series for a name that has none, if there is room for it.
    #[cold]
    fn found(&self, name: &str) -> Option<Arc<Outcomes>> {
        if name == OTHER {
            return None;
        }
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        let has_room = others.len() < LIMIT_SERIES_MAX || others.contains_key(name);
        has_room.then(|| Arc::clone(others.entry(name.into()).or_default()))
    }

    /// Shows every name that metrics tell apart with its counts to `show`.
    pub(crate) fn each(&self, mut show: impl FnMut(&str, &Outcomes)) {
        show(NAME_DEFAULT, &self.unnamed);
        show(NAME_THROTTLE, &self.throttle);
        for (name, outcomes) in &*self.others.read().unwrap_or_else(PoisonError::into_inner) {
            show(name, outcomes);
        }
        show(OTHER, &self.rest);
    }
}
