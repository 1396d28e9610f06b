//! Keys and quotas from the command line, without a policy: on the same counters as
//! `POST /v1/limit` of a server on the same store.

use std::sync::Arc;

use ratekeeper::bounds::IDEMPOTENCY_DEFAULT;
use ratekeeper::{
    Decision, Engine, Field, InvalidInput, Key, OnOutage, OpenedStore, Quota, Quotas, RawCharge, RawName,
};
use ratekeeper_server::serve::api::{BEHIND_KEYS, NAME_DEFAULT, SPACE};

use super::super::opened::unanswered;
use crate::cli::CheckOptions;
use crate::failure::Failure;

/// What was typed, in this order: the quotas of KEY, then each `--and`.
pub(super) fn read(options: &CheckOptions) -> Result<Vec<RawCharge<'static>>, Failure> {
    let key = options.key.as_deref().unwrap_or_default();
    let of_key = options.quotas.iter().map(|quota| (key, quota.as_str()));
    let others = options.and.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
    let mut charges = Vec::new();
    for (key, text) in of_key.chain(others) {
        for charge in charges_of(key, text).map_err(|error| mistyped(key, &error))? {
            charges.push(charge.cost(options.cost).map_err(Failure::new)?);
        }
    }
    Ok(charges)
}

/// `QUOTA` or `NAME=QUOTA`; tiers are quotas with names of their own.
fn charges_of(key: &str, text: &str) -> Result<Vec<RawCharge<'static>>, InvalidInput> {
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
    let charge = |(tier, quota): (&str, Quota)| {
        let text = if tier.is_empty() { name.to_owned() } else { format!("{name}.{tier}") };
        let (name, subject) = (RawName::within(SPACE, text)?, format!("{key}{BEHIND_KEYS}"));
        Key::raw(&name, &subject)?;
        Ok(RawCharge::new(name, subject, quota))
    };
    quotas.iter().map(charge).collect()
}

fn mistyped(key: &str, error: &InvalidInput) -> Failure {
    let failure = Failure::new(error);
    if key.parse::<Quotas>().is_ok() {
        return failure.hint(format!("`{key}` is a quota: the key comes first, then its quotas"));
    }
    failure.hint("blanks and braces need quotation marks: ratekeeper check user:42 '10/s burst 20'")
}

/// Asks the engine, to which an outage is an error here.
pub(super) async fn decide(
    opened: &OpenedStore,
    charges: &[RawCharge<'_>],
    options: &CheckOptions,
) -> Result<Decision, Failure> {
    let engine = Arc::new(Engine::new(opened.store()));
    let mut demand = engine.raw(charges, OnOutage::Deny);
    if let Some(id) = &options.id {
        demand = demand.once(id.as_str(), IDEMPOTENCY_DEFAULT).map_err(Failure::new)?;
    }
    let strict = demand.strict();
    let decided = if options.peek { strict.peek().await } else { strict.check().await };
    decided.map_err(|error| {
        let failure = unanswered(&error);
        error.into_input().map_or(failure, |input| wrong(&input))
    })
}

fn wrong(error: &InvalidInput) -> Failure {
    let failure = Failure::new(error);
    match error.field {
        Field::Check => {
            failure.hint("name the quotas of one key: ratekeeper check user:42 second=10/s hour=1000/h")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper::{Charge, MemoryStore, Store};

    use super::*;

    /// Were each name a rule of its own, each would be below its share, and push out what a rule has.
    #[test]
    fn what_is_typed_is_one_rule_whatever_its_names() {
        let store = Arc::new(MemoryStore::with_max_keys(2_560));
        let engine = Arc::new(Engine::new(Arc::clone(&store) as Arc<dyn Store>));
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
                (0..64).map(|number| charges_of(&format!("key{number}"), &format!("n{call}-{number}=1/h")));
            let charges: Vec<RawCharge<'_>> = typed.flat_map(Result::unwrap).collect();
            let mut decision = Decision::default();
            let demand = engine.raw(&charges, OnOutage::Deny);
            demand.strict().try_check(&mut decision).unwrap().unwrap();
            assert!(decision.is_allowed());
        }
        assert!(store.evicted() > 20_000, "{}", store.evicted());
        for user in &users {
            let peeked = charge(user);
            let decision = store.decide(&ratekeeper::Check::one(&peeked).peek()).unwrap();
            assert_eq!(decision.verdicts()[0].remaining(), 1, "{user}");
        }
    }
}
