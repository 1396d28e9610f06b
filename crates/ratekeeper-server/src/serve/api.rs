//! The calls of the HTTP API, without HTTP: from the bytes of a call to an answer.
//!
//! Fuzzers and tests call these functions as they are; `http` puts them on a socket.

mod batch;
mod call;
mod charges;
mod envoy;
mod facts;
mod forward;
mod limit;
mod members;
mod names;
mod object;
mod operate;
mod policy;
mod problem;
mod receipt;
mod refund;
mod throttle;
mod told;
mod value;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ratekeeper::bounds::{IDEMPOTENCY_DEFAULT, LIMIT_MAX, RETENTION_MAX};
use ratekeeper::policy::PolicyLimiter;
use ratekeeper::{Decision, Demand, InvalidInput, Labels, Reservation, Settled, Verdict};
use ratekeeper_http::{Denial, Field, HttpOptions, Tally};
use serde_json::json;
use smallvec::SmallVec;

use self::batch::BatchRoom;
pub use self::call::{BATCH_MAX, KEY_BYTES_MAX};
use self::call::{
    CancelCall, CheckCall, LimitCall, LookCall, Once, RefundCall, ReserveCall, SettleCall, Target, TargetCall,
};
pub use self::charges::BEHIND_KEYS;
pub(in crate::serve) use self::envoy::{
    EnvoyAnswer, EnvoyCall, EnvoyDescriptor, EnvoyLimit, EnvoyStatus, EnvoyTerms,
};
use self::members::{Members, Placed};
pub(crate) use self::names::Names;
pub use self::names::{LIMIT_NAME_BYTES_MAX, LIMIT_SERIES_MAX, NAME_DEFAULT, SPACE};
pub use self::operate::{AUDIT_SHOWN_MAX, COUNTERS_SHOWN_MAX, CUSTOM_SHOWN_MAX};
pub(in crate::serve) use self::operate::{history, rule_limits};
pub use self::problem::{PROBLEM_JSON, Problem};
use self::receipt::Receipts;
use self::refund::Judge;
pub(in crate::serve) use self::throttle::{Throttle, Throttled};
use self::told::{Decided, Told};
pub use self::value::{CLAIMS_MAX, HEADERS_MAX, PARAMETERS_MAX};
use self::value::{Text, Whole};
use crate::serve::admin::Caller;
use crate::serve::calls::{Answering, later};
use crate::serve::dashboard::Shown;
use crate::serve::demo::Demo;
use crate::serve::headroom::{self, NearKeys};
use crate::serve::hot::HotKeys;
use crate::serve::metrics::Metrics;
use crate::serve::notices::Notices;
use crate::serve::reread::Reread;

/// What most answers are.
pub const JSON: &str = "application/json";
/// How long a reservation can be settled, unless the call says otherwise.
pub const HOLD_DEFAULT: Duration = Duration::from_secs(60);
/// Bytes of an ordinary answer: it is written without growing.
const ANSWER_BYTES: usize = 512;

/// The engine as callers of the API see it.
pub struct Api {
    limiter: PolicyLimiter,
    names: Names,
    options: HttpOptions,
    pub(crate) metrics: Metrics,
    pub(crate) hot: HotKeys,
    pub(crate) near: NearKeys,
    pub(crate) shown: Shown,
    pub(in crate::serve) notices: Option<Notices>,
    batches: BatchRoom,
    receipts: Receipts,
}

/// What is answered to a call.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// What the body is.
    pub content_type: &'static str,
    /// Header fields about limits.
    pub fields: SmallVec<[Field; 4]>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Text that is no problem.
    pub(crate) fn of(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, content_type, fields: SmallVec::new(), body: body.into() }
    }

    pub(crate) fn json(value: &serde_json::Value) -> Self {
        Self::of(JSON, value.to_string())
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        let mut body = Vec::with_capacity(ANSWER_BYTES);
        problem.write(&mut body);
        Self { status: problem.status, content_type: PROBLEM_JSON, fields: SmallVec::new(), body }
    }
}

