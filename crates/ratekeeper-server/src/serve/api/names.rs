//! The names of charges without a policy, and what was decided under each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use ratekeeper::{InvalidInput, NAME_BYTES_MAX, Name};

use super::problem::Problem;
use crate::serve::metrics::{OTHER, Outcomes};

/// Names that charges may use in the life of a server: a name is never forgotten. Names
/// are for people and headers, like those of rules; what there are many of are keys.
pub const LIMIT_NAMES_MAX: usize = 50_000;
/// Names that metrics tell apart, besides that of charges without one; those that are
/// charged later are counted together.
pub const LIMIT_SERIES_MAX: usize = 1_000;
/// The longest name of a charge, in bytes.
pub const LIMIT_NAME_BYTES_MAX: usize = 120;
/// The name of charges that have none.
const NAME_DEFAULT: &str = "limit";
/// What stands before all names: nothing that a policy could say.
const SPACE: &str = "/limit";
const _: () = assert!(SPACE.len() + 1 + LIMIT_NAME_BYTES_MAX <= NAME_BYTES_MAX, "there is room for both");

/// The names in use, each with its counts.
#[derive(Debug)]
pub(crate) struct Names {
    pub(super) unnamed: Arc<Named>,
    others: RwLock<HashMap<Box<str>, Arc<Named>>>,
    /// Names with counts of their own, ...
    series: AtomicUsize,
    /// ... and the counts of all the rest.
    rest: Arc<Outcomes>,
}

/// A name, and what was decided under it since it was first charged.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: Name,
    outcomes: OnceLock<Arc<Outcomes>>,
}

impl Names {
    pub(super) fn new() -> Result<Self, InvalidInput> {
        let unnamed = named(NAME_DEFAULT)?;
        // Everybody knows of it, so it is shown before it is charged.
        let _ = unnamed.outcomes.set(Arc::default());
        Ok(Self { unnamed, others: RwLock::default(), series: AtomicUsize::new(0), rest: Arc::default() })
    }

    pub(super) fn find(&self, text: &str) -> Result<Arc<Named>, Problem> {
        if text == NAME_DEFAULT {
            return Ok(Arc::clone(&self.unnamed));
        }
        if let Some(known) = self.others.read().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Ok(Arc::clone(known));
        }
        let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !is_printable || !(1..=LIMIT_NAME_BYTES_MAX).contains(&text.len()) {
            let expected = format!("1 to {LIMIT_NAME_BYTES_MAX} printable ASCII characters");
            return Err(Problem::wrong("name", expected));
        }
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        if others.len() >= LIMIT_NAMES_MAX && !others.contains_key(text) {
            let expected =
                format!("one of the {LIMIT_NAMES_MAX} names in use; what differs by user belongs in the key");
            return Err(Problem::wrong("name", expected));
        }
        let new = named(text).map_err(|error| Problem::input(&error))?;
        Ok(Arc::clone(others.entry(text.into()).or_insert(new)))
    }

    /// The counts of a name that is charged.
    pub(super) fn outcomes<'n>(&self, named: &'n Named) -> &'n Outcomes {
        named.outcomes.get_or_init(|| {
            let grown = |count: usize| (count < LIMIT_SERIES_MAX).then_some(count + 1);
            let has_room = || self.series.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok();
            if named.name.label() != OTHER && has_room() { Arc::default() } else { Arc::clone(&self.rest) }
        })
    }

    /// Shows every name that metrics tell apart with its counts to `show`.
    pub(crate) fn each(&self, mut show: impl FnMut(&str, &Outcomes)) {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        for named in std::iter::once(&self.unnamed).chain(others.values()) {
            if let Some(own) = named.outcomes.get().filter(|outcomes| !Arc::ptr_eq(outcomes, &self.rest)) {
                show(named.name.label(), own);
            }
        }
        show(OTHER, &self.rest);
    }
}

fn named(name: &str) -> Result<Arc<Named>, InvalidInput> {
    Ok(Arc::new(Named { name: Name::within(SPACE, name)?, outcomes: OnceLock::new() }))
}
