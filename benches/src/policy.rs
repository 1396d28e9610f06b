//! What it costs to find the rules that apply to a request, and their keys.
//!
//! Every case is a policy and a pool of requests. Ours is asked twice: which rules
//! apply (`matched`), and for the whole decision in memory (`check_now`).
//! limitador gets the same limits, and has to do what its server does for every
//! request: build a context, and ask.

mod cases;
mod reload;

use std::hint::black_box;
use std::time::{Duration, Instant};

use limitador::storage::in_memory::InMemoryStorage;
use ratekeeper::MemoryStore;
use ratekeeper::policy::{Ask, Policies, PolicyLimiter, PolicySpec, RequestFacts, ServiceLimiter};

use self::cases::Case;
use crate::Result;
use crate::conditions::Conditions;
use crate::measure::Plan;
use crate::report::{self, table};
use crate::series::Series;
use crate::targets::{Target, Verdict};

/// Requests between two looks at the clock.
const CHUNK: usize = 100;
/// What a typical policy may cost.
const TYPICAL_NS_MAX: f64 = 1_000.0;

/// Runs everything and tells about it.
///
/// # Errors
/// If a policy or a limit is not one.
pub fn run(plan: Plan) -> Result<String> {
    let conditions = Conditions::begin();
    let cases = cases::all();
    let mut rows = Vec::new();
    for case in &cases {
        rows.push(measure(case, plan)?);
    }
    let reload = reload::run(plan)?;
    let typical = &rows[0];
    let target = |got: f64, promise: &str| Target {
        verdict: if got <= TYPICAL_NS_MAX { Verdict::Pass } else { Verdict::Miss },
        promise: promise.to_owned(),
        got: format!("{got:.0} ns"),
    };
    let targets = [
        target(typical.matched.median(), "three rules: finding those that apply takes at most 1 \u{b5}s"),
        target(typical.decided.median(), "three rules: even the whole decision in memory takes at most 1 \u{b5}s"),
    ];
    let conditions = report::conditions(&conditions, plan);
    let mut text = format!("## Policies\n\n{conditions}- command: `make bench-policy`\n\n");
    text += &report::targets(&targets);
    text += "\n### Finding the rules that apply\n\nNanoseconds for a request, one thread; median of the rounds, \
             least and largest in brackets. limitador has no bodies and no custom entries.\n\n";
    let head = ["policy", "rules that apply", "which apply", "whole decision", "limitador, whole decision"];
    text += &table(&head, rows.iter().map(Row::cells));
    text += &reload;
    Ok(text)
}

struct Row {
    name: &'static str,
    applied: String,
    matched: Series,
    decided: Series,
    limitador: Option<Series>,
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let spread = |series: &Series| {
            format!("{:.0} ({:.0} to {:.0})", series.median(), series.min(), series.max())
        };
        let limitador = self.limitador.as_ref().map_or_else(|| "\u{2013}".to_owned(), spread);
        let (matched, decided) = (spread(&self.matched), spread(&self.decided));
        vec![self.name.to_owned(), self.applied.clone(), matched, decided, limitador]
    }
}

/// The limits of a policy on a store in memory.
fn service(policy: &str) -> Result<ServiceLimiter> {
    let policies = Policies::builder().mode(None).build()?;
    let read = PolicySpec::read("bench.json", ratekeeper::policy::Format::Json, policy.as_bytes());
    policies.install("bench.json", read, None)?;
    Ok(PolicyLimiter::new(MemoryStore::new(), policies).service("bench")?)
}

fn measure(case: &Case, plan: Plan) -> Result<Row> {
    let service = service(&case.policy)?;
    let limitador = case.limits.as_ref().map(|limits| {
        let storage = Box::new(InMemoryStorage::new(1_000_000));
        let limiter = limitador::RateLimiter::new_with_storage(storage);
        for limit in limits() {
            limiter.add_limit(limit);
        }
        limiter
    });
    let (mut matched, mut decided, mut peer) = (Series::default(), Series::default(), Series::default());
    for _ in 0..plan.rounds {
        matched.push(nanos(plan.time, &case.requests, |request| {
            black_box(service.matched(&Ask::request(request)).is_limited())
        }));
        decided.push(nanos(plan.time, &case.requests, |request| {
            service.check_now(&Ask::request(request)).is_ok_and(|decision| decision.is_allowed())
        }));
        if let (Some(limiter), Some(values)) = (&limitador, case.values) {
            let namespace = "bench".into();
            peer.push(nanos(plan.time, &case.requests, |request| {
                let context = limitador::limit::Context::from(values(request));
                let answer = limiter.check_rate_limited_and_update(&namespace, &context, 1);
                answer.is_ok_and(|answer| !answer.limited)
            }));
        }
    }
    let applied = case.requests.iter().map(|request| {
        let decision = service.check_now(&Ask::request(request));
        decision.map_or(0, |decision| decision.verdicts().len())
    });
    let applied: Vec<usize> = applied.collect();
    let (least, most) = (applied.iter().min().unwrap_or(&0), applied.iter().max().unwrap_or(&0));
    let applied = if least == most { least.to_string() } else { format!("{least} or {most}") };
    Ok(Row { name: case.name, applied, matched, decided, limitador: limitador.map(|_| peer) })
}

/// Nanoseconds for a request.
fn nanos(time: Duration, requests: &[RequestFacts], mut ask: impl FnMut(&RequestFacts) -> bool) -> f64 {
    let mut passed = 0_u64;
    let mut round = |time: Duration| {
        let (start, mut count) = (Instant::now(), 0_u64);
        for chunk in requests.chunks_exact(CHUNK).cycle() {
            passed += chunk.iter().map(|request| u64::from(ask(black_box(request)))).sum::<u64>();
            count += CHUNK as u64;
            if start.elapsed() >= time {
                break;
            }
        }
        start.elapsed().as_nanos() as f64 / count as f64
    };
    round(time / 10);
    let nanos = round(time);
    black_box(passed);
    nanos
}
