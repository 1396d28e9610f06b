//! Memory that all connections share: what is long takes room as long as it is there.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Room for so many bytes.
#[derive(Debug)]
pub(in crate::serve) struct Room {
    free: Arc<Semaphore>,
    pub(in crate::serve) bytes: usize,
}

/// Some of it, which is free again when this is dropped.
#[derive(Debug, Default)]
pub(in crate::serve) struct Taken(Option<OwnedSemaphorePermit>);

impl Room {
    pub(in crate::serve) fn of(bytes: usize) -> Self {
        let bytes = bytes.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(bytes)), bytes }
    }

    /// Makes what is taken as much as `bytes`; says whether there is room for that. If
    /// not, nothing has changed.
    #[must_use]
    pub(in crate::serve) fn resize(&self, taken: &mut Taken, bytes: usize) -> bool {
        let before = taken.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if let Some(less) = before.checked_sub(bytes) {
            drop(taken.0.as_mut().and_then(|taken| taken.split(less)));
            return true;
        }
        let more = u32::try_from(bytes - before).ok();
        let Some(more) = more.and_then(|more| Arc::clone(&self.free).try_acquire_many_owned(more).ok())
        else {
            return false;
        };
        match &mut taken.0 {
            Some(before) => before.merge(more),
            none => *none = Some(more),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_by_others() {
        let room = Room::of(100);
        let (mut one, mut other) = (Taken::default(), Taken::default());
        assert!(room.resize(&mut one, 60) && room.resize(&mut one, 80));
        assert!(!room.resize(&mut other, 30));
        assert!(room.resize(&mut one, 70) && room.resize(&mut other, 30));
        assert!(!room.resize(&mut one, 71));
        drop(one);
        assert!(room.resize(&mut other, 100) && room.resize(&mut other, 0));
        assert_eq!(room.free.available_permits(), 100);
    }
}
