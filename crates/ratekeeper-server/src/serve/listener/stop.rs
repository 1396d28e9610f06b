//! How a server is told to stop, and how everybody in it hears of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// From which part of a drain on a connection without a request is closed, in percent.
const LEAVES_FROM: u32 = 75;
/// When the server finishes, a connection without a request yet is given so long since it was opened: its first
/// request is on its way.
pub(in crate::serve) const FIRST_REQUEST_WAIT: Duration = Duration::from_secs(1);

/// What comes later here is reached later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serving,
    /// Everything is answered as before, for so long; but `/readyz` says to go elsewhere,
    /// and so does every answer on a connection that would otherwise be kept.
    Draining(Duration),
    /// What is under way is finished, nothing else begins.
    Finishing,
}

/// How a server is told to stop; clones tell the same server.
#[derive(Clone, Debug)]
pub struct Stop {
    stage: watch::Sender<Stage>,
    /// The same for those who look at it with every request.
    is_stopping: Arc<AtomicBool>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { stage: watch::Sender::new(Stage::Serving), is_stopping: Arc::default() }
    }
}

impl Stop {
    /// Lets everybody know that the server will stop, `lasting` from now; it answers as
    /// before. Who keeps a connection is told with the next answer, and if there is none
    /// for most of the time, the connection is closed.
    pub fn drain(&self, lasting: Duration) {
        self.reach(Stage::Draining(lasting));
    }

    /// Stops accepting connections and lets those there are finish.
    pub fn finish(&self) {
        self.reach(Stage::Finishing);
    }

    fn reach(&self, stage: Stage) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.stage.send_if_modified(|now| std::mem::replace(now, stage.max(*now)) < stage);
    }

    /// Whether it was told to.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    pub(in crate::serve) fn finishing(&self) -> Finishing {
        Finishing(self.stage.subscribe())
    }
}

/// When it is time to finish.
#[derive(Clone, Debug)]
pub struct Finishing(watch::Receiver<Stage>);

impl Finishing {
    /// Waits for it.
    pub async fn wait(mut self) {
        // If nobody can tell any more, everything is over too.
        let _ = self.0.wait_for(|stage| *stage == Stage::Finishing).await;
    }

    /// Waits until the server is told to stop; returns how long it will go on serving, if
    /// it will.
    pub async fn draining(mut self) -> Option<Duration> {
        match self.0.wait_for(|stage| *stage > Stage::Serving).await.as_deref() {
            Ok(Stage::Draining(lasting)) if !lasting.is_zero() => Some(*lasting),
            _ => None,
        }
    }
}

/// How long a connection stays without a request when the server drains. No answer tells its client to leave, and
/// what the client sends while it is closed is lost. So that is late, and for each at an instant of its own: a client
/// that sees many ends at once notices the last of them too late.
pub(in crate::serve) fn leaves_after(lasting: Duration) -> Duration {
    lasting * fastrand::u32(LEAVES_FROM..100) / 100
}
