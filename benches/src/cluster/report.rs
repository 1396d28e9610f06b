//! The report: Markdown, targets first.

use std::fmt::Write as _;

use crate::cluster::rounds::{CALLERS_ALONE, CALLERS_MAIN, Figures, Plan, Results, tables};
use crate::cluster::shape::{COUNTERS, Shape};
use crate::cluster::stand::{PRIMARIES, Place};
use crate::conditions::Conditions;
use crate::machine::Pinning;
use crate::report::{NOTHING, table, targets};
use crate::series::{Ratio, Series};
use crate::targets::{Target, Verdict};

/// Crates whose versions a reader needs to repeat a run.
const CRATES: [&str; 3] = ["ratekeeper", "redis", "tokio"];
/// What being routed may cost a check.
const ROUTING_MAX: f64 = 1.15;
/// The load that is worked out on paper, in checks per second.
const ON_PAPER: f64 = 1e7;
/// A primary that is busier than this has no room for a moment that is worse.
const BUSY_MAX: f64 = 0.6;

/// The conditions as a Markdown list.
#[must_use]
pub fn conditions(
    conditions: &Conditions,
    command: &str,
    plan: Plan,
    pinning: Pinning,
    about: &str,
) -> String {
    let rounds = format!("{} of {} ms, all rows of a table in turn", plan.rounds, plan.time.as_millis());
    let quick = if plan.quick { "; QUICK: it works, but no target can be judged by this" } else { "" };
    let more = [
        ("command", command.to_owned()),
        ("cores", format!("{}; all servers share theirs, however many", pinning.as_str())),
        ("servers", about.to_owned()),
        ("rounds", rounds + quick),
    ];
    conditions.describe(&CRATES, &more)
}

/// The report as Markdown.
#[must_use]
pub fn markdown(conditions: &str, results: &Results) -> String {
    let sections = [
        format!("## On a cluster\n\n{conditions}"),
        targets(&promises(results)),
        speed(results),
        on_paper(results),
    ];
    sections.join("\n")
}

fn promises(results: &Results) -> Vec<Target> {
    let percent = (ROUTING_MAX - 1.0) * 100.0;
    // In one slot all checks are one primary's; many organisations are on all three.
    let shapes = [Shape::OneSlot, Shape::Organisations(1_000), Shape::Organisations(100_000)];
    let all =
        shapes.into_iter().flat_map(|shape| [CALLERS_ALONE, CALLERS_MAIN].map(|callers| (shape, callers)));
    all.map(|(shape, callers)| {
        let promise = format!(
            "routing costs at most {percent:.0} % per check: throughput of one server over that of three \
                 primaries, {}, {callers} caller(s)",
            shape.name()
        );
        let of = |place| results.get(place, shape, callers).map(|figures| &figures.rate);
        match of(Place::Server).zip(of(Place::Cluster)) {
            None => Target { verdict: Verdict::Absent, promise, got: "not measured".into() },
            Some((server, cluster)) => {
                let Ratio { median, min, max } = server.over(cluster);
                Target {
                    verdict: Verdict::of(median <= ROUTING_MAX),
                    promise,
                    got: format!("{median:.2}x (rounds {min:.2} to {max:.2})"),
                }
            }
        }
    })
    .collect()
}

fn speed(results: &Results) -> String {
    let mut text = format!(
        "### Speed\n\n{COUNTERS} counters for single charges, drawn uniformly; all are in use before. Callers ask \
         again as soon as they are answered. Median of the rounds, least and largest in brackets. Time on a processor \
         (of all servers, and of the callers with the library) and bytes (in both directions, without replication) \
         are per check. All of an organisation's counters share a slot, and a call of the script is of one slot: so the more \
         organisations, the fewer checks share a call.\n"
    );
    let head =
        ["what", "where", "callers", "checks/s", "p50 µs", "p99 µs", "servers µs", "callers µs", "bytes"];
    for (name, cells) in tables() {
        let rows = cells.into_iter().map(|cell| {
            let figures = results.get(cell.place, cell.shape, cell.callers);
            let of = |pick: fn(&Figures) -> &Series, digits: usize| {
                figures.map_or_else(|| NOTHING.to_owned(), |figures| spread(pick(figures), digits))
            };
            vec![
                cell.shape.name(),
                cell.place.name().to_owned(),
                cell.callers.to_string(),
                of(|figures| &figures.rate, 0),
                of(|figures| &figures.p50, 0),
                of(|figures| &figures.p99, 0),
                of(|figures| &figures.server_cpu, 1),
                of(|figures| &figures.client_cpu, 1),
                of(|figures| &figures.bytes, 0),
            ]
        });
        // Writing to a string cannot fail.
        let _ = write!(text, "\n#### {name}\n\n{}", table(&head, rows.collect::<Vec<_>>()));
    }
    if !results.strays.is_empty() {
        let _ = write!(text, "\n**Turns with other decisions:**\n\n- {}\n", results.strays.join("\n- "));
    }
    text
}

fn spread(series: &Series, digits: usize) -> String {
    let (median, min, max) = (series.median(), series.min(), series.max());
    format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
}

/// What so many checks would take, from the figures of the busiest callers.
fn on_paper(results: &Results) -> String {
    let shape = Shape::Organisations(100_000);
    let Some(figures) = results.get(Place::Cluster, shape, CALLERS_MAIN) else { return String::new() };
    let of = |series: &Series| series.median();
    let cores = ON_PAPER * of(&figures.server_cpu) / 1e6;
    let primaries = (cores / BUSY_MAX).ceil();
    let clients = (ON_PAPER * of(&figures.client_cpu) / 1e6 / BUSY_MAX).ceil();
    let gigabits = ON_PAPER * of(&figures.bytes) * 8.0 / 1e9;
    format!(
        "### On paper: 10^7 checks a second\n\nFrom \"{}\" with {CALLERS_MAIN} callers on three primaries, which share a \
         core. Each primary has one core, of which it uses at most {:.0} %; so do callers.\n\n{}\n\
         Nothing of this was run: at this size, networks and the nodes' own traffic come in as well. A process that asks \
         for fewer organisations, or has more callers, fills its batches better.\n",
        shape.name(),
        BUSY_MAX * 100.0,
        table(
            &["what", "how much"],
            [
                ("primaries", format!("{primaries:.0} (here: {PRIMARIES} on one core)")),
                ("cores of callers, with the library", format!("{clients:.0}")),
                (
                    "connections to each primary, if a process has 4 cores",
                    format!("{:.0}", (clients / 4.0).ceil())
                ),
                ("connections of such a process", format!("{primaries:.0}")),
                (
                    "network, both directions",
                    format!(
                        "{gigabits:.1} Gbit/s; {:.0} Mbit/s to and from each primary",
                        gigabits * 1e3 / primaries
                    )
                ),
            ]
            .map(|(what, how_much)| vec![what.to_owned(), how_much]),
        ),
    )
}
