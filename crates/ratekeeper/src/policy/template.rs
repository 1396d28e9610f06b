//! Key templates: `apiKey:{header.x-api-key}`, `ip:{client.ip}`, `{method} {route}`.
//!
//! A template is parsed once and turns a request into a [`Subject`]: the text
//! that a limit counts under. What stands between the braces is replaced by the
//! request's value, `{{` and `}}` are braces. If any value is missing, empty or
//! no scalar, the template does not resolve; only an entry of a descriptor may be empty.
//!
//! # No value can imitate another key
//! - In values, everything but letters, digits and ``-._~@/+=$!*'()`` is written
//!   as `%XX`. So nothing in a value looks like a separator or a brace, and two
//!   requests share a subject only if all their values are the same. A
//!   template that separates two values by one of those characters, as
//!   `{identity.org}/{identity.project}` does, escapes that one as well; two
//!   values with nothing between them are refused.
//! - `{client.ip}` stands as it is: no client writes it, and it ends itself (an
//!   IPv6 network has exactly one slash, before a number that is the same for
//!   all).
//! - A subject longer than [`SUBJECT_PLAIN_BYTES_MAX`] becomes its first words,
//!   `#` and a digest. No other subject of a template has a `#`, so that what stands for requests without
//!   a key (`#fallback:...`) or with an unreadable body (`#unreadable`) is in nobody's reach.
//! - Templates of one rule must not meet each other either: see
//!   [`Template::overlaps`].

mod digest;
mod escape;
mod overlap;
mod parse;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::address::{ShortText, ipv4_pieces};
use super::request::{Fact, Needs, Request, Scalar};
use super::syntax::SyntaxError;
pub use digest::KeyHashing;
use escape::{Plain, Writer};

/// The longest template, in bytes.
pub const TEMPLATE_BYTES_MAX: usize = 512;
/// The longest subject that is kept as it is, in bytes; of a longer one only
/// the beginning and a digest.
pub const SUBJECT_PLAIN_BYTES_MAX: usize = 200;

/// What reserved subjects begin with. No template and no key of a program gives a subject with a `#` that
/// is followed by anything but another `#` or 64 digits of a digest.
const FALLBACK: &str = "#fallback:";
const UNREADABLE: &str = "#unreadable";

/// What an entry without a value is in a subject. A proxy sends one where a client sends an empty header, and nobody
/// escapes a limit so. No value is written like it: a `%` begins an escape.
const EMPTY_ENTRY: &str = "%";

/// The longest name of a plan, an organisation or a project, in bytes.
const PLAIN_BYTES_MAX: usize = 512;

/// What a limit counts under. At most [`SUBJECT_PLAIN_BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject(String);

impl Subject {
    /// The subject of a key that a program made itself; `None` if it is empty.
    pub(super) fn of_caller(key: &str, hashing: Option<&KeyHashing>) -> Option<Self> {
        let mut subject = Self::default();
        let mut writer = Writer::new(&mut subject.0);
        match hashing {
            _ if key.is_empty() => return None,
            Some(hashing) => writer.push(hashing.digest_of(key).as_str()),
            None => {
                // No key can pass for the digest of another: a second `#` is in none.
                writer.push(if key.starts_with('#') { "#" } else { "" });
                writer.push(key);
            }
        }
        writer.finish("");
        Some(subject)
    }

    /// The subject of all requests of a rule that have no key: no request has it for its own.
    pub(super) fn of_fallback(key: &str) -> Self {
        let mut subject = Self::default();
        let mut writer = Writer::new(&mut subject.0);
        writer.push(FALLBACK);
        writer.push(key);
        writer.finish("");
        subject
    }

    /// The subject of all requests of a rule whose key is in a body that cannot be read.
    pub(super) fn unreadable() -> Self {
        Self(UNREADABLE.to_owned())
    }

    /// One to be written over, in the memory of one that is done with.
    #[inline]
    fn recycled() -> Self {
        SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().map_or_else(Self::default, Self)
    }

