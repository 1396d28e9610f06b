//! `ratekeeper policy test`: requests, and the decisions that a policy should give them, in virtual time.
//!
//! Each case begins with empty counters. Requests are the bodies of `/v1/check`, read by the same reader and decided by
//! the same engine as everywhere, so what holds here holds there.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anstyle::AnsiColor;
use ratekeeper::policy::source::file::read_policies;
use ratekeeper::policy::{A_LENGTH_OF_TIME, Policies, PolicyLimiter, parse_duration};
use ratekeeper::{ManualClock, MemoryStore, Timestamp, printable};
use ratekeeper_server::files;
use ratekeeper_server::serve::Caller;
use ratekeeper_server::serve::api::Api;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

use crate::cli::{Format, PolicyTestOptions};
use crate::commands::opened::runtime;
use crate::failure::Failure;
use crate::printed;

/// The longest file of cases, in bytes.
const CASES_BYTES_MAX: u64 = 4 << 20;
/// How often a step may send its request.
const TIMES_MAX: u32 = 1_000_000;
/// Counters that a case may fill.
const KEYS_MAX: usize = 1_000_000;
/// When virtual time begins: midnight, so that windows of calendars begin with it.
const START: Timestamp = Timestamp::from_secs(1_700_006_400);
/// How much of a name is shown.
const NAME_CHARS_MAX: usize = 200;

/// A file of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    /// The policy, beside this file.
    policy: Option<PathBuf>,
    /// What every request has that does not say otherwise.
    #[serde(default)]
    request: serde_json::Map<String, Json>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    steps: Vec<Step>,
}

/// Requests at one instant, and what should become of each.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Since the case began; the instant of the step before, if it is not said.
    at: Option<String>,
    #[serde(default)]
    request: serde_json::Map<String, Json>,
    #[serde(default = "once")]
    times: u32,
    expect: Expected,
    /// The limit that denies.
    denied_by: Option<String>,
    /// How long until the request passes.
    retry_after: Option<String>,
    /// What is left after the last of them, by limit.
    #[serde(default)]
    remaining: BTreeMap<String, u64>,
    /// All limits that apply, and no others.
    limits: Option<Vec<String>>,
}

fn once() -> u32 {
    1
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Expected {
    Allow,
    Deny,
}

impl Expected {
    fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// What is otherwise than expected.
struct Difference {
    /// The number of the step, and of the request in it.
    step: usize,
    time: u32,
    what: String,
    expected: String,
    got: String,
}

/// What became of a case.
struct Outcome {
    file: String,
    name: String,
    differences: Vec<Difference>,
}

pub(crate) fn test(options: &PolicyTestOptions) -> anyhow::Result<ExitCode> {
    let outcomes = runtime()?.block_on(async {
        let mut outcomes = Vec::new();
        for file in &options.files {
            outcomes.extend(tested(file, options.policy.as_deref()).await?);
        }
        Ok::<_, Failure>(outcomes)
    })?;
    let printed = match options.format {
        Format::Text => text(&outcomes),
        Format::Json => json_lines(&outcomes),
    };
    let is_bad = outcomes.iter().any(|outcome| !outcome.differences.is_empty());
    printed::with_status(printed, u8::from(is_bad))
}

/// All cases of a file.
async fn tested(file: &Path, policy: Option<&Path>) -> Result<Vec<Outcome>, Failure> {
    let shown = file.display().to_string();
    let text = files::text(file, CASES_BYTES_MAX).map_err(|error| Failure::new(format!("{error:#}")))?;
    let cases: Cases = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        Failure::new(format!("{shown}:{line}: {}", error.message()))
            .hint("docs/cli.md says what cases look like")
    })?;
    let beside = cases.policy.as_ref().map(|path| file.parent().unwrap_or(Path::new("")).join(path));
    let path = policy.map(Path::to_owned).or(beside).ok_or_else(|| {
        Failure::new(format!("{shown}: got no policy; expected `policy = \"FILE\"` in it, or --policy FILE"))
    })?;
    let mut outcomes = Vec::new();
    for case in &cases.cases {
        let failed = |what: String| Failure::new(format!("{shown}: {}: {what}", name(&case.name)));
        let differences = case.run(&path, &cases.request).await.map_err(failed)?;
        outcomes.push(Outcome { file: shown.clone(), name: case.name.clone(), differences });
    }
    Ok(outcomes)
}

impl Case {
    async fn run(
        &self,
        policy: &Path,
        shared: &serde_json::Map<String, Json>,
    ) -> Result<Vec<Difference>, String> {
        let clock = ManualClock::starting_at(START);
        let store = MemoryStore::with_clock(KEYS_MAX, Arc::new(clock.clone()));
        let policies = Policies::builder().mode(None).build().map_err(|error| error.to_string())?;
        for read in read_policies(policy, None).map_err(|error| error.to_string())? {
            let spec = read.policy.map_err(|error| error.to_string())?;
            let source = read.path.display().to_string();
            policies.install(&source, Ok(spec), None).map_err(|problems| problems.to_string())?;
        }
        let api = Api::new(PolicyLimiter::new(store, policies));
        let (mut elapsed, mut differences) = (Duration::ZERO, Vec::new());
        for (index, step) in self.steps.iter().enumerate() {
            let number = index + 1;
            if let Some(at) = &step.at {
                let at = length("at", at).map_err(|error| format!("step {number}: {error}"))?;
                let more = at.checked_sub(elapsed).ok_or_else(|| {
                    format!("step {number}: at: got {at:?}; expected no less than in the step before")
                })?;
                clock.advance(more);
                elapsed = at;
            }
            differences.extend(step.run(&api, shared, number).await?);
        }
        Ok(differences)
    }
}

