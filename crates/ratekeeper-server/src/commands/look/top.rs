//! `ratekeeper top`: the keys and rules that are limited most, again and again.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::cli::Format;
use crate::cli::look::TopOptions;
use crate::commands::operate::report::{shown, table};
use crate::commands::operate::target::Target;
use crate::commands::operate::{in_runtime, refused};
use crate::failure::Failure;
use crate::printed;

/// Counters of a store that are looked at, the first that are found.
const LOOKED_AT: usize = 1_000;
/// Goes to the first line and clears what is below.
const CLEARED: &str = "\u{1b}[H\u{1b}[J";

/// What was seen at one moment, and how many denials each key had then.
struct Seen {
    told: Json,
    denied: HashMap<(String, String), u64>,
    at: Instant,
}

pub(crate) fn top(options: &TopOptions) -> anyhow::Result<ExitCode> {
    in_runtime(async {
        let target = Target::of(&options.target, None).await?;
        let mut before: Option<Seen> = None;
        loop {
            let seen = look(&target, options, before.as_ref()).await?;
            if let Err(error) = print(&seen.told, options) {
                // A reader that has had enough ends it.
                return if error.kind() == io::ErrorKind::BrokenPipe {
                    Ok(())
                } else {
                    Err(Failure::new(error))
                };
            }
            if options.once {
                return Ok(());
            }
            before = Some(seen);
            tokio::time::sleep(Duration::from_secs(options.every)).await;
        }
    })?;
    printed::with_status(Ok(()), 0)
}

async fn look(target: &Target, options: &TopOptions, before: Option<&Seen>) -> Result<Seen, Failure> {
    let at = Instant::now();
    let (mut keys, rules) = match target {
        Target::Server(_) => {
            let keys = called(target, "/v1/hot-keys", None).await?["keys"].take();
            let status = called(target, "/v1/policies", None).await?;
            (keys.as_array().cloned().unwrap_or_default(), rules(&status))
        }
        // A store has no list of denials: its fullest counters are as near as one comes.
        Target::Store(_) => (fullest(target).await?, Vec::new()),
    };
    let name = |key: &Json| (shown(&key["rule"]), shown(&key["key"]));
    let denied = keys.iter().map(|key| (name(key), key["denied"].as_u64().unwrap_or(0))).collect();
    if let Some(before) = before {
        let seconds = at.duration_since(before.at).as_secs_f64().max(0.001);
        for key in &mut keys {
            let was = before.denied.get(&name(key)).copied().unwrap_or(0);
            let more = key["denied"].as_u64().unwrap_or(0).saturating_sub(was);
            key["denied_per_second"] = json!((more as f64 / seconds * 10.0).round() / 10.0);
        }
    }
    keys.truncate(usize::try_from(options.count).unwrap_or(usize::MAX));
    Ok(Seen { told: json!({ "keys": keys, "rules": rules }), denied, at })
}

async fn called(target: &Target, path: &str, body: Option<&Json>) -> Result<Json, Failure> {
    let (status, body) = target.call(path, body).await?;
    if status == 200 { Ok(body) } else { Err(refused(status, &body)) }
}

/// The rules that denied something, the most first.
fn rules(status: &Json) -> Vec<Json> {
    let services = status["services"].as_array().into_iter().flatten();
    let rules = services.flat_map(|service| {
        let rules = service["rules"].as_array().into_iter().flatten();
        rules.map(move |rule| {
            json!({
                "rule": format!("{}/{}", shown(&service["service"]), shown(&rule["name"])),
                "mode": rule["mode"], "denied": rule["denied"], "over_limit": rule["over_limit"],
            })
        })
    });
    let total = |rule: &Json| rule["denied"].as_u64().unwrap_or(0) + rule["over_limit"].as_u64().unwrap_or(0);
    let mut rules: Vec<Json> = rules.filter(|rule| total(rule) > 0).collect();
    rules.sort_by_key(|rule| std::cmp::Reverse(total(rule)));
    rules
}

/// Of the first counters that are found, those with the least left.
async fn fullest(target: &Target) -> Result<Vec<Json>, Failure> {
    let page = called(target, "/v1/counters/list", Some(&json!({ "count": LOOKED_AT }))).await?;
    let found = page["counters"].as_array().into_iter().flatten();
    let mut keys: Vec<Json> = found
        .flat_map(|found| {
            let counters = found["counters"].as_array().into_iter().flatten();
            counters.map(move |counter| {
                json!({
                    "rule": found["rule"], "key": found["key"], "limit": counter["limit"],
                    "used": counter["used"], "remaining": counter["remaining"],
                })
            })
        })
        .collect();
    let part = |key: &Json| {
        let limit = key["limit"].as_u64().unwrap_or(1).max(1);
        key["used"].as_u64().unwrap_or(0).saturating_mul(1_000_000) / limit
    };
    keys.sort_by_key(|key| std::cmp::Reverse(part(key)));
    Ok(keys)
}

fn print(told: &Json, options: &TopOptions) -> io::Result<()> {
    if options.target.format == Format::Json {
        return writeln!(io::stdout(), "{told}");
    }
    let is_live = !options.once && io::stdout().is_terminal();
    let mut out = io::stdout().lock();
    writeln!(out, "{}{}", if is_live { CLEARED } else { "" }, words(told))?;
    out.flush()
}

fn words(told: &Json) -> String {
    let list = |name: &str| told[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let (keys, rules) = (list("keys"), list("rules"));
    let mut parts = Vec::new();
    if keys.iter().any(|key| !key["used"].is_null()) {
        let rows = keys.iter().map(|key| {
            [shown(&key["rule"]), shown(&key["key"]), shown(&key["used"]), shown(&key["remaining"])]
        });
        parts.push(table(["RULE", "KEY", "USED", "LEFT"], rows));
    } else if keys.is_empty() {
        parts.push("no key was limited".to_owned());
    } else {
        let rows = keys.iter().map(|key| {
            [shown(&key["rule"]), shown(&key["key"]), shown(&key["denied"]), shown(&key["denied_per_second"])]
        });
        parts.push(table(["RULE", "KEY", "DENIED", "PER SECOND"], rows));
    }
    if !rules.is_empty() {
        let rows = rules.iter().map(|rule| {
            [shown(&rule["rule"]), shown(&rule["mode"]), shown(&rule["denied"]), shown(&rule["over_limit"])]
        });
        parts.push(table(["RULE", "MODE", "DENIED", "WOULD HAVE DENIED"], rows));
    }
    parts.join("\n\n")
}
