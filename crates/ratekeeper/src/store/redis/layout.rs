//! Where things are kept: the names of keys.
//!
//! | key | what | type |
//! |---|---|---|
//! | `rk:c:RULE:SUBJECT` | all quotas of a rule for one subject with windows up to an hour, packed | string |
//! | `rk:d:RULE:SUBJECT` | those with longer windows, packed: they live longer | string |
//! | `rk:l:RULE:QUOTA:SUBJECT` | a sliding log | list |
//! | `rk:h:RULE:QUOTA:SUBJECT` | holders of a concurrency limit | list |
//! | `rk:i:ID` | an idempotency id or a reservation | string |
//! | `rk:n:ID` | what an id is used for, over several servers | string |
//! | `rk:g:NUMBER:COUNTER` | units given back under a receipt that left the process | string |
//! | `rk:secret` | what such receipts are signed with | string |
//! | `rk:control` | switches for all instances | hash |
//! | `rk:audit` | what operators changed | list |
//! | `ratelimit:ENDPOINT:ORG:PROJECT` | a fixed window, as Application Kit keeps it | string |
//! | `ratelimit_override:ENDPOINT:ORG:PROJECT` | an override, as Application Kit keeps it | hash |
//! | `ratelimit_org_override:ENDPOINT:ORG` | the same for an organisation | hash |
//!
//! On a cluster, counters, records and overrides have a tag behind the prefix (`layout/tagged.rs`). What Application Kit
//! keeps is under names of ours there: its counters in `{ORG}rk:k:ENDPOINT:ORG:PROJECT`, overrides in
//! `{ORG}rk:p:ENDPOINT:ORG:PROJECT` and `{ORG}rk:o:ENDPOINT:ORG`.
//!
//! A prefix may stand before all of them. No value from a request can name its
//! way into another's key: in ours, only the last part may hold colons, and in
//! Application Kit's, which are read from the right, only the first. What could
//! be taken for a hash tag or does not print is escaped.

mod tagged;

use ratekeeper_core::{Algorithm, Charge, Key, Name, OverrideScope};

use crate::store::{StoredFilter, StoredKey};

/// What a key holds; the script is told how many of each there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Packed counters, or the record of an id.
    Text,
    /// A counter that Application Kit shares.
    Kit,
    /// A log, or leases.
    List,
    /// An override.
    Override,
}

/// How many classes there are.
pub(super) const CLASSES: usize = 4;

/// What the name of a counter's key says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredName {
    /// `c`, `d`, `l` or `h` as in the name, or `k` for Application Kit's.
    pub(super) kind: u8,
    pub(super) rule: String,
    pub(super) quota: Option<String>,
    pub(super) subject: String,
}

impl StoredName {
    /// What is found under this name, before it is looked at.
    pub(super) fn found(self) -> StoredKey {
        let Self { kind: _, rule, quota, subject } = self;
        let (counters, lists) = (Vec::new(), Vec::new());
        StoredKey { rule, quota, subject, counters, lists, used: None, ends_after: None, server: None }
    }
}

/// The names of keys under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    prefix: Box<str>,
    /// Whether keys have tags; see `layout/tagged.rs`.
    is_tagged: bool,
    /// Stands for every tag, in tests.
    one_tag: Option<Box<[u8]>>,
}

