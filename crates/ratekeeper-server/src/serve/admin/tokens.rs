//! Tokens: a name, a role and a hash each.
//!
//! Only hashes are kept, in the file and in memory. A token of ours is 32 random bytes, so a fast hash is enough:
//! nothing can be guessed, and a slow hash is for passwords that can. The hash is keyed by what it is for, so that it
//! is of no use anywhere else.

use std::fmt;

use anyhow::{Context as _, bail};
use subtle::ConstantTimeEq as _;

/// The shortest token, in bytes: shorter ones can be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// The longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1_024;
/// The most tokens of a server.
pub const TOKENS_MAX: usize = 1_000;
/// The longest name of a token, of an organisation or of a project in its line, in bytes.
pub const TOKEN_NAME_BYTES_MAX: usize = 128;

/// What a token that we made begins with: scanners for secrets find it by that.
const PREFIX: &str = "rk_";
/// Random bytes of a token that we make.
const RANDOM_BYTES: usize = 32;
/// What the hash in a line begins with.
const HASH_PREFIX: &str = "blake3:";
/// What a hash is for: it keys the hash.
const PURPOSE: &str = "ratekeeper 2026-11-18 bearer tokens";
/// What a line looks like.
const A_LINE: &str = "`NAME ROLE blake3:HASH`, as `ratekeeper token new` prints it";

/// What the caller with a token may do. A later role may do what an earlier one may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// See what one organisation or project has used.
    Usage(Tenant),
    /// See everything.
    Read,
    /// See and change everything.
    Operate,
}

/// An organisation, or a project of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The organisation.
    pub organisation: String,
    /// The project, if it is about that one alone.
    pub project: Option<String>,
}

impl Role {
    /// The word for it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

/// The hash of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash([u8; 32]);

impl Hash {
    pub(super) fn of(token: &[u8]) -> Self {
        Self(blake3::derive_key(PURPOSE, token))
    }

    /// In constant time, although a hash tells nothing of its token.
    fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(...)")
    }
}

/// A token that is known by its hash: whose it is, and what it may do.
#[derive(Clone, Debug)]
pub struct Token {
    pub(super) name: String,
    pub(super) role: Role,
    hash: Hash,
}

impl Token {
    /// The token of operators, in the clear.
    ///
    /// # Errors
    /// If it is too short or too long, or could not stand in a header.
    pub fn new(text: &str) -> anyhow::Result<Self> {
        Self::named("operator", Role::Operate, text)
    }

    /// A token in the clear, with a name and a role.
    ///
    /// # Errors
    /// As [`Token::new`].
    pub fn named(name: &str, role: Role, text: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&text.len()) {
            bail!("got {} bytes; expected {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}", text.len());
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("got a character that cannot stand in a header; expected printable ASCII without spaces");
        }
        Ok(Self { name: word("name", name)?, role, hash: Hash::of(text.as_bytes()) })
    }

    /// A new token in the clear, which is kept nowhere, and what is kept of it.
    ///
    /// # Errors
    /// If the system has no random bytes, or the name cannot be one.
    pub fn random(name: &str, role: Role) -> anyhow::Result<(String, Self)> {
        let secret: [u8; RANDOM_BYTES] = random_bytes()?;
        let text = secret.iter().fold(PREFIX.to_owned(), |text, byte| format!("{text}{byte:02x}"));
        let token = Self::named(name, role, &text)?;
        Ok((text, token))
    }

    /// The token in a line of a file.
    fn of_line(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [name, role, scope @ .., hash] = words.as_slice() else { bail!("expected {A_LINE}") };
        let hash = hash.strip_prefix(HASH_PREFIX).and_then(|hex| blake3::Hash::from_hex(hex).ok());
        // What stands there instead may be the token itself: it is not repeated.
        let hash = hash.with_context(|| format!("the last word is no hash; expected {A_LINE}"))?;
        let role = role_of(role, scope)?;
        Ok(Self { name: word("name", name)?, role, hash: Hash(*hash.as_bytes()) })
    }

    /// The line of a file that stands for it.
    #[must_use]
    pub fn line(&self) -> String {
        let scope = match &self.role {
            Role::Usage(Tenant { organisation, project: None }) => format!(" organisation={organisation}"),
            Role::Usage(Tenant { organisation, project: Some(project) }) => {
                format!(" organisation={organisation} project={project}")
            }
            Role::Read | Role::Operate => String::new(),
        };
        let hash = blake3::Hash::from_bytes(self.hash.0).to_hex();
        format!("{} {}{scope} {HASH_PREFIX}{hash}", self.name, self.role.as_str())
    }
}

