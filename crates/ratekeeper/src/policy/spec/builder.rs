//! Policies that a program puts together, without a document.

use super::check::{self, AT_LEAST_ONE_RULE};
use super::{
    CostSpec, IPV6_PREFIX_DEFAULT, KeySpec, Limits, Network, OnError, OverridesSpec, PenaltySpec, Places,
    PlansSpec, PolicySpec, RULES_MAX, RuleSpec, Scope, StoreUrl,
};
use crate::control::Mode;
use crate::engine::OnOutage;
use crate::policy::Condition;
use crate::policy::address::ProxyHeader;
use crate::policy::document::Place;
use crate::policy::expression::{STEPS_DEFAULT, STEPS_MAX, STEPS_MIN};
use crate::policy::problem::{Problem, Problems};
use std::collections::{BTreeMap, BTreeSet};

/// Puts a policy together; see [`PolicySpec::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PolicyBuilder(PolicySpec);

macro_rules! setters {
    ($type:ty, |$it:ident| $spec:expr; $($field:ident: $value:ty,)*) => {
        impl $type {
            $(
                #[doc = concat!("Sets `", stringify!($field), "`.")]
                pub fn $field(mut self, $field: impl Into<$value>) -> Self {
                    let $it = &mut self;
                    $spec.$field = $field.into();
                    self
                }
            )*
        }
    };
}

setters! {
    PolicyBuilder, |it| it.0;
    mode: Mode,
    store: Option<StoreUrl>,
    on_outage: OnOutage,
    trusted_proxies: Vec<Network>,
    proxy_header: ProxyHeader,
    ipv6_prefix: u8,
    hash_keys: bool,
    condition_steps: u32,
    rules: Vec<RuleSpec>,
}

setters! {
    RuleSpec, |it| it;
    when: Option<Condition>,
    first_of: Option<String>,
    any_of: Option<String>,
    replaces: BTreeSet<String>,
    on_error: OnError,
    fallback: Option<String>,
    plans: Option<PlansSpec>,
    custom: BTreeMap<String, Limits>,
    unlimited: BTreeSet<String>,
    allow: Vec<Network>,
    cost: CostSpec,
    cost_on_error: Option<u32>,
    scope: Scope,
    overrides: Option<OverridesSpec>,
    mode: Option<Mode>,
    enforce_percent: u8,
    on_outage: Option<OnOutage>,
    penalty: Option<PenaltySpec>,
}

impl PolicySpec {
    /// A policy without a document. What is wrong with it is what would be wrong with a
    /// document that says the same.
    ///
    /// ```
    /// use ratekeeper::policy::{PolicySpec, RuleSpec, Template};
    /// use ratekeeper::Quota;
    ///
    /// let quota: Quota = "100/60s".parse()?;
    /// let rule = RuleSpec::new("per-user", Template::parse("user:{identity.user}")?, quota);
    /// let spec = PolicySpec::builder("search").rules([rule.clone()]).build("code")?;
    /// assert_eq!(spec.rules[0].name, "per-user");
    ///
    /// let mistaken = rule.enforce_percent(101);
    /// let problems = PolicySpec::builder("search").rules([mistaken]).build("code").unwrap_err();
    /// let expected = "code: rules[0].enforce_percent: got 101; expected a whole number from 0 to 100";
    /// assert_eq!(problems.to_string(), expected);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(service: impl Into<String>) -> PolicyBuilder {
        PolicyBuilder(Self {
            service: service.into(),
            mode: Mode::default(),
            store: None,
            on_outage: OnOutage::default(),
            trusted_proxies: Vec::new(),
            proxy_header: ProxyHeader::default(),
            ipv6_prefix: IPV6_PREFIX_DEFAULT,
            hash_keys: false,
            condition_steps: STEPS_DEFAULT,
            rules: Vec::new(),
        })
    }
}

impl PolicyBuilder {
    /// The policy as it is, for readers that note themselves what is wrong.
    #[cfg(feature = "policy")]
    pub(in crate::policy) fn unchecked(self) -> PolicySpec {
        self.0
    }

    /// The policy; `source` is what problems call it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn build(self, source: &str) -> Result<PolicySpec, Problems> {
        let (mut spec, mut problems) = (self.0, Problems::none(source));
        let mut note = |field: &str, checked: Result<(), Problem>| {
            problems.checked(checked, || (Place::UNKNOWN, field.to_owned()));
        };
        note("service", check::service_name(&spec.service));
        note("ipv6_prefix", check::within(spec.ipv6_prefix, 1, 128));
        note("condition_steps", check::within(spec.condition_steps, STEPS_MIN, STEPS_MAX));
        for (index, network) in spec.trusted_proxies.iter().enumerate() {
            note(&format!("trusted_proxies[{index}]"), check::proxy(network));
        }
        note(
            "rules",
            match spec.rules.len() {
                0 => Err(Problem::of("no rules", AT_LEAST_ONE_RULE)),
                count => check::so_many("rules", count, 0, RULES_MAX),
            },
        );
        for (index, rule) in spec.rules.iter_mut().enumerate() {
            rule.places = Places { path: format!("rules[{index}]"), fields: Vec::new() };
        }
        problems.of_rules(&spec.rules, spec.hash_keys);
        problems.or(Some(spec))
    }
}

impl RuleSpec {
    /// A rule: what it is called, whose quota it is, and how much. It says nothing else yet.
    #[must_use]
    pub fn new(name: impl Into<String>, keys: impl Into<KeySpec>, limits: impl Into<Limits>) -> Self {
        Self {
            name: name.into(),
            when: None,
            first_of: None,
            any_of: None,
            replaces: BTreeSet::new(),
            on_error: OnError::default(),
            keys: keys.into(),
            fallback: None,
            limits: limits.into(),
            plans: None,
            custom: BTreeMap::new(),
            unlimited: BTreeSet::new(),
            allow: Vec::new(),
            cost: CostSpec::Asked,
            cost_on_error: None,
            scope: Scope::Shared,
            overrides: None,
            mode: None,
            enforce_percent: 100,
            on_outage: None,
            penalty: None,
            places: Places::default(),
        }
    }
}
