//! The store on Redis: what a batch costs us, and what the script costs the server.

use std::time::Duration;

use ratekeeper::store::redis::Rehearsal;
use ratekeeper::{Charge, Charges, Check, Key, Name, Override, OverrideScope, Quota, RedisStore, Store};
use tokio::runtime::{Builder, Runtime};

use crate::{PLENTY, Result, Run};

/// Checks in a batch.
const BATCH: usize = 16;
/// A server under callgrind takes its time.
const DEADLINE: Duration = Duration::from_secs(60);

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn store(run: &Run) -> Result<RedisStore> {
    Ok(RedisStore::builder(run.url()?).deadline(DEADLINE).build()?)
}

/// To make the bytes of a batch, and decisions of what a server once said to them.
pub(super) fn batch(run: &Run) -> Result<()> {
    let (name, quota) = (Name::new("per-user")?, PLENTY.parse()?);
    let subjects: Vec<String> = crate::keys("user").into_iter().take(BATCH).collect();
    let mut charges = Vec::new();
    for subject in &subjects {
        charges.push(Charge::new(Key::new(name, subject)?, &quota));
    }
    let checks: Vec<Check<'_>> = charges.iter().map(Check::one).collect();
    let runtime = runtime()?;
    let rehearsal: Rehearsal = runtime
        .block_on(async { Ok::<_, Box<dyn std::error::Error>>(store(run)?.rehearsal(&checks).await?) })?;
    run.count(|_| rehearsal.repeat(&checks).is_ok_and(|admitted| admitted == BATCH))
}

/// One token bucket, which the script has a short way for.
pub(super) fn short_way(run: &Run) -> Result<()> {
    ask_script(run, &[PLENTY])
}

/// Four quotas of one rule.
pub(super) fn four_tiers(run: &Run) -> Result<()> {
    ask_script(run, &[PLENTY, "200000/2d", "300000/3d", "400000/4d"])
}

/// Three quotas up to an hour and one of a day, which is in a key of its own.
pub(super) fn mixed_tiers(run: &Run) -> Result<()> {
    ask_script(run, &["1000000/m", "2000000/2m", "100000/h", PLENTY])
}

/// A fixed window whose project has a limit of its own.
pub(super) fn overridden(run: &Run) -> Result<()> {
    let quota: Quota = "1000/d fixed_window".parse()?;
    let subject = &crate::keys("user")[0];
    let scope = OverrideScope::project("/per-project", "42", "7")?;
    runtime()?.block_on(async {
        let store = store(run)?;
        store.overrides().set(scope, Override::limit(100_000)).await?;
        for number in 0..run.iterations {
            let key = Key::new(Name::new("per-project")?, subject)?;
            let charge = Charge::new(key, &quota).overridable(scope);
            let decision = store.check(&Check::one(&charge)).await?;
            if !decision.is_allowed() || decision.verdicts()[0].quota().limit() != 100_000 {
                return Err(format!("check {number} went wrong: {decision:?}").into());
            }
        }
        Ok(())
    })
}

/// One check after the other, all for one key: how soon a server finds one among others is another matter with
/// every start, because its hashes have a random seed. No warm-up, because what is counted is the server.
fn ask_script(run: &Run, quotas: &[&str]) -> Result<()> {
    let rule = Name::new("per-user")?;
    let mut tiers: Vec<(Name, Quota)> = Vec::new();
    for quota in quotas {
        tiers.push((Name::joined(rule, &format!("tier{}", tiers.len()))?, quota.parse()?));
    }
    let subject = &crate::keys("user")[0];
    runtime()?.block_on(async {
        let store = store(run)?;
        for number in 0..run.iterations {
            let mut charges = Charges::new();
            for (name, quota) in &tiers {
                charges.push(Charge::new(Key::new(*name, subject)?, quota))?;
            }
            let decision = store.check(&charges.check()?).await?;
            if !decision.is_allowed() || decision.verdicts().len() != tiers.len() {
                return Err(format!("check {number} went wrong: {decision:?}").into());
            }
        }
        Ok(())
    })
}