/// A role from its word and what it is about.
///
/// # Errors
/// If there is no such role, or it is about something that it cannot be about.
pub fn role_of(word_of_role: &str, scope: &[&str]) -> anyhow::Result<Role> {
    let part = |name: &str| scope.iter().find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let known = ["organisation", "project"];
    let is_known = |part: &&str| part.split_once('=').is_some_and(|(name, _)| known.contains(&name));
    let only_known = scope.iter().all(is_known) && scope.len() <= known.len();
    match (word_of_role, part("organisation"), part("project")) {
        ("read", None, None) if scope.is_empty() => Ok(Role::Read),
        ("operate", None, None) if scope.is_empty() => Ok(Role::Operate),
        ("usage", Some(organisation), project) if only_known => Ok(Role::Usage(Tenant {
            organisation: word("organisation", organisation)?,
            project: project.map(|project| word("project", project)).transpose()?,
        })),
        ("usage", ..) => {
            bail!("usage is of one tenant: expected organisation=ID, and project=ID if it is one project")
        }
        ("read" | "operate", ..) => bail!("read and operate are not of one tenant; expected nothing beside"),
        _ => bail!("got an unknown role; expected read, operate or usage"),
    }
}

fn word(what: &str, text: &str) -> anyhow::Result<String> {
    let is_word = (1..=TOKEN_NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && !text.starts_with('#');
    if !is_word {
        bail!("{what}: expected 1 to {TOKEN_NAME_BYTES_MAX} printable ASCII characters without spaces");
    }
    Ok(text.to_owned())
}

fn random_bytes() -> anyhow::Result<[u8; RANDOM_BYTES]> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).context("the system has no random bytes")?;
    Ok(bytes)
}

/// All tokens of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens(pub(super) Vec<Token>);

impl Tokens {
    /// The tokens in the text of a file: a line each; empty lines and those that begin with `#` are passed over.
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let tokens = lines
            .map(|(index, line)| Token::of_line(line).with_context(|| format!("line {}", index + 1)))
            .collect::<anyhow::Result<Vec<Token>>>()?;
        if tokens.is_empty() || tokens.len() > TOKENS_MAX {
            bail!("got {} tokens; expected 1 to {TOKENS_MAX} lines of {A_LINE}", tokens.len());
        }
        for (index, token) in tokens.iter().enumerate() {
            if tokens[..index].iter().any(|other| other.name == token.name) {
                bail!("got two tokens named {}; expected a name for each: the audit log has it", token.name);
            }
        }
        Ok(Self(tokens))
    }

    /// Whose token this is. Every token is compared, whichever it is.
    pub(super) fn find(&self, sent: &[u8]) -> Option<&Token> {
        let hash = Hash::of(sent);
        self.0.iter().fold(None, |found, token| if token.hash.is(&hash) { Some(token) } else { found })
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let all = |tokens: &Self| tokens.0.iter().map(Token::line).collect::<Vec<_>>();
        all(self) == all(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stands_for_a_token_and_does_not_tell_it() {
        let tenant = Tenant { organisation: "7".to_owned(), project: Some("42".to_owned()) };
        for role in [Role::Read, Role::Operate, Role::Usage(tenant)] {
            let (text, token) = Token::random("ann", role.clone()).unwrap();
            assert!(text.starts_with(PREFIX) && text.len() == PREFIX.len() + 2 * RANDOM_BYTES, "{text}");
            let line = token.line();
            assert!(!line.contains(&text[PREFIX.len()..]), "{line}");
            let tokens = Tokens::read(&format!("# who\n\n  {line}  \n")).unwrap();
            let found = tokens.find(text.as_bytes()).unwrap();
            assert_eq!((found.name.as_str(), &found.role, found.line()), ("ann", &role, line));
            assert!(tokens.find(b"").is_none() && tokens.find(&text.as_bytes()[1..]).is_none());
            assert!(!format!("{token:?}").contains(&token.line()[token.line().len() - 64..]));
        }
        let (one, other) =
            (Token::random("a", Role::Read).unwrap().0, Token::random("a", Role::Read).unwrap().0);
        assert_ne!(one, other);
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_line_and_without_the_token() {
        let secret = "rk_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let hash = format!("blake3:{}", "0".repeat(64));
        let cases = [
            (String::new(), "got 0 tokens"),
            ("# nothing".to_owned(), "got 0 tokens"),
            (secret.to_owned(), "line 1: expected `NAME ROLE"),
            (format!("ann operate {secret}"), "line 1: the last word is no hash"),
            (format!("ann {secret} {hash}"), "line 1: got an unknown role"),
            (format!("ann operate {hash}\nann read {hash}"), "got two tokens named ann"),
            (format!("ann operate organisation=7 {hash}"), "not of one tenant"),
            (format!("ann usage {hash}"), "usage is of one tenant"),
            (format!("ann usage project=42 {hash}"), "usage is of one tenant"),
            (format!("ann usage organisation=7 project=1 x=2 {hash}"), "usage is of one tenant"),
            (format!("ann usage organisation= {hash}"), "organisation: expected 1 to"),
            (format!("\n{} read {hash}", "x".repeat(129)), "line 2: name: expected 1 to"),
        ];
        for (text, expected) in cases {
            let error = format!("{:#}", Tokens::read(&text).unwrap_err());
            assert!(error.contains(expected) && !error.contains(secret), "{text}: {error}");
        }
    }
}