impl Layout {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into(), is_tagged: false, one_tag: None }
    }

    /// Writes the key of a charge's counter and says what it holds.
    pub(super) fn counter(&self, charge: &Charge<'_>, into: &mut Vec<u8>) -> Class {
        if let Some(scope) = charge.shared_scope() {
            self.kit_counter(scope, into);
            return Class::Kit;
        }
        let start = into.len();
        let class = self.own_counter(charge.key(), charge.quota().algorithm(), charge.is_long(), into);
        self.tag_charge(charge, start, into);
        class
    }

    /// Writes the key of a counter in our own layout. `is_long` is whether it is with those of
    /// [long](Charge::is_long) windows, which matters to packed ones.
    pub(super) fn own_counter(
        &self,
        key: Key<'_>,
        algorithm: Algorithm,
        is_long: bool,
        into: &mut Vec<u8>,
    ) -> Class {
        into.extend_from_slice(self.prefix.as_bytes());
        let (kind, class): (&[u8], _) = match algorithm {
            Algorithm::SlidingLog => (b"rk:l:", Class::List),
            Algorithm::Concurrency => (b"rk:h:", Class::List),
            _ => (packed_kind(is_long), Class::Text),
        };
        into.extend_from_slice(kind);
        let (scope, rule) = (key.scope(), key.scope().rule());
        match key.raw_name() {
            Some(raw) => {
                if !raw.space().is_empty() {
                    escape(raw.space().as_bytes(), true, into);
                    into.push(b'/');
                }
                escape(raw.text().as_bytes(), true, into);
            }
            None => escape(rule.as_str().as_bytes(), true, into),
        }
        if class == Class::List {
            into.push(b':');
            escape(quota_part(scope, rule).as_bytes(), true, into);
        }
        into.push(b':');
        escape(key.subject(), false, into);
        class
    }

    /// The key of the packed counters of a rule and subject with long windows, or of the others.
    pub(super) fn packed(&self, rule: &str, subject: &[u8], is_long: bool) -> Vec<u8> {
        let mut key = [self.prefix.as_bytes(), packed_kind(is_long)].concat();
        escape(rule.as_bytes(), true, &mut key);
        key.push(b':');
        escape(subject, false, &mut key);
        key
    }

    /// The keys of the log and of the holders of a rule's only quota, for a subject.
    pub(super) fn lists(&self, rule: &str, subject: &[u8]) -> [Vec<u8>; 2] {
        [b"rk:l:", b"rk:h:"].map(|kind| {
            let mut key = [self.prefix.as_bytes(), kind].concat();
            escape(rule.as_bytes(), true, &mut key);
            key.extend_from_slice(b"::");
            escape(subject, false, &mut key);
            key
        })
    }

    /// The key of an id.
    pub(super) fn id(&self, id: &[u8]) -> Vec<u8> {
        let mut key = format!("{}rk:i:", self.prefix).into_bytes();
        escape(id, false, &mut key);
        key
    }

    /// The key of what an id is used for, where checks have their counters in several places.
    pub(super) fn id_note(&self, id: &[u8]) -> Vec<u8> {
        let mut key = format!("{}rk:n:", self.prefix).into_bytes();
        escape(id, false, &mut key);
        key
    }

    /// The key of what was given back under the number of a receipt, for the counter with this tag in the
    /// value of this name.
    pub(super) fn receipt(&self, nonce: u64, tag: u32, counter: &[u8]) -> Vec<u8> {
        let counter = counter.strip_prefix(self.prefix.as_bytes()).unwrap_or(counter);
        // The tag of the counter, if it has one, goes first.
        let bare = self.bare(&[self.prefix.as_bytes(), counter].concat()).map_or(counter.len(), <[u8]>::len);
        let (tagged, counter) = counter.split_at(counter.len() - bare);
        let mut key = [self.prefix.as_bytes(), tagged].concat();
        key.extend_from_slice(format!("rk:g:{nonce:016x}{tag:08x}:").as_bytes());
        key.extend_from_slice(counter);
        key
    }

    /// The key of the secret that signs receipts.
    pub(super) fn secret(&self) -> String {
        format!("{}rk:secret", self.prefix)
    }

    /// The key of the switches.
    pub(super) fn control(&self) -> String {
        format!("{}rk:control", self.prefix)
    }

    /// The key of the audit log.
    pub(super) fn audit(&self) -> String {
        format!("{}rk:audit", self.prefix)
    }

    fn kit_counter(&self, scope: OverrideScope<'_>, into: &mut Vec<u8>) {
        if self.is_tagged {
            return self.tagged_scope(self.kit_kind(), scope, into);
        }
        into.extend_from_slice(self.prefix.as_bytes());
        into.extend_from_slice(self.kit_kind());
        into.extend_from_slice(scope.endpoint().as_bytes());
        scope_parts(scope, into);
    }

    /// All counters that `key` may stand for: who has only the key knows neither how long the windows are, nor
    /// whether Application Kit shares it, if its subject reads so.
    pub(super) fn counters_of(&self, key: Key<'_>, algorithm: Algorithm) -> Vec<(Class, Vec<u8>)> {
        let own = |is_long| {
            let mut name = Vec::new();
            (self.own_counter(key, algorithm, is_long, &mut name), name)
        };
        let is_listed = algorithm.keeps_all();
        let shared = OverrideScope::of_subject(key.subject()).filter(|_| algorithm == Algorithm::FixedWindow);
        let shared = shared.map(|scope| {
            let mut name = Vec::new();
            self.kit_counter(scope, &mut name);
            (Class::Kit, name)
        });
        [Some(own(false)), (!is_listed).then(|| own(true)), shared].into_iter().flatten().collect()
    }

    /// Writes the key of an override.
    pub(super) fn override_of(&self, scope: OverrideScope<'_>, into: &mut Vec<u8>) {
        if self.is_tagged {
            return self.tagged_scope(self.override_kind(scope.project_id().is_some()), scope, into);
        }
        into.extend_from_slice(self.prefix.as_bytes());
        into.extend_from_slice(self.override_kind(scope.project_id().is_some()));
        into.extend_from_slice(scope.endpoint().as_bytes());
        scope_parts(scope, into);
    }

    /// A pattern for SCAN that finds the overrides of a project, or with `None`
    /// of an organisation itself; also others, so look at what comes.
    pub(super) fn override_pattern(&self, organisation: &str, project: Option<&str>) -> Vec<u8> {
        let mut pattern = Vec::new();
        glob_escape(self.prefix.as_bytes(), &mut pattern);
        self.tag_pattern(Some(organisation), &mut pattern);
        pattern.extend_from_slice(self.override_kind(project.is_some()));
        pattern.push(b'*');
        for part in std::iter::once(organisation).chain(project) {
            pattern.push(b':');
            let mut escaped = Vec::new();
            escape(part.as_bytes(), true, &mut escaped);
            glob_escape(&escaped, &mut pattern);
        }
        pattern
    }

    /// A pattern for SCAN that finds the counters of a filter; also others, so look at what comes.
    pub(super) fn stored_pattern(&self, filter: &StoredFilter) -> Vec<u8> {
        let mut pattern = Vec::new();
        glob_escape(self.prefix.as_bytes(), &mut pattern);
        match filter {
            StoredFilter::Own { rule, subject } => {
                self.tag_pattern(None, &mut pattern);
                pattern.extend_from_slice(b"rk:[cdlh]:");
                glob_part(rule.as_deref(), true, &mut pattern);
                // Logs and holders have the name of their quota in between.
                pattern.extend_from_slice(b":*");
                if subject.is_some() {
                    glob_part(subject.as_deref(), false, &mut pattern);
                }
            }
            StoredFilter::Kit { organisation, project } => {
                self.tag_pattern(None, &mut pattern);
                pattern.extend_from_slice(self.kit_kind());
                pattern.extend_from_slice(b"*:");
                glob_part(Some(organisation), true, &mut pattern);
                pattern.push(b':');
                glob_part(project.as_deref(), true, &mut pattern);
            }
        }
        pattern
    }

    /// The rule and subject that a filter is about, if it is about one alone: no key has to be looked for. Logs and
    /// holders, which the store alone cannot read, are left out.
    pub(super) fn stored_only(filter: &StoredFilter) -> Option<StoredName> {
        let StoredFilter::Own { rule: Some(rule), subject: Some(subject) } = filter else { return None };
        let (rule, subject) = (rule.clone(), subject.clone());
        let is_open = rule.ends_with('*') || subject.ends_with('*');
        (!is_open).then_some(StoredName { kind: b'c', rule, quota: None, subject })
    }

    /// What the name of a counter's key says, if a filter wants it.
    pub(super) fn stored_name(&self, key: &[u8], filter: &StoredFilter) -> Option<StoredName> {
        let text = std::str::from_utf8(self.bare(key)?).ok()?;
        match filter {
            StoredFilter::Own { .. } => {
                let (kind, rest) = text.strip_prefix("rk:")?.split_once(':')?;
                let kind = *kind.as_bytes().first().filter(|kind| b"cdlh".contains(kind))?;
                let (of_rule, mut rest) = rest.split_once(':')?;
                let mut quota = None;
                if !matches!(kind, b'c' | b'd') {
                    let (of_quota, of_subject) = rest.split_once(':')?;
                    (quota, rest) = (Some(unescape(of_quota)?), of_subject);
                }
                let found = StoredName { kind, rule: unescape(of_rule)?, quota, subject: unescape(rest)? };
                let is_wanted = filter.takes(&found.rule, &found.subject);
                is_wanted.then_some(found)
            }
            StoredFilter::Kit { .. } => {
                let (rest, of_project) = self.kit_rest(text)?.rsplit_once(':')?;
                let (endpoint, of_organisation) = rest.rsplit_once(':')?;
                let subject = format!("{}:{}", unescape(of_organisation)?, unescape(of_project)?);
                let found =
                    StoredName { kind: b'k', rule: self.endpoint_read(endpoint)?, quota: None, subject };
                filter.takes(&found.rule, &found.subject).then_some(found)
            }
        }
    }

    /// A pattern for SCAN that finds all overrides of projects, or of organisations.
    pub(super) fn overrides_pattern(&self, of_projects: bool) -> Vec<u8> {
        let mut pattern = Vec::new();
        glob_escape(self.prefix.as_bytes(), &mut pattern);
        self.tag_pattern(None, &mut pattern);
        pattern.extend_from_slice(self.override_kind(of_projects));
        pattern.push(b'*');
        pattern
    }

    /// Endpoint, organisation and project of an override's key, read from the right.
    pub(super) fn scope_of(&self, key: &[u8], of_project: bool) -> Option<(String, String, Option<String>)> {
        let rest = self.bare(key)?.strip_prefix(self.override_kind(of_project))?;
        let mut rest = std::str::from_utf8(rest).ok()?;
        let mut part = || {
            let (before, part) = rest.rsplit_once(':')?;
            rest = before;
            unescape(part).filter(|part| !part.is_empty())
        };
        let project = if of_project { Some(part()?) } else { None };
        let organisation = part()?;
        let endpoint = self.endpoint_read(rest).filter(|endpoint| !endpoint.is_empty())?;
        Some((endpoint, organisation, project))
    }

    /// The endpoint of an override's key, if it belongs to this project (or
    /// organisation). Read from the right: endpoints may hold colons.
    pub(super) fn endpoint_of(
        &self,
        key: &[u8],
        organisation: &str,
        project: Option<&str>,
    ) -> Option<String> {
        let mut rest = self.bare(key)?.strip_prefix(self.override_kind(project.is_some()))?;
        for part in project.into_iter().chain(std::iter::once(organisation)) {
            let mut escaped = vec![b':'];
            escape(part.as_bytes(), true, &mut escaped);
            rest = rest.strip_suffix(escaped.as_slice())?;
        }
        self.endpoint_read(std::str::from_utf8(rest).ok()?).filter(|endpoint| !endpoint.is_empty())
    }

    const fn kit_kind(&self) -> &'static [u8] {
        if self.is_tagged { b"rk:k:" } else { b"ratelimit:" }
    }

    /// What the name of a counter of Application Kit has behind its kind.
    fn kit_rest<'t>(&self, text: &'t str) -> Option<&'t str> {
        text.strip_prefix(std::str::from_utf8(self.kit_kind()).ok()?)
    }

    const fn override_kind(&self, of_project: bool) -> &'static [u8] {
        match (self.is_tagged, of_project) {
            (true, true) => b"rk:p:",
            (true, false) => b"rk:o:",
            (false, true) => b"ratelimit_override:",
            (false, false) => b"ratelimit_org_override:",
        }
    }
}

