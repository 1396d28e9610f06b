//! Several calls at once. Each is decided for itself, in their order; those that need the
//! store travel together, in slices: the next is asked when the last is answered, so that
//! a large batch takes longer and nobody else does. On a store that needs no I/O nothing is waited for, so
//! a batch gives way after every slice of its work. A large one gives way while it is read, too.

use futures_util::future::join_all;
use ratekeeper::Labels;
use ratekeeper_http::Denial;
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use super::call::{BATCH_MAX, CheckBatchCall, CheckCall, LimitBatchCall, LimitCall, UnreadBatchCall};
use super::charges::Labelled;
use super::members::{Members, Placed};
use super::problem::Problem;
use super::told::{Decided, Told};
use super::value::Few;
use super::{ANSWER_BYTES, Answer, Api, JSON, answered, read};

/// Charges of one slice, unless a single check has more, ...
const SLICE_CHARGES: usize = 256;
/// ... and of those of all batches that the store is asked at once: about ten milliseconds'
/// work for Redis, which is what a batch can cost others.
const BATCHED_CHARGES: usize = 2_048;
/// Charges of one slice on a store that needs no I/O: some tens of microseconds of work.
const SLICE_CHARGES_AT_ONCE: usize = 64;
/// Bytes of a body that are read before others have their turn, unless a single check has more ...
const READ_AT_ONCE: usize = 64 * 1_024;
/// ... and of an answer that are written.
const WRITTEN_AT_ONCE: usize = 64 * 1_024;
/// What a request that a policy decides on is taken to be charged.
const REQUEST_CHARGES: usize = 4;

/// Room for slices of batches.
#[derive(Debug)]
pub(super) struct BatchRoom(Semaphore);

impl Default for BatchRoom {
    fn default() -> Self {
        Self(Semaphore::new(BATCHED_CHARGES))
    }
}

/// How many of the checks make the first slice of at most `most` charges, and how many charges they have.
fn slice_of(weights: impl Iterator<Item = usize>, most: usize) -> (usize, usize) {
    let sums = weights.scan(0, |sum, weight| {
        *sum += weight.max(1);
        Some(*sum)
    });
    let fits = sums.enumerate().take_while(|(index, sum)| *index == 0 || *sum <= most);
    fits.last().map_or((0, 0), |(index, sum)| (index + 1, sum))
}

fn charges_of(check: &Result<LimitCall<'_>, Problem>) -> usize {
    let charges = check.as_ref().ok().and_then(|call| call.raw.charges.as_ref());
    charges.map_or(1, |charges| charges.0.len())
}

/// The checks of a batch, of which `listed` is a list. What is wrong with a check is the problem of that check alone,
/// whatever it is: only what is wrong with the list, or is no JSON, is a problem of the whole.
async fn checks_in<'a, B, T>(
    body: &'a [u8],
    listed: impl Fn(B) -> Option<Few<Placed<T>, BATCH_MAX>>,
) -> Result<Vec<Result<T, Problem>>, Problem>
where
    B: Members<'a>,
    T: Members<'a>,
{
    // Together is less work than one by one.
    let together = if body.len() <= READ_AT_ONCE { read::<B>(body).ok() } else { None };
    let checks: Vec<_> = match together {
        Some(batch) => {
            let Few(checks) = listed(batch).ok_or_else(|| Problem::missing("checks"))?;
            checks.into_iter().map(Placed::into_call).collect()
        }
        None => one_by_one(body).await?,
    };
    if checks.is_empty() {
        return Err(Problem::wrong("checks", format!("1 to {BATCH_MAX} checks")));
    }
    Ok(checks)
}

/// The checks of a batch, each read for itself. Where they begin and end is looked for first, which takes little.
async fn one_by_one<'a, T: Members<'a>>(body: &'a [u8]) -> Result<Vec<Result<T, Problem>>, Problem> {
    let batch = read::<UnreadBatchCall<'a>>(body)?;
    let Few(unread) = batch.checks.ok_or_else(|| Problem::missing("checks"))?;
    let (mut checks, mut bytes) = (Vec::with_capacity(unread.len()), 0);
    for check in unread {
        bytes += check.get().len();
        if bytes > READ_AT_ONCE {
            bytes = check.get().len();
            yield_now().await;
        }
        checks.push(check_in(check));
    }
    Ok(checks)
}

fn check_in<'a, T: Members<'a>>(check: &'a RawValue) -> Result<T, Problem> {
    match serde_json::from_str::<Placed<T>>(check.get()) {
        Ok(placed) => placed.into_call(),
        Err(error) => Err(Problem::unread_check::<Placed<T>>(check, &error)),
    }
}

impl Api {
    /// `POST /v1/check/batch`.
    pub async fn check_batch(&self, body: &[u8]) -> Answer {
        let decided = async {
            let checks = checks_in(body, |batch: CheckBatchCall<'_>| batch.checks).await?;
            self.metrics.batch(checks.len());
            let decide = async |check: &Result<CheckCall<'_>, Problem>| match check {
                Ok(call) => self.check_call(call).await,
                Err(problem) => Err(problem.clone()),
            };
            let decided = self.in_order(&checks, |_| REQUEST_CHARGES, decide).await;
            Ok(self.batch(&decided, |_| SmallVec::new()).await)
        };
        answered(decided.await)
    }

