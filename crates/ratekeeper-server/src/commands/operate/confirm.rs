//! Asking before something broad is done.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::failure::Failure;

/// Whether whoever types wants it. Without a terminal nobody can be asked.
pub(super) fn confirmed(question: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::new(format!(
            "{question} There is no terminal to ask at, and nothing was changed"
        ))
        .hint("--yes does it without asking"));
    }
    let mut err = anstream::stderr();
    let asked = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    asked.and_then(|()| io::stdin().lock().read_line(&mut answer)).map_err(Failure::new)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