impl Step {
    async fn run(
        &self,
        api: &Api,
        shared: &serde_json::Map<String, Json>,
        step: usize,
    ) -> Result<Vec<Difference>, String> {
        if self.times == 0 || self.times > TIMES_MAX {
            return Err(format!("step {step}: times: got {}; expected 1 to {TIMES_MAX}", self.times));
        }
        let mut request = shared.clone();
        request.extend(self.request.clone());
        let body = Json::Object(request).to_string();
        let mut answer = Json::Null;
        for time in 1..=self.times {
            answer = asked(api, &body).await.map_err(|error| format!("step {step}: request: {error}"))?;
            let allowed = answer["allowed"] == json!(true);
            if allowed != (self.expect == Expected::Allow) {
                let got = answer["detail"].as_str().or(answer["explanation"].as_str());
                let word = if allowed { Expected::Allow.word() } else { Expected::Deny.word() };
                let got = got.map_or_else(|| word.to_owned(), |detail| format!("{word}: {detail}"));
                let expected = self.expect.word().to_owned();
                let what = "decision".to_owned();
                // What is left of others after a wrong decision tells nothing new.
                return Ok(vec![Difference { step, time, what, expected, got }]);
            }
        }
        self.differences(&answer, step)
    }

    /// What is otherwise in the last answer.
    fn differences(&self, answer: &Json, step: usize) -> Result<Vec<Difference>, String> {
        let mut found = Vec::new();
        let mut differ = |what: &str, expected: String, got: String| {
            if expected != got {
                found.push(Difference { step, time: self.times, what: what.to_owned(), expected, got });
            }
        };
        let limits = || answer["limits"].as_array().into_iter().flatten();
        let of = |name: &str| limits().find(|limit| limit["name"] == name);
        if let Some(expected) = &self.denied_by {
            let denying = limits().filter(|limit| limit["retry_after_us"] != json!(0));
            let denying = denying.filter(|limit| limit["enforced"] == json!(true));
            let names: Vec<&str> = denying.filter_map(|limit| limit["name"].as_str()).collect();
            let is_one = names.contains(&expected.as_str());
            let got = if is_one { expected.clone() } else { listed(&names) };
            differ("denied_by", expected.clone(), got);
        }
        for (limit, expected) in &self.remaining {
            let got = of(limit).map_or_else(
                || format!("no limit {limit}; there are {}", listed(&names(limits()))),
                |limit| limit["remaining"].to_string(),
            );
            differ(&format!("remaining.{limit}"), expected.to_string(), got);
        }
        if let Some(text) = &self.retry_after {
            let expected = length("retry_after", text).map_err(|error| format!("step {step}: {error}"))?;
            let got = answer["retry_after_us"].as_u64().map(Duration::from_micros);
            differ(
                "retry_after",
                format!("{expected:?}"),
                got.map_or_else(|| "never".to_owned(), |got| format!("{got:?}")),
            );
        }
        if let Some(expected) = &self.limits {
            let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            let mut got = names(limits());
            expected.sort_unstable();
            got.sort_unstable();
            differ("limits", listed(&expected), listed(&got));
        }
        Ok(found)
    }
}

fn names<'j>(limits: impl Iterator<Item = &'j Json>) -> Vec<&'j str> {
    limits.filter_map(|limit| limit["name"].as_str()).collect()
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The decision on a request.
async fn asked(api: &Api, body: &str) -> Result<Json, String> {
    let answer = api.answer(&Caller::named("test"), "/v1/check", body.as_bytes()).await;
    let answer = answer.ok_or("there is no such call")?;
    let told: Json = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    match answer.status {
        200 | 429 | 503 => Ok(told),
        _ => Err(told["detail"].as_str().unwrap_or("it was refused").to_owned()),
    }
}

fn length(field: &str, text: &str) -> Result<Duration, String> {
    let zero = text == "0" || text == "0s";
    let length = if zero { Some(Duration::ZERO) } else { parse_duration(text) };
    length.ok_or_else(|| format!("{field}: got `{text}`; expected {A_LENGTH_OF_TIME}"))
}

fn name(text: &str) -> String {
    printable(text, NAME_CHARS_MAX)
}

fn text(outcomes: &[Outcome]) -> io::Result<()> {
    let (green, red) = (AnsiColor::Green.on_default(), AnsiColor::Red.on_default());
    let mut out = anstream::stdout();
    for outcome in outcomes {
        if outcome.differences.is_empty() {
            writeln!(out, "{green}ok{green:#}    {}", name(&outcome.name))?;
            continue;
        }
        writeln!(out, "{red}FAIL{red:#}  {} ({})", name(&outcome.name), outcome.file)?;
        for difference in &outcome.differences {
            let Difference { step, time, what, expected, got } = difference;
            writeln!(out, "  step {step}, request {time}: {what}")?;
            writeln!(out, "  {red}- {}{red:#}", name(expected))?;
            writeln!(out, "  {green}+ {}{green:#}", name(got))?;
        }
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.differences.is_empty()).count();
    writeln!(out, "{} passed, {failed} failed", outcomes.len() - failed)?;
    out.flush()
}

fn json_lines(outcomes: &[Outcome]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for outcome in outcomes {
        let differences = outcome.differences.iter().map(|of| {
            json!({
                "step": of.step, "request": of.time, "what": of.what, "expected": of.expected, "got": of.got,
            })
        });
        let passed = outcome.differences.is_empty();
        let told = json!({
            "file": outcome.file, "case": outcome.name, "passed": passed,
            "differences": differences.collect::<Vec<_>>(),
        });
        writeln!(out, "{told}")?;
    }
    out.flush()
}
