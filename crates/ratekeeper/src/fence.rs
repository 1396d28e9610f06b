//! Keeps forks out while a thread holds locks that the child would need.

use std::fmt;
use std::sync::Arc;

/// Runs what it is given, once.
type Around = dyn Fn(&mut dyn FnMut()) + Send + Sync;

/// What runs around a step that holds locks which a child would need: a change to the policies in force, a look at counters.
#[derive(Clone, Default)]
pub(crate) struct Fence(Option<Arc<Around>>);

impl Fence {
    pub(crate) fn new(around: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(around)))
    }

    /// Runs a step within the fence.
    pub(crate) fn around<T>(&self, step: impl FnOnce() -> T) -> T {
        let mut step = Some(step);
        let mut result = None;
        let mut run = || {
            if let Some(step) = step.take() {
                result = Some(step());
            }
        };
        if let Some(around) = &self.0 {
            around(&mut run);
        }
        // Also if there is no fence, or one that does not do what it should.
        run();
        match result {
            Some(result) => result,
            None => unreachable!("it has run"),
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fence").field(&self.0.is_some()).finish()
    }
}
