//! `ratekeeper demo`.

use crate::{ratekeeper, text};

#[test]
fn the_demonstration_shows_who_is_denied_and_why() {
    let output = ratekeeper(&["demo", "--requests", "24", "--every", "0"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        shown.lines().filter(|line| line.contains("192.0.2.10") || line.contains("203.0.113.9")).count(),
        24
    );
    assert!(shown.contains("DENIED   search: 0 of 3 left (3/5s sliding_log), 1 asked for"), "{shown}");
    assert!(shown.contains("  eve: "), "{shown}");
    assert!(!shown.contains('\u{1b}'), "no colours into a pipe");
    assert!(output.stderr.is_empty());
}

#[test]
fn bad_arguments_are_refused_with_what_would_be_right() {
    let output = ratekeeper(&["demo", "--requests", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("0 is not in 1..=10000"), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty());
}
