//! Asking before something broad is done.

use std::io::{self, BufRead, IsTerminal as _, Write};

use crate::failure::Failure;

/// How much of an answer is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 1_024;
const HINT: &str = "--yes does it without asking";

/// Goes on if whoever types wants it, or if there is no question. Without a terminal nobody can be asked.
pub(super) fn confirm(question: Option<&str>) -> Result<(), Failure> {
    let Some(question) = question else { return Ok(()) };
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let nobody = format!("{question} There is no terminal to ask at, and nothing was changed");
        return Err(Failure::new(nobody).hint(HINT));
    }
    if is_wanted(question, &mut anstream::stderr(), stdin.lock()).map_err(Failure::new)? {
        return Ok(());
    }
    Err(Failure::new("nothing was changed").hint(HINT))
}

/// Whether the answer is yes. Every other one is no, and so is none.
fn is_wanted(question: &str, asked: &mut impl Write, answers: impl BufRead) -> io::Result<bool> {
    write!(asked, "{question} [y/N] ")?;
    asked.flush()?;
    let mut answer = String::new();
    answers.take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
    Ok(["y", "yes"].iter().any(|yes| answer.trim().eq_ignore_ascii_case(yes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        let long = "y".repeat(5_000);
        let cases = [
            ("y\n", true),
            ("Y\n", true),
            (" yes \r\n", true),
            ("YES", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
            ("yes, but\n", false),
            ("no\ny\n", false),
            (&long, false),
        ];
        for (typed, wanted) in cases {
            let mut asked = Vec::new();
            assert_eq!(is_wanted("lift it?", &mut asked, typed.as_bytes()).unwrap(), wanted, "{typed:?}");
            assert_eq!(asked, b"lift it? [y/N] ");
        }
    }

    #[test]
    fn what_needs_no_question_is_not_asked() {
        assert!(confirm(None).is_ok());
    }
}