    /// `POST /v1/limit/batch`.
    pub async fn limit_batch(&self, body: &[u8]) -> Answer {
        let decided = async {
            let checks = checks_in(body, |batch: LimitBatchCall<'_>| batch.checks).await?;
            self.metrics.batch(checks.len());
            let decide = async |check: &Result<LimitCall<'_>, Problem>| match check {
                Ok(call) => self.limit_call(call).await,
                Err(problem) => Err(problem.clone()),
            };
            let decided = self.in_order(&checks, charges_of, decide).await;
            let names =
                |index: usize| checks[index].as_ref().map(|call| call.raw.labels()).unwrap_or_default();
            Ok(self.batch(&decided, names).await)
        };
        answered(decided.await)
    }

    /// Decides slice by slice.
    async fn in_order<'c, T, F>(
        &self,
        checks: &'c [T],
        weight: impl Fn(&T) -> usize,
        decide: impl Fn(&'c T) -> F,
    ) -> Vec<Result<Decided, Problem>>
    where
        F: Future<Output = Result<Decided, Problem>>,
    {
        let (mut decided, mut rest) = (Vec::with_capacity(checks.len()), checks);
        let most = if self.waits() { SLICE_CHARGES } else { SLICE_CHARGES_AT_ONCE };
        while !rest.is_empty() {
            let (count, charges) = slice_of(rest.iter().map(&weight), most);
            let (slice, others) = rest.split_at(count);
            let places = u32::try_from(charges.min(BATCHED_CHARGES)).unwrap_or(u32::MAX);
            // Never closed, so never refused.
            let _room = self.batches.0.acquire_many(places).await;
            decided.extend(join_all(slice.iter().map(&decide)).await);
            rest = others;
            if !self.waits() {
                yield_now().await;
            }
        }
        decided
    }

    /// All decisions, each with the status it would have had alone.
    async fn batch<'c>(
        &self,
        results: &[Result<Decided, Problem>],
        names: impl Fn(usize) -> Labelled<'c>,
    ) -> Answer {
        let mut body = Vec::with_capacity(results.len() * ANSWER_BYTES);
        body.extend_from_slice(br#"{"decisions":["#);
        let mut written = 0;
        for (index, result) in results.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            match result {
                Ok(decision) => {
                    let status =
                        Denial::of(&decision.decision, &self.options).map_or(200, |denial| denial.status());
                    let names = names(index);
                    Told { status: Some(status), ..Told::new(decision, Labels(&names), &self.receipts) }
                        .write(&mut body);
                }
                Err(problem) => problem.write(&mut body),
            }
            if body.len() - written >= WRITTEN_AT_ONCE {
                written = body.len();
                yield_now().await;
            }
        }
        body.extend_from_slice(b"]}");
        Answer::of(JSON, body)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Instant;

    use super::*;

    type Read<'b> = Result<Vec<Result<LimitCall<'b>, Problem>>, Problem>;

    /// How often a large batch gives way while it is read, the longest time in between, and what was read.
    fn read_in_turns(body: &[u8]) -> (usize, u128, Read<'_>) {
        let mut reading = pin!(checks_in(body, |batch: LimitBatchCall<'_>| batch.checks));
        let (mut turns, mut longest) = (0, 0);
        loop {
            let begun = Instant::now();
            let polled = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            longest = longest.max(begun.elapsed().as_micros());
            match polled {
                Poll::Ready(read) => return (turns, longest, read),
                Poll::Pending => turns += 1,
            }
        }
    }

    fn batch_of(checks: usize, charges: usize) -> Vec<u8> {
        let charge = |index: usize| format!(r#"{{"key":"user:{index:08}","quota":"10/min"}}"#);
        let charges: Vec<String> = (0..charges).map(charge).collect();
        let check = format!(r#"{{"charges":[{}]}}"#, charges.join(","));
        format!(r#"{{"checks":[{}]}}"#, vec![check; checks].join(",")).into_bytes()
    }

    #[test]
    fn a_large_batch_gives_way_while_it_is_read() {
        let body = batch_of(1_000, 50);
        let (turns, longest, read) = read_in_turns(&body);
        println!("{} bytes: {turns} turns, the longest {longest} us", body.len());
        assert!(turns >= body.len() / READ_AT_ONCE - 1, "{turns} turns for {} bytes", body.len());
        let read = read.unwrap();
        assert!(read.len() == 1_000 && read.iter().all(|check| charges_of(check) == 50));
        let small = batch_of(10, 10);
        assert_eq!(read_in_turns(&small).0, 0, "read together");
    }

    /// Whichever way a batch is read, the same is wrong with it.
    #[test]
    fn a_large_batch_is_read_as_a_small_one() {
        let wrong = [
            "{\"checks\":[]}",
            "{\"checks\":{}}",
            "{}",
            "[]",
            "{\"checks\":[1, {\"charges\":[]}, {\"charges\":[{\"key\":5}]}, {\"unknown\":1}]}",
            "{\"checks\":[{}], \"unknown\":1}",
            "{\"checks\":[{}], \"checks\":[{}]}",
            "{\"checks\":[{}]",
            "{\"checks\":[{\"charges\":[{\"key\":\"k\",\"quota\":\"1/s\"}]}]}",
        ];
        let told = |read: Read<'_>| {
            read.map(|checks| checks.into_iter().map(|check| format!("{check:?}")).collect::<Vec<_>>())
                .map_err(|problem| format!("{problem:?}"))
        };
        for body in wrong {
            let large = format!("{}{body}", " ".repeat(READ_AT_ONCE + 1));
            let (small, large) = (read_in_turns(body.as_bytes()).2, read_in_turns(large.as_bytes()).2);
            match (told(small), told(large)) {
                // Of what is no JSON, the place is another one.
                (Err(_), Err(_)) => {}
                (small, large) => assert_eq!(small, large, "{body}"),
            }
        }
    }
}
