//! What is kept of a counter, of an id, of an override: as bytes, and back.

use std::time::Duration;

use ratekeeper_core::algorithm::{
    Bucket, Concurrency, FixedWindow, Holder, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
};
use ratekeeper_core::{
    Algorithm, Decision, DecisionParts, ENTRIES_MAX, Enforcement, Held, HeldParts, Level, Origin, Outcome,
    Override, OverrideScope, Receipt, Remembered, Stage, State, Timestamp, Verdict, VerdictParts, Wait,
};

use super::bytes::{Read, Reader, Unreadable, Writer};
use crate::store::memory::fingerprint::Fingerprint;
use crate::store::memory::receipts::Given;
use crate::store::memory::shard::{Counter, Found};
use crate::store::memory::slot::Pressure;

/// The number of a rule in the file; 0 for raw charges.
pub(super) type FileRule = u32;

/// A counter with the number that the file has for its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) fingerprint: Fingerprint,
    pub(super) rule: FileRule,
}

/// The key of a counter: its shard first.
pub(super) fn counter_key(fingerprint: Fingerprint) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&fingerprint.high.to_be_bytes());
    key[8..].copy_from_slice(&fingerprint.low.to_be_bytes());
    key
}

pub(super) fn read_counter_key(key: &[u8]) -> Read<Fingerprint> {
    let mut reader = Reader(key);
    let fingerprint = Fingerprint { high: reader.first()?, low: reader.first()? };
    reader.end().map(|()| fingerprint)
}

pub(super) fn counter(found: &Found, rule: FileRule) -> Vec<u8> {
    let mut into = Writer::default();
    into.u8(found.state.algorithm() as u8).u8(found.pressure.bits()).u32(rule);
    match &found.state {
        State::FixedWindow(FixedWindow { end, length, count }) => into.u64(*end).u64(*length).u32(*count),
        State::SlidingWindow(SlidingWindow { start, window, previous, current }) => {
            into.u64(*start).u64(*window).u32(*previous).u32(*current)
        }
        State::TokenBucket(TokenBucket(bucket)) | State::LeakyBucket(LeakyBucket(bucket)) => {
            into.u64(bucket.full_at).u32(bucket.remainder).u32(bucket.denominator).u64(bucket.ahead)
        }
        State::SlidingLog(log) => {
            into.u64(log.window).u64(log.own_window).u32(log.entries.len() as u32);
            log.entries.iter().fold(&mut into, |into, (at, units)| into.u64(*at).u32(*units))
        }
        State::Concurrency(leases) => {
            into.u32(leases.next).u64(leases.last).u64(leases.window).u64(leases.own_window);
            into.u32(leases.holders.len() as u32);
            leases
                .holders
                .iter()
                .fold(&mut into, |into, holder| into.u64(holder.since).u32(holder.number).u32(holder.units))
        }
    };
    into.done()
}

/// The state of a counter, how much it has used, and its rule.
pub(super) fn read_counter(bytes: &[u8]) -> Read<(State, Pressure, FileRule)> {
    let mut from = Reader(bytes);
    let (code, pressure, rule) = (from.u8()?, Pressure::from_bits(from.u8()?), from.u32()?);
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| *algorithm as u8 == code);
    let state = match algorithm.ok_or(Unreadable)? {
        Algorithm::FixedWindow => {
            State::FixedWindow(FixedWindow { end: from.u64()?, length: from.u64()?, count: from.u32()? })
        }
        Algorithm::SlidingWindow => State::SlidingWindow(SlidingWindow {
            start: from.u64()?,
            window: from.u64()?,
            previous: from.u32()?,
            current: from.u32()?,
        }),
        Algorithm::TokenBucket => State::TokenBucket(TokenBucket(bucket(&mut from)?)),
        Algorithm::LeakyBucket => State::LeakyBucket(LeakyBucket(bucket(&mut from)?)),
        Algorithm::SlidingLog => State::SlidingLog(Box::new(log(&mut from)?)),
        Algorithm::Concurrency => State::Concurrency(Box::new(leases(&mut from)?)),
    };
    from.end().map(|()| (state, pressure, rule))
}

fn bucket(from: &mut Reader<'_>) -> Read<Bucket> {
    Ok(Bucket { full_at: from.u64()?, remainder: from.u32()?, denominator: from.u32()?, ahead: from.u64()? })
}

