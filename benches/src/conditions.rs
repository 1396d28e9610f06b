//! Under what conditions the figures were taken: without them they mean nothing.

use std::fmt::Write as _;
use std::process::Command;

/// What is to be noted before a run.
#[derive(Debug)]
pub struct Conditions {
    load_before: String,
    cores: usize,
}

impl Conditions {
    /// Notes how busy the machine is before we are.
    #[must_use]
    pub fn begin() -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        Self { load_before: load_average(), cores }
    }

    /// The conditions as a Markdown list: those of every run, the versions of `crates`, and
    /// `more`.
    #[must_use]
    pub fn describe(&self, crates: &[&str], more: &[(&str, String)]) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- {name}: {value}");
        };
        line("date", &said_by("date", &["-u", "+%Y-%m-%d %H:%M UTC"]));
        line("CPU", &format!("{}, {} core(s) to use", cpu_model(), self.cores));
        line("system", &system());
        line("transparent huge pages", &file("/sys/kernel/mm/transparent_hugepage/enabled"));
        line("load average before and after", &format!("{}; {}", self.load_before, load_average()));
        line("compiler", &said_by("rustc", &["--version"]));
        line("build", "release: opt-level 3, thin LTO, one codegen unit; the system's allocator");
        line("commit", &commit());
        line("crates", &versions(crates));
        for (name, value) in more {
            line(name, value);
        }
        text
    }
}

/// The machine's load over the last 1, 5 and 15 minutes: who else was at work.
fn load_average() -> String {
    file("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// The kernel and the first two numbers of its version: the rest names the machine.
fn system() -> String {
    let release = said_by("uname", &["-r"]);
    let numbers: Vec<&str> = release.splitn(3, '.').take(2).collect();
    format!("{} {}", said_by("uname", &["-s"]), numbers.join("."))
}

fn commit() -> String {
    let here = env!("CARGO_MANIFEST_DIR");
    let head = said_by("git", &["-C", here, "rev-parse", "--short", "HEAD"]);
    let changes = said_by("git", &["-C", here, "status", "--porcelain", "--", "../crates"]);
    if changes.is_empty() { head } else { format!("{head}, with changes in crates/") }
}

fn cpu_model() -> String {
    let info = file("/proc/cpuinfo");
    let model = info.lines().find(|line| line.starts_with("model name"));
    model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, model)| model).to_owned()
}

/// The versions in our lock file. Several of one crate are all in use.
fn versions(crates: &[&str]) -> String {
    let mut versions = Vec::new();
    let mut name = "";
    for line in include_str!("../Cargo.lock").lines() {
        let value = |field: &str| line.strip_prefix(field).map(|value| value.trim_matches('"'));
        name = value("name = ").unwrap_or(name);
        if let Some(version) = value("version = ").filter(|_| crates.contains(&name)) {
            versions.push(format!("{name} {version}"));
        }
    }
    versions.join(", ")
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output
        .map_or_else(|_| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
