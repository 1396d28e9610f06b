//! Names of rules and quotas: interned, so that a decision can carry them
//! without allocating or counting references.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::error::{Field, InvalidInput};

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// How many different names one process may use.
///
/// Names come from operators (rules, quotas), never from requests. They are
/// kept for the life of the process, which is what makes them free to copy;
/// this bound keeps a reload loop that invents names from eating memory.
pub const NAMES_MAX: usize = 100_000;

/// The name of a rule, of a quota, or of a quota within a rule (`api.rpm`),
/// perhaps within a service.
///
/// Printable ASCII, so that it can stand in a header field; copying one costs
/// nothing. It prints without the service, which whoever reads it knows.
#[derive(Clone, Copy)]
pub struct Name(&'static Entry);

struct Entry {
    text: &'static str,
    /// Where the name within its service begins.
    label_at: usize,
    id: u64,
    /// The rule whose quota it is, if it is one of several.
    rule: Option<Name>,
    /// Tells the quotas of one rule apart; 0 for one that stands alone.
    tag: u32,
    /// See [`Name::number`].
    number: u32,
}

/// See [`Name::RAW`].
static RAW: Entry = Entry { text: "limit", label_at: 0, id: DIGEST_START, rule: None, tag: 0, number: 0 };

/// Tags are so many bits wide, so that they fit a word beside an algorithm.
const TAG_BITS: u32 = 28;

impl Name {
    /// Stands in for the name of a raw charge, which only its caller knows. No rule has it.
    pub const RAW: Name = Name(&RAW);

    /// The name `text`.
    ///
    /// # Errors
    /// If `text` is empty, longer than [`NAME_BYTES_MAX`], not printable
    /// ASCII, or if the process has used up [`NAMES_MAX`] names.
    pub fn new(text: &str) -> Result<Self, InvalidInput> {
        checked(text)?;
        intern(None, text, 0)
    }

    /// `service/name`: a rule of one of several services that share a store.
    /// Stores know it by all of its text, people by its [`Name::label`].
    ///
    /// # Errors
    /// As [`Name::new`], for all of its text.
    pub fn within(service: &str, name: &str) -> Result<Self, InvalidInput> {
        checked(service)?;
        checked(name)?;
        let text = format!("{service}/{name}");
        checked(&text)?;
        intern(None, &text, service.len() + 1)
    }

    /// `rule.quota`: the name of one of several quotas of a rule. It reads like
    /// a rule of that name, but is another one.
    ///
    /// # Errors
    /// As [`Name::new`]; also in the rare case that a store could not tell the
    /// quota from another one of the same rule.
    pub fn joined(rule: Name, quota: &str) -> Result<Self, InvalidInput> {
        let text = format!("{}.{quota}", rule.as_str());
        checked(&text)?;
        intern(Some(rule.rule()), &text, rule.0.label_at)
    }

    /// The rule whose quota it is, or the name itself: stores keep the quotas
    /// of a rule together.
    #[must_use]
    pub fn rule(self) -> Name {
        self.0.rule.unwrap_or(self)
    }

    /// What tells it from the other quotas of its rule: the same in every
    /// process and version, below 2^28, and 0 for a quota that stands alone.
    #[must_use]
    pub fn tag(self) -> u32 {
        self.0.tag
    }

    /// The text of the name, its service included: what stores know it by.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0.text
    }

    /// The name within its service: what people and headers call it.
    #[must_use]
    pub fn label(self) -> &'static str {
        &self.0.text[self.0.label_at..]
    }

    /// A number that is the same for the same text in every process and
    /// version: what stores mix into the identity of a counter.
    #[must_use]
    pub fn id(self) -> u64 {
        self.0.id
    }

    /// Its number among the names of this process: at most [`NAMES_MAX`], and 0 for [`Name::RAW`].
    /// Another process numbers its names differently.
    #[must_use]
    #[inline]
    pub fn number(self) -> u32 {
        self.0.number
    }

    /// The name with a [number](Name::number) in this process.
    #[must_use]
    pub fn numbered(number: u32) -> Option<Self> {
        let Some(place) = (number as usize).checked_sub(1) else { return Some(Self::RAW) };
        let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        names.as_ref()?.numbered.get(place).copied()
    }

    /// What the name is made of, so that another process can make it again with [`Name::from_parts`].
    #[must_use]
    pub fn parts(self) -> NameParts<'static> {
        let root = self.rule();
        let (service, rule) = match root.0.label_at.checked_sub(1) {
            Some(slash) => (Some(&root.0.text[..slash]), root.label()),
            None => (None, root.0.text),
        };
        // Behind the dot.
        let quota = self.0.rule.map(|root| &self.0.text[root.0.text.len() + 1..]);
        NameParts { service, rule, quota }
    }

    /// The name of these parts.
    ///
    /// # Errors
    /// As [`Name::within`] and [`Name::joined`].
    pub fn from_parts(parts: NameParts<'_>) -> Result<Self, InvalidInput> {
        let rule = match parts.service {
            Some(service) => Self::within(service, parts.rule)?,
            None => Self::new(parts.rule)?,
        };
        parts.quota.map_or(Ok(rule), |quota| Self::joined(rule, quota))
    }
}

