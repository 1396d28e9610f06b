//! Notices: a receiver is posted what operators want to hear of at once.
//!
//! A request never waits for one. It leaves a notice in a queue that is bounded and goes on; what finds no room is
//! dropped and counted. One task sends them one after the other, and tries again for a while.

mod passed;
mod receiver;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper::metrics::{Family, Kind};
use ratekeeper::{Decision, Enforcement, Verdict};
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use self::passed::Passed;
pub use self::receiver::Receiver;
use super::api::Api;
use super::headroom::used_percent;
use super::listener::Stop;

/// Notices that wait to be sent; what comes beyond is counted and dropped.
pub const NOTICES_MAX: usize = 1_000;
/// How long is waited at the end for a receiver to take what is left.
const LEAVING: Duration = Duration::from_secs(5);

/// A notice.
#[derive(Debug)]
struct Notice {
    /// The same each time it is sent, so that a receiver can tell.
    id: String,
    document: Json,
}

/// Where notices are left.
#[derive(Debug)]
pub(crate) struct Notices {
    queue: mpsc::Sender<Notice>,
    counts: Arc<Counts>,
    passed: Passed,
    server: String,
}

/// What became of notices.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

impl Notices {
    /// Notices for a receiver, which `Notifying` sends.
    fn new(receiver: Receiver) -> (Self, Notifying) {
        let (queue, waiting) = mpsc::channel(NOTICES_MAX);
        let counts = Arc::new(Counts::default());
        let server = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let passed = Passed::new(receiver.percents.clone());
        let notices = Self { queue, counts: Arc::clone(&counts), passed, server };
        (notices, Notifying { receiver, waiting, counts })
    }

    /// Leaves a notice to be sent.
    fn leave(&self, kind: &str, at_us: u64, data: Json) {
        let id = format!("{:032x}", fastrand::u128(1..));
        let mut document = json!({
            "type": kind, "id": id, "at_us": at_us, "server": self.server, "version": env!("CARGO_PKG_VERSION"),
        });
        document["data"] = data;
        if self.queue.try_send(Notice { id, document }).is_err() {
            self.drop_one();
        }
    }

    fn drop_one(&self) {
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes what a request left of a quota: a notice if a share of it is used that somebody wants to hear of, once
    /// for each key until its quota is whole again.
    #[cold]
    pub(crate) fn used(&self, rule: &str, key: &str, verdict: &Verdict, decision: &Decision) {
        let used = used_percent(verdict);
        let Some(percent) = self.passed.percent(used) else { return };
        let name = verdict.name();
        match self.passed.is_new(&[rule, key, name.as_str()], percent, verdict.reset_after()) {
            Ok(false) => return,
            Ok(true) => {}
            Err(passed::Full) => return self.drop_one(),
        }
        let data = json!({
            "rule": rule, "key": key, "quota": verdict.quota().to_string(), "percent": percent, "used_percent": used,
            "limit": verdict.quota().capacity(), "remaining": verdict.remaining(),
            "enforced": verdict.enforcement() == Enforcement::Enforce,
            "whole_again_after_us": u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX),
        });
        self.leave("quota.passed", decision.at().as_micros(), data);
    }

    pub(crate) fn families(notices: Option<&Self>) -> [Family; 2] {
        let mut by_result =
            Family::new("ratekeeper_notices", Kind::Counter, "Notices, by what became of them");
        let mut waiting =
            Family::new("ratekeeper_notices_waiting", Kind::Gauge, "Notices that wait to be sent");
        let read = |of: fn(&Counts) -> &AtomicU64| {
            notices.map_or(0, |notices| of(&notices.counts).load(Ordering::Relaxed))
        };
        by_result.add(&[("result", "sent")], read(|counts| &counts.sent));
        by_result.add(&[("result", "failed")], read(|counts| &counts.failed));
        by_result.add(&[("result", "dropped")], read(|counts| &counts.dropped));
        let queued = notices.map_or(0, |notices| NOTICES_MAX - notices.queue.capacity());
        waiting.add(&[], queued as u64);
        [by_result, waiting]
    }
}

/// What sends notices, once it is started.
#[derive(Debug)]
pub struct Notifying {
    receiver: Receiver,
    waiting: mpsc::Receiver<Notice>,
    counts: Arc<Counts>,
}

/// Notices that are being sent.
#[derive(Debug)]
pub struct Sending {
    end: oneshot::Sender<()>,
    sending: JoinHandle<()>,
}

impl Api {
    /// Leaves notices for a receiver.
    #[must_use]
    pub fn notifying(mut self, receiver: Receiver) -> (Self, Notifying) {
        let (notices, notifying) = Notices::new(receiver);
        self.notices = Some(notices);
        (self, notifying)
    }
}

impl Notifying {
    /// Sends, and looks at what happens beside requests, within a tokio runtime.
    #[must_use]
    pub fn start(self, api: &Arc<Api>, stop: &Stop) -> Sending {
        let (end, ended) = oneshot::channel();
        tokio::spawn(watch::watch(Arc::clone(api), stop.clone(), self.receiver.quiet));
        Sending { end, sending: tokio::spawn(self.send(ended)) }
    }

    async fn send(mut self, mut ended: oneshot::Receiver<()>) {
        loop {
            let notice = tokio::select! {
                biased;
                _ = &mut ended => break,
                notice = self.waiting.recv() => notice,
            };
            let Some(notice) = notice else { return };
            let sent = tokio::select! {
                biased;
                sent = self.receiver.send(&notice) => sent,
                _ = &mut ended => {
                    // Once more without patience, as those behind it.
                    self.leave_with(Some(notice)).await;
                    return;
                }
            };
            self.note(sent);
        }
        self.leave_with(None).await;
    }

    /// Sends what is left once, as far as there is time.
    async fn leave_with(&mut self, first: Option<Notice>) {
        let end = tokio::time::Instant::now() + LEAVING;
        let mut next = first;
        while let Some(notice) = next.take().or_else(|| self.waiting.try_recv().ok()) {
            let sent = tokio::time::timeout_at(end, self.receiver.send_once(&notice)).await;
            self.note(sent.is_ok_and(|sent| sent.is_ok()));
        }
    }

    fn note(&self, sent: bool) {
        let counter = if sent { &self.counts.sent } else { &self.counts.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Sending {
    /// Sends what is left. It is bounded by how long a receiver may take.
    pub async fn finish(self) {
        let _ = self.end.send(());
        // Whether it has panicked or not, it is over.
        let _ = self.sending.await;
    }
}
