//! What requests notice of a policy that is replaced again and again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratekeeper::MemoryStore;
use ratekeeper::policy::{Ask, Format, Policies, PolicyLimiter, PolicySpec, RequestFacts, ServiceLimiter};
use serde_json::{Value, json};

use crate::Result;
use crate::measure::Plan;
use crate::report::table;

/// Custom entries of the policy.
const ENTRIES: usize = 10_000;

fn document(limit: u32) -> Vec<u8> {
    let entry = |n: usize| (format!("user:{n}"), json!({ "rps": limit, "rpm": limit }));
    let entries: serde_json::Map<String, Value> = (0..ENTRIES).map(entry).collect();
    let rule = json!({ "name": "general", "keys": "user:{header.x-user}", "custom": entries,
                       "quota": format!("{limit}/s") });
    json!({ "service": "bench", "rules": [rule] }).to_string().into_bytes()
}

fn install(policies: &Policies, document: &[u8]) -> Result<Duration> {
    let start = Instant::now();
    policies.install("bench.json", PolicySpec::read("bench.json", Format::Json, document), None)?;
    Ok(start.elapsed())
}

/// How long requests took, and how many were not answered as they should have been.
struct Load {
    nanos: Vec<u64>,
    wrong: u64,
}

impl Load {
    fn run(service: &ServiceLimiter, time: Duration) -> Self {
        let requests: Vec<RequestFacts> = (0..1_000)
            .map(|n| RequestFacts::new("GET", "/").header("x-user", (n * 10).to_string()))
            .collect();
        let mut load = Self { nanos: Vec::with_capacity(1 << 24), wrong: 0 };
        let end = Instant::now() + time;
        for request in requests.iter().cycle() {
            let start = Instant::now();
            let decision = service.check_now(&Ask::request(request));
            let nanos = start.elapsed().as_nanos();
            let right = decision.is_ok_and(|decision| decision.is_allowed() && decision.verdicts().len() == 2);
            load.wrong += u64::from(!right);
            load.nanos.push(u64::try_from(nanos).unwrap_or(u64::MAX));
            if start >= end || load.nanos.len() == load.nanos.capacity() {
                break;
            }
        }
        load.nanos.sort_unstable();
        load
    }

    fn cells(&self, name: &str, reloads: usize) -> Vec<String> {
        let at = |share: f64| {
            let index = ((self.nanos.len() - 1) as f64 * share) as usize;
            format!("{:.2}", self.nanos[index] as f64 / 1_000.0)
        };
        let (count, wrong) = (self.nanos.len().to_string(), self.wrong.to_string());
        vec![name.to_owned(), reloads.to_string(), count, wrong, at(0.5), at(0.99), at(0.999), at(1.0)]
    }
}

/// Measures and tells.
pub(super) fn run(plan: Plan) -> Result<String> {
    let documents = [document(1_000_000_000), document(999_999_999)];
    let policies = Policies::builder().mode(None).build()?;
    install(&policies, &documents[0])?;
    let service = PolicyLimiter::new(MemoryStore::new(), policies.clone()).service("bench")?;
    let time = plan.time * plan.rounds * 4;
    let quiet = Load::run(&service, time);
    let (stop, mut took) = (AtomicBool::new(false), Vec::new());
    let busy = std::thread::scope(|scope| {
        let other = scope.spawn(|| spin(&stop));
        let load = Load::run(&service, time);
        stop.store(true, Ordering::Relaxed);
        other.join().map(|()| load)
    });
    stop.store(false, Ordering::Relaxed);
    let loaded = std::thread::scope(|scope| {
        let reloads = scope.spawn(|| {
            let mut took = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let document = &documents[(took.len() + 1) % 2];
                took.extend(install(&policies, document).ok());
            }
            took
        });
        let load = Load::run(&service, time);
        stop.store(true, Ordering::Relaxed);
        took = reloads.join().unwrap_or_default();
        load
    });
    took.sort_unstable();
    let busy = busy.map_err(|_| "the other thread panicked")?;
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    let head = ["", "reloads", "requests", "wrong answers", "p50 \u{b5}s", "p99 \u{b5}s", "p99.9 \u{b5}s", "max \u{b5}s"];
    let rows = [
        quiet.cells("no reloads, other core idle", 0),
        busy.cells("no reloads, other core busy", 0),
        loaded.cells("reloads without a pause on the other core", took.len()),
    ];
    Ok(format!(
        "\n### Reloading under load\n\nOne thread decides as fast as it can, each request timed by itself; another \
         reads, checks, compiles and swaps a policy of {ENTRIES} custom entries again and again. One reload \
         takes {:.0} ms (median). The other core being busy costs something by itself: see the second row.\n\n{}",
        median.as_secs_f64() * 1_000.0,
        table(&head, rows)
    ))
}

/// Keeps a core busy with nothing.
fn spin(stop: &AtomicBool) {
    let mut values = vec![0_u64; 1 << 20];
    while !stop.load(Ordering::Relaxed) {
        for (index, value) in values.iter_mut().enumerate() {
            *value = value.wrapping_mul(31).wrapping_add(index as u64);
        }
    }
    std::hint::black_box(&values);
}
