//! What is asked: quotas, keys, and how much of them.

use std::time::Duration;

use ratekeeper::{Name, Quota};

use crate::Result;

/// Keys of every measurement of speed.
pub const KEYS: u32 = 10_000;
/// What making a counter costs: so much that it is in use until the run is over. A bucket that
/// is full again is as good as none, and we would measure making them instead of finding them.
pub const FIRST_COST: u32 = 1_000;
/// Keys of the measurement of accuracy: few, so that callers meet.
pub const HOT_KEYS: u32 = 10;
/// What each of them has room for.
pub const HOT_LIMIT: u32 = 200;
/// Attempts on all of them together.
pub const HOT_ATTEMPTS: u32 = 2 * HOT_KEYS * HOT_LIMIT;
/// What an override allows where speed is measured.
const OVERRIDE_LIMIT: u32 = 2_000_000;
/// Projects of one organisation have numbers this far apart.
const ORGANISATIONS: u32 = 100;

const SECOND: u64 = 1;
const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

/// What a check consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// A token bucket.
    OneQuota,
    /// Token buckets per second, minute, hour and day on one key, all or nothing.
    FourTiers,
    /// A fixed window that a project or its organisation may override; neither does.
    NoOverride,
    /// The same, and the project does.
    ProjectOverride,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 4] =
        [Scenario::OneQuota, Scenario::FourTiers, Scenario::NoOverride, Scenario::ProjectOverride];

    /// What the tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Scenario::OneQuota => "one quota",
            Scenario::FourTiers => "four tiers",
            Scenario::NoOverride => "fixed window, two override look-ups",
            Scenario::ProjectOverride => "fixed window, project override",
        }
    }
}

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Every request passes: for speed.
    Ample,
    /// [`HOT_LIMIT`] requests per key pass, whatever the run takes: for accuracy.
    Tight,
}

/// A limit as every candidate can express it.
#[derive(Clone, Copy, Debug)]
pub struct Tier {
    /// Among others of its rule.
    pub name: &'static str,
    /// Units per window.
    pub limit: u32,
    /// The window.
    pub seconds: u64,
}

const fn tier(name: &'static str, limit: u32, seconds: u64) -> Tier {
    Tier { name, limit, seconds }
}

impl Tier {
    /// It as a token bucket.
    ///
    /// # Errors
    /// Never, unless the bounds of quotas change.
    pub fn bucket(&self) -> Result<Quota> {
        Ok(Quota::token_bucket(self.limit.into(), Duration::from_secs(self.seconds))?)
    }
}

/// What is measured: the checks, and the room they have.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// What a check consists of.
    pub scenario: Scenario,
    /// How much passes.
    pub room: Room,
}

impl Setting {
    /// The limits of a check, before any override.
    ///
    /// The roomy ones keep limit times microseconds below 2^53: no limit that people set makes
    /// our script take its wide path.
    #[must_use]
    pub fn tiers(self) -> Vec<Tier> {
        match (self.scenario, self.room) {
            (Scenario::OneQuota, Room::Ample) => vec![tier("all", 10_000, HOUR)],
            (Scenario::OneQuota | Scenario::NoOverride, Room::Tight) => vec![tier("all", HOT_LIMIT, DAY)],
            (Scenario::FourTiers, room) => vec![
                tier("rps", 2_000, SECOND),
                tier("rpm", 6_000, MINUTE),
                tier("rph", 40_000, HOUR),
                tier("rpd", if room == Room::Ample { 50_000 } else { HOT_LIMIT }, DAY),
            ],
            (Scenario::NoOverride | Scenario::ProjectOverride, _) => vec![tier("all", 1_000_000, HOUR)],
        }
    }

    /// The override of every project.
    #[must_use]
    pub const fn override_limit(self) -> Option<u32> {
        match (self.scenario, self.room) {
            (Scenario::ProjectOverride, Room::Ample) => Some(OVERRIDE_LIMIT),
            (Scenario::ProjectOverride, Room::Tight) => Some(HOT_LIMIT),
            _ => None,
        }
    }

    /// How many keys are asked for.
    #[must_use]
    pub const fn keys(self) -> u32 {
        match self.room {
            Room::Ample => KEYS,
            Room::Tight => HOT_KEYS,
        }
    }

    /// What sets its counters apart from those of other settings.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match (self.scenario, self.room) {
            (Scenario::OneQuota, Room::Ample) => "one",
            (Scenario::OneQuota, Room::Tight) => "one-hot",
            (Scenario::FourTiers, Room::Ample) => "tiers",
            (Scenario::FourTiers, Room::Tight) => "tiers-hot",
            (Scenario::NoOverride, Room::Ample) => "fixed",
            (Scenario::NoOverride, Room::Tight) => "fixed-hot",
            (Scenario::ProjectOverride, Room::Ample) => "override",
            (Scenario::ProjectOverride, Room::Tight) => "override-hot",
        }
    }

    /// The name of our rule.
    ///
    /// # Errors
    /// Never, unless the bounds of names change.
    pub fn rule(self) -> Result<Name> {
        Ok(Name::new(self.prefix())?)
    }

    /// The endpoint that overrides are for.
    #[must_use]
    pub fn endpoint(self) -> String {
        format!("/v1/{}", self.prefix())
    }
}

/// Whose counter it is, by its number.
#[must_use]
pub fn subject(index: u32) -> String {
    format!("user:{index:08}")
}

/// The organisation of a project, by the project's number.
#[must_use]
pub const fn organisation(project: u32) -> u32 {
    project % ORGANISATIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_valid_and_roomy_ones_are_within_the_exact_numbers() {
        for scenario in Scenario::ALL {
            for room in [Room::Ample, Room::Tight] {
                let setting = Setting { scenario, room };
                assert_eq!(setting.rule().unwrap().as_str(), setting.prefix());
                for tier in setting.tiers() {
                    assert!(tier.limit >= FIRST_COST || room == Room::Tight, "{tier:?}");
                    let quota = tier.bucket().unwrap();
                    assert!(u64::from(tier.limit) * quota.window_micros() < 1 << 53, "{tier:?}");
                }
            }
        }
    }
}
