//! The report: Markdown, targets first.

use std::fmt::Write as _;

use crate::Result;
use crate::conditions::Conditions;
use crate::machine::Pinning;
use crate::report::{NOTHING, table, targets};
use crate::series::{Ratio, Series};
use crate::server::contestant::Candidate;
use crate::server::load::CONNECTIONS;
use crate::server::rounds::{Cell, Figures, Kept, Loop, OPEN_PERCENT, Plan, Results, Setting};
use crate::targets::{Target, Verdict};

/// What is asked of us, in the peer's requests per second.
const OVER_PEER_MIN: f64 = 1.35;

/// Under what conditions, as a Markdown list.
///
/// # Errors
/// If a server is not there.
pub fn conditions(
    conditions: &Conditions,
    command: &str,
    plan: Plan,
    pinning: Pinning,
    redis: &str,
) -> Result<String> {
    let rounds = format!("{} of {} ms, both servers in turn", plan.rounds, plan.time.as_millis());
    let quick = if plan.quick { "; QUICK: it works, but no target can be judged by this" } else { "" };
    let more = [
        ("command", command.to_owned()),
        ("cores", pinning.as_str().to_owned()),
        ("took part", Candidate::Ours.version()? + ", as it comes; built like this program"),
        ("took part", Candidate::Peer.version()? + ", HTTP alone, as it comes; built like this program"),
        ("took part", redis.to_owned()),
        ("rounds", rounds + quick),
    ];
    Ok(conditions.describe(&["ratekeeper", "tokio"], &more))
}

/// The whole section.
#[must_use]
pub fn markdown(conditions: &str, plan: Plan, results: &Results) -> String {
    let mut text = format!(
        "## The server\n\n{conditions}\n{}\n### Requests per second, and waits\n\nHTTP/1.1 on {CONNECTIONS} \
         connections that stay open; each request names its key and one token bucket that lets it pass. \
         Ours: `POST /v1/limit`; it answers with the decision, its limits and their header fields. The \
         peer: `POST /throttle`. A closed loop sends as soon as it is answered; an open loop at a fixed \
         rate, in percent of what the slower server does in a closed loop, and its waits count from the \
         instant a request is due. The load polls, so that no server spends time on waking it; where it \
         sleeps, a server that answers in bursts wakes it less often. Keys are drawn uniformly; a single \
         key is a new one each turn. Median \
         of the rounds, least and largest in brackets.\n",
        targets(&verdicts(plan, results))
    );
    for setting in Setting::all(plan) {
        let _ = write!(
            text,
            "\n#### {}, {} live key(s)\n\n{}",
            store(setting),
            setting.keys,
            figures(setting, results)
        );
    }
    if !results.failures.is_empty() {
        let _ = write!(text, "\n**Requests that failed:**\n\n- {}\n", results.failures.join("\n- "));
    }
    text + &memory(results)
}

const fn store(setting: Setting) -> &'static str {
    match setting.kept {
        Kept::Memory => "In memory",
        Kept::Redis => "In Redis on the server's core",
    }
}

/// Every promise: those of the peer's kind, in a closed loop and in memory. Judged with both
/// kinds of load, because who is ahead depends on it.
fn verdicts(plan: Plan, results: &Results) -> Vec<Target> {
    let in_memory = Setting::all(plan).into_iter().filter(|setting| setting.kept == Kept::Memory);
    let mut verdicts: Vec<Target> = in_memory
        .flat_map(|setting| [Loop::Closed, Loop::Asleep].map(|asked| over_peer(setting, asked, results)))
        .flatten()
        .collect();
    let sum = |pick: fn(&Figures) -> u64| results.cells.iter().map(|(_, figures)| pick(figures)).sum::<u64>();
    let (denied, failed) = (sum(|figures| figures.denied), sum(|figures| figures.failed));
    verdicts.push(Target {
        verdict: Verdict::of(denied == 0 && failed == 0),
        promise: "every request of this run is answered, and let pass".into(),
        got: format!("{denied} denied, {failed} failed"),
    });
    verdicts
}