fn log(from: &mut Reader<'_>) -> Read<SlidingLog> {
    let (window, own_window) = (from.u64()?, from.u64()?);
    let entries = bounded(from.many(12, |from| Ok((from.u64()?, from.u32()?)))?)?;
    Ok(SlidingLog { entries: entries.into(), window, own_window })
}

fn leases(from: &mut Reader<'_>) -> Read<Concurrency> {
    let next = from.u32()?;
    let (last, window, own_window) = (from.u64()?, from.u64()?, from.u64()?);
    let holder =
        |from: &mut Reader<'_>| Ok(Holder { since: from.u64()?, number: from.u32()?, units: from.u32()? });
    let holders = bounded(from.many(16, holder)?)?;
    Ok(Concurrency { holders: holders.into(), next, last, window, own_window })
}

fn bounded<T>(entries: Vec<T>) -> Read<Vec<T>> {
    if entries.len() > ENTRIES_MAX as usize { Err(Unreadable) } else { Ok(entries) }
}

/// The key of something that is forgotten at an instant: so those that are over come first.
pub(super) fn ending_key(end: u64, rest: &[u8]) -> Vec<u8> {
    let mut into = Writer::default();
    into.first(end).raw(rest);
    into.done()
}

/// The instant in such a key, and the rest of it.
pub(super) fn read_ending_key(key: &[u8]) -> Read<(u64, &[u8])> {
    let mut from = Reader(key);
    Ok((from.first()?, from.0))
}

/// What was given back under the number of a receipt: key and value.
pub(super) fn given(given: &Given) -> (Vec<u8>, [u8; 4]) {
    let mut rest = Writer::default();
    rest.u64(given.counter).u64(given.nonce);
    (ending_key(given.until, &rest.done()), given.units.to_le_bytes())
}

pub(super) fn read_given(key: &[u8], value: &[u8]) -> Read<Given> {
    let (until, rest) = read_ending_key(key)?;
    let (mut rest, mut value) = (Reader(rest), Reader(value));
    let given = Given { until, counter: rest.u64()?, nonce: rest.u64()?, units: value.u32()? };
    rest.end().and(value.end()).map(|()| given)
}

/// What is kept under an id. `rule` is the number that the file has for the rule of a counter.
pub(super) fn remembered(kept: &Remembered<Counter>, mut rule: impl FnMut(Counter) -> FileRule) -> Vec<u8> {
    let mut into = Writer::default();
    into.u64(kept.digest);
    match kept.stage {
        Stage::Remembered => into.u8(0).u64(0),
        Stage::OpenUntil(until) => into.u8(1).u64(until),
        Stage::Settled => into.u8(2).u64(0),
    };
    let decision = &kept.decision;
    into.u64(decision.at().as_micros());
    wait(&mut into, decision.retry_after());
    duration(&mut into, decision.proceed_after());
    into.u32(decision.verdicts().len() as u32);
    decision.verdicts().iter().for_each(|said| verdict(&mut into, said));
    into.u32(kept.held.len() as u32);
    for held in &kept.held {
        let HeldParts { quota, own_window, cost, flat, receipt: proof } = held.parts();
        let Fingerprint { high, low } = held.counter.fingerprint;
        into.u64(high)
            .u64(low)
            .u32(rule(held.counter))
            .quota(&quota)
            .u64(own_window)
            .u32(cost)
            .u8(flat.into());
        receipt(&mut into, proof);
    }
    into.done()
}

pub(super) fn read_remembered(bytes: &[u8], forget_at: u64) -> Read<Remembered<Place>> {
    let mut from = Reader(bytes);
    let digest = from.u64()?;
    let stage = match (from.u8()?, from.u64()?) {
        (0, _) => Stage::Remembered,
        (1, until) => Stage::OpenUntil(until),
        (2, _) => Stage::Settled,
        _ => return Err(Unreadable),
    };
    let mut decision = Decision::from(DecisionParts {
        outcome: Outcome::Allow,
        origin: Origin::Store,
        at: Timestamp::from_micros(from.u64()?),
        retry_after: read_wait(&mut from)?,
        proceed_after: Duration::from_micros(from.u64()?),
        verdicts: from.many(VERDICT_BYTES_MIN, read_verdict)?,
    });
    if stage != Stage::Remembered {
        decision.set_held();
    }
    let held = from.many(HELD_BYTES_MIN, read_held)?;
    from.end()?;
    Ok(Remembered { digest, decision, held, stage, forget_at })
}

/// Fewer than any takes.
const VERDICT_BYTES_MIN: usize = 40;
const HELD_BYTES_MIN: usize = 40;

