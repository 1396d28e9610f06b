//! Several calls at once. Each is decided for itself; those that need the store
//! travel together.

use futures_util::future::join_all;
use ratekeeper::Decision;
use ratekeeper_http::Denial;

use super::call::{BATCH_MAX, BatchCall, Few};
use super::problem::Problem;
use super::told::Told;
use super::{ANSWER_BYTES, Answer, Api, JSON, answered, read};

impl Api {
    /// `POST /v1/check/batch`.
    pub async fn check_batch(&self, body: &[u8]) -> Answer {
        let decided = async {
            let BatchCall { checks: Few(calls) } = self.read_batch(body)?;
            Ok(self.batch(&join_all(calls.iter().map(|call| self.check_call(call))).await))
        };
        answered(decided.await)
    }

    /// `POST /v1/limit/batch`.
    pub async fn limit_batch(&self, body: &[u8]) -> Answer {
        let decided = async {
            let BatchCall { checks: Few(calls) } = self.read_batch(body)?;
            Ok(self.batch(&join_all(calls.iter().map(|call| self.limit_call(call))).await))
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
