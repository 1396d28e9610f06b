//! What the user of the store may do: every command is tried, on a key of our own.
//!
//! Asking the server for the permissions of a user would itself take more of them than
//! deciding does.

use ratekeeper::store::ServerParts;
use ratekeeper::store::redis::SCRIPT;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use super::finding::{Finding, Severity};

/// Stands for our key.
const KEY: &str = "KEY";
/// Whatever happens, the key is gone a minute later.
const TTL: &str = "60000";

/// Commands that every instance needs, in a form that changes nothing but our key: a text,
/// which commands for lists and hashes refuse to touch. A test compares them with
/// `docs/redis.md`.
const NEEDED: [(&str, &[&str]); 19] = [
    ("set", &["SET", KEY, "1", "PX", TTL]),
    ("script|load", &["SCRIPT", "LOAD", SCRIPT]),
    ("evalsha", &["EVALSHA", "0000000000000000000000000000000000000000", "0"]),
    ("eval", &["EVAL", "return 1", "0"]),
    ("time", &["TIME"]),
    ("exists", &["EXISTS", KEY]),
    ("get", &["GET", KEY]),
    ("mget", &["MGET", KEY]),
    ("pexpire", &["PEXPIRE", KEY, TTL]),
    ("pttl", &["PTTL", KEY]),
    ("incrby", &["INCRBY", KEY, "not a number"]),
    ("hmget", &["HMGET", KEY, "field"]),
    ("hgetall", &["HGETALL", KEY]),
    ("llen", &["LLEN", KEY]),
    ("lindex", &["LINDEX", KEY, "0"]),
    ("lset", &["LSET", KEY, "0", "1"]),
    ("setrange", &["SETRANGE", KEY, "0", "1"]),
    ("rpush", &["RPUSH", KEY, "1"]),
    ("del", &["DEL", KEY]),
];

/// Commands of whoever sets overrides and switches.
const OPERATORS: [(&str, &[&str]); 6] = [
    ("hset", &["HSET", KEY, "field", "1"]),
    ("hdel", &["HDEL", KEY, "field"]),
    ("hlen", &["HLEN", KEY]),
    ("scan", &["SCAN", "0", "COUNT", "1"]),
    ("lrange", &["LRANGE", KEY, "0", "0"]),
    ("ltrim", &["LTRIM", KEY, "0", "-1"]),
];

/// Would make a key that never expires, were there no text at it.
const CREATING: [&str; 3] = ["setrange", "rpush", "hset"];

/// What instances ask nodes of a cluster for, beside the rest.
const CLUSTER: [(&str, &[&str]); 3] = [
    ("cluster|slots", &["CLUSTER", "SLOTS"]),
    ("cluster|info", &["CLUSTER", "INFO"]),
    ("asking", &["ASKING"]),
];
/// Keys that are tried until a node has one.
const KEYS_TRIED_MAX: usize = 1_000;

/// Keys that instances touch, by the pattern that allows them.
const PATTERNS: [(&str, &str); 4] = [
    ("~rk:*", "rk:doctor"),
    ("~ratelimit:*", "ratelimit:doctor:0:0"),
    ("~ratelimit_override:*", "ratelimit_override:doctor:0:0"),
    ("~ratelimit_org_override:*", "ratelimit_org_override:doctor:0"),
];

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Granted,
    /// The user may not use the command.
    NoCommand,
    /// The user may not touch the key.
    NoKey,
}

/// What a user was found to lack, and what could not be found out.
#[derive(Debug, Default)]
struct Lacking {
    commands: Vec<String>,
    operators: Vec<String>,
    patterns: Vec<String>,
    untried: Vec<String>,
}

pub(super) async fn look(connection: &mut MultiplexedConnection, server: &ServerParts) -> Vec<Finding> {
    let user = server.user.as_deref().unwrap_or("default");
    match try_all(connection, server.sentinels.is_some()).await {
        Ok(lacking) => findings(user, &lacking),
        Err(error) => vec![stopped(&error)],
    }
}

/// The same on a node of a cluster, which has a part of the keys.
pub(super) async fn look_on_node(
    connection: &mut MultiplexedConnection,
    server: &ServerParts,
) -> Vec<Finding> {
    let user = server.user.as_deref().unwrap_or("default");
    let tried = async {
        let key = key_of_node(connection).await?;
        let mut lacking = Lacking::default();
        try_commands(connection, &key, &mut lacking).await?;
        let of_cluster = CLUSTER.map(|(name, words)| (format!("+{name}"), command(words, &key)));
        for (name, command) in of_cluster {
            if access(command.query_async::<Value>(connection).await)? == Access::NoCommand {
                lacking.commands.push(name);
            }
        }
        // A key elsewhere is refused first if it may not be touched.
        let answer = redis::cmd("EXISTS").arg("{doctor}rk:c:doctor").query_async::<Value>(connection).await;
        if access(answer)? == Access::NoKey {
            lacking.commands.push("~{*}rk:*".to_owned());
        }
        Ok(lacking)
    };
    match tried.await {
        Ok(lacking) => findings(user, &lacking),
        Err(error) => vec![stopped(&error)],
    }
}

/// A key that this node has.
async fn key_of_node(connection: &mut MultiplexedConnection) -> Result<String, RedisError> {
    let mut key = String::new();
    for _ in 0..KEYS_TRIED_MAX {
        key = format!("rk:doctor:{:016x}", fastrand::u64(..));
        let answer = redis::cmd("EXISTS").arg(&key).query_async::<Value>(connection).await;
        if !answer.as_ref().is_err_and(|error| error.code() == Some("MOVED")) {
            access(answer)?;
            break;
        }
    }
    Ok(key)
}

