//! The directory itself: who may use it, its version, and what becomes of a file that is damaged.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ratekeeper_core::{Field, InvalidInput};

/// The version of what is in a directory: this one reads and writes it, and no other.
pub const DATA_VERSION: u32 = 1;
/// The file that everything is in.
pub(super) const FILE: &str = "ratekeeper.redb";
const LOCK: &str = "lock";
const VERSION: &str = "version";
/// More than a version or the number of a process takes.
const SMALL_FILE_BYTES_MAX: u64 = 64;

/// A directory that this process alone uses.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl Directory {
    /// Takes a directory for this process; makes it if there is none.
    pub(super) fn open(path: &Path) -> Result<Self, InvalidInput> {
        make(path).map_err(|error| unusable(path, &error))?;
        let lock = lock(path)?;
        let directory = Self { path: path.to_owned(), _lock: lock };
        directory.check_version()?;
        Ok(directory)
    }

    /// Where the file is.
    pub(super) fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    fn check_version(&self) -> Result<(), InvalidInput> {
        let path = self.path.join(VERSION);
        match small_text(&path) {
            Ok(text) if text.trim() == DATA_VERSION.to_string() => Ok(()),
            Ok(text) => Err(refused(
                format!("{} of version {:?}", self.path.display(), text.trim()),
                format!("version {DATA_VERSION}: the ratekeeper that wrote it, or another directory"),
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.file().exists() => {
                let written = self.write_whole(&path, format!("{DATA_VERSION}\n").as_bytes());
                written.map_err(|error| unusable(&self.path, &error))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(refused(
                format!("{} with data and without the file `{VERSION}`", self.path.display()),
                format!(
                    "that file, with the number {DATA_VERSION} if this version of ratekeeper wrote the data"
                ),
            )),
            Err(error) => Err(unusable(&path, &error)),
        }
    }

    /// Writes a file so that it is there whole or not at all.
    fn write_whole(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let new = path.with_extension("new");
        let mut file = private().create(true).truncate(true).write(true).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        self.rename(&new, path)
    }

    /// Renames a file, and makes that last.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        File::open(&self.path)?.sync_all()
    }

    /// Renames a damaged file, so that somebody can look at it; says to what.
    pub(super) fn set_aside(&self) -> io::Result<PathBuf> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let name = |number: u32| self.path.join(format!("{FILE}.damaged-{seconds}-{number}"));
        let aside = (0..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0));
        self.rename(&self.file(), &aside)?;
        Ok(aside)
    }
}

/// Options for a file that its owner alone may read: it has secrets.
pub(super) fn private() -> OpenOptions {
    #[allow(unused_mut, reason = "elsewhere, who may read a file is the folder's to say")]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Takes the right to read a file from everybody but its owner.
pub(super) fn make_private(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mut permissions = file.metadata()?.permissions();
        if permissions.mode() & 0o077 != 0 {
            permissions.set_mode(0o600);
            file.set_permissions(permissions)?;
        }
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

fn make(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

fn lock(directory: &Path) -> Result<File, InvalidInput> {
    let path = directory.join(LOCK);
    let opened = private().create(true).truncate(false).read(true).write(true).open(&path);
    let mut file = opened.map_err(|error| unusable(directory, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.take(SMALL_FILE_BYTES_MAX).read_to_string(&mut holder);
            let holder = holder.trim().parse::<u32>().map_or_else(
                |_| "another process uses".to_owned(),
                |process| format!("process {process} uses already"),
            );
            return Err(refused(
                format!("{}, which {holder}", directory.display()),
                "a directory of its own for each process; to share limits, let all ask one ratekeeper server, or a Redis",
            ));
        }
        Err(TryLockError::Error(error)) => return Err(unusable(&path, &error)),
    }
    // Only for the message above: whether it is right is no reason to fail.
    let _ = file.set_len(0).and_then(|()| file.rewind());
    let _ = file.write_all(std::process::id().to_string().as_bytes());
    Ok(file)
}

fn small_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(SMALL_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

pub(super) fn refused(got: impl fmt::Display, expected: impl Into<String>) -> InvalidInput {
    InvalidInput::new(Field::Store, got, expected)
}

pub(super) fn unusable(path: &Path, error: &io::Error) -> InvalidInput {
    refused(
        format!("{}: {error}", path.display()),
        "a directory on a local disk in which this process can make, lock and write files",
    )
}
