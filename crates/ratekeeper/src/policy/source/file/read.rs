//! Reading files and folders, within bounds.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::FileError;
use super::look::{Document, Documents, FILES_MAX, Kind, Look, Parsed, Target};
use crate::policy::document::BYTES_MAX;
use crate::policy::problem::quoted;
use crate::policy::spec::import::Sheet;
use crate::policy::{Format, Place, Policies, PolicySpec, Problem, Problems};

/// A policy that was read from a file.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReadPolicy {
    /// The file.
    pub path: PathBuf,
    /// Other files of the same policy: envoyproxy/ratelimit may have several for a domain.
    pub others: Vec<PathBuf>,
    /// What is in it.
    pub policy: Result<PolicySpec, FileError>,
}

/// Reads a policy, or all of a folder, once: what [`PolicyFile`] would find.
///
/// [`PolicyFile`]: super::PolicyFile
///
/// # Errors
/// If the path leads nowhere, or its ending says no format and `format`
/// neither, or a folder is beyond its bounds. What is wrong with a single file
/// is in its [`ReadPolicy`].
pub fn read_policies(path: &Path, format: Option<Format>) -> Result<Vec<ReadPolicy>, FileError> {
    let target = Target { kind: Kind::of(path, format)?, path: path.to_owned() };
    let documents = target.look().0.map_err(|reason| FileError::unreadable(path, reason))?;
    Ok(parsed(&documents))
}

/// What is in all documents. Those of one domain of envoyproxy/ratelimit are one policy, at the place of the first.
fn parsed(documents: &Documents) -> Vec<ReadPolicy> {
    let mut firsts: HashMap<String, PathBuf> = HashMap::new();
    let mut domains: HashMap<String, (usize, Vec<Sheet>)> = HashMap::new();
    let mut all: Vec<ReadPolicy> = Vec::with_capacity(documents.len());
    for (path, document) in documents {
        let read = document.as_ref().map_err(|reason| FileError::unreadable(path, reason));
        let parsed = read.and_then(|document: &Document| Ok(document.parse(path)?));
        let service = parsed.as_ref().ok().map(|parsed| match parsed {
            Parsed::Policy(spec) => spec.service.clone(),
            Parsed::Sheet(sheet) => sheet.domain().to_owned(),
        });
        let first =
            service.as_ref().map(|service| firsts.entry(service.clone()).or_insert_with(|| path.clone()));
        let second = first.filter(|first| *first != path);
        let policy = match (parsed, second) {
            (Ok(Parsed::Sheet(sheet)), None) => {
                domains.insert(sheet.domain().to_owned(), (all.len(), vec![sheet]));
                // Until all of its parts are known.
                Ok(PolicySpec::builder("").unchecked())
            }
            (Ok(Parsed::Sheet(sheet)), Some(first)) => match domains.get_mut(sheet.domain()) {
                Some((at, sheets)) => {
                    all[*at].others.push(path.clone());
                    sheets.push(sheet);
                    continue;
                }
                None => Err(second_policy(path, sheet.domain(), first).into()),
            },
            (Ok(Parsed::Policy(spec)), None) => Ok(spec),
            (Ok(Parsed::Policy(spec)), Some(first)) => Err(second_policy(path, &spec.service, first).into()),
            (Err(error), _) => Err(error),
        };
        all.push(ReadPolicy { path: path.clone(), others: Vec::new(), policy });
    }
    for (at, sheets) in domains.into_values() {
        all[at].policy = Sheet::policy(sheets).map_err(FileError::from);
    }
    all
}

/// Everything that is wrong with what there is at the start, before any of it is in force: a service whose policy
/// came into force and went again would seem to be limited, and then not to be.
pub(super) fn rehearse(target: &Target, look: &Look, policies: &Policies) -> Result<(), FileError> {
    let documents = look.0.as_ref().map_err(|reason| FileError::unreadable(&target.path, reason))?;
    let mut wrong = Vec::new();
    for ReadPolicy { path, policy, .. } in parsed(documents) {
        match policy {
            Ok(spec) => wrong.extend(policies.rehearse(&path.display().to_string(), &spec).err()),
            Err(FileError::Wrong(problems)) => wrong.extend(problems),
            Err(unreadable) => return Err(unreadable),
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(FileError::Wrong(wrong)) }
}

/// What is wrong with the second file for a service.
pub(super) fn second_policy(path: &Path, service: &str, first: &Path) -> Problems {
    let got = format!("{}, which has its policy in {}", quoted(service), first.display());
    let expected = "a service without one: one file for each. Put all rules of the service into one of the two files, or \
                    remove one";
    let problem = Problem::new(Place::UNKNOWN, "service", got, expected);
    Problems::of(&path.display().to_string(), [problem])
}

/// The content of a file, or why there is none.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    // Before it is opened: opening a pipe waits for somebody to write to it.
    regular(&fs::metadata(path))?;
    let file = File::open(path).map_err(|error| reason(&error))?;
    let size = regular(&file.metadata())?;
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(BYTES_MAX).min(BYTES_MAX));
    file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(|error| reason(&error))?;
    Ok(bytes)
}

/// The size of what must be a regular file.
fn regular(metadata: &io::Result<fs::Metadata>) -> Result<u64, String> {
    match metadata {
        Ok(metadata) if metadata.is_file() => Ok(metadata.len()),
        Ok(metadata) if metadata.is_dir() => Err("is a folder, not a file".to_owned()),
        Ok(_) => Err("is not a regular file".to_owned()),
        Err(error) => Err(reason(error)),
    }
}

pub(super) fn names(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| reason(&error))? {
        let name = entry.map_err(|error| reason(&error))?.file_name();
        if !is_policy(&name) || folder.join(&name).is_dir() {
            continue;
        }
        if names.len() == FILES_MAX {
            return Err(format!("has more than {FILES_MAX} policies"));
        }
        names.push(folder.join(&name));
    }
    names.sort();
    Ok(names)
}

/// Whether a file of that name in a folder is a policy.
pub(super) fn is_policy(name: &OsStr) -> bool {
    !name.as_encoded_bytes().starts_with(b".") && Format::of_path(Path::new(name)).is_some()
}

/// In words, without the number that the system gives it.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
