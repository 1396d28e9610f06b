//! The lock of a shard: taken millions of times, held for tens of nanoseconds
//! as a rule (longer for a long log, or when a table grows).
//!
//! An ordinary mutex costs two atomic read-modify-writes, and a third of a
//! whole decision; a spin lock costs one. What is wrong with spin locks is what
//! happens when the holder is put to sleep, so this one spins only as long as a
//! holder that is running could take, then gives way to other threads, then
//! sleeps.

#[cfg(not(shuttle))]
pub(super) use real::{Guard, Lock};
#[cfg(shuttle)]
pub(super) use tested::{Guard, Lock};

#[cfg(not(shuttle))]
mod real {
    use std::time::Duration;

    use spin::mutex::{SpinMutex, SpinMutexGuard};

    pub(in super::super) type Guard<'a, T> = SpinMutexGuard<'a, T>;

    #[derive(Debug)]
    pub(in super::super) struct Lock<T>(SpinMutex<T>);

    /// How long to look away between looks, in processor pauses. Every look at a
    /// lock that is held takes its cache line from the holder, who needs it to let
    /// go; so look seldom, and more and more seldom.
    const PAUSES: [u32; 4] = [16, 32, 64, 64];
    /// How often to give way before sleeping.
    const YIELDS: u32 = 64;
    const NAP: Duration = Duration::from_micros(50);

    impl<T> Lock<T> {
        pub(in super::super) const fn new(value: T) -> Self {
            Self(SpinMutex::new(value))
        }

        #[inline]
        pub(in super::super) fn lock(&self) -> Guard<'_, T> {
            match self.0.try_lock() {
                Some(guard) => guard,
                None => self.lock_contended(),
            }
        }

        #[cold]
        fn lock_contended(&self) -> Guard<'_, T> {
            for pauses in PAUSES {
                (0..pauses).for_each(|_| std::hint::spin_loop());
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
            for _ in 0..YIELDS {
                std::thread::yield_now();
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
            loop {
                std::thread::sleep(NAP);
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
        }
    }
}

/// A lock that the scheduler of `ratekeeper-interleavings` knows about.
#[cfg(shuttle)]
mod tested {
    use shuttle::sync::{Mutex, MutexGuard};

    pub(in super::super) type Guard<'a, T> = MutexGuard<'a, T>;

    #[derive(Debug)]
    pub(in super::super) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(in super::super) const fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        pub(in super::super) fn lock(&self) -> Guard<'_, T> {
            self.0.lock().expect("no test panics with a lock held")
        }
    }
}
