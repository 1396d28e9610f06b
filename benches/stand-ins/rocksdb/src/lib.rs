//! The names of RocksDB that limitador mentions, and a database that never opens.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

/// There is no database.
#[derive(Clone, Debug)]
pub struct Error;

impl Error {
    /// What kind it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::NotSupported
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is a stand-in for RocksDB")
    }
}

impl std::error::Error for Error {}

/// Kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ErrorKind {
    NotSupported,
    TimedOut,
    TryAgain,
}

/// What a filter decides.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum CompactionDecision {
    Keep,
    Remove,
}

/// How data would be compressed.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum DBCompressionType {
    None,
    Bz2,
}

/// Where an iterator would begin.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum IteratorMode {
    Start,
}

/// Values to merge.
#[derive(Debug)]
pub struct MergeOperands(Vec<Vec<u8>>);

impl<'a> IntoIterator for &'a MergeOperands {
    type Item = &'a [u8];
    type IntoIter = std::iter::Map<std::slice::Iter<'a, Vec<u8>>, fn(&'a Vec<u8>) -> &'a [u8]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(Vec::as_slice)
    }
}

/// Settings that nobody reads.
#[derive(Debug, Default)]
#[allow(missing_docs, clippy::unused_self)]
pub struct Options;

#[allow(missing_docs, clippy::unused_self)]
impl Options {
    pub fn create_if_missing(&mut self, _: bool) {}

    pub fn set_compression_type(&mut self, _: DBCompressionType) {}

    pub fn set_compaction_filter<F>(&mut self, _: &str, _: F)
    where
        F: FnMut(u32, &[u8], &[u8]) -> CompactionDecision + Send + 'static,
    {
    }

    pub fn set_merge_operator_associative<F>(&mut self, _: &str, _: F)
    where
        F: Fn(&[u8], Option<&[u8]>, &MergeOperands) -> Option<Vec<u8>> + Clone + Send + Sync + 'static,
    {
    }
}

/// Marks a database for many threads.
#[derive(Clone, Copy, Debug)]
pub struct MultiThreaded;

/// A database that never opens, so that there is none to ask.
#[derive(Debug)]
pub struct DBWithThreadMode<T> {
    never: Infallible,
    mode: PhantomData<T>,
}

/// The usual one.
pub type DB = DBWithThreadMode<MultiThreaded>;

type Entry = Result<(Box<[u8]>, Box<[u8]>), Error>;

#[allow(missing_docs, clippy::missing_errors_doc)]
impl<T> DBWithThreadMode<T> {
    pub fn open(_: &Options, _: impl AsRef<Path>) -> Result<Self, Error> {
        Err(Error)
    }

    pub fn get(&self, _: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        match self.never {}
    }

    pub fn merge(&self, _: impl AsRef<[u8]>, _: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.never {}
    }

    pub fn delete(&self, _: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.never {}
    }

    #[must_use]
    pub fn iterator(&self, _: IteratorMode) -> Box<dyn Iterator<Item = Entry>> {
        match self.never {}
    }

    #[must_use]
    pub fn prefix_iterator(&self, _: impl AsRef<[u8]>) -> Box<dyn Iterator<Item = Entry>> {
        match self.never {}
    }
}
