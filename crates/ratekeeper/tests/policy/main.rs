//! Policies from outside: one binary for all of their tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod any_text;
mod conditions;
mod examples;
mod examples_at_work;
mod formats;
mod groups;
mod hostile;
mod ids;
mod in_code;
mod matching;
mod modes;
mod paths;
mod penalties;
mod precedence;
mod ratelimit;
mod recycled;
mod reload;
mod schema;
mod service_document;
mod stores;
mod together;
mod traces;
mod unknown_services;
mod watched_outages;
mod world;
mod wrong;

use std::path::{Path, PathBuf};

use ratekeeper::policy::{CompileOptions, Format, Policy, PolicySpec, Problems};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All policies in a folder, by name.
fn policies(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut policies: Vec<PathBuf> = paths.filter(|path| Format::of_path(path).is_some()).collect();
    policies.sort();
    policies
}

/// The file's name, which is what problems call it.
fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn read(path: &Path) -> Result<PolicySpec, Problems> {
    let document = std::fs::read(path).unwrap();
    PolicySpec::read(name(path), Format::of_path(path).unwrap(), &document)
}

/// Reads and compiles.
fn compile(path: &Path) -> Result<Policy, Problems> {
    Policy::compile(&read(path)?, name(path), &CompileOptions::default())
}

/// A policy in TOML.
fn toml(text: &str) -> Result<PolicySpec, Problems> {
    PolicySpec::read("policy.toml", Format::Toml, text.as_bytes())
}
