//! What we promise on Redis, held against what came out.

use ratekeeper_testkit::servers::Flavour;

use crate::redis::FLAVOURS;
use crate::redis::accuracy::{EXACT, Finding};
use crate::redis::cells::{CALLERS_MAIN, Candidate, Cell};
use crate::redis::rounds::{Figures, Results};
use crate::redis::scenario::Scenario;
use crate::series::{Ratio, Series};
use crate::targets::{Target, Verdict};

const OVER_PLAIN_MIN: f64 = 2.0;
/// What we hope for beyond what we promise.
const OVER_PLAIN_AIM: f64 = 3.0;
const OVER_LIMITADOR_MIN: f64 = 4.0;
const OF_BARE_MIN: f64 = 0.9;
const ALONE_P50_MAX: f64 = 1.15;
const OVERRIDES_OVER_PLAIN_MIN: f64 = 1.8;
const TIERS_CPU_MAX: f64 = 1.6;

/// Every promise, server by server.
#[must_use]
pub fn check(results: &Results, accuracy: &[Finding]) -> Vec<Target> {
    FLAVOURS.into_iter().flat_map(|flavour| on(flavour, results, accuracy)).collect()
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

fn on(flavour: Flavour, results: &Results, accuracy: &[Finding]) -> Vec<Target> {
    use Candidate::{Bare, Limitador, Ours, Plain};
    use Scenario::{FourTiers, NoOverride, OneQuota};
    let ratios = Ratios { flavour, results };
    let rate = |candidate| Place(OneQuota, CALLERS_MAIN, candidate, |figures| &figures.rate);
    let p50 = |callers, candidate| Place(OneQuota, callers, candidate, |figures| &figures.p50);
    let overrides = |candidate| Place(NoOverride, CALLERS_MAIN, candidate, |figures| &figures.rate);
    let server = |scenario| Place(scenario, CALLERS_MAIN, Ours, |figures| &figures.server_cpu);
    let client = Place(OneQuota, CALLERS_MAIN, Ours, |figures| &figures.client_cpu);
    let at_least = |least: f64| move |ratio: f64| ratio >= least;
    let at_most = |most: f64| move |ratio: f64| ratio <= most;
    let who = format!("{CALLERS_MAIN} callers");
    vec![
        ratios.target(
            &format!(
                "one quota, {who}: at least {OVER_PLAIN_MIN:.1}x the throughput of a script per request \
                 (the aim is {OVER_PLAIN_AIM:.1}x)"
            ),
            rate(Ours),
            rate(Plain),
            at_least(OVER_PLAIN_MIN),
        ),
        ratios.target(
            &format!("one quota, {who}: at least {OVER_LIMITADOR_MIN:.1}x limitador's throughput"),
            rate(Ours),
            rate(Limitador),
            at_least(OVER_LIMITADOR_MIN),
        ),
        ratios.target(
            &format!("one quota, {who}: at least {OF_BARE_MIN:.2}x of the bare load generator's throughput"),
            rate(Ours),
            rate(Bare),
            at_least(OF_BARE_MIN),
        ),
        ratios.target(
            &format!("one quota, {who}: median wait not above a script per request's"),
            p50(CALLERS_MAIN, Ours),
            p50(CALLERS_MAIN, Plain),
            at_most(1.0),
        ),
        ratios.target(
            &format!(
                "one quota, 1 caller: median wait at most {ALONE_P50_MAX:.2}x of a script per request's"
            ),
            p50(1, Ours),
            p50(1, Plain),
            at_most(ALONE_P50_MAX),
        ),
        ratios.target(
            &format!(
                "fixed window with two override look-ups, {who}: at least {OVERRIDES_OVER_PLAIN_MIN:.1}x \
                 the throughput of a script per request that does the same"
            ),
            overrides(Ours),
            overrides(Plain),
            at_least(OVERRIDES_OVER_PLAIN_MIN),
        ),
        ratios.target(
            &format!("four tiers, {who}: at most {TIERS_CPU_MAX:.1}x the server's CPU time of one quota"),
            server(FourTiers),
            server(OneQuota),
            at_most(TIERS_CPU_MAX),
        ),
        ratios.target(
            &format!("one quota, {who}: the client's CPU time per check below the server's"),
            client,
            server(OneQuota),
            |ratio| ratio < 1.0,
        ),
        exact(flavour, accuracy),
    ]
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
