//! The harness finds what is wrong: one process that is given twice the limits is enough.

use std::process::Command;

fn run(more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaos"));
    command
        .args(["run", "--seconds", "1", "--topologies", "single-redis", "--faults", "flush-scripts"])
        .args(more);
    let output = command.output().expect("run chaos");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), said.concat())
}

#[test]
fn limits_that_are_kept_pass() {
    let (status, said) = run(&[]);
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn doubled_limits_do_not() {
    let (status, said) = run(&["--broken"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("more than its limit"), "{said}");
}
