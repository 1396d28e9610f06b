//! A password that is read again for every new connection, so that it can be changed while a store is open.

use std::fmt;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;

/// The longest password, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 4_096;

/// Where the password of a server is read from.
#[derive(Clone)]
pub(super) struct Password(Arc<dyn Fn() -> io::Result<String> + Send + Sync>);

impl Password {
    pub(super) fn new(read: impl Fn() -> io::Result<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// In a file, without the end of its last line.
    pub(super) fn in_file(path: PathBuf) -> Self {
        Self::new(move || {
            let because =
                |reason: String| io::Error::other(format!("the password in {}: {reason}", path.display()));
            let mut text = String::new();
            let file = std::fs::File::open(&path).map_err(|error| because(error.to_string()))?;
            let most = PASSWORD_BYTES_MAX as u64 + 2;
            file.take(most).read_to_string(&mut text).map_err(|error| because(error.to_string()))?;
            let password = text.trim_end_matches(['\r', '\n']);
            match password.len() {
                0 => Err(because("got nothing; expected a password".to_owned())),
                1..=PASSWORD_BYTES_MAX => Ok(password.to_owned()),
                _ => Err(because(format!("got more than {PASSWORD_BYTES_MAX} bytes; expected fewer"))),
            }
        })
    }

    pub(super) fn read(&self) -> io::Result<String> {
        (self.0)()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(...)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_line_is_no_part_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let password = Password::in_file(file.clone());
        assert!(password.read().unwrap_err().to_string().contains("password in "));
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        let cases =
            [("a b\n", Some("a b")), ("c\r\n", Some("c")), ("d", Some("d")), ("\n", None), (&*long, None)];
        for (text, expected) in cases {
            std::fs::write(&file, text).unwrap();
            let read = password.read();
            assert_eq!(read.as_deref().ok(), expected);
            assert!(read.err().is_none_or(|error| !error.to_string().contains("xxx")));
        }
        assert_eq!(format!("{password:?}"), "Password(...)");
    }
}
