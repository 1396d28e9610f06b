//! What there is to see at one moment: the documents, and whether they are
//! others than before.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::error::FileError;
use super::read;
use crate::policy::document::BYTES_MAX;
use crate::policy::spec::import::Sheet;
use crate::policy::{Format, Node, PolicySpec, Problems};

/// How many policies a folder may have.
pub const FILES_MAX: usize = 1_000;
/// How many bytes they may have together.
pub const FOLDER_BYTES_MAX: usize = 4 * BYTES_MAX;

/// What is watched.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
}

/// Whether it is a file or a folder; that does not change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    File(Format),
    Folder,
}

impl Kind {
    pub(super) fn of(path: &Path, format: Option<Format>) -> Result<Self, FileError> {
        let metadata =
            fs::metadata(path).map_err(|error| FileError::unreadable(path, read::reason(&error)))?;
        if metadata.is_dir() {
            return Ok(Kind::Folder);
        }
        let format = format.or_else(|| Format::of_path(path));
        format.map(Kind::File).ok_or_else(|| FileError::Ending { path: path.to_owned() })
    }
}

/// The documents by path, each of them or why it cannot be read.
pub(super) type Documents = BTreeMap<PathBuf, Result<Document, String>>;

/// The documents, or why there are none.
#[derive(Debug)]
pub(super) struct Look(pub(super) Result<Documents, String>);

/// What a file holds.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) format: Format,
    pub(super) bytes: Vec<u8>,
    /// Content, not times, tells whether a file is another: times may be kept
    /// when a file is copied, and are coarse on some file systems.
    pub(super) hash: blake3::Hash,
}

/// A look without the documents, to compare it with another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature(Result<Vec<(PathBuf, Hashed)>, String>);

type Hashed = Result<blake3::Hash, String>;

impl Target {
    pub(super) fn look(&self) -> Look {
        Look(match self.kind {
            Kind::File(format) => Ok([(self.path.clone(), document(&self.path, format))].into()),
            Kind::Folder => self.folder(),
        })
    }

    fn folder(&self) -> Result<Documents, String> {
        let mut documents = Documents::new();
        let mut bytes = 0;
        for path in read::names(&self.path)? {
            let Some(format) = Format::of_path(&path) else { continue };
            let document = document(&path, format);
            bytes += document.as_ref().map_or(0, |document| document.bytes.len());
            if bytes > FOLDER_BYTES_MAX {
                return Err(format!("its policies have more than {FOLDER_BYTES_MAX} bytes together"));
            }
            documents.insert(path, document);
        }
        Ok(documents)
    }
}

fn document(path: &Path, format: Format) -> Result<Document, String> {
    let bytes = read::bytes(path)?;
    Ok(Document { format, hash: blake3::hash(&bytes), bytes })
}

/// What a document says.
pub(super) enum Parsed {
    Policy(PolicySpec),
    /// A part of the policy of its domain.
    Sheet(Sheet),
}

impl Parsed {
    /// The policy that it is on its own.
    pub(super) fn alone(self) -> Result<PolicySpec, Problems> {
        match self {
            Parsed::Policy(spec) => Ok(spec),
            Parsed::Sheet(sheet) => Sheet::policy(vec![sheet]),
        }
    }
}

impl Document {
    pub(super) fn parse(&self, path: &Path) -> Result<Parsed, Problems> {
        let source = path.display().to_string();
        let node = Node::parse(&source, self.format, &self.bytes)?;
        match Sheet::of(&source, self.format, &self.bytes, &node) {
            Some(sheet) => sheet.map(Parsed::Sheet),
            None => PolicySpec::from_node(&source, &node).map(Parsed::Policy),
        }
    }
}

impl Look {
    pub(super) fn signature(&self) -> Signature {
        let hash = |document: &Result<Document, String>| match document {
            Ok(document) => Ok(document.hash),
            Err(reason) => Err(reason.clone()),
        };
        Signature(match &self.0 {
            Ok(files) => Ok(files.iter().map(|(path, document)| (path.clone(), hash(document))).collect()),
            Err(reason) => Err(reason.clone()),
        })
    }
}
