//! Keys and quotas from the command line, without a policy: on the same counters as
//! `POST /v1/limit` of a server on the same store.

use ratekeeper::{Charge, Charges, Decision, Field, InvalidInput, Key, OpenedStore, Quota, Quotas, RawName};

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
    name: RawName<'static>,
    quota: Quota,
}

impl Limit {
    /// The quota as it was typed.
    pub(super) fn name(&self) -> &str {
        self.name.text()
    }
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
    let named = RawName::within(SPACE, name)?;
    if key.is_empty() {
        // Before something stands behind it.
        Key::raw(&named, key)?;
    }
    let quotas: Quotas = text.parse()?;
    let limit = |(tier, quota): (&str, Quota)| {
        let text = if tier.is_empty() { name.to_owned() } else { format!("{name}.{tier}") };
        let name = RawName::within(SPACE, text)?;
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
    for (index, Limit { subject, name, quota }) in (0..).zip(limits) {
        charges.push(Charge::new(Key::raw(name, subject)?, quota).at_index(index).cost(cost)?)?;
    }
    Ok(charges)
}

#[cfg(test)]
mod tests {
    use ratekeeper::MemoryStore;

    use super::*;

    /// Were each name a rule of its own, each would be below its share, and push out what a rule has.
    #[test]
    fn what_is_typed_is_one_rule_whatever_its_names() {
        let store = MemoryStore::with_max_keys(2_560);
        let (rule, quota) =
            (ratekeeper::Name::new("per-user").unwrap(), "100/h fixed_window".parse().unwrap());
        let users: Vec<String> = (0..100).map(|user| format!("user:{user}")).collect();
        let charge = |user| Charge::new(Key::new(rule, user).unwrap(), &quota);
        for user in &users {
            let charge = charge(user).cost(99).unwrap();
            assert!(store.decide(&ratekeeper::Check::one(&charge)).unwrap().is_allowed());
        }
        for call in 0..400 {
            let typed =
                (0..64).map(|number| limits_of(&format!("key{number}"), &format!("n{call}-{number}=1/h")));
            let limits: Vec<Limit> = typed.flat_map(Result::unwrap).collect();
            let charges = charges(&limits, 1).unwrap();
            assert!(store.decide(&charges.check().unwrap()).unwrap().is_allowed());
        }
        assert!(store.evicted() > 20_000, "{}", store.evicted());
        for user in &users {
            let peeked = charge(user);
            let decision = store.decide(&ratekeeper::Check::one(&peeked).peek()).unwrap();
            assert_eq!(decision.verdicts()[0].remaining(), 1, "{user}");
        }
    }
}
