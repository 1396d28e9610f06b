//! Who operators are, from all that is said of it.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::serve::admin::{Admin, TOKEN_VARIABLE, Token};

/// Where a setting comes from. What comes later here wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A file of settings.
    File,
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

/// A setting, and where it comes from: where two settings rule each other out, that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said<T> {
    value: T,
    by: Source,
}

impl<T> Said<T> {
    pub(super) fn new(value: Option<T>, by: Source) -> Option<Self> {
        value.map(|value| Self { value, by })
    }
}

/// Where a token is.
enum Place<'t> {
    File(PathBuf),
    Environment(&'t str),
}

/// Who operators are. Whoever can reach the server from outside could forget counters
/// and read keys, so that takes a token, or has to be switched off.
pub(super) fn admin(
    no_admin: Option<Said<bool>>,
    file: Option<Said<PathBuf>>,
    token: Option<&str>,
    http: SocketAddr,
) -> anyhow::Result<Admin> {
    let place = place(file, token)?;
    if let Some(off) = no_admin.filter(|off| off.value) {
        return match place {
            // Switched off by somebody who did not know of it, or the other way round.
            Some(place) if place.by >= off.by => bail!(
                "no-admin: got a token of operators beside it, which nobody could use; expected one of them\n\
                 hint: --no-admin=false or RATEKEEPER_NO_ADMIN=false lets in whoever has the token"
            ),
            _ => Ok(Admin::Off),
        };
    }
    match place.map(|place| place.value) {
        Some(Place::File(file)) => Ok(Admin::Token(Token::read(&file).context("admin-token-file")?)),
        Some(Place::Environment(token)) => Ok(Admin::Token(Token::new(token).context(TOKEN_VARIABLE)?)),
        None if http.ip().is_loopback() => Ok(Admin::Local),
        None => bail!(
            "http: {http} can be reached from outside, where anybody could forget counters and read keys\n\
             hint: set {TOKEN_VARIABLE} or --admin-token-file to a token, or --no-admin to serve nothing of that"
        ),
    }
}

/// Which of the tokens it is.
fn place(file: Option<Said<PathBuf>>, token: Option<&str>) -> anyhow::Result<Option<Said<Place<'_>>>> {
    let in_file = file.map(|Said { value, by }| Said { value: Place::File(value), by });
    let itself = token.map(|token| Said { value: Place::Environment(token), by: Source::Environment });
    match (in_file, itself) {
        (Some(in_file), Some(itself)) if in_file.by == itself.by => {
            bail!("{TOKEN_VARIABLE}: got RATEKEEPER_ADMIN_TOKEN_FILE beside it; expected one of them")
        }
        (Some(in_file), Some(itself)) => Ok(Some(if in_file.by > itself.by { in_file } else { itself })),
        (in_file, itself) => Ok(in_file.or(itself)),
    }
}

#[cfg(test)]
mod tests {
    use super::Source::{Environment, File, Flag};
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn inside() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn said<T>(value: T, by: Source) -> Option<Said<T>> {
        Some(Said { value, by })
    }

    #[test]
    fn what_can_be_reached_from_outside_is_not_left_open() {
        for address in ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:0"] {
            let address = address.parse().unwrap();
            let error = admin(None, None, None, address).unwrap_err().to_string();
            assert!(error.contains("can be reached from outside") && error.contains("hint: "), "{error}");
            assert!(admin(said(false, Flag), None, None, address).is_err());
            assert!(matches!(admin(None, None, Some(TOKEN), address), Ok(Admin::Token(_))));
            assert!(matches!(admin(said(true, File), None, None, address), Ok(Admin::Off)));
        }
        for address in ["127.0.0.1:0", "[::1]:0", "127.3.2.1:80"] {
            assert!(matches!(admin(None, None, None, address.parse().unwrap()), Ok(Admin::Local)));
        }
    }

    #[test]
    fn a_token_that_nobody_could_use_is_refused_unless_something_above_it_says_off() {
        for off in [File, Environment] {
            let error = admin(said(true, off), None, Some(TOKEN), inside()).unwrap_err().to_string();
            assert!(
                error.starts_with("no-admin: ") && error.contains("RATEKEEPER_NO_ADMIN=false"),
                "{error}"
            );
        }
        assert!(matches!(admin(said(true, Flag), None, Some(TOKEN), inside()), Ok(Admin::Off)));
        assert!(matches!(admin(said(false, Flag), None, Some(TOKEN), inside()), Ok(Admin::Token(_))));
        let filed = said(PathBuf::from("/nowhere"), File);
        assert!(matches!(admin(said(true, Environment), filed, None, inside()), Ok(Admin::Off)));
    }

    #[test]
    fn of_two_tokens_the_one_that_is_said_above_counts() {
        let token = |by| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("token");
            std::fs::write(&path, "fedcba9876543210").unwrap();
            match admin(None, said(path, by), Some(TOKEN), inside())? {
                Admin::Token(token) => Ok(token.is(b"fedcba9876543210")),
                other => panic!("{other:?}"),
            }
        };
        assert!(token(Flag).unwrap(), "the flag's");
        assert!(!token(File).unwrap(), "the environment's");
        let error: anyhow::Error = token(Environment).unwrap_err();
        assert!(error.to_string().contains("expected one of them"), "{error}");
    }
}
