//! A policy as it was written: conditions, templates and costs are parsed here and
//! nowhere else.
//!
//! A rule knows where its fields stand, so that what only shows when the rules are
//! compiled has its line and field as well. A program without a document puts the
//! same specification together with [`PolicySpec::builder`].

mod builder;
mod check;
mod exceptions;
#[cfg(feature = "policy")]
pub mod import;
mod limits;
mod network;
mod penalty;
mod policy;
mod reader;
mod rule;
mod shape;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratekeeper_core::{Quota, Quotas};

pub use self::builder::PolicyBuilder;
pub use self::check::A_LENGTH_OF_TIME;
pub(super) use self::check::PENALTY_COUNTERS;
pub use self::network::Network;
pub use self::reader::parse_duration;
use super::address::ProxyHeader;
use super::document::{Format, Node, Place};
use super::expression::{Condition, Cost};
use super::problem::Problems;
use super::template::Template;
use crate::control::Mode;
use crate::engine::OnOutage;
pub use crate::engine::Scope;
pub use crate::store::StoreUrl;

/// How many rules a policy may have.
pub const RULES_MAX: usize = 1_000;
/// How many templates for its key a rule may have.
pub const KEYS_MAX: usize = 16;
/// How many rules a rule may replace.
pub const REPLACES_MAX: usize = 64;
/// How many bits of an IPv6 address tell clients apart if nothing else is said:
/// a household usually has so many to itself.
pub const IPV6_PREFIX_DEFAULT: u8 = 64;
/// The template for a plan's name if the rule has none of its own.
pub const PLAN_DEFAULT: &str = "{identity.plan}";
/// The template for the organisation whose overrides apply.
pub const ORGANISATION_DEFAULT: &str = "{identity.org}";
/// The template for the project whose overrides apply.
pub const PROJECT_DEFAULT: &str = "{identity.project}";
/// The name of the rule that `general_rate_limit` becomes.
pub const GENERAL_RULE: &str = "general";

/// The policy of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicySpec {
    /// The service.
    pub service: String,
    /// What rules do that do not say it themselves.
    pub mode: Mode,
    /// Where counters live, unless the program decides that.
    pub store: Option<StoreUrl>,
    /// What an outage means to rules that do not say it themselves.
    pub on_outage: OnOutage,
    /// Whose word is taken for the client's address.
    pub trusted_proxies: Vec<Network>,
    /// The header in which they give it.
    pub proxy_header: ProxyHeader,
    /// How many bits of an IPv6 address tell clients apart.
    pub ipv6_prefix: u8,
    /// Whether keys are hashed before they leave the process.
    pub hash_keys: bool,
    /// How many steps of work all conditions and costs may be for one request; beyond them it is denied.
    pub condition_steps: u32,
    /// The rules; names are unique.
    pub rules: Vec<RuleSpec>,
}

/// One rule: when it applies, whose quota it is, how much, and what then.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleSpec {
    /// Its name.
    pub name: String,
    /// When it applies; always, if there is none.
    pub when: Option<Condition>,
    /// Of the rules with the same `first_of`, only the first whose condition holds has a say.
    pub first_of: Option<String>,
    /// Of the rules with the same `any_of` that apply, one that admits is enough.
    pub any_of: Option<String>,
    /// Rules that have no say where this one applies, by name.
    pub replaces: BTreeSet<String>,
    /// What it means if that cannot be told.
    pub on_error: OnError,
    /// Whose quota it is.
    pub keys: KeySpec,
    /// What requests without a key count under together: a counter of its own, whatever keys
    /// requests have. Without it they are not limited.
    pub fallback: Option<String>,
    /// How much, for whoever has neither a plan nor an entry in `custom`.
    pub limits: Limits,
    /// Other limits by plan.
    pub plans: Option<PlansSpec>,
    /// Other limits for exact keys, which replace all tiers of the rule.
    pub custom: BTreeMap<String, Limits>,
    /// Exact keys that are never limited; none of them is in `custom`.
    pub unlimited: BTreeSet<String>,
    /// Clients that are never limited, by address.
    pub allow: Vec<Network>,
    /// What a request costs.
    pub cost: CostSpec,
    /// What a request costs whose cost cannot be told; the smallest of its limits, if nothing is said.
    pub cost_on_error: Option<u32>,
    /// Who counts together.
    pub scope: Scope,
    /// Whose overrides apply, if any do.
    pub overrides: Option<OverridesSpec>,
    /// What it does; what the policy says, if it says nothing.
    pub mode: Option<Mode>,
    /// Per cent of the keys it is enforced for; the others are only watched.
    pub enforce_percent: u8,
    /// What an outage means; what the policy says, if it says nothing.
    pub on_outage: Option<OnOutage>,
    /// What happens to those who are denied again and again.
    pub penalty: Option<PenaltySpec>,
    places: Places,
}

