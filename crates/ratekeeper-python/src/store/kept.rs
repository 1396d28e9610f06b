//! Stores with a directory, which are saved when the program ends: nobody drops what a module holds.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::prelude::*;
use ratekeeper::{MemoryStore, OpenedStore};

/// Those that are open.
static KEPT: Mutex<Vec<Weak<MemoryStore>>> = Mutex::new(Vec::new());

/// Has a store saved at the end. Under the interpreter's lock, as everything here, so that a fork finds no lock held.
pub(super) fn register(py: Python<'_>, opened: &OpenedStore) -> PyResult<()> {
    let OpenedStore::Memory(store) = opened else { return Ok(()) };
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.retain(|store| store.strong_count() > 0);
    let is_first = kept.is_empty();
    kept.push(Arc::downgrade(store));
    drop(kept);
    if is_first {
        py.import("atexit")?.call_method1("register", (wrap_pyfunction!(save_all, py)?,))?;
    }
    Ok(())
}

#[pyfunction]
fn save_all(py: Python<'_>) {
    let kept: Vec<Weak<MemoryStore>> =
        std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    // A failure is in the log. A child of a fork has nothing to save: the directory is its parent's.
    py.detach(|| kept.iter().filter_map(Weak::upgrade).for_each(|store| drop(store.flush())));
}
