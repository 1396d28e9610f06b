//! The decision tables: TOML files of cases, each a list of steps with what
//! must come out. `testdata/vectors/README.md` describes the format.

mod build;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ratekeeper_core::{Charges, Check, Decision, Name, Override, Reservation, Settled, Timestamp, Verdict};
use serde::Deserialize;

use self::build::{ChargeSpec, PenaltySpec};
use crate::Engine;

/// The instant that `at = 0` means: 2023-11-14T22:13:20Z, a Tuesday.
const START_SECS: u64 = 1_700_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[allow(dead_code, reason = "for the reader of the table")]
    about: String,
    case: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// Seconds since the epoch at which `at` counts from.
    start: Option<u64>,
    /// What every charge of the case has unless it says otherwise.
    #[serde(default)]
    defaults: ChargeSpec,
    /// The penalties of every check of the case unless the step has its own.
    #[serde(default)]
    penalties: Vec<PenaltySpec>,
    step: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Microseconds since the start of the case; may go back.
    at: i64,
    check: Option<Vec<ChargeSpec>>,
    penalties: Option<Vec<PenaltySpec>>,
    #[serde(default)]
    peek: bool,
    /// Remembers the decision for a refund.
    label: Option<String>,
    once: Option<Once>,
    reserve: Option<Hold>,
    settle: Option<Settle>,
    cancel: Option<String>,
    refund: Option<Refund>,
    reset: Option<ChargeSpec>,
    /// Whether something counted in what was reset.
    counted: Option<bool>,
    set_override: Option<OverrideSpec>,
    delete_override: Option<OverrideSpec>,
    #[serde(flatten)]
    expect: Expect,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Once {
    id: String,
    keep: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hold {
    id: String,
    hold: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settle {
    id: String,
    actual: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refund {
    of: String,
    units: u32,
    /// Units that are given back in all.
    given: Option<u64>,
    /// The number of the receipt, if it left the process.
    told: Option<u64>,
    /// What the rules ask for by now, if they have changed.
    to: Option<Vec<ChargeSpec>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideSpec {
    endpoint: String,
    org: String,
    project: Option<String>,
    limit: Option<u64>,
    window_ms: Option<u64>,
    /// Microseconds since the start of the case.
    expires: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
struct Expect {
    allowed: Option<bool>,
    /// The names of all verdicts, gates included.
    verdicts: Option<Vec<String>>,
    tipped: Option<Vec<String>>,
    remaining: Option<Vec<u32>>,
    reset_after: Option<Vec<u64>>,
    retry_after: Option<RetryAfter>,
    proceed_after: Option<u64>,
    levels: Option<Vec<String>>,
    admitted: Option<Vec<bool>>,
    strictest: Option<String>,
    origin: Option<String>,
    explain: Option<String>,
    settled: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RetryAfter {
    Micros(u64),
    Word(String),
}

/// Runs every case of every table on a fresh engine each; returns the number
/// of steps.
///
/// # Panics
/// At the first expectation that does not hold, naming file, case and step.
pub fn run_all<E: Engine>(fresh: impl FnMut() -> E) -> usize {
    run(&files("vectors"), fresh)
}

/// As [`run_all`], with the tables about what only stores know: counters that rules
/// share, from which surfaces may keep the keys they are given apart, and penalties, which
/// come with the rules of a policy and not with a call.
///
/// # Panics
/// As [`run_all`].
pub fn run_all_of_stores<E: Engine>(fresh: impl FnMut() -> E) -> usize {
    run(&[files("vectors"), files("stores")].concat(), fresh)
}

fn run<E: Engine>(files: &[PathBuf], mut fresh: impl FnMut() -> E) -> usize {
    let mut steps = 0;
    for path in files {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file: File = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for case in &file.case {
            let mut engine = fresh();
            let mut decisions = HashMap::new();
            for (index, step) in case.step.iter().enumerate() {
                let outcome = run_step(&mut engine, case, step, &mut decisions);
                outcome.unwrap_or_else(|wrong| {
                    let place = format!("{}: case {:?}, step {}", path.display(), case.name, index + 1);
                    panic!("{place} (at = {}): {wrong}", step.at)
                });
                steps += 1;
            }
        }
    }
    steps
}

fn files(tables: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(tables);
    let folders = std::fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let mut files: Vec<PathBuf> = folders
        .filter_map(|folder| std::fs::read_dir(folder.ok()?.path()).ok())
        .flat_map(|folder| folder.filter_map(|file| Some(file.ok()?.path())))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no tables in {}", root.display());
    files
}

/// A decision and what it was about, for a refund.
struct Remembered<'a> {
    charges: Charges<'a>,
    decision: Decision,
}

fn run_step<'a, E: Engine>(
    engine: &mut E,
    case: &'a Case,
    step: &'a Step,
    decisions: &mut HashMap<&'a str, Remembered<'a>>,
) -> Result<(), String> {
    let instant = |at: i64| {
        Timestamp::from_micros((case.start.unwrap_or(START_SECS) * 1_000_000).saturating_add_signed(at))
    };
    engine.set_now(instant(step.at));

    if let Some(specs) = &step.check {
        let penal = step.penalties.as_deref().unwrap_or(&case.penalties);
        let result = build::charges(&case.defaults, specs).and_then(|charges| {
            let penalties = build::penalties(&case.defaults, penal, specs.len())?;
            let check = charges.check().map_err(|error| error.to_string())?;
            let check = check.with_penalties(&penalties).map_err(|error| error.to_string())?;
            let decision = decide(engine, step, &if step.peek { check.peek() } else { check })?;
            Ok(Remembered { charges, decision })
        });
        expect_decision(&step.expect, result.as_ref().map(|known| &known.decision))?;
        if let (Some(label), Ok(known)) = (&step.label, result) {
            decisions.insert(label, known);
        }
    } else if let Some(settle) = &step.settle {
        expect_settled(&step.expect, engine.settle(settle.id.as_bytes(), Some(settle.actual))?)?;
    } else if let Some(id) = &step.cancel {
        expect_settled(&step.expect, engine.settle(id.as_bytes(), None)?)?;
    } else if let Some(refund) = &step.refund {
        let known = decisions.get(refund.of.as_str()).ok_or("no decision of that label")?;
        let to = refund.to.as_ref().map(|specs| build::charges(&case.defaults, specs)).transpose()?;
        let check = to.as_ref().unwrap_or(&known.charges).check().map_err(|error| error.to_string())?;
        let mut decision = known.decision.apart();
        // The original keeps count; what was told does not, so the store has to.
        let decision = match refund.told {
            Some(nonce) => {
                decision.set_nonce(nonce);
                &decision
            }
            None => &known.decision,
        };
        let given = engine.refund(&check, decision, refund.units)?;
        expect_units(refund, given)?;
    } else if let Some(spec) = &step.reset {
        let charge = build::charge(&case.defaults, spec)?;
        let counted = engine.reset(charge.key(), charge.quota().algorithm())?;
        if step.counted.is_some_and(|expected| expected != counted) {
            return Err(format!("counted: expected {}, got {counted}", !counted));
        }
    } else if let Some(spec) = step.set_override.as_ref().or(step.delete_override.as_ref()) {
        let scope = build::scope(&spec.endpoint, &spec.org, spec.project.as_deref())?;
        let to = spec.limit.filter(|_| step.set_override.is_some()).map(|limit| Override {
            window: spec.window_ms.map(Duration::from_millis),
            expires_at: spec.expires.map(instant),
            ..Override::limit(limit)
        });
        expect_error(&step.expect, engine.set_override(scope, to))?;
    } else {
        return Err("a step that does nothing".to_owned());
    }
    Ok(())
}

fn decide<E: Engine>(engine: &mut E, step: &Step, check: &Check<'_>) -> Result<Decision, String> {
    let micros = Duration::from_micros;
    let reservation = match (&step.once, &step.reserve) {
        (Some(once), _) => Reservation::once(&once.id, micros(once.keep)),
        (_, Some(hold)) => Reservation::hold(&hold.id, micros(hold.hold)),
        _ => return engine.check(check),
    };
    engine.reserve(check, &reservation.map_err(|error| error.to_string())?)
}

fn expect_error<T>(expect: &Expect, result: Result<T, String>) -> Result<(), String> {
    match (&expect.error, result) {
        (None, Ok(_)) => Ok(()),
        (None, Err(error)) => Err(error),
        (Some(wanted), Ok(_)) => Err(format!("no error, but {wanted:?} was expected")),
        (Some(wanted), Err(error)) if error.contains(wanted) => Ok(()),
        (Some(wanted), Err(error)) => Err(format!("error {error:?} without {wanted:?}")),
    }
}

fn expect_units(refund: &Refund, given: u64) -> Result<(), String> {
    same("given", refund.given.map(|given| given.to_string()).as_deref(), &given.to_string())
}

fn expect_settled(expect: &Expect, settled: Settled) -> Result<(), String> {
    same("settled", expect.settled.as_deref(), settled.as_str())
}

fn expect_decision(expect: &Expect, result: Result<&Decision, &String>) -> Result<(), String> {
    let decision = match result {
        Ok(decision) if expect.error.is_none() => decision,
        other => return expect_error(expect, other.map_err(Clone::clone)),
    };
    let verdicts = decision.verdicts();
    let retry_after = expect.retry_after.as_ref().map(|wanted| match wanted {
        RetryAfter::Micros(micros) => micros.to_string(),
        RetryAfter::Word(word) => word.clone(),
    });
    let found_retry =
        decision.retry_after().as_micros().map_or("never".to_owned(), |micros| micros.to_string());
    let proceed = u64::try_from(decision.proceed_after().as_micros()).unwrap_or(u64::MAX);
    let names =
        |names: &mut dyn Iterator<Item = Name>| names.map(|name| name.to_string()).collect::<Vec<_>>();
    same("allowed", expect.allowed, decision.is_allowed())?;
    same("verdicts", expect.verdicts.clone(), names(&mut verdicts.iter().map(Verdict::name)))?;
    same("tipped", expect.tipped.clone(), names(&mut decision.tipped().iter().copied()))?;
    same("admitted", expect.admitted.clone(), verdicts.iter().map(Verdict::is_admitted).collect())?;
    same("remaining", expect.remaining.clone(), verdicts.iter().map(Verdict::remaining).collect())?;
    same(
        "reset_after",
        expect.reset_after.clone(),
        verdicts.iter().map(|v| v.reset_after().as_micros() as u64).collect(),
    )?;
    same("retry_after", retry_after, found_retry)?;
    same("proceed_after", expect.proceed_after, proceed)?;
    same("levels", expect.levels.clone(), verdicts.iter().map(|v| v.level().as_str().to_owned()).collect())?;
    same("origin", expect.origin.clone(), format!("{:?}", decision.origin()).to_lowercase())?;
    same("explain", expect.explain.clone(), decision.explain())?;
    let strictest = decision.strictest().map_or("", |verdict| verdict.name().as_str());
    same("strictest", expect.strictest.as_deref(), strictest)
}

#[allow(clippy::needless_pass_by_value, reason = "the expectations are made on the spot")]
fn same<T: PartialEq + std::fmt::Debug>(field: &str, wanted: Option<T>, found: T) -> Result<(), String> {
    match wanted {
        Some(wanted) if wanted != found => Err(format!("{field} is {found:?}, expected {wanted:?}")),
        _ => Ok(()),
    }
}