/// What a [`Name`] is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameParts<'a> {
    /// The service, if the rule is one of a service's.
    pub service: Option<&'a str>,
    /// The rule within its service.
    pub rule: &'a str,
    /// The quota within its rule, if it is one of several.
    pub quota: Option<&'a str>,
}

/// A name that a caller gave to a raw charge: kept by the call alone, so that made-up names use
/// up nothing. Its counter is that of the [`Name`] with the same text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawName<'a> {
    /// What stands before the text in stores, if anything does.
    space: &'static str,
    text: Cow<'a, str>,
    id: u64,
}

impl<'a> RawName<'a> {
    /// The name `text`.
    ///
    /// # Errors
    /// As [`Name::new`], but there is no bound on how many are in use.
    pub fn new(text: impl Into<Cow<'a, str>>) -> Result<Self, InvalidInput> {
        let text = text.into();
        checked(&text)?;
        let id = digest_more(DIGEST_START, text.as_bytes());
        Ok(Self { space: "", text, id })
    }

    /// `space/text`: the space keeps the counters of raw charges apart from those of rules.
    ///
    /// # Errors
    /// As [`RawName::new`], for all of its text.
    pub fn within(space: &'static str, text: impl Into<Cow<'a, str>>) -> Result<Self, InvalidInput> {
        let text = text.into();
        checked(space)?;
        checked(&text)?;
        if space.len() + 1 + text.len() > NAME_BYTES_MAX {
            let expected = format!("1 to {} printable ASCII characters", NAME_BYTES_MAX - space.len() - 1);
            return Err(InvalidInput::new(Field::Name, format!("`{text}`"), expected));
        }
        let parts = [space.as_bytes(), b"/", text.as_bytes()];
        let id = parts.into_iter().fold(DIGEST_START, digest_more);
        Ok(Self { space, text, id })
    }

    /// The same name, kept for longer than the call.
    #[must_use]
    pub fn into_owned(self) -> RawName<'static> {
        RawName { space: self.space, text: Cow::Owned(self.text.into_owned()), id: self.id }
    }

    /// What stands before the text in stores; empty if nothing does.
    #[must_use]
    pub const fn space(&self) -> &'static str {
        self.space
    }

    /// The name as the caller wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }
}

fn checked(text: &str) -> Result<(), InvalidInput> {
    let printable = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !printable {
        let expected = format!("1 to {NAME_BYTES_MAX} printable ASCII characters");
        return Err(InvalidInput::new(Field::Name, format!("`{text}`"), expected));
    }
    Ok(())
}

/// The names of this process.
#[derive(Default)]
struct Names {
    /// A rule `a/b` of no service and the rule `b` of the service `a` are the same to stores,
    /// but read differently.
    known: HashMap<(Option<Name>, usize, &'static str), Name>,
    /// By their number, from 1 on.
    numbered: Vec<Name>,
}

static NAMES: Mutex<Option<Names>> = Mutex::new(None);

fn intern(rule: Option<Name>, text: &str, label_at: usize) -> Result<Name, InvalidInput> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let Names { known: names, numbered } = names.get_or_insert_default();
    if let Some(known) = names.get(&(rule, label_at, text)) {
        return Ok(*known);
    }
    if names.len() >= NAMES_MAX {
        let expected = format!("at most {NAMES_MAX} different names in one process");
        return Err(InvalidInput::new(Field::Name, text, expected));
    }
    let (id, tag) = identity(rule, text);
    let twin = |name: &&Name| rule.is_some() && name.0.rule == rule && name.0.tag == tag;
    if let Some(twin) = names.values().find(twin) {
        return Err(InvalidInput::new(Field::Name, text, format!("a name that no store takes for {twin}")));
    }
    let text = Box::leak(Box::<str>::from(text));
    // Below the bound, which is far below 2^32.
    let number = names.len() as u32 + 1;
    let name = Name(Box::leak(Box::new(Entry { text, label_at, id, rule, tag, number })));
    names.insert((rule, label_at, name.as_str()), name);
    numbered.push(name);
    Ok(name)
}

fn identity(rule: Option<Name>, text: &str) -> (u64, u32) {
    let Some(rule) = rule else {
        return (digest_more(DIGEST_START, text.as_bytes()), 0);
    };
    let quota = &text.as_bytes()[rule.as_str().len()..];
    let digest = digest_more(DIGEST_START, quota);
    // Folded, because the low bits of FNV alone mix badly; never 0.
    let tag = ((digest ^ (digest >> 32)) as u32 & ((1 << TAG_BITS) - 1)).max(1);
    (digest_more(rule.id(), &[&[0], quota].concat()), tag)
}

