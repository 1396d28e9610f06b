//! The processes of the load. Each asks at random, from a seed, and logs every call.

pub(crate) mod http;
pub(crate) mod library;
pub(crate) mod processes;

use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::call::Call;
use crate::limits::{ADDRESSES, SERVICES, TENANTS};

/// So many callers ask at a time in each process, ...
pub(crate) const CALLERS: u64 = 8;
/// ... and each rests for up to so long between two calls. With both, every limit is exceeded about twice.
const REST_MICROS_MAX: u64 = 40_000;

/// The program of the load that uses the Python package.
pub(crate) const PYTHON: &str = include_str!("load/load.py");

/// What a caller asks next.
pub(crate) struct Caller(fastrand::Rng);

pub(crate) struct Question {
    pub(crate) service: usize,
    pub(crate) tenant: usize,
    pub(crate) address: usize,
}

impl Caller {
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed.wrapping_mul(1_000).wrapping_add(number)))
    }

    pub(crate) fn next(&mut self) -> (Question, Duration) {
        let Self(random) = self;
        let question = Question {
            service: random.usize(..SERVICES.len()),
            tenant: random.usize(..TENANTS),
            address: random.usize(..ADDRESSES),
        };
        (question, Duration::from_micros(random.u64(..REST_MICROS_MAX)))
    }
}

/// Where calls are logged.
#[derive(Clone)]
pub(crate) struct Log(Arc<Mutex<BufWriter<File>>>);

impl Log {
    pub(crate) fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(BufWriter::new(File::create(path)?)))))
    }

    pub(crate) fn write(&self, call: &Call) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What is not logged was not admitted as far as the checker knows: it must not go on.
        file.write_all(call.line().as_bytes()).expect("write the log of calls");
    }

    pub(crate) fn finish(&self) -> std::io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

/// Whether the load is to end: when standard input does, however whoever started it ended.
pub(crate) fn end() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ended);
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        seen.store(true, Ordering::Relaxed);
    });
    ended
}
