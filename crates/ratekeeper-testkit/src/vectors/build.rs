//! What the tables say of charges and penalties, and what is made of it.

use ratekeeper_core::{
    Charge, Charges, Emergency, Enforcement, InvalidInput, Key, Name, OverrideScope, Penalty, Quota,
};
use serde::Deserialize;

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChargeSpec {
    name: Option<String>,
    /// The rule within which the name stands.
    rule: Option<String>,
    key: Option<String>,
    quota: Option<String>,
    cost: Option<u64>,
    shadow: Option<bool>,
    emergency: Option<String>,
    endpoint: Option<String>,
    org: Option<String>,
    project: Option<String>,
    flat: Option<bool>,
    any_window: Option<bool>,
}

/// A penalty whose counters are called `penalty`, `strikes` and `offences` within its rule.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PenaltySpec {
    rule: Option<String>,
    key: Option<String>,
    strikes: String,
    offences: Option<String>,
    sentences: Vec<String>,
    #[serde(default)]
    shadow: bool,
    counts: Option<bool>,
    /// The first of its charges and the one behind the last; all if it does not say.
    charges: Option<[usize; 2]>,
}

pub(super) fn charges<'a>(defaults: &'a ChargeSpec, specs: &'a [ChargeSpec]) -> Result<Charges<'a>, String> {
    let mut charges = Charges::new();
    for spec in specs {
        charges.push(charge(defaults, spec)?).map_err(|error| error.to_string())?;
    }
    Ok(charges)
}

pub(super) fn charge<'a>(defaults: &'a ChargeSpec, spec: &'a ChargeSpec) -> Result<Charge<'a>, String> {
    let text = |error: InvalidInput| error.to_string();
    let or = |own: &'a Option<String>, shared: &'a Option<String>| own.as_deref().or(shared.as_deref());
    let name = or(&spec.name, &defaults.name).unwrap_or("q");
    let name = match or(&spec.rule, &defaults.rule) {
        None => Name::new(name),
        Some(rule) => Name::new(rule).and_then(|rule| Name::joined(rule, name)),
    };
    let name = name.map_err(text)?;
    let key = Key::new(name, or(&spec.key, &defaults.key).unwrap_or("k")).map_err(text)?;
    let quota = leaked(or(&spec.quota, &defaults.quota).ok_or("a charge without a quota")?)?;
    let mut charge = Charge::new(key, quota).cost(spec.cost.or(defaults.cost).unwrap_or(1)).map_err(text)?;
    if spec.shadow.or(defaults.shadow).unwrap_or(false) {
        charge = charge.enforcement(Enforcement::Shadow);
    }
    if spec.flat.or(defaults.flat).unwrap_or(false) {
        charge = charge.flat();
    }
    if spec.any_window.or(defaults.any_window).unwrap_or(false) {
        charge = charge.any_window();
    }
    charge = match or(&spec.emergency, &defaults.emergency) {
        None => charge,
        Some("lift") => charge.emergency(Emergency::Lift),
        Some("block") => charge.emergency(Emergency::Block),
        Some(other) => return Err(format!("emergency: {other:?}; lift or block")),
    };
    if let (Some(endpoint), Some(org)) =
        (or(&spec.endpoint, &defaults.endpoint), or(&spec.org, &defaults.org))
    {
        charge = charge.overridable(scope(endpoint, org, or(&spec.project, &defaults.project))?);
    }
    Ok(charge)
}

/// The table lives as long as the test: leaking a few quotas is simplest.
fn leaked(quota: &str) -> Result<&'static Quota, String> {
    Ok(Box::leak(Box::new(quota.parse().map_err(|error: InvalidInput| error.to_string())?)))
}

pub(super) fn penalties<'a>(
    defaults: &'a ChargeSpec,
    specs: &'a [PenaltySpec],
    charges: usize,
) -> Result<Vec<Penalty<'a>>, String> {
    specs.iter().map(|spec| penalty(defaults, spec, charges)).collect()
}

fn penalty<'a>(
    defaults: &'a ChargeSpec,
    spec: &'a PenaltySpec,
    charges: usize,
) -> Result<Penalty<'a>, String> {
    let rule = Name::new(spec.rule.as_deref().unwrap_or("q")).map_err(|error| error.to_string())?;
    let name = |quota: &str| Name::joined(rule, quota).map_err(|error| error.to_string());
    let key = spec.key.as_deref().or(defaults.key.as_deref()).unwrap_or("k");
    let sentences = spec.sentences.iter().map(|text| leaked(text).copied()).collect::<Result<Vec<_>, _>>()?;
    let sentences: &[Quota] = Box::leak(sentences.into_boxed_slice());
    let [from, to] = spec.charges.unwrap_or([0, charges]);
    Ok(Penalty {
        gate: (name("penalty")?, sentences.last().ok_or("a penalty without sentences")?),
        strikes: (name("strikes")?, leaked(&spec.strikes)?),
        offences: match &spec.offences {
            Some(text) => Some((name("offences")?, leaked(text)?)),
            None => None,
        },
        sentences,
        subject: key.as_bytes(),
        enforcement: if spec.shadow { Enforcement::Shadow } else { Enforcement::Enforce },
        charges: from..to,
        counts: spec.counts.unwrap_or(true),
    })
}

pub(super) fn scope<'a>(
    endpoint: &'a str,
    org: &'a str,
    project: Option<&'a str>,
) -> Result<OverrideScope<'a>, String> {
    match project {
        Some(project) => OverrideScope::project(endpoint, org, project),
        None => OverrideScope::organisation(endpoint, org),
    }
    .map_err(|error| error.to_string())
}
