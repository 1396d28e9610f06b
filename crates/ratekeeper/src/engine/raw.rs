//! Charges that a caller spells out: key, quota and cost, without a rule.
//!
//! The HTTP API, the command line and Python's `Store` make them. Names are the caller's: they are kept as
//! long as the call, and a decision refers to them by index ([`Labels`](ratekeeper_core::Labels)).

use std::borrow::Cow;
use std::sync::Arc;

use ratekeeper_core::{
    Algorithm, COST_BEYOND, Emergency, Enforcement, Field, InvalidInput, LIMIT_MAX, Name, OverrideScope,
    Quota, RawName, Timestamp,
};

use super::{Asked, Demand, Endpoints, Engine, Held, Limits, OnOutage, OwnerNames, Terms};
use crate::control::{ALL_RULES, Switches};

/// What the HTTP API and the command line put behind the keys that callers say.
const KEY_END: char = '.';

/// One quota, one key, one cost, as a caller asks for them.
#[derive(Clone, Debug)]
pub struct RawCharge<'a> {
    name: RawName<'a>,
    subject: Cow<'a, str>,
    quota: [(Name, Quota); 1],
    cost: u64,
    is_flat: bool,
    any_window: bool,
    enforcement: Enforcement,
    emergency: Emergency,
    owner: Option<Box<OwnerNames<'a>>>,
}

impl<'a> RawCharge<'a> {
    /// One unit of `quota` for `key`, under a name of the caller's.
    #[must_use]
    pub fn new(name: RawName<'a>, key: impl Into<Cow<'a, str>>, quota: Quota) -> Self {
        Self {
            name,
            subject: key.into(),
            quota: [(Name::RAW, quota)],
            cost: 1,
            is_flat: false,
            any_window: false,
            enforcement: Enforcement::Enforce,
            emergency: Emergency::Off,
            owner: None,
        }
    }

    /// Asks for `cost` units.
    ///
    /// # Errors
    /// If that is more than 10^9.
    pub fn cost(self, cost: u64) -> Result<Self, InvalidInput> {
        if cost > LIMIT_MAX.into() {
            let expected = format!("a whole number from 0 to {LIMIT_MAX}");
            return Err(InvalidInput::new(Field::Cost, cost, expected));
        }
        Ok(Self { cost, ..self })
    }

    /// Asks for `cost` units. More than 10^9 are denied, like any cost that a quota has no room for: for
    /// costs that come from requests.
    #[must_use]
    pub fn any_cost(self, cost: u64) -> Self {
        Self { cost: cost.min(COST_BEYOND.into()), ..self }
    }

    /// Whether it can deny the check.
    #[must_use]
    pub fn enforcement(self, enforcement: Enforcement) -> Self {
        Self { enforcement, ..self }
    }

    /// Lifted or blocked by an operator.
    #[must_use]
    pub fn emergency(self, emergency: Emergency) -> Self {
        Self { emergency, ..self }
    }

    /// Keeps the cost as it is when a reservation is settled with another amount.
    #[must_use]
    pub fn flat(self) -> Self {
        Self { is_flat: true, ..self }
    }

    /// Counts a fixed window in one counter, however long it is: for callers that do not know that when they look.
    /// It keeps its end. Of other algorithms a shorter window would end a longer one, so each has its own counter.
    #[must_use]
    pub fn any_window(self) -> Self {
        Self { any_window: self.quota[0].1.algorithm() == Algorithm::FixedWindow, ..self }
    }

    /// Lets overrides replace the quota: those of a project, or with `None` of the organisation.
    ///
    /// # Errors
    /// If these cannot be the names of an override.
    pub fn overridable(
        self,
        endpoint: impl Into<Cow<'a, str>>,
        organisation: impl Into<Cow<'a, str>>,
        project: Option<Cow<'a, str>>,
    ) -> Result<Self, InvalidInput> {
        let owner = OwnerNames {
            organisation: organisation.into(),
            project,
            endpoints: Endpoints::One(endpoint.into()),
        };
        owner.scope(0, Name::RAW).map(|_: OverrideScope<'_>| ())?;
        Ok(Self { owner: Some(Box::new(owner)), ..self })
    }

    /// The key it counts under.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.subject
    }

