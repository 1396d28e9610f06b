//! Keys and quotas from the command line, without a policy: on the same counters as
//! `POST /v1/limit` of a server on the same store.

use ratekeeper::{Charge, Charges, Decision, Field, InvalidInput, Key, Name, OpenedStore, Quota, Quotas};

use super::super::opened::unanswered;
use crate::cli::CheckOptions;
use crate::failure::Failure;

/// The name of a quota that has none.
const NAME_DEFAULT: &str = "limit";
/// Names are within it, where no service of a policy can be.
const SPACE: &str = "/limit";
/// Stands behind every key, so that none reads like a counter of Application Kit.
const BEHIND_KEYS: char = '.';

/// A quota and whose it is.
pub(super) struct Limit {
    subject: String,
    name: Name,
    quota: Quota,
}

/// What was typed, in this order: the quotas of KEY, then each `--and`.
pub(super) fn read(options: &CheckOptions) -> Result<Vec<Limit>, Failure> {
    let key = options.key.as_deref().unwrap_or_default();
    let of_key = options.quotas.iter().map(|quota| (key, quota.as_str()));
    let others = options.and.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
    let mut limits = Vec::new();
    for (key, text) in of_key.chain(others) {
        limits.extend(limits_of(key, text).map_err(|error| mistyped(key, &error))?);
    }
    Ok(limits)
}

/// `QUOTA` or `NAME=QUOTA`; tiers are quotas with names of their own.
fn limits_of(key: &str, text: &str) -> Result<Vec<Limit>, InvalidInput> {
    let (name, text) = match text.split_once('=') {
        Some((name, quota)) if !name.contains('{') => (name.trim(), quota),
        _ => (NAME_DEFAULT, text),
    };
    let name = Name::within(SPACE, name)?;
    if key.is_empty() {
        // Before something stands behind it.
        Key::new(name, key)?;
    }
    let quotas: Quotas = text.parse()?;
    let limit = |(tier, quota): (&str, Quota)| {
        let name = if tier.is_empty() { name } else { Name::joined(name, tier)? };
        Ok(Limit { subject: format!("{key}{BEHIND_KEYS}"), name, quota })
    };
    quotas.iter().map(limit).collect()
}

fn mistyped(key: &str, error: &InvalidInput) -> Failure {
    let failure = Failure::new(error);
    if key.parse::<Quotas>().is_ok() {
        return failure.hint(format!("`{key}` is a quota: the key comes first, then its quotas"));
    }
    failure.hint("blanks and braces need quotation marks: ratekeeper check user:42 '10/s burst 20'")
}

pub(super) async fn decide(
    opened: &OpenedStore,
    limits: &[Limit],
    options: &CheckOptions,
) -> Result<Decision, Failure> {
    let charges = charges(limits, options.cost).map_err(|error| {
        let failure = Failure::new(&error);
        match error.field {
            Field::Check => {
                failure.hint("name the quotas of one key: ratekeeper check user:42 second=10/s hour=1000/h")
            }
            _ => failure,
        }
    })?;
    let check = charges.check().map_err(Failure::new)?;
    let check = if options.peek { check.peek() } else { check };
    opened.store().check(&check).await.map_err(|error| unanswered(&error))
}

fn charges(limits: &[Limit], cost: u64) -> Result<Charges<'_>, InvalidInput> {
    let mut charges = Charges::new();
    for Limit { subject, name, quota } in limits {
        charges.push(Charge::new(Key::new(*name, subject)?, quota).cost(cost)?)?;
    }
    Ok(charges)
}
