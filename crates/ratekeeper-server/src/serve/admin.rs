//! Who may do what operators do: forget counters, see keys and policies.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use anyhow::{Context as _, bail};
use http::header::AUTHORIZATION;
use http::request::Parts;
use subtle::ConstantTimeEq as _;

use super::api::Problem;
use super::origin::is_local;
use super::reread::Reread;
use crate::files;

/// The variable that holds the token of operators.
pub const TOKEN_VARIABLE: &str = "RATEKEEPER_ADMIN_TOKEN";
/// The shortest token, in bytes: shorter ones can be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// The longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1_024;
/// The longest file with a token in it, in bytes: there may be blanks around it.
const TOKEN_FILE_BYTES_MAX: u64 = 4_096;

/// Who is let in.
#[derive(Debug)]
pub enum Admin {
    /// Nobody.
    Off,
    /// Whoever is on this machine; for servers that nobody else can reach.
    Local,
    /// Whoever knows the token.
    Token(Token),
}

/// A secret that is never printed.
pub struct Token {
    secret: RwLock<Box<[u8]>>,
    /// Where the next one will be.
    file: Option<PathBuf>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(...)")
    }
}

impl Token {
    /// A token.
    ///
    /// # Errors
    /// If it is too short or too long, or could not stand in a header.
    pub fn new(text: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&text.len()) {
            bail!("got {} bytes; expected {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}", text.len());
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("got a character that cannot stand in a header; expected printable ASCII without spaces");
        }
        Ok(Self { secret: RwLock::new(text.as_bytes().into()), file: None })
    }

    /// The token in a file.
    ///
    /// # Errors
    /// As [`Token::new`]; also if the file cannot be read.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = files::text(path, TOKEN_FILE_BYTES_MAX)?;
        let token = Self::new(&text).with_context(|| format!("the token in {}", path.display()))?;
        Ok(Self { file: Some(path.to_owned()), ..token })
    }

    /// In constant time: how much of a guess is right must not show.
    pub(super) fn is(&self, sent: &[u8]) -> bool {
        sent.ct_eq(&self.secret.read().unwrap_or_else(PoisonError::into_inner)).into()
    }

    /// Reads it again, if it is in a file. What cannot be used leaves the one before.
    fn read_again(&self) -> anyhow::Result<Reread> {
        let Some(file) = &self.file else { return Ok(Reread::None) };
        let new = Self::read(file)?.secret.into_inner().unwrap_or_else(PoisonError::into_inner);
        if self.is(&new) {
            return Ok(Reread::Same);
        }
        *self.secret.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(Reread::Renewed)
    }
}

impl Admin {
    /// Reads the token again, if it is in a file.
    ///
    /// # Errors
    /// If it cannot be used; then the one before stays.
    pub(super) fn read_again(&self) -> anyhow::Result<Reread> {
        match self {
            Admin::Token(token) => token.read_again().context("admin-token-file"),
            Admin::Off | Admin::Local => Ok(Reread::None),
        }
    }