fn over_peer(setting: Setting, asked: Loop, results: &Results) -> [Target; 2] {
    let ratio = |pick: fn(&Figures) -> &Series| {
        let of = |candidate| results.get(Cell { setting, asked, candidate }).map(pick);
        of(Candidate::Ours).zip(of(Candidate::Peer)).map(|(ours, peers)| ours.over(peers))
    };
    let target = |promise: &str, ratio: Option<Ratio>, kept: fn(f64) -> bool| {
        let promise = format!("{}, in memory, {} live key(s): {promise}", words(asked), setting.keys);
        match ratio {
            None => Target { verdict: Verdict::Absent, promise, got: "not measured".into() },
            Some(Ratio { median, min, max }) => Target {
                verdict: Verdict::of(kept(median)),
                promise,
                got: format!("{median:.2}x (rounds {min:.2} to {max:.2})"),
            },
        }
    };
    let name = Candidate::Peer.name();
    [
        target(
            &format!("at least {OVER_PEER_MIN:.1}x the requests per second of {name}"),
            ratio(|figures| &figures.rate),
            |ratio| ratio >= OVER_PEER_MIN,
        ),
        target(&format!("p99 below that of {name}"), ratio(|figures| &figures.p99), |ratio| ratio < 1.0),
    ]
}

fn figures(setting: Setting, results: &Results) -> String {
    let loops = [Loop::Closed, Loop::Asleep].into_iter().chain(OPEN_PERCENT.map(Loop::Open));
    let mut rows = Vec::new();
    for asked in loops {
        for candidate in [Candidate::Ours, Candidate::Peer] {
            let Some(figures) = results.get(Cell { setting, asked, candidate }) else { continue };
            rows.push(row(asked, candidate, figures));
        }
    }
    let head = [
        "loop",
        "server",
        "requests/s",
        "p50 \u{b5}s",
        "p99 \u{b5}s",
        "server's CPU \u{b5}s per request",
        "load busy",
        "denied",
        "failed",
    ];
    table(&head, rows)
}

fn words(asked: Loop) -> String {
    match asked {
        Loop::Closed => "closed, load polls".to_owned(),
        Loop::Asleep => "closed, load sleeps".to_owned(),
        Loop::Open(percent) => format!("open, {percent} %"),
    }
}

fn row(asked: Loop, candidate: Candidate, figures: &Figures) -> Vec<String> {
    let spread = |series: &Series, digits: usize| {
        format!("{:.digits$} ({:.digits$} to {:.digits$})", series.median(), series.min(), series.max())
    };
    vec![
        words(asked),
        candidate.name().to_owned(),
        spread(&figures.rate, 0),
        spread(&figures.p50, 0),
        spread(&figures.p99, 0),
        format!("{:.1}", figures.server_cpu.median()),
        if figures.busy.median().is_nan() {
            NOTHING.to_owned()
        } else {
            format!("{:.2}", figures.busy.median())
        },
        figures.denied.to_string(),
        figures.failed.to_string(),
    ]
}

fn memory(results: &Results) -> String {
    let row = |memory: &crate::server::rounds::Memory| {
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        let keys = memory.setting.keys;
        let per_key = memory.after.saturating_sub(memory.before) as f64 / f64::from(keys);
        vec![
            store(memory.setting).to_owned(),
            memory.candidate.name().to_owned(),
            if keys > 1 { keys.to_string() } else { "0".into() },
            mib(memory.before),
            mib(memory.after),
            if keys > 1 { format!("{per_key:.0}") } else { NOTHING.to_owned() },
        ]
    };
    let head = ["counters", "server", "keys", "MiB at the start", "MiB with the keys", "bytes per key"];
    format!(
        "\n### Memory\n\nThe resident set of the server's process, with {CONNECTIONS} connections; the keys \
         are of 13 bytes. Redis has its own.\n\n{}",
        table(&head, results.memory.iter().map(row).collect::<Vec<_>>())
    )
}
