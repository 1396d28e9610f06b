//! Who operators are, from all that is said of it.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::bail;

use crate::serve::admin::{Admin, Keyring, TOKEN_VARIABLE};

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

/// What is said of operators.
#[derive(Default)]
pub(super) struct Operators<'t> {
    pub(super) no_admin: Option<Said<bool>>,
    pub(super) without_token: Option<Said<bool>>,
    /// The file of a token in the clear.
    pub(super) file: Option<Said<PathBuf>>,
    /// The token in the environment.
    pub(super) token: Option<&'t str>,
    /// The file of hashed tokens.
    pub(super) tokens: Option<Said<PathBuf>>,
}

impl Operators<'_> {
    /// Who operators are, where their calls are served. Callers from outside could forget counters and read keys, so
    /// that takes a token, or has to be switched off.
    pub(super) fn admin(self, at: SocketAddr) -> anyhow::Result<Admin> {
        let place = place(self.file, self.token)?;
        let said = place.as_ref().map(|place| place.by).max(self.tokens.as_ref().map(|tokens| tokens.by));
        let without = self.without_token.filter(|without| without.value);
        if let Some(off) = self.no_admin.filter(|off| off.value) {
            return match said.max(without.map(|without| without.by)) {
                // Switched off by somebody who did not know of it, or the other way round.
                Some(by) if by >= off.by => bail!(
                    "no-admin: got a token of operators beside it, or admin-without-token, which nobody could use; \
                     expected one of them\n\
                     hint: --no-admin=false or RATEKEEPER_NO_ADMIN=false lets in whoever has the token"
                ),
                _ => Ok(Admin::Off),
            };
        }
        match (said, without) {
            (Some(by), Some(without)) if without.by >= by => {
                bail!("admin-without-token: got a token beside it; expected one of them")
            }
            (Some(_), _) => {
                let (file, token) = match place.map(|place| place.value) {
                    Some(Place::File(file)) => (Some(file), None),
                    Some(Place::Environment(token)) => (None, Some(token)),
                    None => (None, None),
                };
                let keyring = Keyring::open(file, token, self.tokens.map(|tokens| tokens.value))?;
                Ok(Admin::Tokens(keyring))
            }
            (None, Some(_)) if at.ip().is_loopback() => Ok(Admin::Local),
            (None, Some(_)) => bail!(
                "admin-without-token: {at} can be reached from outside, where anybody could forget counters and read \
                 keys; expected a loopback address\nhint: `ratekeeper token new` makes a token for --tokens"
            ),
            (None, None) if at.ip().is_loopback() => Ok(Admin::Unset),
            (None, None) => bail!(
                "http: {at} can be reached from outside, where anybody could forget counters and read keys\n\
                 hint: set --tokens, {TOKEN_VARIABLE} or --admin-token-file to a token, or --no-admin to serve \
                 nothing of that"
            ),
        }
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
        let nothing = Operators::default;
        let without = || Operators { without_token: said(true, Flag), ..nothing() };
        for address in ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:0"] {
            let address = address.parse().unwrap();
            let error = nothing().admin(address).unwrap_err().to_string();
            assert!(error.contains("can be reached from outside") && error.contains("hint: "), "{error}");
            let error = without().admin(address).unwrap_err().to_string();
            assert!(error.starts_with("admin-without-token: "), "{error}");
            assert!(Operators { no_admin: said(false, Flag), ..nothing() }.admin(address).is_err());
            let token = Operators { token: Some(TOKEN), ..nothing() };
            assert!(matches!(token.admin(address), Ok(Admin::Tokens(_))));
            let off = Operators { no_admin: said(true, File), ..nothing() };
            assert!(matches!(off.admin(address), Ok(Admin::Off)));
        }
        for address in ["127.0.0.1:0", "[::1]:0", "127.3.2.1:80"] {
            let address = address.parse().unwrap();
            assert!(matches!(nothing().admin(address), Ok(Admin::Unset)));
            assert!(matches!(without().admin(address), Ok(Admin::Local)));
        }
        let both = Operators { token: Some(TOKEN), ..without() };
        assert!(both.admin(inside()).unwrap_err().to_string().contains("got a token beside it"));
        let above = Operators { without_token: said(true, File), token: Some(TOKEN), ..nothing() };
        assert!(matches!(above.admin(inside()), Ok(Admin::Tokens(_))));
    }

    #[test]
    fn a_token_that_nobody_could_use_is_refused_unless_something_above_it_says_off() {
        let with = |no_admin, token| Operators { no_admin, token, ..Operators::default() }.admin(inside());
        for off in [File, Environment] {
            let error = with(said(true, off), Some(TOKEN)).unwrap_err().to_string();
            assert!(
                error.starts_with("no-admin: ") && error.contains("RATEKEEPER_NO_ADMIN=false"),
                "{error}"
            );
        }
        assert!(matches!(with(said(true, Flag), Some(TOKEN)), Ok(Admin::Off)));
        assert!(matches!(with(said(false, Flag), Some(TOKEN)), Ok(Admin::Tokens(_))));
        for hashed in [false, true] {
            let filed = said(PathBuf::from("/nowhere"), File);
            let (file, tokens) = if hashed { (None, filed) } else { (filed, None) };
            let off = Operators { no_admin: said(true, Environment), file, tokens, ..Operators::default() };
            assert!(matches!(off.admin(inside()), Ok(Admin::Off)));
        }
    }

    #[test]
    fn of_two_tokens_the_one_that_is_said_above_counts() {
        let token = |by| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("token");
            std::fs::write(&path, "fedcba9876543210").unwrap();
            let operators = Operators { file: said(path, by), token: Some(TOKEN), ..Operators::default() };
            match operators.admin(inside())? {
                Admin::Tokens(keyring) => Ok(keyring.has(b"fedcba9876543210")),
                other => panic!("{other:?}"),
            }
        };
        assert!(token(Flag).unwrap(), "the flag's");
        assert!(!token(File).unwrap(), "the environment's");
        let error: anyhow::Error = token(Environment).unwrap_err();
        assert!(error.to_string().contains("expected one of them"), "{error}");
    }
}
