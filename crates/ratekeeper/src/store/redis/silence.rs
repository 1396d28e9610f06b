//! How long to wait for a server that may be away: until it has been silent for a deadline.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

/// The part of a deadline by which it may be noticed late and no excuse is needed.
const PUNCTUAL: u32 = 4;
/// How often to look whether what has arrived was read.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How often to look at most: ten seconds for a process that has no time to read.
const LOOKS_MAX: u32 = 10_000;

/// What a wait for a server goes by.
pub(super) struct Signs<S, U, D> {
    /// From when on the server is silent: since what it has to answer was sent, or since it last said anything.
    pub(super) since: S,
    /// Whether something has arrived that this process has not read yet.
    pub(super) has_unread: U,
    /// Ends what has waited too long by an instant; says when there is more to end.
    pub(super) due: D,
}

/// What comes of `attempt`, unless the server is silent for a deadline.
///
/// At its end, what has already arrived is read first, however late that is. If this process is so busy
/// that it notices the end late, it waits as long again as it was late, at most a second deadline.
pub(super) async fn unless_silent<T>(
    deadline: Duration,
    signs: Signs<impl Fn() -> Instant, impl Fn() -> bool, impl FnMut(Instant) -> Option<Instant>>,
    attempt: impl Future<Output = T>,
) -> Option<T> {
    unless_silent_until(None, deadline, signs, attempt).await
}

/// The same, and at `end` at the latest, whatever the server says to others. What has arrived by then is read first, too.
pub(super) async fn unless_silent_until<T>(
    end: Option<Instant>,
    deadline: Duration,
    mut signs: Signs<impl Fn() -> Instant, impl Fn() -> bool, impl FnMut(Instant) -> Option<Instant>>,
    attempt: impl Future<Output = T>,
) -> Option<T> {
    let mut attempt = pin!(attempt);
    let (mut excused, mut looks) = (Duration::ZERO, 0);
    let mut next_due = (signs.due)(Instant::now());
    loop {
        let until = (signs.since)() + deadline + excused;
        let until = end.map_or(until, |end| end.min(until));
        let wake = next_due.map_or(until, |next| next.min(until));
        if let Ok(outcome) = timeout_at(wake, attempt.as_mut()).await {
            return Some(outcome);
        }
        let now = Instant::now();
        if (signs.has_unread)() && looks < LOOKS_MAX {
            looks += 1;
            if let Ok(outcome) = timeout(LOOK_EVERY, attempt.as_mut()).await {
                return Some(outcome);
            }
            continue;
        }
        // It may have been read in between.
        if let Poll::Ready(outcome) = once(attempt.as_mut()).await {
            return Some(outcome);
        }
        if end.is_some_and(|end| end <= now) {
            return None;
        }
        next_due = (signs.due)(now);
        let silent = (signs.since)() + deadline;
        if now < silent + excused {
            continue;
        }
        let late = now.saturating_duration_since(silent + excused);
        if late >= deadline / PUNCTUAL {
            excused = (now + late).saturating_duration_since(silent).min(deadline);
        }
        if now >= silent + excused {
            return None;
        }
    }
}

/// Polls a future once.
async fn once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::future::pending;
    use tokio::time::{advance, sleep};

    const DEADLINE: Duration = Duration::from_millis(25);

    /// Waits for a server that is silent since an instant.
    async fn wait<T>(
        since: impl Fn() -> Instant,
        has_unread: impl Fn() -> bool,
        attempt: impl Future<Output = T>,
    ) -> Option<T> {
        unless_silent(DEADLINE, Signs { since, has_unread, due: |_| None }, attempt).await
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_a_deadline_after_the_last_sign_of_life() {
        let began = Instant::now();
        assert_eq!(wait(|| began, || false, pending::<()>()).await, None);
        assert_eq!(began.elapsed(), DEADLINE);

        let (began, heard) = (Instant::now(), Cell::new(None));
        let answers = async {
            for _ in 0..10 {
                sleep(DEADLINE * 4 / 5).await;
                heard.set(Some(Instant::now()));
            }
            pending::<()>().await;
        };
        let silent = wait(|| heard.get().unwrap_or(began), || false, answers).await;
        assert_eq!((silent, began.elapsed()), (None, DEADLINE * 9));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_time_counts() {
        let began = Instant::now();
        let answer = async { sleep(DEADLINE / 2).await };
        assert_eq!(wait(|| began, || false, answer).await, Some(()));
    }

    /// The process did nothing for 40 ms, which moves the end once and by a deadline at most.
    #[tokio::test(start_paused = true)]
    async fn own_lateness_moves_the_end_by_one_deadline_at_most() {
        for (stall, answered_at, is_read) in
            [(32, 38, true), (32, 41, false), (45, 49, true), (45, 52, false)]
        {
            let began = Instant::now();
            let answer = tokio::spawn(async move {
                tokio::task::yield_now().await;
                advance(Duration::from_millis(stall)).await;
                sleep(Duration::from_millis(answered_at - stall)).await;
            });
            let read = wait(|| began, || false, answer).await;
            assert_eq!(read.is_some(), is_read, "{stall} ms late, {answered_at} ms: {:?}", began.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_arrived_is_read_however_late() {
        let (began, unread) = (Instant::now(), Cell::new(true));
        let answer = async { sleep(DEADLINE * 40).await };
        assert_eq!(wait(|| began, || unread.get(), answer).await, Some(()));

        // It was the answer to something else.
        let began = Instant::now();
        let answers = async {
            sleep(DEADLINE * 10).await;
            unread.set(false);
            pending::<()>().await;
        };
        assert_eq!(wait(|| began, || unread.get(), answers).await, None);
        assert!(began.elapsed() <= DEADLINE * 10 + LOOK_EVERY * 2, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_holds_whatever_the_server_says() {
        for (millis, unread) in [(10, 0), (60, 0), (10, 30)] {
            let (began, end) = (Instant::now(), Duration::from_millis(millis));
            let has_unread = || began.elapsed() < Duration::from_millis(unread);
            let signs = Signs { since: Instant::now, has_unread, due: |_| None };
            let ended = unless_silent_until(Some(began + end), DEADLINE, signs, pending::<()>()).await;
            let expected = end.max(Duration::from_millis(unread));
            assert_eq!((ended, began.elapsed()), (None, expected), "{millis} ms, unread for {unread} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_earlier_is_ended_then() {
        let (began, ended) = (Instant::now(), RefCell::new(Vec::new()));
        let totals = [3, 10, 99].map(|millis| began + Duration::from_millis(millis));
        let due = |now: Instant| {
            let over = totals.iter().filter(|total| **total <= now).count();
            if over > ended.borrow().len() {
                ended.borrow_mut().push(now - began);
            }
            totals.get(over).copied()
        };
        let signs = Signs { since: || began, has_unread: || false, due };
        assert_eq!(unless_silent(DEADLINE, signs, pending::<()>()).await, None);
        assert_eq!(began.elapsed(), DEADLINE);
        assert_eq!(ended.take(), [3, 10].map(Duration::from_millis));
    }
}