    /// Keeps the memory of a subject that is done with for the next one of this thread.
    #[inline]
    pub(super) fn recycle(subject: String) {
        let _ = SPARE.try_with(|spare| {
            let spare = &mut *spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(subject);
            }
        });
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How many subjects a thread keeps the memory of: those of a request with as many rules. None is longer than
/// [`SUBJECT_PLAIN_BYTES_MAX`].
const SPARE_MAX: usize = 4;

thread_local! {
    static SPARE: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

impl AsRef<[u8]> for Subject {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<Subject> for String {
    fn from(subject: Subject) -> Self {
        subject.0
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug)]
enum Part {
    Literal(Box<str>),
    Value(Fact),
}

/// A key template. Values are escaped, so that no value can imitate another key;
/// long subjects become a digest.
#[derive(Clone, Debug)]
pub struct Template {
    text: Box<str>,
    parts: Box<[Part]>,
    plain: Plain,
    hashing: Option<KeyHashing>,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// If it is empty, too long, has an open brace or an unknown name, or two
    /// values that cannot be told apart.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let parts = parse::parts(text)?;
        let plain = parse::separated(text, &parts)?;
        Ok(Self {
            text: text.into(),
            parts: parts.into_iter().map(|(part, _)| part).collect(),
            plain,
            hashing: None,
        })
    }

    /// `{identity.NAME}`.
    pub(super) fn of_claim(name: &str) -> Self {
        let parts = [Part::Value(Fact::Claim(name.into()))].into();
        Self { text: format!("{{identity.{name}}}").into(), parts, plain: Plain::default(), hashing: None }
    }

    /// Replaces every value by a digest, so that no personal data and no
    /// credentials end up in a store, a log or on a dashboard.
    #[must_use]
    pub fn hash_values(self, hashing: &KeyHashing) -> Self {
        self.hashed(Some(hashing))
    }

    /// The same in a policy that hashes its keys, or does not.
    pub(super) fn hashed(self, hashing: Option<&KeyHashing>) -> Self {
        Self { hashing: hashing.cloned(), ..self }
    }

    /// Whether a caller decides if it resolves, by what it sends or leaves out.
    pub(super) fn is_callers_choice(&self) -> bool {
        self.parts.iter().any(|part| {
            matches!(part, Part::Value(Fact::Header(_) | Fact::Cookie(_) | Fact::Query(_) | Fact::Body(_)))
        })
    }

    /// The claim that it is, if it is nothing else.
    pub(super) fn only_claim(&self) -> Option<&str> {
        match &*self.parts {
            [Part::Value(Fact::Claim(name))] => Some(name),
            _ => None,
        }
    }

    /// What must be obtained before it can be resolved.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for part in &self.parts {
            if let Part::Value(fact) = part {
                needs |= fact.needs();
            }
        }
        needs
    }

    /// The subject of a request; `None` if a value is missing.
    #[must_use]
    pub fn resolve(&self, request: &Request<'_>) -> Option<Subject> {
        let mut subject = Subject::recycled();
        self.resolve_into(request, &mut subject).then_some(subject)
    }

    /// Writes the subject of a request over `subject`, so that its memory is
    /// used again. False if a value is missing; then what `subject` holds is of
    /// no use.
    #[must_use]
    pub fn resolve_into(&self, request: &Request<'_>, subject: &mut Subject) -> bool {
        let written = self.write(&mut subject.0, |_, fact, writer| match fact {
            // What most limits count under, and it stands as it is.
            Fact::ClientIp if self.hashing.is_none() => {
                match request.client_address()? {
                    IpAddr::V4(address) => writer.push_all(ipv4_pieces(address)),
                    IpAddr::V6(_) => writer.push(request.client()?.ip()),
                }
                Some(())
            }
            _ => self.write_value(fact, &request.find(fact)?, writer),
        });
        written.is_some()
    }

    /// The subject of requests whose values are those in `key`, which somebody
    /// wrote by hand: `user:ann`, with `%3A` for a colon where one could be
    /// taken for a separator. `None` if no request has it.
    ///
    /// It is what a custom entry or an allow-list is found by, also when values
    /// are hashed.
    #[must_use]
    pub fn subject_of(&self, key: &str) -> Option<Subject> {
        let values = self.values_in(key)?;
        let mut subject = Subject::default();
        self.write(&mut subject.0, |index, fact, writer| {
            self.write_value(fact, &Scalar::from(values.get(index)?.as_ref()), writer)
        })?;
        Some(subject)
    }

