//! Our own store, asked in three ways.

use ratekeeper::{Charge, Charges, Check, Decision, Key, MemoryStore, Name, Quota, Store, StoreError};

use crate::Result;
use crate::key::KeyText;
use crate::measure::{Contestant, Tally, Work};
use crate::scenario::Load;

/// The bound on counters: above three quotas on 10^6 keys.
const MAX_KEYS: usize = 4_000_000;
/// Units taken from every counter when it is made, where all are admitted: at
/// 0.1 ms a unit the counter is in use for almost three hours. One whose quota
/// is full again is as good as none: the store would drop it, and we would
/// measure making counters instead of finding them.
const FIRST_COST: u64 = 100_000_000;

/// The name and the quota of the rows with one quota.
///
/// # Errors
/// Never, unless the limits of names and quotas change.
pub fn one_quota(load: Load) -> Result<(Name, Quota)> {
    let terms = load.terms();
    Ok((Name::new("per-user")?, Quota::token_bucket(terms.limit.into(), terms.window)?))
}

/// A store that holds the counters of all `keys` under [`one_quota`].
///
/// # Errors
/// If the store is too small.
pub fn filled_store(load: Load, keys: u32) -> Result<MemoryStore> {
    let store = MemoryStore::with_max_keys(MAX_KEYS);
    let (name, quota) = one_quota(load)?;
    let mut key = KeyText::new("user");
    for index in 0..keys {
        key.set(index);
        store.decide(&Check::one(&first(load, Charge::new(Key::new(name, key.text())?, &quota))?))?;
    }
    expect_counters(&store, u64::from(keys))?;
    Ok(store)
}

/// The charge that makes a counter.
fn first(load: Load, charge: Charge<'_>) -> Result<Charge<'_>> {
    match load {
        Load::Admitted => Ok(charge.cost(FIRST_COST)?),
        Load::Denied => Ok(charge),
    }
}

/// Whether a store holds as many counters as it should.
///
/// # Errors
/// If it does not.
pub fn expect_counters(store: &MemoryStore, expected: u64) -> Result<()> {
    let got = store.len() as u64;
    if got == expected { Ok(()) } else { Err(format!("{got} counters instead of {expected}").into()) }
}

/// `try_check` of one quota, into a decision that is used again.
#[derive(Debug)]
pub struct TryCheck {
    store: MemoryStore,
    name: Name,
    quota: Quota,
}

impl TryCheck {
    /// With the counters of all `keys`.
    ///
    /// # Errors
    /// If the store is too small.
    pub fn new(load: Load, keys: u32) -> Result<Self> {
        let (name, quota) = one_quota(load)?;
        Ok(Self { store: filled_store(load, keys)?, name, quota })
    }
}

impl Contestant for TryCheck {
    fn run(&self, work: &Work<'_>) -> Tally {
        let mut decision = Decision::default();
        work.drive(|_, key| {
            let charge = Charge::new(Key::new(self.name, key)?, &self.quota);
            answered(self.store.try_check(&Check::one(&charge), &mut decision))?;
            Ok::<_, StoreError>(decision.is_allowed())
        })
    }
}

/// The answer of a store that needs no I/O.
#[inline]
fn answered(answer: Option<Result<(), StoreError>>) -> Result<(), StoreError> {
    answer.unwrap_or_else(|| Err(StoreError::capacity("the memory store asked for I/O")))
}

/// `decide` of one quota, the decision by value.
#[derive(Debug)]
pub struct Decide(TryCheck);

impl Decide {
    /// With the counters of all `keys`.
    ///
    /// # Errors
    /// If the store is too small.
    pub fn new(load: Load, keys: u32) -> Result<Self> {
        TryCheck::new(load, keys).map(Self)
    }
}

impl Contestant for Decide {
    fn run(&self, work: &Work<'_>) -> Tally {
        let TryCheck { store, name, quota } = &self.0;
        work.drive(|_, key| {
            let charge = Charge::new(Key::new(*name, key)?, quota);
            Ok::<_, StoreError>(store.decide(&Check::one(&charge))?.is_allowed())
        })
    }
}

/// Three quotas on three keys in one all-or-nothing check. The keys are as
/// many in every layer and drawn alike, so it is three look-ups of the same
/// kind as the one of the other rows, in a store of three times the size.
#[derive(Debug)]
pub struct Layered {
    store: MemoryStore,
    layers: [(Name, Quota); 3],
}

impl Layered {
    /// With the counters of all `keys` in all layers.
    ///
    /// # Errors
    /// If the store is too small.
    pub fn new(load: Load, keys: u32) -> Result<Self> {
        let (user, quota) = one_quota(load)?;
        let layers = [(user, quota), (Name::new("per-project")?, quota), (Name::new("per-address")?, quota)];
        let layered = Self { store: MemoryStore::with_max_keys(MAX_KEYS), layers };
        let mut subjects = ["user", "proj", "addr"].map(KeyText::new);
        for index in 0..keys {
            subjects.iter_mut().for_each(|subject| subject.set(index));
            for ((name, quota), subject) in layered.layers.iter().zip(&subjects) {
                let charge = Charge::new(Key::new(*name, subject.text())?, quota);
                layered.store.decide(&Check::one(&first(load, charge)?))?;
            }
        }
        expect_counters(&layered.store, 3 * u64::from(keys))?;
        Ok(layered)
    }

    #[inline]
    fn check(&self, subjects: [&String; 3], decision: &mut Decision) -> Result<bool, StoreError> {
        let mut charges = Charges::new();
        for ((name, quota), subject) in self.layers.iter().zip(subjects) {
            charges.push(Charge::new(Key::new(*name, subject)?, quota))?;
        }
        answered(self.store.try_check(&charges.check()?, decision))?;
        Ok(decision.is_allowed())
    }
}

impl Contestant for Layered {
    fn run(&self, work: &Work<'_>) -> Tally {
        let mut decision = Decision::default();
        let (mut project, mut address) = (KeyText::new("proj"), KeyText::new("addr"));
        work.drive(|index, user| {
            project.set(index);
            address.set(index);
            self.check([user, project.text(), address.text()], &mut decision)
        })
    }
}
