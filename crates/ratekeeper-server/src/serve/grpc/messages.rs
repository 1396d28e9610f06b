//! The messages of Envoy's rate limit service and of health checks, from bytes and to bytes.
//!
//! Trimmed from `envoy/service/ratelimit/v3/rls.proto`, `envoy/extensions/common/ratelimit/v3/ratelimit.proto` and
//! `grpc/health/v1/health.proto`; a test holds them against the whole API of Envoy, in both directions. A field that is
//! none of ours is passed over, as is one of another type.

use std::borrow::Cow;

use super::wire::{Fields, Malformed, Message, Value};
use crate::serve::api::{EnvoyAnswer, EnvoyCall, EnvoyDescriptor, EnvoyLimit, EnvoyStatus};

/// The most descriptors in a call.
pub const DESCRIPTORS_MAX: usize = 64;
/// The most entries in a descriptor.
pub const ENTRIES_MAX: usize = 64;

/// Why bytes are no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    Malformed,
    Descriptors,
    Entries,
}

impl From<Malformed> for Unread {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// `RateLimitRequest`.
pub(super) fn read_call(message: &[u8]) -> Result<EnvoyCall<'_>, Unread> {
    let mut call = EnvoyCall::default();
    for field in Fields::of(message) {
        match field? {
            (1, value) => call.domain = value.text().unwrap_or(call.domain),
            (2, Value::Bytes(_)) if call.descriptors.len() == DESCRIPTORS_MAX => {
                return Err(Unread::Descriptors);
            }
            (2, Value::Bytes(bytes)) => call.descriptors.push(read_descriptor(bytes)?),
            // A `uint32` is as much as fits of what was sent.
            (3, Value::Number(hits)) => call.hits = hits as u32,
            _ => {}
        }
    }
    Ok(call)
}

/// `RateLimitDescriptor`.
fn read_descriptor(message: &[u8]) -> Result<EnvoyDescriptor<'_>, Unread> {
    let (mut read, mut entries) = (EnvoyDescriptor::default(), Vec::new());
    for field in Fields::of(message) {
        match field? {
            (1, Value::Bytes(_)) if entries.len() == ENTRIES_MAX => return Err(Unread::Entries),
            (1, Value::Bytes(bytes)) => entries.push(read_entry(bytes)?),
            (2, Value::Bytes(bytes)) => {
                read.limit = Some(read_override(bytes, read.limit.unwrap_or_default())?);
            }
            (3, Value::Bytes(bytes)) => read.hits = Some(read_wrapped(bytes, read.hits.unwrap_or(0))?),
            (4, Value::Number(is_negative)) => read.is_negative = is_negative != 0,
            _ => {}
        }
    }
    read.descriptor = entries.into_iter().collect();
    Ok(read)
}

/// `RateLimitDescriptor.Entry`.
fn read_entry(message: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>), Malformed> {
    let mut entry = (Cow::Borrowed(""), Cow::Borrowed(""));
    for field in Fields::of(message) {
        match field? {
            (1, value) => entry.0 = value.text().unwrap_or(entry.0),
            (2, value) => entry.1 = value.text().unwrap_or(entry.1),
            _ => {}
        }
    }
    Ok(entry)
}

/// `RateLimitOverride`. What comes later stands above what came before.
fn read_override(message: &[u8], mut limit: (u32, u64)) -> Result<(u32, u64), Malformed> {
    for field in Fields::of(message) {
        match field? {
            (1, Value::Number(requests)) => limit.0 = requests as u32,
            (2, Value::Number(unit)) => limit.1 = unit,
            _ => {}
        }
    }
    Ok(limit)
}

/// `google.protobuf.UInt64Value`.
fn read_wrapped(message: &[u8], mut number: u64) -> Result<u64, Malformed> {
    for field in Fields::of(message) {
        if let (1, Value::Number(found)) = field? {
            number = found;
        }
    }
    Ok(number)
}

/// `RateLimitResponse`.
pub(super) fn write_answer(answer: &EnvoyAnswer) -> Vec<u8> {
    let mut message = Message(Vec::with_capacity(512));
    message.number(1, code(answer.is_over));
    for status in &answer.statuses {
        message.message(2, |message| write_status(message, status));
    }
    for (name, value) in &answer.fields {
        message.message(3, |field| {
            field.text(1, name);
            field.text(2, value);
        });
    }
    message.text(5, &answer.body);
    message.0
}

/// `RateLimitResponse.Code`: `OK` or `OVER_LIMIT`.
fn code(is_over: bool) -> u64 {
    if is_over { 2 } else { 1 }
}

/// `RateLimitResponse.DescriptorStatus`.
fn write_status(message: &mut Message, status: &EnvoyStatus) {
    message.number(1, code(status.is_over));
    let Some(EnvoyLimit { requests, unit, name, remaining, reset_after }) = status.limit else { return };
    message.message(2, |limit| {
        limit.number(1, requests.into());
        limit.number(2, unit);
        limit.text(3, name);
    });
    message.number(3, remaining.into());
    message.message(4, |duration| {
        duration.number(1, reset_after.as_secs());
        duration.number(2, reset_after.subsec_nanos().into());
    });
}

/// The service that a `HealthCheckRequest` is about.
pub(super) fn read_service(message: &[u8]) -> Result<Cow<'_, str>, Malformed> {
    let mut service = Cow::Borrowed("");
    for field in Fields::of(message) {
        if let (1, value) = field? {
            service = value.text().unwrap_or(service);
        }
    }
    Ok(service)
}

/// `HealthCheckResponse`.
pub(super) fn write_health(status: u64) -> Vec<u8> {
    let mut message = Message::default();
    message.number(1, status);
    message.0
}