impl Api {
    /// The API of a limiter, whose engine also decides on what is asked without a policy.
    #[must_use]
    pub fn new(limiter: PolicyLimiter) -> Self {
        let receipts = Receipts::new(limiter.store());
        Self {
            receipts,
            limiter,
            names: Names::default(),
            options: HttpOptions::default(),
            metrics: Metrics::default(),
            hot: HotKeys::default(),
            near: NearKeys::default(),
            shown: Shown::default(),
            notices: None,
            batches: BatchRoom::default(),
        }
    }

    /// Notes what a request left of a quota, if that is half of it or less.
    #[inline]
    fn note_headroom<'k>(
        &self,
        decision: &Decision,
        verdict: &Verdict,
        of: impl FnOnce() -> Option<(Cow<'k, str>, &'k str)>,
    ) {
        if headroom::is_near(verdict)
            && let Some((rule, key)) = of()
        {
            self.near.note(&rule, key, verdict);
            if let Some(notices) = &self.notices {
                notices.used(&rule, key, verdict, decision);
            }
        }
    }

    /// Says what clients are told by these options.
    #[must_use]
    pub fn with_options(self, options: HttpOptions) -> Self {
        Self { options, ..self }
    }

    /// Tells the dashboard of the server.
    #[must_use]
    pub(crate) fn with_shown(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    /// Lets operators start a load.
    pub fn offer_demo(self: &Arc<Self>) {
        // A second time is as good as once.
        let _ = self.shown.demo.set(Demo::of(self));
    }

    /// Signs receipts with keys from a file, one in a line: the first signs, and while keys change a second
    /// one is accepted.
    ///
    /// # Errors
    /// If there is no key in it that can be used.
    pub fn with_receipt_keys(self, file: &Path) -> anyhow::Result<Self> {
        let receipts = Receipts::in_file(file).context("receipt-key-file")?;
        Ok(Self { receipts, ..self })
    }

    /// Reads the keys of receipts again, if they are in a file.
    pub(super) fn read_keys_again(&self) -> anyhow::Result<Reread> {
        self.receipts.read_again().context("receipt-key-file")
    }

    /// Who tells receipts from what is made up.
    async fn judge<'j, 'd>(&'j self, demand: &'j Demand<'d>) -> Judge<'j, 'd> {
        let store = self.limiter.store();
        self.receipts.renew(store).await;
        Judge { receipts: &self.receipts, demand, now: store.now() }
    }

    /// The policies and the store that decide.
    #[must_use]
    pub fn limiter(&self) -> &PolicyLimiter {
        &self.limiter
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// `POST /v1/check`: a request against the policy.
    pub async fn check(&self, body: &[u8]) -> Answer {
        self.start_check(body).answer().await
    }

    pub(in crate::serve) fn start_check<'a>(&'a self, body: &[u8]) -> Answering<'a> {
        let told = |decided: Decided| self.told(&decided, Labels::default());
        match read::<CheckCall<'_>>(body).and_then(|call| self.asked(&call)) {
            Ok(demand) if self.waits() => {
                later(async move { answered(self.check_demand(&demand).await.map(told)) })
            }
            // Without a future: it is large, and moving it costs more than deciding.
            Ok(demand) => Answering::Now(answered(self.check_now(&demand).map(told))),
            Err(problem) => Answering::Now(problem.into()),
        }
    }

    /// `POST /v1/limit`: charges without a policy.
    pub async fn limit(&self, body: &[u8]) -> Answer {
        self.start_limit(body).answer().await
    }

    pub(in crate::serve) fn start_limit<'a>(&'a self, body: &'a [u8]) -> Answering<'a> {
        match read::<LimitCall<'_>>(body) {
            Ok(call) if self.waits() => later(async move {
                let decided = self.limit_call(&call).await;
                answered(decided.map(|decided| self.told(&decided, Labels(&call.raw.labels()))))
            }),
            Ok(call) => {
                let mut decided = Decided::default();
                match self.limit_now(&call, &mut decided) {
                    Ok(()) => Answering::Now(self.told(&decided, Labels(&call.raw.labels()))),
                    Err(problem) => Answering::Now(problem.into()),
                }
            }
            Err(problem) => Answering::Now(problem.into()),
        }
    }

    /// Whether the store has to be waited for.
    fn waits(&self) -> bool {
        self.limiter.store().needs_io()
    }

    /// `POST /v1/peek`: what either would meet, and nothing changes.
    pub async fn peek(&self, body: &[u8]) -> Answer {
        answered(self.peeked(body, false).await)
    }

    /// `POST /v1/explain`: the same in words.
    pub async fn explain(&self, body: &[u8]) -> Answer {
        answered(self.peeked(body, true).await)
    }

    async fn peeked(&self, body: &[u8], explained: bool) -> Result<Answer, Problem> {
        let call: LookCall<'_> = read(body)?;
        let once = call.once.said()?;
        let (decision, names) = match call.target.target()? {
            Target::Charges(raw) => (self.peek_charges(raw, once).await?, raw.labels()),
            Target::Request(request) => (self.peek_request(request, once).await?, SmallVec::new()),
        };
        let labels = Labels(&names);
        let mut answer =
            Answer::of(JSON, written(&Told { explained, ..Told::new(&decision, labels, &self.receipts) }));
        answer.fields = Tally::labelled(&decision.decision, labels).fields(&self.options).collect();
        Ok(answer)
    }

    /// `POST /v1/refund`: gives back what a decision charged.
    pub async fn refund(&self, body: &[u8]) -> Answer {
        let refunded = async {
            let call: RefundCall<'_> = read(body)?;
            let told = required("decision", call.given_back.decision.as_ref())?;
            let units = call.given_back.units.map_or(Ok(LIMIT_MAX), |units| units.units("units"))?;
            let refunded = match call.target.target()? {
                Target::Charges(raw) => self.refund_charges(raw, told, units).await?,
                Target::Request(request) => self.refund_request(request, told, units).await?,
            };
            Ok(Answer::json(&refunded.json()))
        };
        answered(refunded.await)
    }

    /// `POST /v1/reserve`: charges an estimate that is settled later.
    pub async fn reserve(&self, body: &[u8]) -> Answer {
        let reserved = async {
            let call: ReserveCall<'_> = read(body)?;
            let id = required("id", call.hold.id.as_ref())?.as_str();
            let hold = within_retention("hold_seconds", call.hold.hold_seconds, HOLD_DEFAULT)?;
            let (decision, names) = match call.target.target()? {
                Target::Charges(raw) => (self.reserve_charges(raw, id, hold).await?, raw.labels()),
                Target::Request(request) => (self.reserve_request(request, id, hold).await?, SmallVec::new()),
            };
            Ok(self.told(&decision, Labels(&names)))
        };
        answered(reserved.await)
    }

    /// `POST /v1/settle`: makes a reservation what it really was.
    pub async fn settle(&self, body: &[u8]) -> Answer {
        let settled = async {
            let call: SettleCall<'_> = read(body)?;
            let actual = required("actual", call.actual)?.units("actual")?;
            self.settled(call.id, Some(actual.into())).await
        };
        answered(settled.await)
    }

    /// `POST /v1/cancel`: undoes a reservation.
    pub async fn cancel(&self, body: &[u8]) -> Answer {
        let cancelled = async {
            let call: CancelCall<'_> = read(body)?;
            self.settled(call.id, None).await
        };
        answered(cancelled.await)
    }

    async fn settled(&self, id: Option<Text<'_>>, actual: Option<u64>) -> Result<Answer, Problem> {
        let id = required("id", id.as_ref())?.as_str();
        // What could not have been reserved is not looked for.
        Reservation::hold(id, HOLD_DEFAULT).map_err(input)?;
        let settled = self.limiter.settle(id, actual).await.map_err(Problem::store)?;
        let word = match settled {
            Settled::Done => "done",
            Settled::Already => "already",
            Settled::Lapsed => {
                return Err(Problem::new(410, "the reservation has lapsed; its estimate stays charged"));
            }
            Settled::Unknown => return Err(Problem::new(404, "there is no reservation of this id")),
        };
        Ok(Answer::json(&json!({ "settled": word })))
    }

    /// `POST /v1/reset`: forgets counters. For operators.
    pub async fn reset(&self, caller: &Caller, body: &[u8]) -> Answer {
        let reset = async {
            let call: TargetCall<'_> = read(body)?;
            match call.target()? {
                Target::Charges(raw) => self.reset_charges(caller, raw).await,
                Target::Request(request) => self.reset_request(caller, request).await,
            }
        };
        // Whose counters they were is in the audit log, which takes a token, and in no other.
        let reset: Result<usize, Problem> = reset.await;
        match &reset {
            Ok(forgotten) => {
                tracing::info!(forgotten, by = caller.name, "an operator had counters forgotten");
            }
            Err(problem) => {
                tracing::info!(status = problem.status, "an operator could not have counters forgotten");
            }
        }
        answered(reset.map(|forgotten| Answer::json(&json!({ "forgotten": forgotten }))))
    }

    /// A decision as an answer: 200, 429 or 503, with the fields that tell of limits.
    fn told(&self, decided: &Decided, labels: Labels<'_>) -> Answer {
        let decision = &decided.decision;
        let tally = Tally::labelled(decision, labels);
        let Some(denial) = Denial::of(decision, &self.options) else {
            let fields = tally.fields(&self.options).collect();
            return Answer {
                fields,
                ..Answer::of(JSON, written(&Told::new(decided, labels, &self.receipts)))
            };
        };
        let denial = denial.labelled(labels);
        // A problem document may have members of its own: the decision is among them.
        let problem = denial.body();
        let mut body = Vec::with_capacity(2 * ANSWER_BYTES);
        body.extend_from_slice(problem.strip_suffix('}').unwrap_or(&problem).as_bytes());
        let members = body.len();
        Told::new(decided, labels, &self.receipts).write(&mut body);
        if let Some(brace) = body.get_mut(members) {
            *brace = b',';
        }
        let content_type = field_content_type();
        let of_denial = denial.fields().filter(|(name, _)| *name != content_type);
        let fields = tally.fields(&self.options).chain(of_denial).collect();
        Answer { status: denial.status(), content_type: denial.content_type(), fields, body }
    }
}

