//! The other limiters, each asked the way its documentation shows.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU32;
use std::time::SystemTime;

use governor::DefaultKeyedRateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::in_memory::InMemoryStorage;
use parking_lot::Mutex;
use pingora_limits::rate::Rate;
use throttlecrab::{AdaptiveStore, CellError};

use crate::Result;
use crate::key::KeyText;
use crate::measure::{Contestant, Tally, Work};
use crate::scenario::{Load, Terms};

/// Tries after which a limit of 1 or 2 must have denied one.
const TRIES_MAX: u32 = 10;

/// Makes the counters of all `keys`: one check each, or as many as it takes
/// until one is denied.
fn fill(load: Load, keys: u32, mut check: impl FnMut(&String) -> Result<bool>) -> Result<()> {
    let mut key = KeyText::new("user");
    for index in 0..keys {
        key.set(index);
        let mut tries = 1;
        while check(key.text())? == (load == Load::Denied) {
            tries += 1;
            if load == Load::Admitted || tries > TRIES_MAX {
                return Err(format!("key {index} is not {} after {tries} tries", load.name()).into());
            }
        }
    }
    Ok(())
}

/// governor: a `RateLimiter` over `DashMap` with its default hash and clock.
pub struct Governor(DefaultKeyedRateLimiter<String>);

impl Governor {
    /// With the counters of all `keys`.
    ///
    /// # Errors
    /// If the terms are not a quota.
    pub fn new(load: Load, keys: u32) -> Result<Self> {
        let governor = Self(governor::RateLimiter::dashmap(governor_quota(load.terms())?));
        fill(load, keys, |key| Ok(governor.0.check_key(key).is_ok()))?;
        Ok(governor)
    }
}

/// governor's quota for a limit.
///
/// # Errors
/// If the limit or the window is 0.
pub fn governor_quota(terms: Terms) -> Result<governor::Quota> {
    let burst = NonZeroU32::new(terms.limit).ok_or("a limit of 0")?;
    let quota = governor::Quota::with_period(terms.window / terms.limit).ok_or("a window of 0")?;
    Ok(quota.allow_burst(burst))
}

impl Contestant for Governor {
    fn run(&self, work: &Work<'_>) -> Tally {
        work.drive(|_, key| Ok::<_, Infallible>(self.0.check_key(key).is_ok()))
    }
}

impl fmt::Debug for Governor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Governor").finish_non_exhaustive()
    }
}

/// Limitador in memory: one limit with the key as its variable. The context
/// carries the key, so it is built for every check, as its server does.
pub struct Limitador {
    limiter: limitador::RateLimiter,
    namespace: Namespace,
}

/// The entries its cache may hold: room for all keys.
const LIMITADOR_CACHE: u64 = 4_000_000;

impl Limitador {
    /// With the counters of all `keys`.
    ///
    /// # Errors
    /// If the limit is not one.
    pub fn new(load: Load, keys: u32) -> Result<Self> {
        let Terms { limit, window } = load.terms();
        let storage = Box::new(InMemoryStorage::new(LIMITADOR_CACHE));
        let limiter = limitador::RateLimiter::new_with_storage(storage);
        let variable = "user_id".try_into().map_err(|error| format!("{error:?}"))?;
        limiter.add_limit(Limit::new("bench", limit.into(), window.as_secs(), [], [variable]));
        let limitador = Self { limiter, namespace: "bench".into() };
        fill(load, keys, |key| Ok(limitador.check(key)?))?;
        Ok(limitador)
    }

    #[inline]
    fn check(&self, key: &str) -> Result<bool, limitador::errors::LimitadorError> {
        let context = Context::from(HashMap::from([("user_id".to_owned(), key.to_owned())]));
        let result = self.limiter.check_rate_limited_and_update(&self.namespace, &context, 1)?;
        Ok(!result.limited)
    }
}

impl Contestant for Limitador {
    fn run(&self, work: &Work<'_>) -> Tally {
        work.drive(|_, key| self.check(key))
    }
}

impl fmt::Debug for Limitador {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limitador").finish_non_exhaustive()
    }
}

/// throttlecrab: its checks take `&mut self`, so one thread has it to itself
/// and two share it behind a mutex. The caller reads the clock.
pub struct Throttlecrab {
    limiter: Mutex<throttlecrab::RateLimiter<AdaptiveStore>>,
    terms: Terms,
}

/// The least burst with which it limits at all: with a burst of 1 it keeps an
/// entry for no time, forgets it, and admits everything.
const THROTTLECRAB_BURST_MIN: u32 = 2;

impl Throttlecrab {
    /// With the counters of all `keys`.
    ///
    /// # Errors
    /// If the limit is not one.
    pub fn new(load: Load, keys: u32) -> Result<Self> {
        // With less room it looks through all entries on every write.
        let store = AdaptiveStore::with_capacity(keys as usize);
        let mut limiter = throttlecrab::RateLimiter::new(store);
        let terms = load.terms();
        fill(load, keys, |key| Ok(throttlecrab_check(&mut limiter, key, terms, SystemTime::now())?))?;
        Ok(Self { limiter: Mutex::new(limiter), terms })
    }
}

/// One check with throttlecrab.
///
/// # Errors
/// If the limit is not one.
#[inline]
pub fn throttlecrab_check(
    limiter: &mut throttlecrab::RateLimiter<AdaptiveStore>,
    key: &str,
    terms: Terms,
    now: SystemTime,
) -> Result<bool, CellError> {
    let burst = terms.limit.max(THROTTLECRAB_BURST_MIN).into();
    let period = terms.window.as_secs().cast_signed();
    let (passed, _) = limiter.rate_limit(key, burst, terms.limit.into(), period, 1, now)?;
    Ok(passed)
}

impl Contestant for Throttlecrab {
    fn run(&self, work: &Work<'_>) -> Tally {
        if work.alone {
            let mut limiter = self.limiter.lock();
            return work.drive(|_, key| throttlecrab_check(&mut limiter, key, self.terms, SystemTime::now()));
        }
        work.drive(|_, key| {
            let now = SystemTime::now();
            throttlecrab_check(&mut self.limiter.lock(), key, self.terms, now)
        })
    }
}

impl fmt::Debug for Throttlecrab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttlecrab").finish_non_exhaustive()
    }
}

/// pingora-limits: counts in a sketch of fixed size. Keys that collide share
/// their counts, and a denied request counts too.
pub struct Pingora {
    rate: Rate,
    limit: isize,
}

impl Pingora {
    /// With all `keys` counted.
    ///
    /// # Errors
    /// If it admits what it should deny, or denies what it should admit.
    pub fn new(load: Load, keys: u32) -> Result<Self> {
        let Terms { limit, window } = load.terms();
        let pingora = Self { rate: Rate::new(window), limit: isize::try_from(limit)? };
        fill(load, keys, |key| Ok(pingora.rate.observe(key, 1) <= pingora.limit))?;
        Ok(pingora)
    }
}

impl Contestant for Pingora {
    fn run(&self, work: &Work<'_>) -> Tally {
        work.drive(|_, key| Ok::<_, Infallible>(self.rate.observe(key, 1) <= self.limit))
    }
}

impl fmt::Debug for Pingora {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pingora").finish_non_exhaustive()
    }
}
