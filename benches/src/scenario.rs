//! Which keys are asked for, how often each, and what the limits say.

use std::time::Duration;

/// How many draws a scenario repeats. More than 10^6, so that a run over 10^6
/// keys meets most of them; a multiple of [`CHUNK`].
///
/// [`CHUNK`]: crate::measure::CHUNK
const DRAWS: usize = 2_000_000;
const ZIPF_EXPONENT: f64 = 1.1;

/// How draws are spread over the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// A few keys get most of them.
    Zipf,
    /// All keys get the same.
    Uniform,
}

/// A set of keys and how they are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// For the head of a column.
    pub name: &'static str,
    /// How many keys there are.
    pub keys: u32,
    /// How draws are spread over them.
    pub skew: Skew,
    /// The throughput we promise, in multiples of governor's.
    pub target: f64,
}

const fn scenario(name: &'static str, keys: u32, skew: Skew, target: f64) -> Scenario {
    Scenario { name, keys, skew, target }
}

/// All scenarios; those over the same keys stand side by side.
pub const SCENARIOS: [Scenario; 5] = [
    scenario("hot key", 1, Skew::Uniform, 1.2),
    scenario("10^4 Zipf", 10_000, Skew::Zipf, 1.2),
    scenario("10^4 uniform", 10_000, Skew::Uniform, 1.2),
    scenario("10^6 Zipf", 1_000_000, Skew::Zipf, 1.8),
    scenario("10^6 uniform", 1_000_000, Skew::Uniform, 2.0),
];

impl Scenario {
    /// The key indices to ask for, the same in every run.
    #[must_use]
    pub fn draws(&self) -> Vec<u32> {
        let mut random = Random::new(u64::from(self.keys));
        match self.skew {
            Skew::Uniform => (0..DRAWS).map(|_| random.below(self.keys)).collect(),
            Skew::Zipf => zipf(self.keys, &mut random),
        }
    }
}

fn zipf(keys: u32, random: &mut Random) -> Vec<u32> {
    let mut sum = 0.0;
    let up_to: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += f64::from(rank).powf(-ZIPF_EXPONENT);
            sum
        })
        .collect();
    let draw = |_| {
        let point = random.fraction() * sum;
        // Below `keys`, which is a u32.
        up_to.partition_point(|up_to| *up_to <= point).min(up_to.len() - 1) as u32
    };
    (0..DRAWS).map(draw).collect()
}

/// Whether the limits let requests pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Limits so large that every request passes.
    Admitted,
    /// Limits used up before the measuring, so that none does.
    Denied,
}

/// A limit as every candidate can express it.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Units per window, and the most at one instant.
    pub limit: u32,
    /// In how long they come back.
    pub window: Duration,
}

impl Load {
    /// Both.
    pub const ALL: [Load; 2] = [Load::Admitted, Load::Denied];

    /// The limit that makes it so.
    ///
    /// The large one is enough for all checks of a run on one key, and stays
    /// below the numbers (limit times microseconds above 2^64) for which our
    /// arithmetic takes its wide path: no limit anybody sets is that large.
    #[must_use]
    pub const fn terms(self) -> Terms {
        match self {
            Load::Admitted => Terms { limit: 400_000_000, window: Duration::from_secs(40_000) },
            Load::Denied => Terms { limit: 1, window: Duration::from_secs(3_600) },
        }
    }

    /// For the head of a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Load::Admitted => "all admitted",
            Load::Denied => "all denied",
        }
    }
}

/// `SplitMix64`: small, and the same draws everywhere.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A source that always gives the same numbers for the same seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to but without `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        // The upper half of the product is below `end`.
        (((self.bits() >> 32) * u64::from(end)) >> 32) as u32
    }

    fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_within_the_keys_and_follow_the_skew() {
        for scenario in SCENARIOS {
            let draws = scenario.draws();
            assert!(draws.iter().all(|index| *index < scenario.keys));
            let first = draws.iter().filter(|index| **index == 0).count() as f64 / DRAWS as f64;
            // 1 / H(n, 1.1): 0.1498 for 10^4 keys, 0.1216 for 10^6.
            let expected = match (scenario.keys, scenario.skew) {
                (1, _) => 1.0,
                (keys, Skew::Uniform) => 1.0 / f64::from(keys),
                (keys, Skew::Zipf) => {
                    1.0 / (1..=keys).map(|rank| f64::from(rank).powf(-ZIPF_EXPONENT)).sum::<f64>()
                }
            };
            assert!((first - expected).abs() < 0.005, "{}: {first}, not {expected}", scenario.name);
        }
    }
}