    /// The caller's name for it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.text()
    }

    /// The quota it asks for.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota[0].1
    }

    /// Units it asks for.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.cost
    }

    fn into_owned(self) -> RawCharge<'static> {
        RawCharge {
            name: self.name.into_owned(),
            subject: Cow::Owned(self.subject.into_owned()),
            quota: self.quota,
            cost: self.cost,
            is_flat: self.is_flat,
            any_window: self.any_window,
            enforcement: self.enforcement,
            emergency: self.emergency,
            owner: self.owner.map(|owner| Box::new(owner.into_owned())),
        }
    }
}

/// A raw charge: the caller's, or kept for longer.
#[derive(Clone, Debug)]
pub(crate) enum RawRef<'a> {
    Borrowed(&'a RawCharge<'a>),
    Owned(Box<RawCharge<'static>>),
}

impl RawRef<'_> {
    fn charge(&self) -> &RawCharge<'_> {
        match self {
            RawRef::Borrowed(charge) => charge,
            RawRef::Owned(charge) => charge,
        }
    }

    pub(super) fn name(&self) -> &RawName<'_> {
        &self.charge().name
    }

    pub(super) fn quotas(&self) -> &[(Name, Quota)] {
        &self.charge().quota
    }

    pub(super) fn is_in_any_window(&self) -> bool {
        self.charge().any_window
    }

    pub(super) fn into_owned(self) -> RawRef<'static> {
        match self {
            RawRef::Borrowed(charge) => RawRef::Owned(Box::new(charge.clone().into_owned())),
            RawRef::Owned(charge) => RawRef::Owned(charge),
        }
    }
}

/// The terms of raw charges, one for each failure policy. All of them are one rule to the engine.
#[derive(Debug)]
pub(super) struct RawTerms([Arc<Terms>; 3]);

impl Default for RawTerms {
    fn default() -> Self {
        Self(OnOutage::NAMES.map(|(_, on_outage)| Arc::new(Terms::new(Name::RAW, on_outage, 1))))
    }
}

impl Engine {
    /// What a caller asks for with these charges: all of them or none. `on_outage` is for a store
    /// that cannot be asked.
    pub fn raw<'a>(self: &'a Arc<Self>, charges: &'a [RawCharge<'a>], on_outage: OnOutage) -> Demand<'a> {
        let terms = &self.raw.0[on_outage as usize];
        let switched = self.switched_for_all();
        let asked = charges.iter().zip(0u16..).map(|(charge, index)| Asked {
            terms: Held::Borrowed(terms),
            limits: Limits::Raw(RawRef::Borrowed(charge)),
            plan: None,
            subject: Cow::Borrowed(&charge.subject),
            owner: charge.owner.clone(),
            cost: charge.cost,
            is_flat: charge.is_flat,
            enforcement: charge.enforcement,
            emergency: match (&switched, charge.emergency) {
                (Some(switched), Emergency::Off) => switched.of_key(&charge.subject),
                (_, own) => own,
            },
            index,
        });
        let units = charges.iter().map(RawCharge::units).min().unwrap_or(0);
        Demand::new(Held::Borrowed(self), units, asked)
    }

    /// What operators have set for all rules. A raw charge has no rule, but whoever lifts everything or blocks a key
    /// everywhere means it, too.
    #[inline]
    fn switched_for_all(&self) -> Option<SwitchedForAll> {
        let switches = self.store.control().switches()?;
        let now = self.store.now();
        Some(SwitchedForAll { emergency: switches.of_rule(ALL_RULES, now).emergency, switches, now })
    }
}

/// The switches that reach charges without a rule.
struct SwitchedForAll {
    emergency: Emergency,
    switches: Arc<Switches>,
    now: Timestamp,
}

impl SwitchedForAll {
    /// A key that is blocked stays so while everything is lifted, as under a policy.
    fn of_key(&self, subject: &str) -> Emergency {
        let is_blocked = |key: &str| self.switches.blocks_key(ALL_RULES, key, self.now);
        let said = subject.strip_suffix(KEY_END);
        if is_blocked(subject) || said.is_some_and(is_blocked) { Emergency::Block } else { self.emergency }
    }
}