const fn packed_kind(is_long: bool) -> &'static [u8] {
    if is_long { b"rk:d:" } else { b"rk:c:" }
}

/// What comes behind the endpoint.
fn scope_parts(scope: OverrideScope<'_>, into: &mut Vec<u8>) {
    for part in std::iter::once(scope.organisation_id()).chain(scope.project_id()) {
        into.push(b':');
        escape(part.as_bytes(), true, into);
    }
}

/// What a quota's name has beyond its rule's: `rpm` of `api.rpm`.
pub(super) fn quota_part(scope: Name, rule: Name) -> &'static str {
    let rest = &scope.as_str()[rule.as_str().len()..];
    rest.strip_prefix('.').unwrap_or(rest)
}

/// Copies `text`, with `%XX` for what does not print, could be taken for a hash
/// tag or an escape, or (with `colons`) for the end of a part.
pub(super) fn escape(text: &[u8], colons: bool, into: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        let plain = matches!(byte, b'!'..=b'~') && !matches!(byte, b'%' | b'{' | b'}');
        if plain && !(colons && byte == b':') {
            into.push(byte);
        } else {
            into.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Undoes [`escape`].
pub(super) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit()? << 4 | digit()?);
    }
    String::from_utf8(bytes).ok()
}

/// A part of a pattern: anything, a text, or with `*` behind it what begins so.
fn glob_part(text: Option<&str>, colons: bool, into: &mut Vec<u8>) {
    let text = text.unwrap_or("*");
    let start = text.strip_suffix('*');
    let mut escaped = Vec::new();
    escape(start.unwrap_or(text).as_bytes(), colons, &mut escaped);
    glob_escape(&escaped, into);
    if start.is_some() {
        into.push(b'*');
    }
}

