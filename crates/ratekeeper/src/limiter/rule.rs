//! A rule in code: whose quota it is, how much, and what an outage means.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::control::Mode;
use crate::engine::{Endpoints, LimitSet, OnOutage, OwnerNames, Terms};
use ratekeeper_core::{Enforcement, Field, InvalidInput, Level, Name, Quota, Quotas};

/// From a request to the key it counts under; `None`: the rule does not apply.
type KeyFn<R> = Box<dyn for<'r> Fn(&'r R) -> Option<Cow<'r, str>> + Send + Sync>;
/// From a request to the organisation and project whose overrides it follows.
type OwnerFn<R> = Box<dyn for<'r> Fn(&'r R) -> Option<Owner<'r>> + Send + Sync>;
/// From a request to the most that the rule does with it.
type ModeFn<R> = Box<dyn Fn(&R) -> Mode + Send + Sync>;

/// Whose overrides a request follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner<'r> {
    /// The organisation.
    pub organisation: Cow<'r, str>,
    /// The project in it, if the request belongs to one.
    pub project: Option<Cow<'r, str>>,
    /// The endpoint of its overrides, if that is not the quota's name: `/search`, which
    /// is `/search.rpm` for one of several quotas.
    pub endpoint: Option<Cow<'r, str>>,
}

/// Which requests, whose quota, how much.
///
/// ```
/// use ratekeeper::Rule;
///
/// struct Request { user: Option<String> }
///
/// let rule = Rule::new("per-user", |request: &Request| request.user.as_deref().map(Into::into))
///     .quotas("{rps=20, rpm=1000}");
/// ```
pub struct Rule<R: ?Sized> {
    pub(super) name: String,
    pub(super) key: KeyFn<R>,
    /// Each with its name within the rule, if it has one.
    pub(super) quotas: Vec<(Option<String>, Result<Quotas, InvalidInput>)>,
    pub(super) owner: Option<OwnerFn<R>>,
    pub(super) mode: Option<ModeFn<R>>,
    pub(super) enforcement: Enforcement,
    pub(super) on_outage: OnOutage,
    pub(super) per_request: bool,
}

