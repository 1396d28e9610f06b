//! Several calls at once. Each is decided for itself, in their order; those that need the
//! store travel together, in slices: the next is asked when the last is answered, so that
//! a large batch takes longer and nobody else does. On a store that needs no I/O nothing is waited for, so
//! a batch gives way after every slice of its work.

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
/// Bytes of an answer that are written before others have their turn.
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
fn checks_in<'a, B, T>(
    body: &'a [u8],
    listed: impl Fn(B) -> Option<Few<Placed<T>, BATCH_MAX>>,
) -> Result<Vec<Result<T, Problem>>, Problem>
where
    B: Members<'a>,
    T: Members<'a>,
{
    let checks: Vec<_> = match read::<B>(body) {
        Ok(batch) => {
            let Few(checks) = listed(batch).ok_or_else(|| Problem::missing("checks"))?;
            checks.into_iter().map(Placed::into_call).collect()
        }
        Err(_) => {
            let batch = read::<UnreadBatchCall<'a>>(body)?;
            let Few(checks) = batch.checks.ok_or_else(|| Problem::missing("checks"))?;
            checks.into_iter().map(check_in).collect()
        }
    };
    if checks.is_empty() {
        return Err(Problem::wrong("checks", format!("1 to {BATCH_MAX} checks")));
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
            let checks = checks_in(body, |batch: CheckBatchCall<'_>| batch.checks)?;
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
            let checks = checks_in(body, |batch: LimitBatchCall<'_>| batch.checks)?;
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
