//! How a server is set up: what it is, what it forgets, what it keeps, what time it has.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;

use super::finding::{Finding, Severity};
use super::info::Info;

/// The oldest that tests run on.
const REDIS_MIN: (u32, u32) = (6, 2);
const VALKEY_MIN: (u32, u32) = (7, 2);
/// Beyond it, a clock is not what a calendar says.
const CLOCK_OFF_MAX: Duration = Duration::from_secs(1);
/// How full memory may be before somebody should know, in per cent.
const MEMORY_FULL_PERCENT: u64 = 90;

pub(super) async fn look(connection: &mut MultiplexedConnection) -> Vec<Finding> {
    let mut findings = Vec::new();
    match redis::cmd("INFO").query_async::<String>(connection).await {
        Ok(text) => {
            let (info, saves) = (Info::parse(&text), saves(connection).await);
            findings.push(version(&info));
            findings.extend(cluster(&info));
            findings.push(role(&info));
            findings.push(eviction(&info));
            findings.extend(memory(&info));
            findings.extend(persistence(&info, saves.as_deref()));
        }
        Err(error) => findings.push(not_known("server", "INFO", &error)),
    }
    findings.push(match time(connection).await {
        Ok((server, ours, taken)) => clock(server, ours, taken),
        Err(error) => not_known("clock", "TIME", &error),
    });
    findings
}

/// What the user may not look at.
fn not_known(check: &'static str, command: &str, error: &redis::RedisError) -> Finding {
    let fix = format!("run doctor once as a user that may use {command}, or look at the server yourself");
    Finding::new(check, Severity::Note, format!("not known: {error}")).fix(fix)
}

/// When the server saves its data; `None` if the user may not know.
async fn saves(connection: &mut MultiplexedConnection) -> Option<String> {
    let answer =
        redis::cmd("CONFIG").arg("GET").arg("save").query_async::<HashMap<String, String>>(connection).await;
    answer.ok()?.remove("save")
}

fn version(info: &Info) -> Finding {
    let (name, version, oldest) = match info.text("valkey_version") {
        Some(version) => ("Valkey", Some(version), VALKEY_MIN),
        None => ("Redis", info.text("redis_version"), REDIS_MIN),
    };
    let Some(version) = version else {
        return Finding::warning("version", "the server does not say what it is")
            .fix("Ratekeeper is tested on Redis and Valkey; others may differ");
    };
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if number < oldest {
        return Finding::error("version", format!("{name} {version} is too old"))
            .fix("Redis 6.2 or later, or Valkey 7.2 or later");
    }
    Finding::ok("version", format!("{name} {version}"))
}

fn cluster(info: &Info) -> Option<Finding> {
    (info.text("cluster_enabled") == Some("1")).then(|| {
        Finding::error("cluster", "the server is a node of a cluster: keys of one check may be on several")
            .fix("name the cluster: redis+cluster://HOST:PORT,HOST:PORT")
    })
}

fn role(info: &Info) -> Finding {
    if info.text("role") != Some("slave") {
        let replicas = info.number::<u32>("connected_slaves").unwrap_or(0);
        return Finding::ok("role", format!("primary, replicas: {replicas}"));
    }
    let at = |field| info.text(field).unwrap_or("?");
    Finding::error("role", "a replica: it takes no writes, so nothing can be counted").fix(format!(
        "connect to its primary, {}:{}",
        at("master_host"),
        at("master_port")
    ))
}

fn eviction(info: &Info) -> Finding {
    let Some(policy) = info.text("maxmemory_policy") else {
        return Finding::new("eviction", Severity::Note, "not known: the server does not say its policy");
    };
    let fix = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file";
    match (policy, info.number("maxmemory").unwrap_or(0_u64)) {
        ("noeviction", _) => Finding::ok("eviction", "noeviction: a counter that limits somebody stays"),
        (_, 0) => {
            let found =
                format!("{policy}: harmless without maxmemory; with it, an evicted counter is a fresh limit");
            Finding::warning("eviction", found).fix(fix)
        }
        _ => Finding::error("eviction", format!("{policy}: an evicted counter is a fresh limit")).fix(fix),
    }
}

fn memory(info: &Info) -> Option<Finding> {
    let used = info.number::<u64>("used_memory")?;
    let said = |field| info.text(field).unwrap_or("?").to_owned();
    match info.number("maxmemory").unwrap_or(0_u64) {
        0 => Some(
            Finding::new(
                "memory",
                Severity::Note,
                format!("{} used, without a bound", said("used_memory_human")),
            )
            .fix("maxmemory, below what the machine has: the system would end the server first"),
        ),
        most => {
            let found = format!("{} of {} used", said("used_memory_human"), said("maxmemory_human"));
            if used.saturating_mul(100) / most < MEMORY_FULL_PERCENT {
                return Some(Finding::ok("memory", found));
            }
            Some(
                Finding::warning("memory", found)
                    .fix("a larger maxmemory; when it is full, rules decide by on_outage"),
            )
        }
    }
}

