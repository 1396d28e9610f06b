//! A run: servers, processes of the load, faults from a seed, and what the checker says.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::call::{Call, now_micros};
use crate::fault::{Event, Fault};
use crate::limits::write_policies;
use crate::load::processes::Processes;
use crate::report::{Outcome, Report};
use crate::topology::{Servers, Topology};
use crate::{RunOptions, checker};

/// Load without faults, at the start and the end: there the quotas hold exactly.
const QUIET: Duration = Duration::from_secs(3);
/// A fault lasts for this long or up to twice as long, where it does not end by itself.
const FAULT_MILLIS: u64 = 300;
/// From one fault to the next, or up to twice as long: breakers close again within two seconds.
const GAP_MILLIS: u64 = 1_200;
/// So many rounds of all faults there are at most.
const ROUNDS_MAX: u32 = 1_000;

/// Runs all topologies; whether the checker found nothing wrong.
pub(crate) fn run(options: &RunOptions) -> anyhow::Result<bool> {
    let share = Duration::from_secs(options.seconds) / u32::try_from(options.topologies.len().max(1))?;
    let mut report = Report::new(options);
    for topology in &options.topologies {
        let outcome = on(*topology, share, options).with_context(|| topology.name())?;
        report.add(topology.name(), outcome);
    }
    print!("{}", report.text());
    Ok(report.is_well())
}

fn on(topology: Topology, share: Duration, options: &RunOptions) -> anyhow::Result<Outcome> {
    let folder = tempfile::Builder::new().prefix("ratekeeper-chaos-").tempdir()?;
    let mut servers = topology.start();
    let [right, wrong] = ["right", "wrong"].map(|name| folder.path().join(name));
    write_policies(&right, 1)?;
    write_policies(&wrong, 2)?;
    let of_library = if options.broken { &wrong } else { &right };
    let mut processes = Processes::start(&servers.url(), folder.path(), [of_library, &right], options)?;
    eprintln!("{}: {} processes ask {}", topology.name(), processes.count(), servers.url());
    let events = strike(&mut *servers, &mut processes, share, options)?;
    let logs = processes.end()?;
    let mut calls = Vec::new();
    for log in &logs {
        calls.append(&mut read(log)?);
    }
    if let Some(keep) = &options.keep {
        keep_logs(&keep.join(topology.name()), &logs, &events)?;
    }
    let findings = checker::check(&calls, &events, topology.is_parted());
    Ok(Outcome { calls, events, findings })
}

/// Lets the servers suffer every fault once, in an order of the seed, and again until the time is over.
fn strike(
    servers: &mut dyn Servers,
    processes: &mut Processes,
    share: Duration,
    options: &RunOptions,
) -> anyhow::Result<Vec<Event>> {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let wanted =
        |fault: &Fault| options.faults.is_empty() || options.faults.iter().any(|name| name == fault.name());
    let mut faults: Vec<Fault> = servers.faults().iter().copied().filter(wanted).collect();
    ensure!(!faults.is_empty(), "none of the faults that were named");
    let begin = Instant::now();
    let mut events = Vec::new();
    sleep(QUIET);
    for round in 0..ROUNDS_MAX {
        random.shuffle(&mut faults);
        for fault in &faults {
            if round > 0 && begin.elapsed() + QUIET >= share {
                break;
            }
            let during = at_random(&mut random, FAULT_MILLIS);
            let start = now_micros();
            servers.suffer(*fault, during, &mut random);
            events.push(Event {
                fault: *fault,
                start,
                end: now_micros(),
                is_confirmed: options.replicas > 0,
            });
            let took = Duration::from_micros(now_micros() - start);
            eprintln!("  {:>6.1} s  {} ({took:.1?})", begin.elapsed().as_secs_f64(), fault.name());
            sleep(at_random(&mut random, GAP_MILLIS));
            processes.check()?;
        }
        if begin.elapsed() + QUIET >= share {
            break;
        }
    }
    sleep(QUIET);
    Ok(events)
}

fn at_random(random: &mut fastrand::Rng, millis: u64) -> Duration {
    Duration::from_millis(random.u64(millis..2 * millis))
}

fn read(log: &Path) -> anyhow::Result<Vec<Call>> {
    let text = fs::read_to_string(log).with_context(|| log.display().to_string())?;
    let calls = text.lines().map(Call::read).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!calls.is_empty(), "{} is empty: that process has asked nothing", log.display());
    Ok(calls)
}

fn keep_logs(folder: &Path, logs: &[std::path::PathBuf], events: &[Event]) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    for log in logs {
        fs::copy(log, folder.join(log.file_name().unwrap_or_default()))?;
    }
    let lines = events.iter().map(|event| format!("{},{},{}\n", event.start, event.end, event.fault.name()));
    Ok(fs::write(folder.join("events.csv"), lines.collect::<String>())?)
}
