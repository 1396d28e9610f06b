//! Whether the server decides, and how soon: decisions of every kind on keys of our own.

use std::time::{Duration, Instant};

use ratekeeper::bounds::LIMIT_MAX;
use ratekeeper::{Charge, Charges, InvalidInput, Key, Name, OpenedStore, Quota, Store, StoreError};

use super::finding::Finding;
use crate::commands::opened::advice;
use crate::commands::version;

/// How often to ask in order to know how long it takes.
const ROUNDS: usize = 20;
/// Every kind of state that the script keeps.
const QUOTAS: [&str; 4] = ["10/s", "10/s fixed_window", "10/s sliding_log", "10/s concurrency"];

/// `deadline` is how long services let it be silent.
pub(super) async fn look(store: &OpenedStore, deadline: Duration) -> Vec<Finding> {
    if let Err(error) = store.ping().await {
        return vec![failed("script", &error)];
    }
    let mut findings = vec![Finding::ok("script", format!("sha1 {} runs", version::digest()))];
    findings.push(match decide(&*store.store()).await {
        Ok(()) => Finding::ok("decision", "charged, refunded and forgotten, in every kind of counter"),
        Err(error) => failed("decision", &error),
    });
    findings.push(match durations(store).await {
        Ok(durations) => latency(&durations, deadline),
        Err(error) => failed("latency", &error),
    });
    findings
}

fn failed(check: &'static str, error: &StoreError) -> Finding {
    let finding = Finding::error(check, error.to_string());
    match advice(error.kind()) {
        Some(fix) => finding.fix(fix),
        None => finding,
    }
}

/// One decision on all of them, given back and forgotten.
async fn decide(store: &dyn Store) -> Result<(), StoreError> {
    let subject = format!("{:016x}", fastrand::u64(..));
    let quotas = QUOTAS.iter().map(|text| text.parse::<Quota>()).collect::<Result<Vec<_>, _>>()?;
    let charges = charges(&subject, &quotas)?;
    let check = charges.check()?;
    let decision = store.check(&check).await?;
    store.refund(&check, &decision, LIMIT_MAX).await?;
    for charge in check.charges() {
        store.reset(charge.key(), charge.quota().algorithm()).await?;
    }
    Ok(())
}

fn charges<'c>(subject: &'c str, quotas: &'c [Quota]) -> Result<Charges<'c>, InvalidInput> {
    let mut charges = Charges::new();
    for quota in quotas {
        let name = Name::joined(Name::new("doctor")?, quota.algorithm().as_str())?;
        charges.push(Charge::new(Key::new(name, subject)?, quota))?;
    }
    Ok(charges)
}

/// How long an empty decision takes, again and again.
async fn durations(store: &OpenedStore) -> Result<Vec<Duration>, StoreError> {
    let mut durations = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        store.ping().await?;
        durations.push(begun.elapsed());
    }
    durations.sort_unstable();
    Ok(durations)
}

/// `durations` are sorted.
fn latency(durations: &[Duration], deadline: Duration) -> Finding {
    let (median, worst) = (durations[durations.len() / 2], durations[durations.len() - 1]);
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    let found = format!(
        "{:.2} ms for a round trip, at worst {:.2} ms of {}",
        millis(median),
        millis(worst),
        durations.len()
    );
    let said = format!("the deadline is {} ms", deadline.as_millis());
    let fix = "a server in the same zone, or a longer deadline (`serve --store-deadline MS`); look at its SLOWLOG, \
               at its load and at the network";
    if median > deadline {
        return Finding::error("latency", format!("{found}; {said}, so most checks would miss it")).fix(fix);
    }
    if worst > deadline {
        return Finding::warning("latency", format!("{found}; {said}, so some would miss it")).fix(fix);
    }
    Finding::ok("latency", found)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn latencies_are_held_against_the_deadline() {
        let within = |deadline, millis: [u64; 3]| {
            latency(&millis.map(Duration::from_millis), Duration::from_millis(deadline)).severity
        };
        assert_eq!(within(100, [1, 26, 99]), Severity::Ok);
        assert_eq!(within(10, [1, 2, 11]), Severity::Warning);
        let of = |millis| within(25, millis);
        assert_eq!(of([1, 2, 25]), Severity::Ok);
        assert_eq!(of([1, 2, 26]), Severity::Warning);
        assert_eq!(of([1, 26, 26]), Severity::Error);
    }
}