    /// Lets a request in, or says why not.
    pub(super) fn admits(&self, request: &Parts) -> Result<(), Problem> {
        match self {
            Admin::Off => Err(Problem::new(403, "this server serves nothing that is for operators alone")),
            Admin::Token(token) => {
                let sent = request.headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
                let sent = sent.and_then(bearer).unwrap_or_default();
                if token.is(sent) {
                    return Ok(());
                }
                Err(Problem::new(
                    401,
                    "this is for operators: expected `Authorization: Bearer` and their token",
                ))
            }
            Admin::Local if is_local(request) => Ok(()),
            Admin::Local => Err(Problem::new(
                403,
                "without a token, operators are asked for on this machine only, and neither by a page in a browser \
                 nor through a proxy",
            )),
        }
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(admin: &Admin, fields: &[(&str, &str)]) -> Result<(), u16> {
        let mut request = http::Request::post("/v1/reset");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        admin.admits(&parts).map_err(|problem| problem.status)
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let admin = Admin::Token(Token::new("0123456789abcdef\n").unwrap());
        assert_eq!(admitted(&admin, &[("authorization", "Bearer 0123456789abcdef")]), Ok(()));
        assert_eq!(admitted(&admin, &[("authorization", "bearer 0123456789abcdef")]), Ok(()));
        let wrong = [
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer ",
            "Basic 0123456789abcdef",
            "",
            "B",
        ];
        for value in wrong {
            assert_eq!(admitted(&admin, &[("authorization", value)]), Err(401), "{value}");
        }
        assert_eq!(admitted(&admin, &[]), Err(401));
        assert_eq!(format!("{admin:?}"), "Token(Token(...))");
    }

    #[test]
    fn tokens_that_can_be_guessed_are_refused() {
        for text in [
            "",
            "short",
            "with a space in it",
            &"x".repeat(TOKEN_BYTES_MAX + 1),
            "caf\u{e9}-caf\u{e9}-caf\u{e9}",
        ] {
            assert!(Token::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn without_a_token_pages_in_a_browser_stay_outside() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "127.8.8.8"] {
            assert_eq!(admitted(&Admin::Local, &[("host", host)]), Ok(()), "{host}");
            let with_origin = [("host", host), ("origin", "http://localhost:8080")];
            assert_eq!(admitted(&Admin::Local, &with_origin), Err(403), "{host}");
        }
        for host in
            ["example.org", "example.org:8080", "127.0.0.1.example.org", "10.0.0.1", "[2001:db8::1]:80", ""]
        {
            assert_eq!(admitted(&Admin::Local, &[("host", host)]), Err(403), "{host}");
        }
        assert_eq!(admitted(&Admin::Local, &[]), Err(403), "who names no machine");
        assert_eq!(admitted(&Admin::Off, &[("host", "localhost")]), Err(403));
    }

    #[test]
    fn without_a_token_what_a_proxy_passes_on_stays_outside() {
        let fields = [
            ("x-forwarded-for", "203.0.113.9"),
            ("forwarded", "for=203.0.113.9"),
            ("via", "1.1 proxy"),
            ("x-real-ip", "203.0.113.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-prefix", "/limits"),
            ("x-forwarded-client-cert", "By=x"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ];
        for field in fields {
            assert_eq!(admitted(&Admin::Local, &[("host", "127.0.0.1:8080"), field]), Err(403), "{field:?}");
            let token = Admin::Token(Token::new("0123456789abcdef").unwrap());
            let with_token = [("authorization", "Bearer 0123456789abcdef"), field];
            assert_eq!(admitted(&token, &with_token), Ok(()), "a token is as good as before");
        }
        for site in ["none", "same-origin"] {
            assert_eq!(admitted(&Admin::Local, &[("host", "localhost"), ("sec-fetch-site", site)]), Ok(()));
        }
        let (mut old, ()) =
            http::Request::post("/v1/reset").header("host", "127.0.0.1:8080").body(()).unwrap().into_parts();
        old.version = http::Version::HTTP_10;
        assert_eq!(Admin::Local.admits(&old).map_err(|problem| problem.status), Err(403));
    }

    #[test]
    fn a_token_in_a_file_can_be_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("0123456789abcdef");
        let admin = Admin::Token(Token::read(&path).unwrap());
        let with = |token: &str| admitted(&admin, &[("authorization", &format!("Bearer {token}"))]);
        assert_eq!(admin.read_again().unwrap(), Reread::Same);
        write("short");
        let error = format!("{:#}", admin.read_again().unwrap_err());
        assert!(error.starts_with("admin-token-file: ") && !error.contains("short"), "{error}");
        assert_eq!(with("0123456789abcdef"), Ok(()), "the one before stays");
        write("fedcba9876543210");
        assert_eq!(admin.read_again().unwrap(), Reread::Renewed);
        assert_eq!((with("fedcba9876543210"), with("0123456789abcdef")), (Ok(()), Err(401)));
        assert_eq!(Admin::Local.read_again().unwrap(), Reread::None);
    }
}
