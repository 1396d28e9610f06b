//! What we promise on Redis, held against what came out.

use ratekeeper_testkit::servers::Flavour;

use crate::redis::FLAVOURS;
use crate::redis::accuracy::{EXACT, Finding};
use crate::redis::cells::{CALLERS_CROWD, CALLERS_MAIN, Candidate, Cell};
use crate::redis::rounds::{Figures, Results};
use crate::redis::scenario::Scenario;
use crate::series::{Ratio, Series};
use crate::targets::{Target, Verdict};

const OVER_PLAIN_MIN: f64 = 3.0;
const OVER_LIMITADOR_MIN: f64 = 4.0;
const OF_BARE_MIN: f64 = 0.9;
const ALONE_P50_MAX: f64 = 1.15;
const OVERRIDES_OVER_PLAIN_MIN: f64 = 1.8;
/// For as many callers as wait in a queue.
const CROWD_OVER_PLAIN_MIN: f64 = 2.5;
const TIERS_CPU_MAX: f64 = 1.6;

/// Every promise, server by server.
#[must_use]
pub fn check(results: &Results, accuracy: &[Finding]) -> Vec<Target> {
    let on = |flavour| {
        let ratios = Ratios { flavour, results };
        let speed = [one_quota(&ratios), other_scenarios(&ratios)].concat();
        speed.into_iter().chain([exact(flavour, accuracy)])
    };
    FLAVOURS.into_iter().flat_map(on).collect()
}

/// A figure of a cell.
type Pick = fn(&Figures) -> &Series;

/// Where a figure is.
#[derive(Clone, Copy)]
struct Place(Scenario, usize, Candidate, Pick);

/// Ratios of figures of one server.
struct Ratios<'a> {
    flavour: Flavour,
    results: &'a Results,
}

impl Ratios<'_> {
    fn series(&self, Place(scenario, callers, candidate, pick): Place) -> Option<&Series> {
        let cell = Cell { flavour: self.flavour, callers, scenario, candidate };
        self.results.get(cell).map(pick)
    }

    fn target(&self, promise: &str, of: Place, over: Place, kept: impl Fn(f64) -> bool) -> Target {
        let promise = format!("{}: {promise}", self.flavour);
        let ratio = self.series(of).zip(self.series(over)).map(|(of, over)| of.over(over));
        match ratio {
            None => Target { verdict: Verdict::Absent, promise, got: "not measured".into() },
            Some(Ratio { median, min, max }) => Target {
                verdict: Verdict::of(kept(median)),
                promise,
                got: format!("{median:.2}x (rounds {min:.2} to {max:.2})"),
            },
        }
    }
}

const fn at_least(least: f64) -> impl Fn(f64) -> bool {
    move |ratio| ratio >= least
}

const fn at_most(most: f64) -> impl Fn(f64) -> bool {
    move |ratio| ratio <= most
}

fn one_quota(ratios: &Ratios<'_>) -> Vec<Target> {
    use Candidate::{Bare, Limitador, Ours, Plain};
    let place = |callers, candidate, pick| Place(Scenario::OneQuota, callers, candidate, pick);
    let rate = |candidate| place(CALLERS_MAIN, candidate, |figures| &figures.rate);
    let p50 = |callers, candidate| place(callers, candidate, |figures| &figures.p50);
    let who = format!("one quota, {CALLERS_MAIN} callers");
    vec![
        ratios.target(
            &format!("{who}: at least {OVER_PLAIN_MIN:.1}x the throughput of a script per request"),
            rate(Ours),
            rate(Plain),
            at_least(OVER_PLAIN_MIN),
        ),
        ratios.target(
            &format!("{who}: at least {OVER_LIMITADOR_MIN:.1}x limitador's throughput"),
            rate(Ours),
            rate(Limitador),
            at_least(OVER_LIMITADOR_MIN),
        ),
        ratios.target(
            &format!("{who}: at least {OF_BARE_MIN:.2}x the bare load generator's throughput"),
            rate(Ours),
            rate(Bare),
            at_least(OF_BARE_MIN),
        ),
        ratios.target(
            &format!("{who}: median wait not above that of a script per request"),
            p50(CALLERS_MAIN, Ours),
            p50(CALLERS_MAIN, Plain),
            at_most(1.0),
        ),
        ratios.target(
            &format!(
                "one quota, 1 caller: median wait at most {ALONE_P50_MAX:.2}x that of a script per request"
            ),
            p50(1, Ours),
            p50(1, Plain),
            at_most(ALONE_P50_MAX),
        ),
        ratios.target(
            &format!("{who}: the client's CPU time below the server's"),
            place(CALLERS_MAIN, Ours, |figures| &figures.client_cpu),
            place(CALLERS_MAIN, Ours, |figures| &figures.server_cpu),
            |ratio| ratio < 1.0,
        ),
    ]
}

fn other_scenarios(ratios: &Ratios<'_>) -> Vec<Target> {
    let rate =
        |scenario, callers, candidate| Place(scenario, callers, candidate, |figures: &Figures| &figures.rate);
    let over_plain = |promise: &str, scenario, callers, least| {
        let (of, over) =
            (rate(scenario, callers, Candidate::Ours), rate(scenario, callers, Candidate::Plain));
        let promise = format!(
            "{promise}, {callers} callers: at least {least:.1}x the throughput of a script per request that does \
             the same"
        );
        ratios.target(&promise, of, over, at_least(least))
    };
    let server_cpu =
        |scenario| Place(scenario, CALLERS_MAIN, Candidate::Ours, |figures: &Figures| &figures.server_cpu);
    let mut targets = vec![
        over_plain(
            "fixed window with two override look-ups",
            Scenario::NoOverride,
            CALLERS_MAIN,
            OVERRIDES_OVER_PLAIN_MIN,
        ),
        ratios.target(
            &format!(
                "four tiers, {CALLERS_MAIN} callers: at most {TIERS_CPU_MAX:.1}x the server's CPU time of \
                 one quota"
            ),
            server_cpu(Scenario::FourTiers),
            server_cpu(Scenario::OneQuota),
            at_most(TIERS_CPU_MAX),
        ),
    ];
    if ratios.flavour == FLAVOURS[0] {
        // Measured on one server only.
        let scenario = Scenario::ProjectOverride;
        targets.push(over_plain(scenario.name(), scenario, CALLERS_MAIN, OVERRIDES_OVER_PLAIN_MIN));
    }
    let scenario = Scenario::OneQuota;
    targets.push(over_plain(scenario.name(), scenario, CALLERS_CROWD, CROWD_OVER_PLAIN_MIN));
    targets
}

fn exact(flavour: Flavour, accuracy: &[Finding]) -> Target {
    let ours = |finding: &&Finding| finding.flavour == flavour && finding.candidate == Candidate::Ours;
    let ours: Vec<&Finding> = accuracy.iter().filter(ours).collect();
    let promise = format!("{flavour}: what quotas have room for is admitted, not one more or less");
    if ours.is_empty() {
        return Target { verdict: Verdict::Absent, promise, got: "not measured".into() };
    }
    let off: Vec<String> = ours.iter().map(|finding| format!("{:+}", finding.off())).collect();
    Target {
        verdict: Verdict::of(ours.iter().all(|finding| finding.off() == 0 && finding.failed == 0)),
        promise,
        got: format!("{} of {EXACT} in {} scenarios", off.join(", "), ours.len()),
    }
}
