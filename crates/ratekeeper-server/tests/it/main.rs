//! The binary from outside.

mod demo;
mod policy;

use std::process::{Command, Output};

fn ratekeeper(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ratekeeper")).args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
