//! What sentinels say of a service, each by itself and all together.

use std::collections::BTreeSet;

use ratekeeper::OpenedStore;
use ratekeeper::store::ServerParts;
use ratekeeper::store::redis::SentinelAnswer;

use super::finding::{Finding, Severity};
use crate::commands::opened::Address;

const CHECK: &str = "sentinels";

/// Asks the sentinels where the server is, if the URL names any.
pub(super) async fn look(address: &Address, store: &OpenedStore) -> (Vec<Finding>, Option<ServerParts>) {
    let named = address.url.server_parts();
    let OpenedStore::Redis(store) = store else { return (Vec::new(), named) };
    let Some((answers, found)) = store.sentinels().await else { return (Vec::new(), named) };
    let mut findings: Vec<Finding> = answers.iter().filter_map(amiss).collect();
    match found {
        Ok(server) => {
            findings.insert(0, agreed(&answers, &format!("{}:{}", server.host, server.port)));
            findings.extend(alone(&answers));
            (findings, Some(server))
        }
        Err(error) => {
            let fix = "correct the sentinels and the name of the service in the URL; \
                       `redis-cli -p 26379 SENTINEL MASTERS` lists what a sentinel knows";
            findings.insert(0, Finding::error(CHECK, error.to_string()).fix(fix));
            (findings, None)
        }
    }
}

fn amiss(answer: &SentinelAnswer) -> Option<Finding> {
    let why = answer.primary.as_ref().err()?;
    let fix = "start it, or correct it in the URL: while it is away, fewer can tell of a failover";
    Some(Finding::warning(CHECK, format!("{} {why}", answer.address)).fix(fix))
}

fn agreed(answers: &[SentinelAnswer], primary: &str) -> Finding {
    let places: BTreeSet<&str> = answers.iter().filter_map(|answer| answer.primary.as_deref().ok()).collect();
    let says = |answer: &&SentinelAnswer| answer.primary.as_deref().is_ok_and(|place| place == primary);
    let found = format!("{} of {} say {primary}", answers.iter().filter(says).count(), answers.len());
    if places.len() > 1 {
        let places = places.into_iter().collect::<Vec<_>>().join(", ");
        let fix = "run doctor again after a failover; if it stays, name sentinels of one group only";
        return Finding::warning(CHECK, format!("they disagree ({places}): {found}")).fix(fix);
    }
    Finding::ok(CHECK, found)
}

fn alone(answers: &[SentinelAnswer]) -> Option<Finding> {
    (answers.len() == 1).then(|| {
        let found = "the URL names one: while it is away, nobody says where the primary is";
        Finding::new(CHECK, Severity::Note, found).fix("name all of them, with commas in between")
    })
}
