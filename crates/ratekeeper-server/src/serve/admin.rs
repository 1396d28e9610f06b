//! Who may make the calls that are not for everybody: by token, or without one on this machine.

mod guesses;
mod tokens;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context as _;
use http::header::AUTHORIZATION;
use http::request::Parts;

use self::guesses::Guesses;
pub use self::guesses::{GUESSERS_MAX, GUESSES_QUOTA};
use self::tokens::Tokens;
pub use self::tokens::{
    Role, TOKEN_BYTES_MAX, TOKEN_BYTES_MIN, TOKEN_NAME_BYTES_MAX, TOKENS_MAX, Tenant, Token, role_of,
};
use super::api::Problem;
use super::calls::Access;
use super::origin::is_local;
use super::reread::Reread;
use crate::files;

/// The variable that holds the token of operators.
pub const TOKEN_VARIABLE: &str = "RATEKEEPER_ADMIN_TOKEN";
/// The longest file with one token in it, in bytes: there may be blanks around it.
const TOKEN_FILE_BYTES_MAX: u64 = 4_096;
/// The longest file of hashed tokens, in bytes.
const TOKENS_FILE_BYTES_MAX: u64 = 1 << 20;
/// Parameters of an address that are tokens, or mean to be.
const TOKEN_PARAMETERS: [&str; 8] =
    ["token", "access_token", "admin_token", "api_key", "apikey", "auth", "authorization", "bearer"];

/// Who is let in.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a server has one of it")]
pub enum Admin {
    /// Nobody, as the settings say.
    Off,
    /// Nobody, because the settings name no token.
    Unset,
    /// Callers on this machine, without a token.
    Local,
    /// Callers with a token.
    Tokens(Keyring),
}

/// The tokens of a server, and where they are read from.
#[derive(Default)]
pub struct Keyring {
    tokens: RwLock<Arc<Tokens>>,
    /// Not in a file.
    given: Vec<Token>,
    /// Where the next ones will be: a token in the clear, and hashed ones.
    in_clear: Option<PathBuf>,
    hashed: Option<PathBuf>,
    guesses: Guesses,
    /// The setting that names the file in the clear.
    setting: &'static str,
}

/// Who makes a call: what the audit log has of it, and what it may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of its token.
    pub name: String,
    /// The tenant that it is held to.
    pub tenant: Option<Tenant>,
    /// Whether the name is that of a token, rather than of a place without one.
    pub has_token: bool,
}

/// Why a call is not let in.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) problem: Problem,
    /// When to try again.
    pub(super) retry_after: Option<Duration>,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { problem, retry_after: None }
    }
}

impl Caller {
    /// A caller without a token.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), tenant: None, has_token: false }
    }

    fn of(token: &Token) -> Self {
        let tenant = match &token.role {
            Role::Usage(tenant) => Some(tenant.clone()),
            Role::Read | Role::Operate => None,
        };
        Self { name: token.name.clone(), tenant, has_token: true }
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyring(...)")
    }
}

impl From<Token> for Admin {
    fn from(token: Token) -> Self {
        Self::of_tokens([token])
    }
}

impl Keyring {
    /// A token in the clear, in a file or the environment, and hashed ones in another file.
    ///
    /// # Errors
    /// If one of them cannot be read or used.
    pub(super) fn open(
        in_clear: Option<PathBuf>,
        token: Option<&str>,
        hashed: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let given = token.map(Token::new).transpose().context(TOKEN_VARIABLE)?;
        let setting = "admin-token-file";
        let keyring =
            Self { in_clear, hashed, setting, given: given.into_iter().collect(), ..Self::default() };
        keyring.put(keyring.read()?);
        Ok(keyring)
    }

    /// One password in a file, which `setting` names.
    ///
    /// # Errors
    /// If it cannot be read or used.
    pub(super) fn of_password(file: PathBuf, setting: &'static str) -> anyhow::Result<Self> {
        let keyring = Self { in_clear: Some(file), setting, ..Self::default() };
        keyring.put(keyring.read()?);
        Ok(keyring)
    }

    /// One password.
    ///
    /// # Errors
    /// If it cannot be one.
    pub fn with_password(password: &str) -> anyhow::Result<Self> {
        let keyring = Self { given: vec![Token::new(password)?], ..Self::default() };
        keyring.put(keyring.read()?);
        Ok(keyring)
    }

    /// Whether what was sent from an address is one of them, or how long that address has to wait before it is looked at.
    pub(super) fn has_sent(&self, sent: &[u8], from: Option<IpAddr>) -> Result<bool, Duration> {
        self.find(sent, from).map(|token| token.is_some())
    }

    fn find(&self, sent: &[u8], from: Option<IpAddr>) -> Result<Option<Token>, Duration> {
        if let Some(wait) = self.guesses.wait(from) {
            return Err(wait);
        }
        let token = self.known().find(sent).cloned();
        if token.is_none() {
            self.guesses.note(from);
            tracing::warn!(from = from.map(tracing::field::display), "a wrong token was sent");
        }
        Ok(token)
    }

