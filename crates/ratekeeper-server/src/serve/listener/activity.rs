//! Whether something goes on on a connection, and when it is to end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{FIRST_REQUEST_WAIT, Finishing, Place, SPARE_WAIT, leaves_after};

/// What goes on on a connection, for those who only look.
#[derive(Debug)]
pub(in crate::serve) struct Activity {
    place: Place,
    /// How long it may be without a request.
    idle: Duration,
    opened: Instant,
    begun: AtomicU64,
    done: AtomicU64,
    /// Whether some of an answer has not left yet.
    is_writing: AtomicBool,
    leaves: Notify,
}

impl Activity {
    pub(in crate::serve) fn new(place: Place, idle: Duration) -> Self {
        Self {
            place,
            idle,
            opened: Instant::now(),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            is_writing: AtomicBool::new(false),
            leaves: Notify::new(),
        }
    }

    pub(in crate::serve) fn place(&self) -> &Place {
        &self.place
    }

    /// A request has come.
    #[inline]
    pub(in crate::serve) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.place.busy();
    }

    /// A request is answered.
    #[inline]
    pub(in crate::serve) fn end(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(in crate::serve) fn writes(&self, is_writing: bool) {
        self.is_writing.store(is_writing, Ordering::Relaxed);
    }

    pub(in crate::serve) fn is_writing(&self) -> bool {
        self.is_writing.load(Ordering::Relaxed)
    }

    /// How long it may be without a request.
    pub(in crate::serve) fn idle(&self) -> Duration {
        if self.place.is_spare() { SPARE_WAIT } else { self.idle }
    }

    /// Lets whoever serves the connection know that its client is to go elsewhere.
    pub(in crate::serve) fn leave(&self) {
        self.leaves.notify_one();
    }

    /// Until the client is to go elsewhere: an answer has said so, or the server drains and there is none that could.
    pub(in crate::serve) async fn until_leaving(&self, finishing: Finishing) {
        let quiet = async {
            match finishing.draining().await {
                Some(lasting) => tokio::time::sleep(leaves_after(lasting)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.leaves.notified() => {}
            () = quiet => {}
        }
    }

    /// Until another connection needs the place of this one, which has no request.
    pub(in crate::serve) async fn until_needed(&self) {
        self.place.needed().await;
        if self.begun.load(Ordering::Relaxed) > 0 {
            std::future::pending::<()>().await;
        }
    }

    /// Until the server finishes and no first request is on its way. What has arrived by then is seen: others had
    /// their turn, and the runtime has looked at the socket.
    pub(in crate::serve) async fn until_finishing(&self, finishing: Finishing) {
        finishing.wait().await;
        if self.begun.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(FIRST_REQUEST_WAIT.saturating_sub(self.opened.elapsed())).await;
        }
        tokio::task::yield_now().await;
    }

    /// At once if no request is under way, and else never: a request that is makes an end
    /// of the connection itself. Of a head that is not complete nobody knows when it will be.
    pub(in crate::serve) async fn unless_under_way(&self) {
        let is_answering = self.begun.load(Ordering::Relaxed) != self.done.load(Ordering::Relaxed);
        if is_answering || self.is_writing() {
            std::future::pending::<()>().await;
        }
    }

    /// Until nobody seems to be there, or only somebody who sends a head, or takes an answer,
    /// a byte at a time. Returns how long was waited.
    pub(in crate::serve) async fn until_idle(&self, finishing: Finishing) -> Duration {
        let told_to_leave = async {
            match finishing.draining().await {
                Some(lasting) => self.until_quiet(leaves_after(lasting), true).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            waited = self.until_quiet(self.idle(), false) => waited,
            waited = told_to_leave => waited,
        }
    }

    /// Until for a whole period no request began or was under way, nor, if `and_sent`, an
    /// answer. A look now and then costs a request nothing, which a timer for each would.
    pub(in crate::serve) async fn until_quiet(&self, period: Duration, and_sent: bool) -> Duration {
        let mut before = u64::MAX;
        loop {
            let begun = self.begun.load(Ordering::Relaxed);
            let is_sending = and_sent && self.is_writing();
            if begun == before && begun == self.done.load(Ordering::Relaxed) && !is_sending {
                // What has arrived while others had their turn has not been read yet.
                tokio::task::yield_now().await;
                if begun == self.begun.load(Ordering::Relaxed) {
                    return period;
                }
            }
            before = begun;
            tokio::time::sleep(period).await;
        }
    }
}