/// The content type is said once, by the answer itself.
const fn field_content_type() -> &'static str {
    ratekeeper_http::field::CONTENT_TYPE
}

fn answered(result: Result<Answer, Problem>) -> Answer {
    result.unwrap_or_else(Answer::from)
}

/// Reads a call.
#[inline]
fn read<'a, T: Members<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    match serde_json::from_slice::<Placed<T>>(body) {
        Ok(placed) => placed.into_call(),
        Err(error) => Err(Problem::unread::<Placed<T>>(body, &error)),
    }
}

/// A member that a call must have.
fn required<T>(name: &str, member: Option<T>) -> Result<T, Problem> {
    member.ok_or_else(|| Problem::missing(name))
}

fn written(told: &Told<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(ANSWER_BYTES);
    told.write(&mut body);
    body
}

#[allow(clippy::needless_pass_by_value, reason = "what `map_err` wants")]
fn input(error: InvalidInput) -> Problem {
    Problem::input(&error)
}

impl Once<'_> {
    /// The id under which a call is decided once, and how long it is kept.
    fn said(&self) -> Result<Option<(&str, Duration)>, Problem> {
        let Some(id) = &self.id else {
            return match self.keep_seconds {
                Some(_) => Err(Problem::got("keep_seconds", "it without an id", "an id beside it")),
                None => Ok(None),
            };
        };
        let keep = within_retention("keep_seconds", self.keep_seconds, IDEMPOTENCY_DEFAULT)?;
        Ok(Some((id.as_str(), keep)))
    }
}

/// How long something is to be remembered, within what stores remember.
fn within_retention(field: &str, seconds: Option<Whole>, default: Duration) -> Result<Duration, Problem> {
    let time = seconds.map_or(default, |Whole(seconds)| Duration::from_secs(seconds));
    if time.is_zero() || time > RETENTION_MAX {
        return Err(Problem::wrong(field, format!("1 to {}", RETENTION_MAX.as_secs())));
    }
    Ok(time)
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
