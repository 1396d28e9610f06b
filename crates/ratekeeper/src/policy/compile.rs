//! From a policy as it was written to one that decides: names made, rules indexed and held
//! against each other; immutable from then on. Nothing is parsed here.
//!
//! What can only be seen here is told as precisely as what the document itself
//! showed: mistakes as [`Problems`], and what is allowed but hardly meant as
//! [`Policy::warnings`].

mod conflicts;
mod endpoint;
mod index;
mod kits;
mod limits;
mod penalty;
mod rule;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::address::Addresses;
use super::document::Place;
use super::problem::{Problem, Problems};
use super::request::{Facts, Needs};
pub(super) use super::spec::CostSpec as RuleCost;
use super::spec::{PolicySpec, StoreUrl};
use super::template::KeyHashing;
use crate::control::Mode;
use crate::engine::RuleCounters;
pub use endpoint::EndpointLimits;
pub(super) use index::Index;
pub(super) use limits::{LimitSets, UNLIMITED};
pub(super) use rule::{Keys, Rule};

/// From the facts of a request to the key of a rule with `caller_key`.
type KeyFn = dyn for<'r> Fn(&'r dyn Facts) -> Option<std::borrow::Cow<'r, str>> + Send + Sync;

/// A key function, for a rule with `caller_key`.
#[derive(Clone)]
pub struct KeyFunction(pub(super) Arc<KeyFn>);

impl KeyFunction {
    /// The function `key`; where it finds none, the rule does not apply.
    pub fn new<K>(key: K) -> Self
    where
        K: for<'r> Fn(&'r dyn Facts) -> Option<std::borrow::Cow<'r, str>> + Send + Sync + 'static,
    {
        Self(Arc::new(key))
    }

    /// The key of a request.
    #[must_use]
    pub fn of<'r>(&self, facts: &'r dyn Facts) -> Option<std::borrow::Cow<'r, str>> {
        (self.0)(facts)
    }
}

impl fmt::Debug for KeyFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFunction")
    }
}

/// What the program adds to its policies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompileOptions {
    /// How many processes share the limits; see [`OnOutage::Local`](crate::OnOutage::Local).
    pub instances: NonZeroU32,
    /// How keys are hashed where a policy says `hash_keys`.
    pub hashing: KeyHashing,
    /// The mode of the service from outside, such as `RATE_LIMIT_MODE`.
    pub mode: Option<Mode>,
    /// Key functions by the name of a rule.
    pub key_functions: HashMap<String, KeyFunction>,
    /// Whether counters are on several servers, such as the nodes of a cluster; see [`StoreUrl::is_parted`]. A policy
    /// whose own `store` is such a one is compiled as if this was set.
    pub parted: bool,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            instances: NonZeroU32::MIN,
            hashing: KeyHashing::open(),
            mode: None,
            key_functions: HashMap::new(),
            parted: false,
        }
    }
}

/// A policy that decides. It never changes; another one takes its place.
#[derive(Debug)]
pub struct Policy {
    pub(super) service: String,
    store: Option<StoreUrl>,
    pub(super) addresses: Addresses,
    pub(super) rules: Box<[Rule]>,
    pub(super) limits: LimitSets,
    pub(super) index: Index,
    /// The budget of a request's conditions and costs.
    pub(super) steps: u32,
    /// The mode of the service from outside.
    pub(super) outside_mode: Option<Mode>,
    needs: Needs,
    warnings: Vec<Problem>,
}

impl Policy {
    /// Compiles a policy; `source` is what problems call it.
    ///
    /// # Errors
    /// Everything that is wrong with its names, and with its rules together.
    pub fn compile(spec: &PolicySpec, source: &str, options: &CompileOptions) -> Result<Self, Problems> {
        Self::compile_after(spec, source, options, None)
    }

    /// Compiles a policy from `source` that takes over the counters of the one
    /// before.
    pub(super) fn compile_after(
        spec: &PolicySpec,
        source: &str,
        options: &CompileOptions,
        before: Option<&Policy>,
    ) -> Result<Self, Problems> {
        let mut compiler = Compiler { spec, options, problems: Problems::none(source), warnings: Vec::new() };
        let mut limits = LimitSets::new();
        let mut rules = Vec::with_capacity(spec.rules.len());
        for rule in &spec.rules {
            let counters = before.and_then(|before| before.counters_of(&rule.name));
            let compiled = compiler.rule(rule, &mut limits, counters.unwrap_or_default());
            rules.extend(compiler.problems.checked(compiled, || rule.place_of("name")));
        }
        if rules.len() == spec.rules.len() {
            compiler.conflicts(&rules, &limits);
        }
        let mut needs = Needs::default();
        rules.iter().for_each(|rule| needs |= rule.needs);
        let warnings = std::mem::take(&mut compiler.warnings);
        compiler.problems.or(Some(Self {
            service: spec.service.clone(),
            store: spec.store.clone(),
            addresses: Addresses::default()
                .trust(spec.trusted_proxies.iter().copied())
                .header(spec.proxy_header)
                .ipv6_prefix(spec.ipv6_prefix),
            index: Index::new(&rules),
            rules: rules.into(),
            limits,
            steps: spec.condition_steps,
            outside_mode: options.mode,
            needs,
            warnings: Problems::of(source, warnings).into_iter().collect(),
        }))
    }

    /// The service it is for.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Where it wants its counters to live, if it says so.
    #[must_use]
    pub fn store(&self) -> Option<&StoreUrl> {
        self.store.as_ref()
    }

    /// What must be known of a request before it can be judged.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// What the rules need that could apply to this request.
    pub(super) fn needs_of(&self, facts: &dyn Facts) -> Needs {
        let mut needs = Needs::default();
        for number in self.index.candidates(facts) {
            needs |= self.rules[usize::from(number)].needs;
        }
        needs
    }

    /// How the client's address is found.
    #[must_use]
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// What is allowed but hardly meant.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// The names of its rules, in their order.
    pub fn rules(&self) -> impl Iterator<Item = &'static str> {
        self.rules.iter().map(|rule| rule.name.label())
    }

    fn counters_of(&self, rule: &str) -> Option<Arc<RuleCounters>> {
        let found = self.rules.iter().find(|known| known.name.label() == rule);
        found.map(|rule| Arc::clone(&rule.terms.counters))
    }
}

/// Collects what is wrong while it compiles.
struct Compiler<'s> {
    spec: &'s PolicySpec,
    options: &'s CompileOptions,
    problems: Problems,
    warnings: Vec<Problem>,
}

impl Compiler<'_> {
    fn warn(&mut self, (at, field): (Place, String), got: impl AsRef<str>, expected: impl AsRef<str>) {
        self.warnings.push(Problem::new(at, field, got, expected));
    }
}
