//! The store in memory, and rules in code on top of it.

use ratekeeper::{
    Charge, Charges, Check, Decision, InvalidInput, Key, Limiter, MemoryStore, Name, Quota, Rule, Store,
};

use crate::{PLENTY, Result, Run, keys, of};

/// One quota, admitted.
pub(super) fn admitted(run: &Run) -> Result<()> {
    let asked = OneQuota::new(PLENTY)?;
    let mut decision = Decision::default();
    run.count(|number| asked.check(number, &mut decision) && decision.is_allowed())
}

/// One quota, admitted by a store whose counters are saved in a directory.
pub(super) fn in_a_directory(run: &Run) -> Result<()> {
    let directory = std::env::temp_dir().join(format!("ratekeeper-instructions-{}", std::process::id()));
    let store = MemoryStore::builder().open(&directory)?;
    let asked = OneQuota { store, ..OneQuota::new(PLENTY)? };
    let mut decision = Decision::default();
    let counted = run.count(|number| asked.check(number, &mut decision) && decision.is_allowed());
    drop(asked);
    std::fs::remove_dir_all(&directory)?;
    counted
}

/// One quota, denied: the first step of each key uses it up.
pub(super) fn denied(run: &Run) -> Result<()> {
    let asked = OneQuota::new("1/d")?;
    let mut decision = Decision::default();
    let mut used_up = 0;
    run.count(|number| {
        used_up += 1;
        asked.check(number, &mut decision) && decision.is_allowed() == (used_up <= crate::KEYS)
    })
}

/// Three quotas on three keys in one check.
pub(super) fn three_quotas(run: &Run) -> Result<()> {
    let (store, quota) = (MemoryStore::new(), PLENTY.parse()?);
    let names = [Name::new("per-user")?, Name::new("per-project")?, Name::new("per-address")?];
    let subjects = ["user", "proj", "addr"].map(keys);
    let mut decision = Decision::default();
    run.count(|number| {
        let subjects = subjects.each_ref().map(|keys| of(keys, number).as_str());
        check_three(&store, names, subjects, &quota, &mut decision).is_ok_and(|answered| answered)
            && decision.is_allowed()
    })
}

fn check_three(
    store: &MemoryStore,
    names: [Name; 3],
    subjects: [&str; 3],
    quota: &Quota,
    decision: &mut Decision,
) -> Result<bool, InvalidInput> {
    let mut charges = Charges::new();
    for (name, subject) in names.into_iter().zip(subjects) {
        charges.push(Charge::new(Key::new(name, subject)?, quota))?;
    }
    Ok(matches!(store.try_check(&charges.check()?, decision), Some(Ok(()))))
}

/// A rule in code with one quota.
pub(super) fn limiter(run: &Run) -> Result<()> {
    let rule = Rule::new("per-user", |key: &str| Some(key.into())).quotas(PLENTY);
    let limiter = Limiter::<str>::builder(MemoryStore::new()).rule(rule).build()?;
    let keys = keys("user");
    run.count(|number| {
        let key: &String = of(&keys, number);
        limiter.check_now(key).is_ok_and(|decision| decision.is_allowed())
    })
}

struct OneQuota {
    store: MemoryStore,
    name: Name,
    quota: Quota,
    keys: Vec<String>,
}

impl OneQuota {
    fn new(quota: &str) -> Result<Self> {
        let (name, quota) = (Name::new("per-user")?, quota.parse()?);
        Ok(Self { store: MemoryStore::new(), name, quota, keys: keys("user") })
    }

    /// Whether it was answered.
    fn check(&self, number: u64, decision: &mut Decision) -> bool {
        let Ok(key) = Key::new(self.name, of(&self.keys, number)) else { return false };
        let charge = Charge::new(key, &self.quota);
        matches!(self.store.try_check(&Check::one(&charge), decision), Some(Ok(())))
    }
}
