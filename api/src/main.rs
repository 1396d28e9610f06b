//! Lists the public API of a crate: `ratekeeper-api target/doc/ratekeeper.json`.
//!
//! A line for each public item, sorted. Every implementation of a trait has its line, so that
//! one that disappears shows; the methods of derived ones, which say nothing new, have none.

use std::collections::HashSet;
use std::process::ExitCode;

use public_api::{Builder, Error};

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("error: got no argument; expected the JSON that rustdoc wrote for a crate");
        return ExitCode::from(2);
    };
    match listing(&path) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {path}: {error}");
            eprintln!("rustdoc's format may be newer than `public-api` in api/Cargo.toml: update that");
            ExitCode::FAILURE
        }
    }
}

fn listing(path: &str) -> Result<String, Error> {
    // What every type has, by the rules of the language, is not ours to promise.
    let builder = Builder::from_rustdoc_json(path).omit_blanket_impls(true).omit_auto_trait_impls(true);
    let all = builder.clone().build()?;
    let written = builder.omit_auto_derived_impls(true).build()?;
    let written: HashSet<String> = written.items().map(ToString::to_string).collect();
    let lines = all.items().map(ToString::to_string);
    let lines = lines.filter(|line| line.starts_with("impl") || written.contains(line));
    // That values can be patterns goes with `PartialEq`, and no program can ask for it.
    let lines = lines.filter(|line| !line.contains("core::marker::StructuralPartialEq"));
    Ok(lines.map(|line| line + "\n").collect())
}
