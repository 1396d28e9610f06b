//! Several calls at once. Each is decided for itself, in their order; those that need the
//! store travel together, in slices: the next is asked when the last is answered, so that
//! a large batch takes longer and nobody else does.

use futures_util::future::join_all;
use ratekeeper::Decision;
use ratekeeper_http::Denial;
use tokio::sync::Semaphore;

use super::call::{BATCH_MAX, BatchCall, Call, Few};
use super::problem::Problem;
use super::told::Told;
use super::{ANSWER_BYTES, Answer, Api, JSON, answered, read};

/// Charges of one slice, unless a single check has more, ...
const SLICE_CHARGES: usize = 256;
/// ... and of those of all batches that the store is asked at once: about ten milliseconds'
/// work for Redis, which is what a batch can cost others.
const BATCHED_CHARGES: usize = 2_048;
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

/// How many of `calls` make the first slice, and how many charges they have.
fn slice_of(calls: &[Call<'_>]) -> (usize, usize) {
    let weights = calls.iter().map(|call| call.charges.as_ref().map_or(REQUEST_CHARGES, |all| all.0.len()));
    let sums = weights.scan(0, |sum, weight| {
        *sum += weight.max(1);
        Some(*sum)
    });
    let fits = sums.enumerate().take_while(|(index, sum)| *index == 0 || *sum <= SLICE_CHARGES);
    fits.last().map_or((0, 0), |(index, sum)| (index + 1, sum))
}

impl Api {
    /// `POST /v1/check/batch`.
    pub async fn check_batch(&self, body: &[u8]) -> Answer {
        let decided = async {
            let BatchCall { checks: Few(calls) } = self.read_batch(body)?;
            Ok(self.batch(&self.in_order(&calls, |call| self.check_call(call)).await))
        };
        answered(decided.await)
    }

    /// `POST /v1/limit/batch`.
    pub async fn limit_batch(&self, body: &[u8]) -> Answer {
        let decided = async {
            let BatchCall { checks: Few(calls) } = self.read_batch(body)?;
            Ok(self.batch(&self.in_order(&calls, |call| self.limit_call(call)).await))
        };
        answered(decided.await)
    }

    fn read_batch<'a>(&self, body: &'a [u8]) -> Result<BatchCall<'a>, Problem> {
        let batch: BatchCall<'_> = read(body)?;
        if batch.checks.0.is_empty() {
            return Err(Problem::wrong("checks", format!("1 to {BATCH_MAX} checks")));
        }
        self.metrics.batch(batch.checks.0.len());
        Ok(batch)
    }

    /// Decides slice by slice.
    async fn in_order<'c, 'b, F>(
        &self,
        calls: &'c [Call<'b>],
        decide: impl Fn(&'c Call<'b>) -> F,
    ) -> Vec<Result<Decision, Problem>>
    where
        F: Future<Output = Result<Decision, Problem>>,
    {
        let (mut decided, mut rest) = (Vec::with_capacity(calls.len()), calls);
        while !rest.is_empty() {
            let (count, charges) = slice_of(rest);
            let (slice, others) = rest.split_at(count);
            let places = u32::try_from(charges.min(BATCHED_CHARGES)).unwrap_or(u32::MAX);
            // Never closed, so never refused.
            let _room = self.batches.0.acquire_many(places).await;
            decided.extend(join_all(slice.iter().map(&decide)).await);
            rest = others;
        }
        decided
    }

    /// All decisions, each with the status it would have had alone.
    fn batch(&self, results: &[Result<Decision, Problem>]) -> Answer {
        let mut body = Vec::with_capacity(results.len() * ANSWER_BYTES);
        body.extend_from_slice(br#"{"decisions":["#);
        for (index, result) in results.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            match result {
                Ok(decision) => {
                    let status = Denial::of(decision, &self.options).map_or(200, |denial| denial.status());
                    Told { status: Some(status), ..Told::new(decision) }.write(&mut body);
                }
                Err(problem) => problem.write(&mut body),
            }
        }
        body.extend_from_slice(b"]}");
        Answer::of(JSON, body)
    }
}