/// The digest of nothing.
pub(crate) const DIGEST_START: u64 = 0xcbf2_9ce4_8422_2325;

/// A digest with `bytes` on top. FNV-1a: stable, and strong enough for names
/// that operators choose and ids that callers keep apart.
pub(crate) fn digest_more(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Name {}

impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_the_same_name() {
        let name = Name::new("per-user").unwrap();
        assert_eq!(name, Name::new("per-user").unwrap());
        assert_ne!(name, Name::new("per-ip").unwrap());
        assert_ne!(name.number(), Name::new("per-ip").unwrap().number());
        assert!(name.number() > Name::RAW.number());
    }

    #[test]
    fn a_name_is_found_by_its_number_and_made_again_from_its_parts() {
        let rule = Name::within("search", "by.parts").unwrap();
        let rpm = Name::joined(rule, "rpm").unwrap();
        let names = [rule, rpm, Name::joined(rpm, "peak").unwrap(), Name::new("search/by.parts").unwrap()];
        for name in names {
            assert_eq!(Name::numbered(name.number()), Some(name));
            assert_eq!(Name::from_parts(name.parts()), Ok(name));
        }
        assert_eq!(Name::numbered(0), Some(Name::RAW));
        assert_eq!(Name::numbered(u32::MAX), None);
    }

    #[test]
    fn the_quotas_of_a_rule_know_it_and_are_told_apart() {
        let rule = Name::new("tiered").unwrap();
        let [rps, rpm] = ["rps", "rpm"].map(|tier| Name::joined(rule, tier).unwrap());
        assert_eq!((rpm.as_str(), rpm.rule(), rule.rule()), ("tiered.rpm", rule, rule));
        assert_eq!(rpm, Name::joined(rule, "rpm").unwrap());
        assert!(rps.tag() != rpm.tag() && rps.tag() > 0 && rule.tag() == 0);
        assert!(rpm.tag() < 1 << TAG_BITS);
        assert_eq!(Name::joined(rpm, "peak").unwrap().rule(), rule, "the root, however deep");
        let alike = Name::new("tiered.rpm").unwrap();
        assert!(alike != rpm && alike.id() != rpm.id(), "it reads the same and is another");
    }

    #[test]
    fn a_name_within_a_service_is_stored_with_it_and_printed_without() {
        let rule = Name::within("search", "per-user").unwrap();
        assert_eq!((rule.as_str(), rule.label()), ("search/per-user", "per-user"));
        let rpm = Name::joined(rule, "rpm").unwrap();
        assert_eq!((rpm.as_str(), rpm.to_string().as_str()), ("search/per-user.rpm", "per-user.rpm"));
        assert_eq!((rpm.rule(), rpm), (rule, Name::joined(rule, "rpm").unwrap()));
        let elsewhere = Name::joined(Name::within("images", "per-user").unwrap(), "rpm").unwrap();
        assert_ne!(rpm.id(), elsewhere.id());
        let plain = Name::new("search/per-user").unwrap();
        assert_eq!((plain.label(), plain.id()), ("search/per-user", rule.id()));
        assert!(Name::within("", "x").is_err() && Name::within("x", "").is_err());
        assert!(Name::within(&"s".repeat(100), &"r".repeat(28)).is_err(), "too long together");
    }

    #[test]
    fn a_raw_name_is_the_counter_of_the_interned_one_and_is_not_kept() {
        let name = Name::within("/raw", "per-user").unwrap();
        let raw = RawName::within("/raw", "per-user").unwrap();
        assert_eq!((raw.id(), raw.text(), raw.space()), (name.id(), "per-user", "/raw"));
        for text in ["", "caf\u{e9}", &"x".repeat(NAME_BYTES_MAX - 4)] {
            assert_eq!(RawName::within("/raw", text).unwrap_err().field, Field::Name, "{text}");
        }
        assert!(RawName::within("/raw", "x".repeat(NAME_BYTES_MAX - 5)).is_ok());
        let plain = RawName::new("per-user").unwrap().into_owned();
        assert_eq!((plain.id(), plain.space()), (Name::new("per-user").unwrap().id(), ""));
        let made_up = (0..=NAMES_MAX).all(|n| RawName::within("/raw", n.to_string()).is_ok());
        assert!(made_up, "there is no bound on raw names");
    }

    #[test]
    fn names_that_could_not_stand_in_a_header_are_refused() {
        for text in ["", "caf\u{e9}", "a\nb", &"x".repeat(NAME_BYTES_MAX + 1)] {
            let error = Name::new(text).unwrap_err();
            assert_eq!(error.field, Field::Name);
            assert!(error.expected.contains("printable ASCII"), "{error}");
        }
    }
}
