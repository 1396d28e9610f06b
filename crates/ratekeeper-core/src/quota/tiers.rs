//! Several quotas of one rule.

use std::time::Duration;

use super::{Algorithm, Quota};
use crate::error::{Field, InvalidInput};

/// The quotas of one rule: a single one, or several that all must hold.
///
/// ```
/// use ratekeeper_core::Quotas;
///
/// let tiers: Quotas = "{rps=20, rpm=1000, rph=50000, rpd=100000}".parse()?;
/// assert_eq!(tiers.iter().count(), 4);
/// # Ok::<(), ratekeeper_core::InvalidInput>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas(pub(super) Vec<(&'static str, Quota)>);

/// The tiers people name, and their windows in seconds.
pub(super) const TIERS: [(&str, u64); 4] = [("rps", 1), ("rpm", 60), ("rph", 3_600), ("rpd", 86_400)];

impl Quotas {
    /// Quotas for some of requests per second, minute, hour and day.
    ///
    /// # Errors
    /// If no tier is given or a limit is out of range.
    pub fn tiers(algorithm: Algorithm, limits: &[(&str, u64)]) -> Result<Self, InvalidInput> {
        let mut quotas: Vec<(&'static str, Quota)> = Vec::new();
        for &(name, limit) in limits {
            let Some((name, secs)) = TIERS.into_iter().find(|(tier, _)| *tier == name) else {
                return Err(InvalidInput::new(Field::QuotaText, format!("`{name}`"), "rps, rpm, rph or rpd"));
            };
            if quotas.iter().any(|(known, _)| *known == name) {
                let got = format!("{name} twice");
                return Err(InvalidInput::new(Field::QuotaText, got, "each tier once"));
            }
            quotas.push((name, Quota::new(algorithm, limit, Duration::from_secs(secs))?));
        }
        if quotas.is_empty() {
            return Err(InvalidInput::new(Field::QuotaText, "no tier", "at least one of rps, rpm, rph, rpd"));
        }
        Ok(Self(quotas))
    }

    /// Each quota with its name within the rule; a single one has none ("").
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Quota)> {
        self.0.iter().copied()
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self(vec![("", quota)])
    }
}
