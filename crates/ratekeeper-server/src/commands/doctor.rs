//! `ratekeeper doctor`: what is wrong with a store and with policies, and how to fix it.
//!
//! It asks as the user that services ask as, so it sees what they would meet; what
//! that user may not look at is told as not known, never as good.

mod access;
mod cluster;
mod connection;
mod finding;
mod info;
mod policies;
mod rehearsal;
mod sentinels;
mod server;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ratekeeper::StoreUrl;
use serde::Serialize;

use self::finding::{Finding, Severity};
use super::opened::{Address, runtime};
use crate::cli::{DoctorOptions, Format};
use crate::failure::Failure;
use crate::printed;

pub(crate) fn run(options: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let findings = look(options)?;
    let printed = match options.format {
        Format::Text => text(&findings),
        Format::Json => json(&findings),
    };
    let must_fix = findings.iter().any(|finding| finding.severity == Severity::Error);
    printed::with_status(printed, u8::from(must_fix))
}

fn look(options: &DoctorOptions) -> Result<Vec<Finding>, Failure> {
    let (mut findings, named) = policies::look(options.policy.as_deref());
    let address = Address::of(&options.store, named)?;
    if address.url.is_memory() {
        findings.insert(0, in_memory(&address.url));
    } else {
        let seen = runtime()
            .map_err(Failure::new)?
            .block_on(stores(&address, Duration::from_millis(options.store_deadline)))?;
        findings.splice(0..0, seen);
    }
    Ok(findings)
}

fn in_memory(url: &StoreUrl) -> Finding {
    let found = match url.directory() {
        Some(path) => {
            format!("memory: limits hold within one process at a time; {} keeps them", path.display())
        }
        None => "memory: limits hold within one process, and counters end with it".to_owned(),
    };
    Finding::new("store", Severity::Note, found)
        .fix("--store redis://HOST:PORT for limits that hold across processes")
}

/// Everything about each of the servers that the URL names.
async fn stores(address: &Address, deadline: Duration) -> Result<Vec<Finding>, Failure> {
    if !address.url.has_several() {
        return store(address, deadline).await;
    }
    // What is wrong with all of them together is told first.
    drop(address.open()?);
    let (servers, mut findings) = (address.url.servers(), Vec::new());
    for url in &servers {
        let address = Address { url: url.clone(), ..address.clone() };
        let seen = store(&address, deadline).await?;
        findings.extend(seen.into_iter().map(|finding| finding.of_server(url.to_string())));
    }
    let found =
        format!("{} of them, each with the counters of its share of organisations and keys", servers.len());
    findings.insert(0, Finding::new("servers", Severity::Note, found));
    Ok(findings)
}

/// Everything about a server, from whether it is there to what a decision on it takes.
async fn store(address: &Address, deadline: Duration) -> Result<Vec<Finding>, Failure> {
    // First, so that what is wrong with the URL is told as such.
    let store = address.open()?;
    if let Some(mut findings) = cluster::look(address, &store).await {
        if findings.iter().all(|finding| finding.severity != Severity::Error) {
            findings.extend(rehearsal::look(&store, deadline).await);
        }
        return Ok(findings);
    }
    let (mut findings, server) = sentinels::look(address, &store).await;
    let Some(server) = server else { return Ok(findings) };
    findings.extend(connection::transport(address, &server));
    let mut connection = match connection::connect(address, &server).await {
        Ok((connection, finding)) => {
            findings.push(finding);
            connection
        }
        Err(finding) => {
            findings.push(finding);
            return Ok(findings);
        }
    };
    findings.extend(server::look(&mut connection).await);
    let access = access::look(&mut connection, &server).await;
    let is_let_do = access.iter().all(|finding| finding.severity != Severity::Error);
    findings.extend(access);
    if is_let_do {
        // Without its permissions, a decision may end in the middle of its writes.
        findings.extend(rehearsal::look(&store, deadline).await);
    }
    Ok(findings)
}

fn text(findings: &[Finding]) -> io::Result<()> {
    let mut out = anstream::stdout();
    for Finding { check, severity, server, found, fix } in findings {
        let style = match severity {
            Severity::Ok => AnsiColor::Green.on_default(),
            Severity::Note => Style::new().bold(),
            Severity::Warning => AnsiColor::Yellow.on_default(),
            Severity::Error => AnsiColor::Red.on_default(),
        };
        let word = severity.as_str();
        let of = server.as_ref().map_or(String::new(), |server| format!("{server}: "));
        writeln!(out, "{style}{word:<8}{style:#} {check:<12} {of}{found}")?;
        if let Some(fix) = fix {
            writeln!(out, "{:>21} {fix}", "fix:")?;
        }
    }
    out.flush()?;
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let mut err = anstream::stderr();
    match (count(Severity::Error), count(Severity::Warning)) {
        (0, 0) => writeln!(err, "\nnothing to fix"),
        (0, warnings) => writeln!(err, "\nnothing must be fixed; {warnings} to think about"),
        (errors, 0) => writeln!(err, "\n{errors} to fix"),
        (errors, warnings) => writeln!(err, "\n{errors} to fix, {warnings} to think about"),
    }
}

#[derive(Serialize)]
struct Report<'f> {
    ok: bool,
    findings: &'f [Finding],
}

fn json(findings: &[Finding]) -> io::Result<()> {
    let ok = findings.iter().all(|finding| finding.severity != Severity::Error);
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &Report { ok, findings })?;
    writeln!(out)
}
