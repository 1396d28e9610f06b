//! What can be wrong with a policy in a file.

use std::io;
use std::path::{Path, PathBuf};

use crate::policy::Problems;

/// Why a file is no policy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be read.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file or the folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Neither its ending nor the program says what it is written in.
    #[error(
        "{}: its ending says no format; expected .toml, .yaml, .yml or .json, or a format that the program names",
        path.display()
    )]
    Ending {
        /// The file.
        path: PathBuf,
    },
    /// Something is wrong with what is in it: an item for every document, which
    /// prints a line for every problem.
    #[error("{}", lines(.0))]
    Wrong(Vec<Problems>),
    /// The thread that follows the file could not be started.
    #[error("no thread to follow the file")]
    Thread(#[source] io::Error),
}

impl FileError {
    pub(super) fn unreadable(path: &Path, reason: impl Into<String>) -> Self {
        Self::Unreadable { path: path.to_owned(), reason: reason.into() }
    }
}

impl From<Problems> for FileError {
    fn from(problems: Problems) -> Self {
        Self::Wrong(vec![problems])
    }
}

fn lines(documents: &[Problems]) -> String {
    let documents: Vec<String> = documents.iter().map(ToString::to_string).collect();
    documents.join("\n")
}
