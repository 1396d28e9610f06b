//! Small files that somebody names: read whole, within a bound. What is named may be
//! a device that never ends.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};

/// The longest file of authorities to trust, in bytes: a system's own has some 200 KiB.
pub const AUTHORITIES_BYTES_MAX: u64 = 4 << 20;

/// The bytes of a file, at most `max` of them.
///
/// # Errors
/// If it cannot be read or is longer; the error has its path.
pub fn bytes(path: &Path, max: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes));
    read.with_context(|| path.display().to_string())?;
    if bytes.len() as u64 > max {
        bail!("{}: expected at most {max} bytes", path.display());
    }
    Ok(bytes)
}

/// The same as text.
///
/// # Errors
/// As [`bytes()`]; also if it is no text.
pub fn text(path: &Path, max: u64) -> anyhow::Result<String> {
    let text = String::from_utf8(bytes(path, max)?);
    text.ok().with_context(|| format!("{}: got bytes that are no UTF-8; expected text", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_not_read_to_its_end() {
        let error = bytes(Path::new("/dev/zero"), 1_024).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero: expected at most 1024 bytes");
        let error = text(Path::new("/nowhere"), 1_024).unwrap_err();
        assert!(format!("{error:#}").starts_with("/nowhere: "), "{error:#}");
    }
}
