//! The harness finds what is wrong: one process that is given twice the limits is enough.

use std::process::Command;

fn run(topology: &str, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaos"));
    command.args(["run", "--seconds", "1", "--topologies", topology, "--faults", "flush-scripts"]).args(more);
    let output = command.output().expect("run chaos");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), said.concat())
}

#[test]
fn limits_that_are_kept_pass() {
    let (status, said) = run("single-redis", &[]);
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn doubled_limits_do_not() {
    for topology in ["single-redis", "several"] {
        let (status, said) = run(topology, &["--broken"]);
        assert_eq!(status, Some(1), "{topology}: {said}");
        assert!(said.contains("more than its limit"), "{topology}: {said}");
    }
}
