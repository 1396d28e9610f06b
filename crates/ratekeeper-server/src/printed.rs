//! What a status says if nobody reads what is printed.

use std::io;
use std::process::ExitCode;

/// The status of a command that found something out and printed it. A reader that has
/// had enough changes nothing of what was found: a denied request stays denied.
pub(crate) fn with_status(printed: io::Result<()>, status: u8) -> anyhow::Result<ExitCode> {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::from(status)),
    }
}

/// The status of a command that prints and does nothing else: a reader that has had
/// enough is no error.
pub(crate) fn and_no_more(printed: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    match printed {
        Err(error) if !is_broken_pipe(&error) => Err(error),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
}