fn stopped(error: &RedisError) -> Finding {
    // Whoever was not answered knows nothing, least of all that all is well.
    Finding::error("access", format!("the server stopped answering: {error}"))
        .fix("look at its log, its SLOWLOG and the network, and run doctor again")
}

async fn try_all(connection: &mut MultiplexedConnection, has_sentinels: bool) -> Result<Lacking, RedisError> {
    let key = format!("rk:doctor:{:016x}", fastrand::u64(..));
    let mut lacking = Lacking::default();
    try_commands(connection, &key, &mut lacking).await?;
    if has_sentinels {
        let answer = redis::cmd("ROLE").query_async::<Value>(connection).await;
        if access(answer)? == Access::NoCommand {
            lacking.commands.push("+role".to_owned());
        }
    }
    for (pattern, key) in PATTERNS {
        let answer = redis::cmd("EXISTS").arg(key).query_async::<Value>(connection).await;
        if access(answer)? == Access::NoKey {
            lacking.patterns.push(pattern.to_owned());
        }
    }
    Ok(lacking)
}

async fn try_commands(
    connection: &mut MultiplexedConnection,
    key: &str,
    lacking: &mut Lacking,
) -> Result<(), RedisError> {
    let mut has_text = false;
    // Operators' after the first, because the key is deleted at the end of the others.
    let (first, rest) = NEEDED.split_at(1);
    let all = first.iter().map(|probe| (probe, true));
    let all =
        all.chain(OPERATORS.iter().map(|probe| (probe, false))).chain(rest.iter().map(|probe| (probe, true)));
    for (&(name, words), is_needed) in all {
        if CREATING.contains(&name) && !has_text {
            lacking.untried.push(format!("+{name}"));
            continue;
        }
        let answer = command(words, key).query_async::<Value>(connection).await;
        has_text |= name == "set" && answer.is_ok();
        if access(answer)? == Access::NoCommand {
            let list = if is_needed { &mut lacking.commands } else { &mut lacking.operators };
            list.push(format!("+{name}"));
        }
    }
    Ok(())
}

fn findings(user: &str, lacking: &Lacking) -> Vec<Finding> {
    let Lacking { commands, operators, patterns, untried } = lacking;
    let mut findings: Vec<Finding> = missing(user, commands, patterns).into_iter().collect();
    if !untried.is_empty() {
        let found = format!("not known of {}: nothing could be written to try them on", untried.join(" "));
        findings.push(Finding::new("access", Severity::Note, found).fix("fix the rest and run doctor again"));
    } else if findings.is_empty() {
        findings.push(Finding::ok("access", format!("user {user} may do all that decisions take")));
    }
    if !operators.is_empty() {
        let found =
            format!("user {user} may not set or list overrides and switches, which only operators do");
        let fix = format!("ACL SETUSER OPERATOR {}, for whoever does", operators.join(" "));
        findings.push(Finding::new("access", Severity::Note, found).fix(fix));
    }
    findings
}

fn missing(user: &str, commands: &[String], patterns: &[String]) -> Option<Finding> {
    let all: Vec<&str> = commands.iter().chain(patterns).map(String::as_str).collect();
    if all.is_empty() {
        return None;
    }
    let fix = format!("ACL SETUSER {user} {}", all.join(" "));
    // Without Application Kit's keys and without overrides, ours are enough.
    if commands.is_empty() && !patterns.iter().any(|pattern| pattern == PATTERNS[0].0) {
        let found = format!("user {user} may not touch overrides or counters of Application Kit");
        return Some(Finding::warning("access", found).fix(fix));
    }
    Some(
        Finding::error("access", format!("user {user} may not do what decisions take: {}", all.join(" ")))
            .fix(fix),
    )
}

fn command(words: &[&str], key: &str) -> Cmd {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(if *word == KEY { key } else { word });
    }
    command
}

/// Any answer but a refusal grants; no answer is an error.
fn access(answer: Result<Value, RedisError>) -> Result<Access, RedisError> {
    match answer {
        Err(error) if error.code() == Some("NOPERM") => {
            // All versions say `to access` of keys and `to run` of commands.
            let is_key = error.detail().unwrap_or_default().contains("access");
            Ok(if is_key { Access::NoKey } else { Access::NoCommand })
        }
        Err(error) if error.is_io_error() || error.is_connection_dropped() => Err(error),
        _ => Ok(Access::Granted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of the documentation that grant something.
    fn documented(sign: char) -> Vec<String> {
        let text = include_str!("../../../../../docs/redis.md");
        let (_, text) = text.split_once("## Permissions").unwrap();
        let (text, _) = text.split_once("With a prefix").unwrap();
        let words = text.split_whitespace().filter(|word| word.starts_with(sign));
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        words.sort();
        words
    }

    #[test]
    fn no_answer_is_never_a_permission() {
        let timeout = std::io::Error::from(std::io::ErrorKind::TimedOut);
        assert!(access(Err(timeout.into())).is_err());
        assert_eq!(access(Ok(Value::Nil)).unwrap(), Access::Granted);
    }

    #[test]
    fn what_is_tried_is_what_is_documented() {
        let mut commands: Vec<String> =
            NEEDED.iter().chain(&OPERATORS).map(|(name, _)| format!("+{name}")).collect();
        commands.sort();
        assert_eq!(commands, documented('+'));
        let mut patterns = PATTERNS.map(|(pattern, _)| pattern.to_owned());
        patterns.sort();
        assert_eq!(patterns[..], documented('~'));
    }
}
