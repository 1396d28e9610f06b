//! Control timers: how late this process is by itself, on a machine that does other things as well.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::TOTAL;

/// How long a control timer is set for.
const TICK: Duration = Duration::from_millis(5);
/// How long they are remembered: longer than any call takes.
const KEPT: Duration = Duration::from_secs(30);

/// What was measured: when a timer was set, when it was seen, how late that was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Control(Arc<Mutex<VecDeque<(Instant, Instant, Duration)>>>);

impl Control {
    /// With a thread that measures how late the machine runs this process.
    pub(crate) fn start() -> Self {
        let control = Self::default();
        let of_thread = control.clone();
        thread::spawn(move || {
            loop {
                let set = Instant::now();
                thread::sleep(TICK);
                of_thread.note(set, TICK);
            }
        });
        control
    }

    /// Measures as a task as well: how late the runtime of the calls is.
    pub(crate) async fn of_runtime(self) {
        loop {
            let set = Instant::now();
            tokio::time::sleep(TICK).await;
            self.note(set, TICK);
        }
    }

    /// Notes something that was begun at `set`, is over now and should have taken `due`.
    pub(crate) fn note(&self, set: Instant, due: Duration) {
        let seen = Instant::now();
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.push_back((set, seen, (seen - set).saturating_sub(due)));
        while noted.front().is_some_and(|(_, old, _)| seen - *old > KEPT) {
            noted.pop_front();
        }
    }

    /// The latest of the timers that ran at some time between two instants.
    fn latest(&self, from: Instant, to: Instant) -> Duration {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let during = noted.iter().filter(|(set, seen, _)| *seen >= from && *set <= to);
        during.map(|(_, _, late)| *late).max().unwrap_or_default()
    }

    /// How long after its total bound a call was over that took from `sent` to `answered`, beyond the latest control
    /// timer. To be asked once a timer that ran at its end has been noted; see [`needs_control`].
    pub(crate) fn beyond(&self, sent: Instant, answered: Instant) -> Duration {
        let over = (answered - sent).saturating_sub(TOTAL);
        over.saturating_sub(self.latest(sent, answered))
    }
}

/// Whether a call took so long that control timers have to be asked, after a moment in which the last one is noted.
pub(crate) fn needs_control(sent: Instant, answered: Instant) -> bool {
    answered - sent > TOTAL
}

/// The moment.
pub(crate) const SETTLED: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_was_late_itself_is_taken_off() {
        let control = Control::default();
        let answered = Instant::now();
        let sent = answered - TOTAL - Duration::from_millis(300);
        assert!(needs_control(sent, answered) && !needs_control(answered - TOTAL, answered));
        assert_eq!(control.beyond(sent, answered), Duration::from_millis(300));
        // A timer of 5 ms that was seen 100 ms after it was set, while the call was under way.
        control.note(answered - Duration::from_millis(100), TICK);
        let beyond = control.beyond(sent, answered);
        assert!(beyond <= Duration::from_millis(205), "{beyond:?}");
        // One that was set afterwards says nothing of it.
        assert_eq!(Control::default().beyond(sent, sent + TOTAL), Duration::ZERO);
    }
}
