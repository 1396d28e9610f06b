//! `CL.THROTTLE` of redis-cell as a charge without a policy: a token bucket that the caller spells out.

use std::time::Duration;

use ratekeeper::bounds::LIMIT_MAX;
use ratekeeper::{Decision, Field, InvalidInput, OnOutage, Quota, RawCharge, RawName, Verdict};

use super::Api;
use super::call::KEY_BYTES_MAX;
use super::charges::BEHIND_KEYS;
use super::names::{NAME_THROTTLE, SPACE};

/// One call, its numbers within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Throttle<'k> {
    key: &'k str,
    quota: Quota,
    quantity: u64,
}

/// What is answered: all of it in whole seconds, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Throttled {
    pub(in crate::serve) is_limited: bool,
    pub(in crate::serve) limit: u32,
    pub(in crate::serve) remaining: u32,
    /// -1 if it was allowed, or never will be.
    pub(in crate::serve) retry_after: i64,
    pub(in crate::serve) reset_after: i64,
}

impl<'k> Throttle<'k> {
    /// `quantity` units of a bucket that holds `max_burst` and one more, and gains `count` of them in `period` seconds.
    ///
    /// # Errors
    /// If one of them is out of bounds; none of `count` and `period` is 0.
    pub(in crate::serve) fn new(
        key: &'k [u8],
        max_burst: i64,
        count: i64,
        period: i64,
        quantity: i64,
    ) -> Result<Self, String> {
        let key = std::str::from_utf8(key).ok().filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
        let key = key.ok_or_else(|| format!("key: expected 1 to {KEY_BYTES_MAX} bytes of UTF-8"))?;
        let capacity = within("max_burst", max_burst, 0, i64::from(LIMIT_MAX) - 1)? + 1;
        let count = within("count per period", count, 1, LIMIT_MAX.into())?;
        let quantity = within("quantity", quantity, 0, i64::MAX)?;
        let period = Duration::from_secs(within("period", period, 1, i64::MAX)?);
        let quota = Quota::token_bucket(count, period).and_then(|quota| quota.with_burst(capacity));
        let quota = quota.map_err(|error| match error.field {
            Field::Window => {
                format!("period: got {}; expected {} as seconds", period.as_secs(), error.expected)
            }
            _ => format!("max_burst: got {}; expected {}", error.got, error.expected),
        })?;
        Ok(Self { key, quota, quantity })
    }

    /// What it counts under.
    #[inline]
    fn write_subject(&self, into: &mut String) {
        into.clear();
        into.push_str(self.key);
        into.push(BEHIND_KEYS);
    }
}

/// The charge of a call, under a subject of [`Throttle::write_subject`].
fn charge(subject: &str, quota: Quota, quantity: u64) -> Result<RawCharge<'_>, InvalidInput> {
    let name = RawName::within(SPACE, NAME_THROTTLE)?;
    Ok(RawCharge::new(name, subject, quota).any_cost(quantity))
}

impl Throttled {
    fn new(quota: &Quota, decision: &Decision) -> Self {
        let limit = quota.capacity();
        let is_limited = !decision.is_allowed();
        let retry_after = match decision.retry_after().as_micros() {
            Some(micros) if is_limited => whole_seconds(Duration::from_micros(micros)),
            _ => -1,
        };
        let (remaining, reset_after) = match decision.verdicts() {
            [verdict, ..] => (verdict.remaining(), whole_seconds(verdict.reset_after())),
            // Without the store, nothing has been counted.
            [] if is_limited => (0, 0),
            [] => (limit, 0),
        };
        Self { is_limited, limit, remaining, retry_after, reset_after }
    }
}

fn within(name: &str, value: i64, least: i64, most: i64) -> Result<u64, String> {
    let within = u64::try_from(value).ok().filter(|_| (least..=most).contains(&value));
    within.ok_or_else(|| match most {
        i64::MAX => format!("{name}: got {value}; expected at least {least}"),
        most => format!("{name}: got {value}; expected {least} to {most}"),
    })
}

/// Whoever comes back after that many has waited long enough.
fn whole_seconds(wait: Duration) -> i64 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

impl Api {
    /// Judges a call on a store that needs no I/O; nothing if it does. `subject` and `decision` are written over, so that
    /// nothing is allocated.
    #[inline]
    pub(in crate::serve) fn throttle_now(
        &self,
        asked: &Throttle<'_>,
        on_outage: OnOutage,
        (subject, decision): (&mut String, &mut Decision),
    ) -> Option<Result<Throttled, InvalidInput>> {
        if self.waits() {
            return None;
        }
        asked.write_subject(subject);
        let judged = charge(subject, asked.quota, asked.quantity).and_then(|charge| {
            let charges = [charge];
            self.limiter().engine().raw(&charges, on_outage).now().check_into(decision)
        });
        Some(judged.map(|()| self.throttled(asked.key, &asked.quota, decision)))
    }

    /// Judges a call on any store. What is returned needs nothing of the call.
    pub(in crate::serve) fn throttle<'a>(
        &'a self,
        asked: &Throttle<'_>,
        on_outage: OnOutage,
    ) -> impl Future<Output = Result<Throttled, InvalidInput>> + Send + use<'a> {
        let mut subject = String::with_capacity(asked.key.len() + 1);
        asked.write_subject(&mut subject);
        let (quota, quantity) = (asked.quota, asked.quantity);
        async move {
            let charges = [charge(&subject, quota, quantity)?];
            let decision = self.limiter().engine().raw(&charges, on_outage).check().await?;
            let key = subject.strip_suffix(BEHIND_KEYS).unwrap_or(&subject);
            Ok(self.throttled(key, &quota, &decision))
        }
    }

    #[inline]
    fn throttled(&self, key: &str, quota: &Quota, decision: &Decision) -> Throttled {
        let verdict = decision.verdicts().first();
        self.names().note(NAME_THROTTLE, decision, verdict);
        if let Some(verdict) = verdict {
            self.note_headroom(decision, verdict, || {
                Some(([SPACE, "/", NAME_THROTTLE].concat().into(), key))
            });
        }
        if !decision.is_allowed() && verdict.is_some_and(Verdict::is_denied) {
            self.hot.denied(&[SPACE, "/", NAME_THROTTLE].concat(), key);
        }
        Throttled::new(quota, decision)
    }
}
