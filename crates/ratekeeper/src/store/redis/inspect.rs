//! What the server alone says of a rule and subject, without the rule.

use std::time::Duration;

use ::redis::Cmd;
use ratekeeper_core::{Charge, Decision, Key, Level, Name, Quota, State, Timestamp, judge_one};
use tokio::time::Instant;

use super::answer::garbled;
use super::packed::{PackedRecord, Records};
use super::record::quota_of;
use super::route::Part;
use super::script::FORMAT;
use super::{Inner, RedisStore};
use crate::store::{StoreError, StoredCounter};

impl RedisStore {
    /// The packed counters of a rule and subject: all but logs, places and those of Application Kit. The rule is
    /// what stores know it by: `service/rule` for one of a policy.
    ///
    /// # Errors
    /// If the server does not answer, or has something else at the key.
    pub async fn stored_counters(
        &self,
        rule: &str,
        subject: &[u8],
    ) -> Result<Vec<StoredCounter>, StoreError> {
        self.inner.counters_of(rule, subject).await
    }
}

impl Inner {
    /// The packed counters of a rule and subject, those of long windows last.
    pub(super) async fn counters_of(
        &self,
        rule: &str,
        subject: &[u8],
    ) -> Result<Vec<StoredCounter>, StoreError> {
        let (end, mut found) = (self.end_of_call(), Vec::new());
        let key = Key::new(Name::RAW, subject)?;
        for is_long in [false, true] {
            let name = self.layout.packed(rule, subject, is_long);
            for (part, name) in self.layout.names_of(key, name) {
                found.extend(self.counters_at(end, part, &name).await?);
            }
        }
        Ok(found)
    }

    /// The packed counters at a key.
    pub(super) async fn counters_at(
        &self,
        end: Instant,
        part: Part,
        key: &[u8],
    ) -> Result<Vec<StoredCounter>, StoreError> {
        let value: Option<Vec<u8>> = self.send_until(end, part, Cmd::get(key)).await?;
        let Some(value) = value else { return Ok(Vec::new()) };
        let now = self.instant(end, part).await?;
        counters(&value, now).map_err(|_| StoreError::unreadable_at(key))
    }

    /// The time that checks would be judged at.
    pub(super) async fn instant(&self, end: Instant, part: Part) -> Result<Timestamp, StoreError> {
        if self.is_clock_given() {
            return Ok(self.route.now());
        }
        let (seconds, micros): (u64, u64) = self.send_until(end, part, ::redis::cmd("TIME")).await?;
        Ok(Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
    }
}

/// The counters in a value at `now`.
fn counters(value: &[u8], now: Timestamp) -> Result<Vec<StoredCounter>, StoreError> {
    if value.first() != Some(&FORMAT) {
        return Err(garbled());
    }
    let mut records = Records::of(value)?;
    let mut counters = Vec::new();
    while let Some(record) = records.next()? {
        let name = String::from_utf8_lossy(records.name()?).into_owned();
        counters.push(counter(&record, name, now)?);
    }
    Ok(counters)
}

fn counter(record: &PackedRecord, name: String, now: Timestamp) -> Result<StoredCounter, StoreError> {
    let algorithm = record.algorithm().ok_or_else(garbled)?;
    // Windows are whole milliseconds; what is beyond says which clock they follow.
    let whole = match record.window()? {
        0 => record.length()?,
        window => window - window % 1_000,
    };
    let window = Duration::from_micros(whole);
    let quota = quota_of(algorithm as u8, (record.limit, record.burst), window, (0, 0))?;
    let (remaining, reset_after) = left(&quota, record.state(algorithm)?, now)?;
    let (limit, burst) = (record.limit, record.burst);
    Ok(StoredCounter { quota: name, algorithm, window, limit, burst, remaining, reset_after })
}

/// What a peek says is left.
fn left(quota: &Quota, mut state: State, now: Timestamp) -> Result<(u32, Duration), StoreError> {
    let charge = Charge::new(Key::new(Name::RAW, "-")?, quota);
    let mut decision = Decision::default();
    judge_one(&charge, (quota, Level::Default), &mut state, now, true, &mut decision);
    let [verdict] = decision.verdicts() else { return Err(garbled()) };
    Ok((verdict.remaining(), verdict.reset_after()))
}
