//! Keys and quotas from the command line, without a policy.

use ratekeeper::{Charge, Charges, Decision, InvalidInput, Key, Name, Quota, Quotas};

use super::super::opened::{Opened, unanswered};
use crate::cli::CheckOptions;
use crate::failure::Failure;

/// A quota and whose it is.
pub(super) struct Limit {
    key: String,
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
        limits.extend(tiers(key, text).map_err(|error| swapped(key, Failure::new(error)))?);
    }
    Ok(limits)
}

fn tiers(key: &str, text: &str) -> Result<Vec<Limit>, InvalidInput> {
    let quotas: Quotas = text.parse()?;
    let limit = |(_, quota): (&str, Quota)| {
        // By its terms, so that several can be asked for under one key, and so that
        // whoever asks for the same one meets the same counter.
        Ok(Limit { key: key.to_owned(), name: Name::new(&quota.to_string())?, quota })
    };
    quotas.iter().map(limit).collect()
}

/// Who gives the quota before the key is told so.
fn swapped(key: &str, failure: Failure) -> Failure {
    if key.parse::<Quotas>().is_ok() {
        return failure.hint(format!("`{key}` is a quota: the key comes first, then its quotas"));
    }
    failure.hint(
        "quotas with blanks or braces go in quotation marks: 'ratekeeper check user:42 \"10/s burst 20\"'",
    )
}

pub(super) async fn decide(
    opened: &Opened,
    limits: &[Limit],
    options: &CheckOptions,
) -> Result<Decision, Failure> {
    let charges = charges(limits, options.cost).map_err(Failure::new)?;
    let check = charges.check().map_err(Failure::new)?;
    let check = if options.peek { check.peek() } else { check };
    let store = opened.store();
    store.check(&check).await.map_err(|error| unanswered(&error))
}

fn charges(limits: &[Limit], cost: u64) -> Result<Charges<'_>, InvalidInput> {
    let mut charges = Charges::new();
    for Limit { key, name, quota } in limits {
        charges.push(Charge::new(Key::new(*name, key)?, quota).cost(cost)?)?;
    }
    Ok(charges)
}