impl<R: ?Sized> Rule<R> {
    /// A rule on the key that `key` finds in a request. Where it finds none,
    /// the rule does not apply.
    pub fn new<K>(name: impl Into<String>, key: K) -> Self
    where
        K: for<'r> Fn(&'r R) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    {
        Self {
            name: name.into(),
            key: Box::new(key),
            quotas: Vec::new(),
            owner: None,
            mode: None,
            enforcement: Enforcement::Enforce,
            on_outage: OnOutage::Allow,
            per_request: false,
        }
    }

    /// A rule that counts all requests together.
    pub fn global(name: impl Into<String>) -> Self {
        Self::new(name, |_| Some(Cow::Borrowed("all")))
    }

    /// Sets the quotas from text: one (`10/s burst 20`) or tiers
    /// (`{rps=20, rpm=1000}`). What is wrong with it is told when the limiter
    /// is built.
    #[must_use]
    pub fn quotas(mut self, text: &str) -> Self {
        self.quotas.push((None, text.parse()));
        self
    }

    /// Sets the quota.
    #[must_use]
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quotas.push((None, Ok(quota.into())));
        self
    }

    /// Adds a quota that must hold as well, under a name within the rule:
    /// `.quotas("10/s burst 20").also("monthly", "50000 per calendar month")`.
    #[must_use]
    pub fn also(mut self, name: &str, text: &str) -> Self {
        self.quotas.push((Some(name.to_owned()), text.parse()));
        self
    }

    /// Counts requests, whatever they cost: the cost of a check does not apply
    /// to this rule.
    #[must_use]
    pub fn per_request(self) -> Self {
        Self { per_request: true, ..self }
    }

    /// Counts and tells, but never denies.
    #[must_use]
    pub fn shadow(self) -> Self {
        Self { enforcement: Enforcement::Shadow, ..self }
    }

    /// Lets every request say the most that the rule does with it, such as a setting
    /// that may change at any time. It never makes the rule do more.
    #[must_use]
    pub fn mode_of<M>(self, mode: M) -> Self
    where
        M: Fn(&R) -> Mode + Send + Sync + 'static,
    {
        Self { mode: Some(Box::new(mode)), ..self }
    }

    /// What an outage of the store means.
    #[must_use]
    pub fn on_outage(self, on_outage: OnOutage) -> Self {
        Self { on_outage, ..self }
    }

    /// Lets overrides replace the quota, for the organisation and project that
    /// `owner` finds in a request. The endpoint of an override is the quota's
    /// name: the rule's, or `rule.rpm` for one of several; or what `owner` says.
    ///
    /// On several servers and on a cluster, a counter is where the overrides of its organisation are, so its key has to
    /// name the organisation as one of its last eight parts between colons; else the check is refused. Let `owner` say the
    /// organisation from what has been verified: one that a caller chooses freely, in a header for example, can be any of
    /// these parts, or none. The same key then has up to nine counters in different places, each with the whole quota.
    #[must_use]
    pub fn overridable<O>(self, owner: O) -> Self
    where
        O: for<'r> Fn(&'r R) -> Option<Owner<'r>> + Send + Sync + 'static,
    {
        Self { owner: Some(Box::new(owner)), ..self }
    }

    /// Checks the rule and names its quotas.
    pub(super) fn compile(self, instances: u32) -> Result<Compiled<R>, BuildError> {
        let wrong = |source| BuildError { rule: self.name.clone(), source };
        let (name, quotas) = self.named_quotas().map_err(wrong)?;
        Ok(Compiled {
            terms: Arc::new(Terms::new(name, self.on_outage, instances)),
            limits: Arc::new(LimitSet { quotas: quotas.into(), level: Level::Default }),
            key: self.key,
            owner: self.owner,
            mode: self.mode,
            enforcement: self.enforcement,
            per_request: self.per_request,
        })
    }

    fn named_quotas(&self) -> Result<(Name, Vec<(Name, Quota)>), InvalidInput> {
        let name = Name::new(&self.name)?;
        let mut named: Vec<(Name, Quota)> = Vec::new();
        for (label, quotas) in &self.quotas {
            let scope = label.as_ref().map_or(Ok(name), |label| Name::joined(name, label))?;
            for (tier, quota) in quotas.clone()?.iter() {
                let scope = if tier.is_empty() { scope } else { Name::joined(scope, tier)? };
                if named.iter().any(|(known, _)| *known == scope) {
                    let got = format!("{scope} twice");
                    return Err(InvalidInput::new(
                        Field::QuotaText,
                        got,
                        "one quota of a name; add others with `also`",
                    ));
                }
                named.push((scope, quota));
            }
        }
        if named.is_empty() {
            return Err(InvalidInput::new(Field::QuotaText, "none", "a quota, such as `100/60s`"));
        }
        Ok((name, named))
    }
}

impl<R: ?Sized> fmt::Debug for Rule<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("name", &self.name).field("quotas", &self.quotas).finish_non_exhaustive()
    }
}

/// A rule that has been checked.
pub(super) struct Compiled<R: ?Sized> {
    pub(super) terms: Arc<Terms>,
    pub(super) limits: Arc<LimitSet>,
    pub(super) key: KeyFn<R>,
    owner: Option<OwnerFn<R>>,
    pub(super) mode: Option<ModeFn<R>>,
    pub(super) enforcement: Enforcement,
    pub(super) per_request: bool,
}

impl<R: ?Sized> Compiled<R> {
    /// Whose overrides a request follows.
    #[inline]
    pub(super) fn owner_of<'r>(&self, request: &'r R) -> Option<Box<OwnerNames<'r>>> {
        let Owner { organisation, project, endpoint } = self.owner.as_ref()?(request)?;
        let endpoints = Endpoints::new(endpoint, self.terms.name, &self.limits.quotas);
        Some(Box::new(OwnerNames { organisation, project, endpoints }))
    }
}

/// A rule that cannot be used: which one, and why.
#[derive(Debug, thiserror::Error)]
#[error("rule `{rule}`")]
#[non_exhaustive]
pub struct BuildError {
    /// The rule's name as it was given.
    pub rule: String,
    /// What is wrong with it.
    #[source]
    pub source: InvalidInput,
}
