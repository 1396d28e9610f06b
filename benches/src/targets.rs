//! What we promise, held against what came out.

use crate::candidate::Candidate;
use crate::measure::{Cell, Results, THREADS};
use crate::scenario::{Load, SCENARIOS};
use crate::series::Ratio;
use crate::{allocations, rss};

/// A denial may be slower than an admission by this much: the same code
/// measured twice differs by more than nothing.
const NOISE: f64 = 0.05;
const LAYERED_MAX: f64 = 2.5;
const LIMITER_MAX: f64 = 1.3;
/// Governor writes nothing for a denial, and neither do we.
const DENIED_OVER_GOVERNOR_MIN: f64 = 1.2;
const BYTES_PER_KEY_MAX: f64 = 64.0;

/// Whether a promise was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was.
    Pass,
    /// It was not.
    Miss,
    /// It was not measured.
    Absent,
}

impl Verdict {
    /// Kept or missed.
    pub(crate) const fn of(kept: bool) -> Self {
        if kept { Verdict::Pass } else { Verdict::Miss }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::Pass => "PASS",
            Verdict::Miss => "MISS",
            Verdict::Absent => "ABSENT",
        }
    }
}

/// One promise.
#[derive(Clone, Debug)]
pub struct Target {
    /// Kept or not.
    pub verdict: Verdict,
    /// What was promised.
    pub promise: String,
    /// What came out.
    pub got: String,
}

/// A promise about two rows: how many times as fast, or as slow, one is.
struct Pair {
    of: (Candidate, Load),
    than: (Candidate, Load),
}

impl Pair {
    /// The throughput of the one over the throughput of the other.
    fn ratio(&self, results: &Results, scenario: usize, threads: usize) -> Option<Ratio> {
        let series = |(candidate, load)| results.get(Cell { scenario, threads, load, candidate });
        Some(series(self.of)?.over(series(self.than)?))
    }

    fn target(
        &self,
        results: &Results,
        at: (usize, usize),
        promise: &str,
        kept: impl Fn(f64) -> bool,
    ) -> Target {
        let (scenario, threads) = at;
        let promise = format!("{promise}: {}, {threads} thread(s)", SCENARIOS[scenario].name);
        match self.ratio(results, scenario, threads) {
            None => Target { verdict: Verdict::Absent, promise, got: "not measured".into() },
            Some(Ratio { median, min, max }) => Target {
                verdict: Verdict::of(kept(median)),
                promise,
                got: format!("{median:.2}x (rounds {min:.2} to {max:.2})"),
            },
        }
    }
}

/// Every promise, in the order of the tables.
#[must_use]
pub fn check(results: &Results, bytes: &[rss::Finding], allocated: &[allocations::Finding]) -> Vec<Target> {
    let mut targets = Vec::new();
    targets.extend(everywhere().map(|at| against_governor(results, at)));
    targets.extend(everywhere().map(|at| denials_against_governor(results, at)));
    targets.extend(everywhere().map(|at| denials(results, at)));
    targets.extend(everywhere().map(|at| layered(results, at)));
    targets.extend(everywhere().map(|at| limiter(results, at)));
    targets.push(bytes_per_key(bytes));
    for candidate in [Candidate::TryCheck, Candidate::Layered, Candidate::Limiter] {
        targets.push(no_allocation(candidate, allocated));
    }
    targets
}

fn everywhere() -> impl Iterator<Item = (usize, usize)> {
    (0..SCENARIOS.len()).flat_map(|scenario| THREADS.map(|threads| (scenario, threads)))
}

fn against_governor(results: &Results, at: (usize, usize)) -> Target {
    let pair =
        Pair { of: (Candidate::TryCheck, Load::Admitted), than: (Candidate::Governor, Load::Admitted) };
    let target = SCENARIOS[at.0].target;
    let promise = format!("at least {target:.1}x governor's throughput");
    pair.target(results, at, &promise, |ratio| ratio >= target)
}

fn denials_against_governor(results: &Results, at: (usize, usize)) -> Target {
    let pair = Pair { of: (Candidate::TryCheck, Load::Denied), than: (Candidate::Governor, Load::Denied) };
    let promise = format!("denials: at least {DENIED_OVER_GOVERNOR_MIN:.1}x governor's throughput");
    pair.target(results, at, &promise, |ratio| ratio >= DENIED_OVER_GOVERNOR_MIN)
}

fn denials(results: &Results, at: (usize, usize)) -> Target {
    let pair = Pair { of: (Candidate::TryCheck, Load::Denied), than: (Candidate::TryCheck, Load::Admitted) };
    let promise = format!("denials as fast as admissions, within {:.0} %", NOISE * 100.0);
    pair.target(results, at, &promise, |ratio| ratio >= 1.0 - NOISE)
}

// The next two are promises about time, so the ratio is turned around.

fn layered(results: &Results, at: (usize, usize)) -> Target {
    let pair = Pair { of: (Candidate::TryCheck, Load::Admitted), than: (Candidate::Layered, Load::Admitted) };
    let promise = format!("three quotas at most {LAYERED_MAX:.1}x the time of one");
    pair.target(results, at, &promise, |ratio| ratio <= LAYERED_MAX)
}

fn limiter(results: &Results, at: (usize, usize)) -> Target {
    let pair = Pair { of: (Candidate::TryCheck, Load::Admitted), than: (Candidate::Limiter, Load::Admitted) };
    let promise = format!("`Limiter` at most {LIMITER_MAX:.1}x the time of its store");
    pair.target(results, at, &promise, |ratio| ratio <= LIMITER_MAX)
}

fn bytes_per_key(findings: &[rss::Finding]) -> Target {
    let ours = findings.iter().filter(|finding| finding.candidate == Candidate::TryCheck);
    let promise = format!("at most {BYTES_PER_KEY_MAX:.0} bytes per key, at the worst size measured");
    match ours.max_by(|one, other| one.bytes_per_key.total_cmp(&other.bytes_per_key)) {
        None => Target { verdict: Verdict::Absent, promise, got: "not measured".into() },
        Some(worst) => Target {
            verdict: Verdict::of(worst.bytes_per_key <= BYTES_PER_KEY_MAX),
            promise,
            got: format!("{:.1} at {} keys", worst.bytes_per_key, worst.keys),
        },
    }
}

fn no_allocation(candidate: Candidate, findings: &[allocations::Finding]) -> Target {
    let own: Vec<_> = findings.iter().filter(|finding| finding.candidate == candidate).collect();
    let promise = format!("no allocation per check: {}", candidate.name());
    let total: u64 = own.iter().map(|finding| finding.allocations).sum();
    let verdict = if own.is_empty() { Verdict::Absent } else { Verdict::of(total == 0) };
    let got = match verdict {
        Verdict::Absent => "not measured".into(),
        _ => format!("{total} in {} checks", own.len() as u64 * allocations::CHECKS),
    };
    Target { verdict, promise, got }
}