impl RuleSpec {
    /// Where a field of it stands, if that is in a document, and the way to it:
    /// `rules[2].when`.
    #[must_use]
    pub fn place_of(&self, field: &str) -> (Place, String) {
        let find = |field: &str| self.places.fields.iter().find(|(known, _)| known == field);
        let place = find(field).or_else(|| find("name")).map_or(Place::UNKNOWN, |(_, place)| *place);
        (place, format!("{}.{field}", self.places.path))
    }
}

/// Where a rule and its fields stand. All are equal: rules say the same, wherever they stand.
#[derive(Clone, Debug, Default)]
struct Places {
    path: String,
    fields: Vec<(String, Place)>,
}

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Places {}

/// What a condition means that cannot be told for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The rule applies: whoever confuses a condition must not escape it.
    #[default]
    Apply,
    /// The rule does not apply.
    Skip,
}

impl OnError {
    /// All of them, by the word for each.
    pub const NAMES: [(&'static str, Self); 2] = [("apply", OnError::Apply), ("skip", OnError::Skip)];
}

/// Whose quota a rule is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySpec {
    /// The first of these templates that resolves; at least one.
    Templates(Vec<Template>),
    /// The program makes the key.
    Caller,
}

impl From<Template> for KeySpec {
    fn from(template: Template) -> Self {
        Self::Templates(vec![template])
    }
}

/// How much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limits {
    /// As much as one likes.
    Unlimited,
    /// All of these must hold; at least one.
    Quotas(Vec<NamedQuota>),
}

impl<N: Into<Cow<'static, str>>> FromIterator<(N, Quota)> for Limits {
    fn from_iter<I: IntoIterator<Item = (N, Quota)>>(quotas: I) -> Self {
        let named = |(name, quota): (N, Quota)| NamedQuota { name: name.into(), quota };
        Self::Quotas(quotas.into_iter().map(named).collect())
    }
}

impl From<Quotas> for Limits {
    fn from(quotas: Quotas) -> Self {
        quotas.iter().collect()
    }
}

impl From<Quota> for Limits {
    fn from(quota: Quota) -> Self {
        [("", quota)].into_iter().collect()
    }
}

/// A quota of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedQuota {
    /// Its name within the rule; a single one may have none ("").
    pub name: Cow<'static, str>,
    /// How much in how long.
    pub quota: Quota,
}

/// Limits by plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlansSpec {
    /// The template for the name of a request's plan.
    pub plan: Template,
    /// The plans; at least one.
    pub limits: BTreeMap<String, Limits>,
}

/// What a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSpec {
    /// What the program asks for; one, if it asks for nothing else.
    Asked,
    /// One, whatever the program asks for.
    One,
    /// Always so much.
    Units(u32),
    /// What the expression says.
    Expression(Cost),
}

/// Whose overrides apply to a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverridesSpec {
    /// The template for the endpoint; the quota's name, if there is none.
    pub endpoint: Option<Template>,
    /// The template for the organisation.
    pub organisation: Template,
    /// The template for the project.
    pub project: Template,
}

/// Those of the organisation and the project of a request's identity.
impl Default for OverridesSpec {
    fn default() -> Self {
        let (organisation, project) = (Template::of_claim("org"), Template::of_claim("project"));
        Self { endpoint: None, organisation, project }
    }
}

/// Denial for a while, after too many denials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PenaltySpec {
    /// After so many denials ...
    pub denials: u32,
    /// ... in so long ...
    pub within: Duration,
    /// ... everything is denied for so long.
    pub duration: Duration,
    /// Each further penalty is so many times as long as the one before: 1 is
    /// as long.
    pub escalate: u32,
    /// The longest penalty.
    pub max: Duration,
}

impl PolicySpec {
    /// Reads a policy from text; `source` is what problems call it. With the feature `policy`, a configuration of
    /// envoyproxy/ratelimit is a policy as well: it is known by its `domain` and `descriptors`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(source: &str, format: Format, document: &[u8]) -> Result<Self, Problems> {
        let node = Node::parse(source, format, document)?;
        #[cfg(feature = "policy")]
        if let Some(sheet) = import::Sheet::of(source, format, document, &node) {
            return import::Sheet::policy(vec![sheet?]);
        }
        Self::from_node(source, &node)
    }

    /// Reads a policy from a document: one with `service`, or one as services
    /// keep it in MongoDB, which has `_id` instead.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_node(source: &str, document: &Node) -> Result<Self, Problems> {
        #[cfg(feature = "policy")]
        if import::is_ratelimit(document) {
            return import::Sheet::policy(vec![import::Sheet::of_node(source, document)?]);
        }
        policy::decode(source, document, policy::is_service_document(document))
    }

    /// Reads a document as services keep it in MongoDB: `_id`, `last_updated`,
    /// `general_rate_limit`, `custom_rate_limits`, and whatever else a policy
    /// has. There, `null` is as good as leaving a field out.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_service_document(source: &str, document: &Node) -> Result<Self, Problems> {
        policy::decode(source, document, true)
    }
}