fn read_held(from: &mut Reader<'_>) -> Read<Held<Place>> {
    let fingerprint = Fingerprint { high: from.u64()?, low: from.u64()? };
    let place = Place { fingerprint, rule: from.u32()? };
    let parts = HeldParts {
        quota: from.quota()?,
        own_window: from.u64()?,
        cost: from.u32()?,
        flat: from.flag()?,
        receipt: read_receipt(from)?,
    };
    Ok(Held::from_parts(place, parts))
}

fn wait(into: &mut Writer, wait: Wait) {
    into.u64(wait.as_micros().unwrap_or(u64::MAX));
}

fn read_wait(from: &mut Reader<'_>) -> Read<Wait> {
    let micros = from.u64()?;
    Ok(if micros == u64::MAX { Wait::NEVER } else { Wait::micros(micros) })
}

fn duration(into: &mut Writer, duration: Duration) {
    into.u64(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
}

fn receipt(into: &mut Writer, receipt: Receipt) {
    into.u64(receipt.at).u32(receipt.detail);
}

fn read_receipt(from: &mut Reader<'_>) -> Read<Receipt> {
    Ok(Receipt { at: from.u64()?, detail: from.u32()? })
}

fn verdict(into: &mut Writer, verdict: &Verdict) {
    into.name(verdict.name()).quota(verdict.quota());
    into.u8(verdict.level() as u8).u8(verdict.enforcement() as u8);
    into.u32(verdict.cost()).u32(verdict.remaining());
    duration(into, verdict.reset_after());
    wait(into, verdict.retry_after());
    into.optional(verdict.receipt(), receipt);
    // It was 16 bits wide.
    into.u32(verdict.index() as u32).u64(verdict.counter()).u64(verdict.nonce());
}

fn read_verdict(from: &mut Reader<'_>) -> Read<VerdictParts> {
    const LEVELS: [Level; 6] =
        [Level::Default, Level::Plan, Level::Custom, Level::Organisation, Level::Project, Level::Emergency];
    let parts = VerdictParts::new(from.name()?, from.quota()?);
    let level = LEVELS.get(usize::from(from.u8()?)).ok_or(Unreadable)?;
    let enforcement = if from.flag()? { Enforcement::Shadow } else { Enforcement::Enforce };
    Ok(VerdictParts {
        level: *level,
        enforcement,
        cost: from.u32()?,
        remaining: from.u32()?,
        reset_after: Duration::from_micros(from.u64()?),
        retry_after: read_wait(from)?,
        receipt: from.optional(read_receipt)?,
        index: u16::try_from(from.u32()?).map_err(|_| Unreadable)?,
        counter: from.u64()?,
        nonce: from.u64()?,
        ..parts
    })
}

/// The key of an override: its scope.
pub(super) fn scope_key(scope: OverrideScope<'_>) -> Vec<u8> {
    let mut into = Writer::default();
    into.text(scope.endpoint()).text(scope.organisation_id());
    into.optional(scope.project_id(), |into, project| {
        into.text(project);
    });
    into.done()
}

pub(super) fn read_scope(key: &[u8]) -> Read<OverrideScope<'_>> {
    let mut from = Reader(key);
    let (endpoint, organisation) = (from.text()?, from.text()?);
    let project = from.optional(Reader::text)?;
    from.end()?;
    let scope = match project {
        Some(project) => OverrideScope::project(endpoint, organisation, project),
        None => OverrideScope::organisation(endpoint, organisation),
    };
    scope.map_err(|_| Unreadable)
}

pub(super) fn override_to(to: &Override) -> Vec<u8> {
    let mut into = Writer::default();
    into.u64(to.limit).optional(to.window, duration);
    into.optional(to.expires_at, |into, at| {
        into.u64(at.as_micros());
    });
    into.text(&to.reason).text(&to.author);
    into.done()
}

pub(super) fn read_override(bytes: &[u8]) -> Read<Override> {
    let mut from = Reader(bytes);
    let to = Override {
        limit: from.u64()?,
        window: from.optional(|from| Ok(Duration::from_micros(from.u64()?)))?,
        expires_at: from.optional(|from| Ok(Timestamp::from_micros(from.u64()?)))?,
        reason: from.text()?.to_owned(),
        author: from.text()?.to_owned(),
    };
    from.end()?;
    to.validate().map_err(|_| Unreadable)?;
    Ok(to)
}