fn glob_escape(text: &[u8], into: &mut Vec<u8>) {
    for &byte in text {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^') {
            into.push(b'\\');
        }
        into.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::Quota;

    fn key_of(charge: &Charge<'_>) -> (Class, String) {
        let mut key = Vec::new();
        let class = Layout::new("").counter(charge, &mut key);
        (class, String::from_utf8(key).unwrap())
    }

    #[test]
    fn the_quotas_of_a_rule_share_a_key_unless_they_keep_lists_or_live_longer() {
        let rule = Name::new("api").unwrap();
        let cases = [
            ("10/s", "rk:c:api:user:42"),
            ("10/h fixed_window", "rk:c:api:user:42"),
            ("10/61m", "rk:d:api:user:42"),
            ("10/calendar month", "rk:d:api:user:42"),
            ("10/d sliding_log", "rk:l:api:rps:user:42"),
            ("10/s sliding_log", "rk:l:api:rps:user:42"),
            ("10/s concurrency", "rk:h:api:rps:user:42"),
        ];
        for (text, expected) in cases {
            let quota: Quota = text.parse().unwrap();
            let key = Key::new(Name::joined(rule, "rps").unwrap(), "user:42").unwrap();
            assert_eq!(key_of(&Charge::new(key, &quota)).1, expected);
        }
    }

    #[test]
    fn no_subject_can_imitate_another_key() {
        let quota: Quota = "10/s".parse().unwrap();
        let mut keys = std::collections::HashSet::new();
        let subjects: [&[u8]; 9] =
            [b"a", b"a:b", b"a%3Ab", b"{a}", b"%7Ba%7D", b"a b", b"a\n", b"\xff", b"b:{a}"];
        let long: Quota = "10/d".parse().unwrap();
        let rules = ["r", "r:a", "r%3Aa", "r{x}"];
        for (rule, quota) in rules.into_iter().flat_map(|rule| [(rule, &quota), (rule, &long)]) {
            for subject in subjects {
                let key = Key::new(Name::new(rule).unwrap(), subject).unwrap();
                let (_, key) = key_of(&Charge::new(key, quota));
                assert!(key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
                assert!(!key.contains(['{', '}']), "{key} has a hash tag");
                assert!(keys.insert(key.clone()), "{key} stands for two");
            }
        }
        let list: Quota = "10/s sliding_log".parse().unwrap();
        for (rule, quota_name, subject) in [("r", "q", "s"), ("r", "q:s", "s"), ("r:q", "s", "s")] {
            let name = Name::joined(Name::new(rule).unwrap(), quota_name).unwrap();
            assert!(keys.insert(key_of(&Charge::new(Key::new(name, subject).unwrap(), &list)).1));
        }
    }

    #[test]
    fn a_project_on_a_route_is_counted_as_application_kit_does() {
        let quota: Quota = "10/60s fixed_window".parse().unwrap();
        let name = Name::new("search").unwrap();
        let class = |scope: OverrideScope<'_>, subject: &str, quota: &Quota| {
            key_of(&Charge::new(Key::new(name, subject).unwrap(), quota).overridable(scope))
        };
        let scope = OverrideScope::project("/a:b/{id}/elements", "7", "42").unwrap();
        let own = "/a:b/{id}/elements:7:42";
        assert_eq!(class(scope, own, &quota), (Class::Kit, format!("ratelimit:{own}")));
        assert_eq!(class(scope, "/a:b/{id}/elements:7:43", &quota).0, Class::Text);
        let bucket: Quota = "10/60s".parse().unwrap();
        assert_eq!(class(scope, own, &bucket).0, Class::Text);
        let words = OverrideScope::project("/a", "acme", "42").unwrap();
        assert_eq!(class(words, "/a:acme:42", &quota).0, Class::Text);
    }

    #[test]
    fn counters_are_found_by_rule_and_subject_and_nothing_else() {
        let layout = Layout::new("app:");
        let own = |rule: Option<&str>, subject: Option<&str>| StoredFilter::Own {
            rule: rule.map(str::to_owned),
            subject: subject.map(str::to_owned),
        };
        let key = layout.packed("search/per-user", b"user:a b", true);
        let filter = own(Some("search/*"), Some("user:a*"));
        let found = layout.stored_name(&key, &filter).unwrap();
        assert_eq!((found.rule.as_str(), found.subject.as_str()), ("search/per-user", "user:a b"));
        assert_eq!(layout.stored_pattern(&filter), b"app:rk:[cdlh]:search/*:*user:a*");
        for other in [own(Some("search"), None), own(None, Some("a b")), own(Some("search/per-user*x"), None)]
        {
            assert_eq!(layout.stored_name(&key, &other), None, "{other:?}");
        }
        let log = b"app:rk:l:search/per-user:rpm:user:ann";
        let found = layout.stored_name(log, &own(None, None)).unwrap();
        assert_eq!((found.quota.as_deref(), found.subject.as_str()), (Some("rpm"), "user:ann"));
        for other in ["app:rk:control", "app:rk:i:id", "rk:c:a:b", "app:rk:x:a:b", "app:rk:c:a"] {
            assert_eq!(layout.stored_name(other.as_bytes(), &own(None, None)), None, "{other}");
        }
        let kit = StoredFilter::Kit { organisation: "7".to_owned(), project: None };
        assert_eq!(layout.stored_pattern(&kit), b"app:ratelimit:*:7:*");
        let found = layout.stored_name(b"app:ratelimit:/a:b:7:42", &kit).unwrap();
        assert_eq!((found.rule.as_str(), found.subject.as_str()), ("/a:b", "7:42"));
        assert_eq!(layout.stored_name(b"app:ratelimit:/a:8:42", &kit), None);
    }

    #[test]
    fn overrides_are_read_from_the_right() {
        let layout = Layout::new("app:");
        let cases = [("/a:b", "1", Some("2")), ("/a", "1", None), ("/a", "x:y", Some("%{z}*"))];
        for (endpoint, organisation, project) in cases {
            let scope = match project {
                Some(project) => OverrideScope::project(endpoint, organisation, project).unwrap(),
                None => OverrideScope::organisation(endpoint, organisation).unwrap(),
            };
            let mut key = Vec::new();
            layout.override_of(scope, &mut key);
            assert_eq!(layout.endpoint_of(&key, organisation, project).as_deref(), Some(endpoint));
            assert_eq!(layout.endpoint_of(&key, "other", project), None);
            let (owner, own) = (organisation.to_owned(), project.map(str::to_owned));
            assert_eq!(layout.scope_of(&key, project.is_some()), Some((endpoint.to_owned(), owner, own)));
            assert_eq!(layout.scope_of(&key, project.is_none()), None);
        }
        let pattern = layout.override_pattern("1", Some("*"));
        assert_eq!(String::from_utf8(pattern).unwrap(), "app:ratelimit_override:*:1:\\*");
    }
}
