//! The command line that comparisons have in common.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::{Result, report};

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    quick: bool,
    out: Option<PathBuf>,
    help: bool,
}

/// Measures (quickly, if told to), prints the Markdown report, and puts it into its section of a
/// file as well if asked to.
pub fn run(section: &str, measure: impl FnOnce(bool) -> Result<String>) -> ExitCode {
    match tell(section, std::env::args().skip(1), measure) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{section}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(
    section: &str,
    arguments: impl Iterator<Item = String>,
    measure: impl FnOnce(bool) -> Result<String>,
) -> Result<()> {
    let options = options(arguments).map_err(|error| format!("{error}\n{}", usage(section)))?;
    if options.help {
        println!("{}", usage(section));
        return Ok(());
    }
    let text = measure(options.quick)?;
    println!("{text}");
    if let Some(path) = options.out {
        report::write_section(&path, section, &text)?;
    }
    Ok(())
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--out" => options.out = Some(arguments.next().ok_or("--out lacks a value")?.into()),
            "--help" => options.help = true,
            _ => return Err(format!("{argument} is not an option").into()),
        }
    }
    Ok(options)
}

fn usage(section: &str) -> String {
    format!(
        "usage: {section} [--quick] [--out FILE]\n\n  --quick      2 short rounds: whether it works, not how fast\n  \
         --out FILE   put the report into the `{section}` section of FILE as well"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Options> {
        options(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn options_are_read_and_others_refused() {
        let all = read(&["--quick", "--out", "report.md"]).unwrap();
        assert_eq!(all, Options { quick: true, out: Some("report.md".into()), help: false });
        assert_eq!(read(&["--out"]).unwrap_err().to_string(), "--out lacks a value");
        assert_eq!(read(&["--fast"]).unwrap_err().to_string(), "--fast is not an option");
    }
}