    /// What a request has at the places of the values, as it is: for names that
    /// are compared or looked up, not for keys.
    pub(super) fn resolve_plain(&self, request: &Request<'_>) -> Option<String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Value(fact) => match request.find(fact)? {
                    Scalar::Text(value) if value.is_empty() => return None,
                    Scalar::Text(value) => text.push_str(&value),
                    Scalar::Bool(truth) => text.push_str(if truth { "true" } else { "false" }),
                    Scalar::Integer(whole) => text.push_str(NumberText::of(&whole).as_str()),
                    Scalar::Large(whole) => text.push_str(NumberText::of(&whole).as_str()),
                    Scalar::Float(float) => text.push_str(NumberText::of(&float).as_str()),
                },
            }
            if text.len() > PLAIN_BYTES_MAX {
                return None;
            }
        }
        Some(text)
    }

    /// The text it was read from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Writes all parts; `put` writes the value of a fact, which has the index of its part.
    #[inline]
    fn write(
        &self,
        subject: &mut String,
        mut put: impl FnMut(usize, &Fact, &mut Writer<'_>) -> Option<()>,
    ) -> Option<()> {
        let mut writer = Writer::new(subject);
        for (index, part) in self.parts.iter().enumerate() {
            match part {
                Part::Literal(text) => writer.push(text),
                Part::Value(fact) => put(index, fact, &mut writer)?,
            }
        }
        writer.finish(self.first_words());
        Some(())
    }

    fn write_value(&self, fact: &Fact, value: &Scalar<'_>, writer: &mut Writer<'_>) -> Option<()> {
        match value {
            Scalar::Text(text) => self.write_text(fact, text, writer),
            Scalar::Bool(truth) => self.write_text(fact, if *truth { "true" } else { "false" }, writer),
            Scalar::Integer(whole) => self.write_text(fact, NumberText::of(whole).as_str(), writer),
            Scalar::Large(whole) => self.write_text(fact, NumberText::of(whole).as_str(), writer),
            Scalar::Float(float) => self.write_text(fact, NumberText::of(float).as_str(), writer),
        }
    }

    fn write_text(&self, fact: &Fact, text: &str, writer: &mut Writer<'_>) -> Option<()> {
        let is_entry = matches!(fact, Fact::Descriptor(_) | Fact::DescriptorKeys);
        match (&self.hashing, fact) {
            _ if text.is_empty() && !is_entry => return None,
            (Some(hashing), _) => writer.push(hashing.digest_of(text).as_str()),
            (None, Fact::ClientIp) => writer.push(text),
            (None, _) if text.is_empty() => writer.push(EMPTY_ENTRY),
            (None, _) => writer.push_escaped(text, &self.plain),
        }
        Some(())
    }

    fn first_words(&self) -> &str {
        match self.parts.first() {
            Some(Part::Literal(text)) => text,
            _ => "",
        }
    }

    /// The values that `key` has at the places of this template's, each under
    /// the index of its part.
    fn values_in(&self, key: &str) -> Option<Vec<String>> {
        let mut rest = key;
        let mut values = vec![String::new(); self.parts.len()];
        for (index, part) in self.parts.iter().enumerate() {
            let fact = match part {
                Part::Literal(text) => {
                    rest = rest.strip_prefix(text.as_ref())?;
                    continue;
                }
                Part::Value(fact) => fact,
            };
            let end = match self.parts.get(index + 1..) {
                Some([Part::Literal(next)]) => rest.len().checked_sub(next.len())?,
                Some([Part::Literal(next), ..]) => rest.find(next.as_ref())?,
                _ => rest.len(),
            };
            let (value, after) = rest.split_at_checked(end)?;
            values[index] = match fact {
                Fact::ClientIp => ip_as_written(value)?,
                Fact::Descriptor(_) | Fact::DescriptorKeys if value == EMPTY_ENTRY => String::new(),
                _ => escape::unescaped(value)?,
            };
            rest = after;
        }
        rest.is_empty().then_some(values)
    }
}

/// Two are equal if they are written alike and hash alike.
impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.hashing) == (&other.text, &other.hashing)
    }
}

impl Eq for Template {}

impl FromStr for Template {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        Self::parse(text)
    }
}

/// An address or an IPv6 network, in the one form that `client.ip` has.
fn ip_as_written(value: &str) -> Option<String> {
    match value.split_once('/') {
        None => Some(value.parse::<IpAddr>().ok()?.to_canonical().to_string()),
        Some((address, bits)) => {
            Some(format!("{}/{}", address.parse::<std::net::Ipv6Addr>().ok()?, bits.parse::<u8>().ok()?))
        }
    }
}

/// The smallest float has 326 bytes.
type NumberText = ShortText<352>;