/// What survives a restart, and whether the last attempt to save went well.
fn persistence(info: &Info, saves: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let appends = info.text("aof_enabled") == Some("1");
    findings.push(match (appends, saves) {
        (true, _) => Finding::ok("persistence", "appendonly: overrides and switches survive a restart"),
        (false, Some("")) => Finding::warning(
            "persistence",
            "none: after a restart, overrides and switches are gone, and all counters start again",
        )
        .fix("appendonly yes and appendfsync everysec"),
        (false, Some(_)) => {
            Finding::ok("persistence", "snapshots: overrides set after the last one are lost in a crash")
        }
        (false, None) => Finding::new(
            "persistence",
            Severity::Note,
            "no append-only file; whether it takes snapshots is not known",
        )
        .fix("appendonly yes and appendfsync everysec, if overrides are to survive a restart"),
    });
    let failed = ["rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"];
    for field in failed.into_iter().filter(|field| info.text(field) == Some("err")) {
        findings.push(
            Finding::error(
                "persistence",
                format!("{field} is err: the server may refuse to write (MISCONF)"),
            )
            .fix("look at its log and its disk"),
        );
    }
    findings
}

/// The server's time, ours in the middle of asking, and how long asking took.
async fn time(connection: &mut MultiplexedConnection) -> redis::RedisResult<(Duration, Duration, Duration)> {
    let ours = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let before = ours();
    let (seconds, micros) = redis::cmd("TIME").query_async::<(u64, u64)>(connection).await?;
    let taken = ours().saturating_sub(before);
    Ok((Duration::from_secs(seconds) + Duration::from_micros(micros), before + taken / 2, taken))
}

fn clock(server: Duration, ours: Duration, taken: Duration) -> Finding {
    let off = server.abs_diff(ours);
    let shown = format!("{:.3} s", off.as_secs_f64());
    if off <= CLOCK_OFF_MAX + taken / 2 {
        return Finding::ok("clock", format!("within {shown} of this machine's"));
    }
    let side = if server > ours { "ahead of" } else { "behind" };
    Finding::warning("clock", format!("{shown} {side} this machine's; decisions follow the server's alone"))
        .fix("NTP on both: windows on the calendar begin by the server's clock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(finding: &Finding, severity: Severity, part: &str) {
        assert!(finding.severity == severity && finding.found.contains(part), "{finding:?}");
    }

    #[test]
    fn old_servers_are_told_so() {
        let cases = [
            ("redis_version:6.0.16", Severity::Error, "Redis 6.0.16 is too old"),
            ("redis_version:6.2.0", Severity::Ok, "Redis 6.2.0"),
            ("redis_version:7.2.4\r\nvalkey_version:7.2.5", Severity::Ok, "Valkey 7.2.5"),
            ("redis_version:10.0.0", Severity::Ok, "Redis 10.0.0"),
            ("dragonfly_version:df-1", Severity::Warning, "does not say"),
        ];
        for (text, severity, part) in cases {
            is(&version(&Info::parse(text)), severity, part);
        }
    }

    #[test]
    fn clocks_may_differ_by_what_asking_takes() {
        let at = Duration::from_millis;
        is(&clock(at(1_000), at(1_900), at(0)), Severity::Ok, "within 0.900 s");
        is(&clock(at(1_000), at(3_000), at(3_000)), Severity::Ok, "within 2.000 s");
        is(&clock(at(1_000), at(3_000), at(0)), Severity::Warning, "2.000 s behind");
        is(&clock(at(9_000), at(3_000), at(10)), Severity::Warning, "6.000 s ahead of");
    }

    #[test]
    fn disks_that_failed_and_clusters_must_be_fixed() {
        let info = Info::parse("aof_enabled:1\nrdb_last_bgsave_status:err\ncluster_enabled:1");
        is(&persistence(&info, None)[1], Severity::Error, "rdb_last_bgsave_status is err");
        is(&cluster(&info).unwrap(), Severity::Error, "node of a cluster");
        is(&persistence(&Info::parse("aof_enabled:0"), Some("3600 1"))[0], Severity::Ok, "snapshots");
        is(&persistence(&Info::parse("aof_enabled:0"), None)[0], Severity::Note, "not known");
    }

    #[test]
    fn memory_that_is_nearly_full_is_told() {
        let at = |used| Info::parse(&format!("used_memory:{used}\nmaxmemory:1000"));
        is(&memory(&at(899)).unwrap(), Severity::Ok, "used");
        is(&memory(&at(900)).unwrap(), Severity::Warning, "used");
        is(&memory(&Info::parse("used_memory:1\nmaxmemory:0")).unwrap(), Severity::Note, "without a bound");
    }
}
