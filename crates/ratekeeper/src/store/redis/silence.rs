//! How long to wait for a server that may be away: until it has been silent for a deadline.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// How often a wait is lengthened because this process itself was late.
const EXCUSES_MAX: u32 = 2;
/// The part of a deadline by which it may be late and no excuse is needed.
const PUNCTUAL: u32 = 4;

/// What comes of `attempt`, unless the server is silent for a deadline: counted from when it
/// `began`, or from when the server was last `heard` of.
///
/// If this process is so busy that it notices the end of the wait late, an answer may lie
/// there that it has not come to read. Then it waits as long again as it was late.
pub(super) async fn unless_silent<T>(
    began: Instant,
    deadline: Duration,
    heard: impl Fn() -> Instant,
    attempt: impl Future<Output = T>,
) -> Option<T> {
    let mut attempt = pin!(attempt);
    let (mut until, mut excuses) = (began + deadline, 0);
    loop {
        if let Ok(outcome) = timeout_at(until, attempt.as_mut()).await {
            return Some(outcome);
        }
        let later = heard() + deadline;
        if later > until {
            until = later;
            continue;
        }
        let now = Instant::now();
        let late = now.saturating_duration_since(until);
        if late < deadline / PUNCTUAL || excuses == EXCUSES_MAX {
            return None;
        }
        excuses += 1;
        until = now + late;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::pending;
    use tokio::time::{advance, sleep};

    const DEADLINE: Duration = Duration::from_millis(25);

    #[tokio::test(start_paused = true)]
    async fn it_ends_a_deadline_after_the_last_sign_of_life() {
        let began = Instant::now();
        assert_eq!(unless_silent(began, DEADLINE, || began, pending::<()>()).await, None);
        assert_eq!(began.elapsed(), DEADLINE);

        let (began, heard) = (Instant::now(), Cell::new(None));
        let answers = async {
            for _ in 0..10 {
                sleep(DEADLINE * 4 / 5).await;
                heard.set(Some(Instant::now()));
            }
            pending::<()>().await;
        };
        let silent = unless_silent(began, DEADLINE, || heard.get().unwrap_or(began), answers).await;
        assert_eq!((silent, began.elapsed()), (None, DEADLINE * 9));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_time_counts() {
        let began = Instant::now();
        let answer = async { sleep(DEADLINE / 2).await };
        assert_eq!(unless_silent(began, DEADLINE, || began, answer).await, Some(()));
    }

    /// The process did nothing for a second: what came meanwhile is read first.
    #[tokio::test(start_paused = true)]
    async fn whoever_is_late_itself_looks_again() {
        let began = Instant::now();
        let answer = tokio::spawn(async {
            tokio::task::yield_now().await;
            advance(Duration::from_secs(1)).await;
            sleep(Duration::from_millis(100)).await;
        });
        let read = unless_silent(began, DEADLINE, || began, answer).await;
        assert!(read.is_some(), "{:?}", began.elapsed());
    }
}
