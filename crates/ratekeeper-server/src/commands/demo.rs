//! `ratekeeper demo`: three layered limits on made-up traffic, live.
//!
//! The traffic is made up; the limiter, the store and the clock are the real
//! ones, so what the table shows is what a service would get.

use std::io::Write;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use ratekeeper::{Decision, Limiter, MemoryStore, Rule};

use crate::cli::DemoOptions;

/// A request as a service would see it.
struct Request {
    ip: &'static str,
    user: &'static str,
    path: &'static str,
}

/// Ann and bob sit behind one address; eve is a script in a hurry.
const TRAFFIC: [Request; 8] = [
    Request { ip: "192.0.2.10", user: "ann", path: "/items" },
    Request { ip: "203.0.113.9", user: "eve", path: "/search" },
    Request { ip: "192.0.2.10", user: "bob", path: "/items" },
    Request { ip: "203.0.113.9", user: "eve", path: "/search" },
    Request { ip: "203.0.113.9", user: "eve", path: "/items" },
    Request { ip: "192.0.2.10", user: "ann", path: "/search" },
    Request { ip: "203.0.113.9", user: "eve", path: "/search" },
    Request { ip: "203.0.113.9", user: "eve", path: "/items" },
];

const PER_IP: &str = "6/s";
const PER_USER: &str = "2/s burst 5";
const EXPENSIVE: &str = "3/5s sliding_log";

pub(crate) fn run(options: &DemoOptions) -> anyhow::Result<()> {
    let limiter = limiter().context("the demonstration's rules")?;
    let mut out = anstream::stdout();
    introduce(&mut out)?;
    let start = Instant::now();
    let mut tally = Tally::default();
    for (number, request) in (0..options.requests).zip(TRAFFIC.iter().cycle()) {
        if number > 0 {
            std::thread::sleep(Duration::from_millis(options.every));
        }
        let decision = limiter.check_now(request)?;
        row(&mut out, start.elapsed(), request, &decision)?;
        tally.add(request, &decision);
    }
    conclude(&mut out, &tally)
}

fn limiter() -> anyhow::Result<Limiter<Request>> {
    Ok(Limiter::builder(MemoryStore::new())
        .rule(Rule::new("per-ip", |request: &Request| Some(request.ip.into())).quotas(PER_IP))
        .rule(Rule::new("per-user", |request: &Request| Some(request.user.into())).quotas(PER_USER))
        .rule(
            Rule::new("search", |request: &Request| {
                (request.path == "/search").then_some(request.user.into())
            })
            .quotas(EXPENSIVE),
        )
        .build()?)
}

fn introduce(out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "Three limits, decided together: all of them let a request in, or nothing is charged.\n")?;
    for (name, quota, about) in [
        ("per-ip", PER_IP, "each address"),
        ("per-user", PER_USER, "each user, with room for a burst"),
        ("search", EXPENSIVE, "each user on the expensive endpoint, exact in any 5 seconds"),
    ] {
        writeln!(out, "  {name:<9} {quota:<17} {about}")?;
    }
    let head = format!("\n{:>7}  {:<12} {:<5} {:<8} {:<8} why", "time", "address", "user", "path", "");
    writeln!(out, "{}{head}{}", Style::new().bold(), Style::new().bold().render_reset())?;
    Ok(())
}

fn row(out: &mut impl Write, at: Duration, request: &Request, decision: &Decision) -> anyhow::Result<()> {
    let (word, colour) =
        if decision.is_allowed() { ("allowed", AnsiColor::Green) } else { ("DENIED", AnsiColor::Red) };
    let style = colour.on_default();
    let sentence = decision.explain();
    let why = sentence.trim_start_matches("allowed: ").trim_start_matches("denied by ");
    writeln!(
        out,
        "{:>6.2}s  {:<12} {:<5} {:<8} {style}{word:<8}{style:#} {why}",
        at.as_secs_f64(),
        request.ip,
        request.user,
        request.path,
    )?;
    out.flush()?;
    Ok(())
}

/// What became of each user's requests.
#[derive(Default)]
struct Tally(Vec<(&'static str, u32, u32)>);

impl Tally {
    fn add(&mut self, request: &Request, decision: &Decision) {
        let known = self.0.iter().position(|(user, ..)| *user == request.user);
        let place = known.unwrap_or_else(|| {
            self.0.push((request.user, 0, 0));
            self.0.len() - 1
        });
        let (_, allowed, denied) = &mut self.0[place];
        if decision.is_allowed() { *allowed += 1 } else { *denied += 1 }
    }
}

fn conclude(out: &mut impl Write, tally: &Tally) -> anyhow::Result<()> {
    writeln!(out)?;
    for (user, allowed, denied) in &tally.0 {
        writeln!(out, "  {user}: {allowed} allowed, {denied} denied")?;
    }
    writeln!(
        out,
        "\nA denied request took nothing from any limit: ann and bob did not pay for eve.\n\
         Next: `target/release/ratekeeper demo --every 20` for a busier minute (`--help` for more), the ten lines in \
         README.md\nto put this into a program, `make test`, `make bench-memory`."
    )?;
    Ok(())
}