    fn read(&self) -> anyhow::Result<Tokens> {
        let hashed = self.hashed.as_deref().map(read_hashed).transpose().context("tokens")?;
        let in_clear = self.in_clear.as_deref().map(read_in_clear).transpose().context(self.setting)?;
        let mut tokens = hashed.unwrap_or_default();
        tokens.0.extend(in_clear.into_iter().chain(self.given.iter().cloned()));
        Ok(tokens)
    }

    /// Reads the files again. What cannot be used leaves all tokens as they are.
    pub(super) fn read_again(&self) -> anyhow::Result<Reread> {
        if self.in_clear.is_none() && self.hashed.is_none() {
            return Ok(Reread::None);
        }
        let new = self.read()?;
        if new.is_same(&self.known()) {
            return Ok(Reread::Same);
        }
        self.put(new);
        Ok(Reread::Renewed)
    }

    #[cfg(test)]
    pub(super) fn has(&self, sent: &[u8]) -> bool {
        self.known().find(sent).is_some()
    }

    fn put(&self, tokens: Tokens) {
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
    }

    fn known(&self) -> Arc<Tokens> {
        Arc::clone(&self.tokens.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn admits(&self, request: &Parts, access: Access, from: Option<IpAddr>) -> Result<Caller, Refusal> {
        let sent = request.headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).and_then(bearer);
        let Some(sent) = sent else {
            return Err(
                Problem::new(401, "this takes a token: expected `Authorization: Bearer TOKEN`").into()
            );
        };
        let found = self.find(sent, from).map_err(|wait| {
            let problem = Problem::new(
                429,
                "too many wrong tokens came from this address; no token of it is looked at",
            );
            Refusal { problem, retry_after: Some(wait) }
        })?;
        let Some(token) = found else {
            return Err(
                Problem::new(401, "the token is not known; expected `Authorization: Bearer TOKEN`").into()
            );
        };
        if access.is_for(&token.role) {
            return Ok(Caller::of(&token));
        }
        let (name, role, expected) = (&token.name, token.role.as_str(), access.as_str());
        let detail = format!("the token of {name} has the role {role}; expected {expected}");
        Err(Problem::new(403, detail).into())
    }
}

fn read_in_clear(path: &Path) -> anyhow::Result<Token> {
    let text = files::text(path, TOKEN_FILE_BYTES_MAX)?;
    Token::new(&text).with_context(|| format!("the token in {}", path.display()))
}

fn read_hashed(path: &Path) -> anyhow::Result<Tokens> {
    let text = files::text(path, TOKENS_FILE_BYTES_MAX)?;
    Tokens::read(&text).with_context(|| path.display().to_string())
}

impl Admin {
    /// Callers with one of these tokens.
    pub fn of_tokens(tokens: impl IntoIterator<Item = Token>) -> Self {
        let keyring = Keyring { given: tokens.into_iter().collect(), ..Keyring::default() };
        keyring.put(Tokens(keyring.given.clone()));
        Self::Tokens(keyring)
    }

    /// Whether nothing is served that is for operators.
    pub(super) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// Whether there is a way to make operators' calls.
    pub(super) fn lets_someone_in(&self) -> bool {
        matches!(self, Self::Local | Self::Tokens(_))
    }

    /// What is answered where nothing is served.
    pub(super) fn off() -> Problem {
        Problem::new(403, "this server serves nothing that is for operators alone")
    }

    /// Reads tokens again that are in files.
    ///
    /// # Errors
    /// If they cannot be used; then those before stay.
    pub(super) fn read_again(&self) -> anyhow::Result<Reread> {
        match self {
            Admin::Tokens(keyring) => keyring.read_again(),
            Admin::Off | Admin::Unset | Admin::Local => Ok(Reread::None),
        }
    }

    /// Lets a request in that came from an address, or says why not.
    pub(super) fn admits(
        &self,
        request: &Parts,
        access: Access,
        from: Option<IpAddr>,
    ) -> Result<Caller, Refusal> {
        if has_token_in_query(request) {
            return Err(Problem::new(
                400,
                "a token stands in the address, where proxies and logs keep it: replace it, and send the new one as \
                 `Authorization: Bearer TOKEN`",
            )
            .into());
        }
        match self {
            Admin::Off => Err(Self::off().into()),
            Admin::Unset => Err(Problem::new(
                403,
                "this takes a token, and the server has none: start it with --tokens FILE (`ratekeeper token new` \
                 makes one), or with --admin-without-token if everybody on this machine may do it",
            )
            .into()),
            Admin::Tokens(keyring) => keyring.admits(request, access, from),
            Admin::Local if is_local(request) => Ok(Caller::named("local")),
            Admin::Local => Err(Problem::new(
                403,
                "without a token, operators are asked for on this machine only, and neither by a page in a browser \
                 nor through a proxy",
            )
            .into()),
        }
    }
}

/// What stands in an address is in logs of proxies and in histories of browsers.
fn has_token_in_query(request: &Parts) -> bool {
    let parameters = request.uri.query().unwrap_or_default().split('&');
    let mut names = parameters.filter_map(|parameter| parameter.split('=').next());
    names.any(|name| TOKEN_PARAMETERS.iter().any(|known| name.eq_ignore_ascii_case(known)))
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

#[cfg(test)]
mod tests;
