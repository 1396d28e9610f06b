//! What the engine has to know of a rule, whichever front end made it.

use std::ops::Deref;
use std::sync::Arc;

use ratekeeper_core::{Level, Name, Quota};

use super::counters::RuleCounters;
use super::{OnOutage, Penalty};

/// Who counts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "policy-core"), allow(unreachable_pub, reason = "policies export it"))]
pub enum Scope {
    /// All instances, in the store they share.
    #[default]
    Shared,
    /// This process alone, in its own memory.
    Process,
}

/// The part of a rule that is the same for every request.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) name: Name,
    pub(crate) scope: Scope,
    pub(crate) on_outage: OnOutage,
    /// The group of rules of which one that admits is enough.
    pub(crate) any_of: Option<Arc<str>>,
    /// How many processes share the quotas, for [`OnOutage::Local`].
    pub(crate) instances: u32,
    pub(crate) penalty: Option<Penalty>,
    pub(crate) counters: Arc<RuleCounters>,
}

impl Terms {
    /// A shared rule without penalties.
    pub(crate) fn new(name: Name, on_outage: OnOutage, instances: u32) -> Self {
        Self {
            name,
            scope: Scope::Shared,
            on_outage,
            any_of: None,
            instances,
            penalty: None,
            counters: Arc::default(),
        }
    }

    /// This process's share of a quota, at least one unit; of nothing, nothing.
    pub(super) fn share_of(&self, quota: &Quota) -> Quota {
        if quota.is_closed() {
            return *quota;
        }
        quota.overridden(u64::from(quota.limit() / self.instances.max(1)).max(1), None)
    }
}

/// Quotas that hold together.
#[derive(Debug, Default)]
pub(crate) struct LimitSet {
    pub(crate) quotas: Box<[(Name, Quota)]>,
    pub(crate) level: Level,
}

/// Something of the front end's: borrowed while a request is judged at once, shared if it has to wait.
#[derive(Debug)]
pub(crate) enum Held<'a, T> {
    Borrowed(&'a Arc<T>),
    Owned(Arc<T>),
}

impl<T> Held<'_, T> {
    pub(crate) fn into_owned(self) -> Held<'static, T> {
        Held::Owned(self.shared())
    }

    pub(crate) fn shared(&self) -> Arc<T> {
        match self {
            Held::Borrowed(shared) => Arc::clone(shared),
            Held::Owned(shared) => Arc::clone(shared),
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Held::Borrowed(shared) => shared,
            Held::Owned(shared) => shared,
        }
    }
}

impl<T> Clone for Held<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Held::Borrowed(shared) => Held::Borrowed(shared),
            Held::Owned(shared) => Held::Owned(Arc::clone(shared)),
        }
    }
}
