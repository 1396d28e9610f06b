//! Names on a cluster: the tag of a counter in braces, behind the prefix, so that all keys of the counter share a slot.
//!
//! No name has another brace in front of it: a prefix must have none, and tags have theirs escaped. So a route such as
//! `/datasets/{dataset_id}/search` is no tag.

use ratekeeper_core::{Algorithm, Charge, Check, Field, InvalidInput, Key, OverrideScope, Penalty};

use super::super::route::Part;
use super::super::tag::{slot_of, tag_of_charge, tag_of_organisation, tag_of_penalty, tags_of_key};
use super::{Class, Layout, escape, glob_escape, scope_parts, unescape};

/// Names of keys, and what they hold.
type Names = Vec<(Class, Vec<u8>)>;

impl Layout {
    /// Of a cluster: every key has a tag, which is one and the same if there is `one_tag`.
    pub(in crate::store::redis) fn tagged(prefix: &str, one_tag: Option<&str>) -> Self {
        Self { prefix: prefix.into(), is_tagged: true, one_tag: one_tag.map(|tag| tag.as_bytes().into()) }
    }

    pub(in crate::store::redis) const fn has_one_tag(&self) -> bool {
        self.one_tag.is_some()
    }

    /// What `write` writes, or the tag that stands for every tag.
    fn tag(
        &self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), InvalidInput>,
    ) -> Result<Vec<u8>, InvalidInput> {
        if let Some(one) = &self.one_tag {
            return Ok(one.to_vec());
        }
        let mut tag = Vec::new();
        write(&mut tag)?;
        Ok(tag)
    }

    /// The tag of a charge; empty if it has none, and then the check was refused before.
    fn tag_of_known(&self, charge: &Charge<'_>) -> Vec<u8> {
        self.tag(|tag| tag_of_charge(charge, tag)).unwrap_or_default()
    }

    fn tag_of_owner(&self, organisation: &str) -> Vec<u8> {
        let write = |tag: &mut Vec<u8>| {
            tag_of_organisation(organisation, tag);
            Ok(())
        };
        self.tag(write).unwrap_or_default()
    }

    /// Puts the tag that `write` writes into the name that begins at `start`.
    pub(super) fn tag_name(&self, into: &mut Vec<u8>, start: usize, tag: &[u8]) {
        let at = start + self.prefix.len();
        into.splice(at..at, [b"{", tag, b"}"].concat());
    }

    /// Puts the tag into the name of a charge's counter.
    pub(super) fn tag_charge(&self, charge: &Charge<'_>, start: usize, into: &mut Vec<u8>) {
        if self.is_tagged {
            self.tag_name(into, start, &self.tag_of_known(charge));
        }
    }

    /// Puts the tag into the name of a penalty's counters.
    pub(in crate::store::redis) fn tag_penalty(
        &self,
        penalty: &Penalty<'_>,
        charges: &[Charge<'_>],
        start: usize,
        into: &mut Vec<u8>,
    ) {
        if self.is_tagged {
            let tag = self.tag(|tag| tag_of_penalty(penalty, charges, tag));
            self.tag_name(into, start, &tag.unwrap_or_default());
        }
    }

    /// The key of the record of an id, beside the first counter of its check.
    pub(in crate::store::redis) fn id_of(&self, check: &Check<'_>, id: &[u8]) -> Vec<u8> {
        let first = check.charges().first().filter(|_| self.is_tagged);
        self.id_under(&first.map(|charge| self.tag_of_known(charge)).unwrap_or_default(), id)
    }

    /// The same under a tag, which means nothing on one server.
    pub(in crate::store::redis) fn id_under(&self, tag: &[u8], id: &[u8]) -> Vec<u8> {
        self.under(tag, self.id(id))
    }

    /// A name under a tag, which means nothing on one server.
    pub(in crate::store::redis) fn under(&self, tag: &[u8], mut name: Vec<u8>) -> Vec<u8> {
        if self.is_tagged {
            self.tag_name(&mut name, 0, self.one_tag.as_deref().unwrap_or(tag));
        }
        name
    }

    /// What a name can be, for callers that do not know the organisation of its counter.
    pub(in crate::store::redis) fn names_of(&self, key: Key<'_>, name: Vec<u8>) -> Vec<(Part, Vec<u8>)> {
        if !self.is_tagged {
            return vec![(Part::default(), name)];
        }
        let tags = self.one_tag.as_ref().map_or_else(|| tags_of_key(key), |tag| vec![tag.to_vec()]);
        let each = tags.into_iter().map(|tag| {
            let mut name = name.clone();
            self.tag_name(&mut name, 0, &tag);
            (Part(slot_of(&tag)), name)
        });
        each.collect()
    }

    /// Writes a key of a kind that belongs to a scope.
    pub(super) fn tagged_scope(&self, kind: &[u8], scope: OverrideScope<'_>, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend_from_slice(self.prefix.as_bytes());
        into.extend_from_slice(kind);
        escape(scope.endpoint().as_bytes(), false, into);
        scope_parts(scope, into);
        self.tag_name(into, start, &self.tag_of_owner(scope.organisation_id()));
    }

    /// Writes the tag in a pattern that finds the overrides of an organisation, or of all of them.
    pub(super) fn tag_pattern(&self, organisation: Option<&str>, pattern: &mut Vec<u8>) {
        if !self.is_tagged {
            return;
        }
        pattern.push(b'{');
        match organisation {
            Some(organisation) => glob_escape(&self.tag_of_owner(organisation), pattern),
            None => pattern.push(b'*'),
        }
        pattern.push(b'}');
    }

    /// A key without its prefix and its tag.
    pub(super) fn bare<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let rest = key.strip_prefix(self.prefix.as_bytes())?;
        if !self.is_tagged {
            return Some(rest);
        }
        let end = rest.iter().position(|byte| *byte == b'}')?;
        rest.starts_with(b"{").then(|| &rest[end + 1..])
    }

    /// The endpoint as it was before it was written into a key.
    pub(super) fn endpoint_read(&self, text: &str) -> Option<String> {
        if self.is_tagged { unescape(text) } else { Some(text.to_owned()) }
    }

    /// The part of what belongs to an organisation.
    pub(in crate::store::redis) fn part_of_organisation(&self, organisation: &str) -> Part {
        self.part_under(&self.tag_of_owner(organisation))
    }

    /// All counters that `key` may stand for, by where they are: what has only the key does not know its organisation.
    pub(in crate::store::redis) fn counters_by_part(
        &self,
        key: Key<'_>,
        algorithm: Algorithm,
    ) -> Vec<(Part, Names)> {
        let mut parts: Vec<(Part, Names)> = Vec::new();
        let mut add = |part: Part, counter| match parts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, counters)) => counters.push(counter),
            None => parts.push((part, vec![counter])),
        };
        for (class, name) in self.counters_of(key, algorithm) {
            match class {
                // Its name has the organisation's tag.
                Class::Kit => add(self.part_of_kit(key), (class, name)),
                _ => self.names_of(key, name).into_iter().for_each(|(part, name)| add(part, (class, name))),
            }
        }
        parts
    }

    fn part_of_kit(&self, key: Key<'_>) -> Part {
        let scope = OverrideScope::of_subject(key.subject());
        scope.map(|scope| self.part_of_organisation(scope.organisation_id())).unwrap_or_default()
    }

    /// The part of a tag.
    pub(in crate::store::redis) fn part_under(&self, tag: &[u8]) -> Part {
        if self.is_tagged { self.part_in(slot_of(tag)) } else { Part::default() }
    }

    /// The part of a check that was found to be in one slot, whose tags need not be looked at again.
    pub(in crate::store::redis) fn part_in(&self, slot: u16) -> Part {
        match &self.one_tag {
            _ if !self.is_tagged => Part::default(),
            Some(one) => Part(slot_of(one)),
            None => Part(slot),
        }
    }

    /// The part of a key that was found on a server.
    pub(in crate::store::redis) fn part_of_key(&self, key: &[u8]) -> Part {
        let rest = key.strip_prefix(self.prefix.as_bytes()).unwrap_or(key);
        let tag = rest.strip_prefix(b"{").and_then(|rest| rest.split(|byte| *byte == b'}').next());
        match tag {
            Some(tag) if self.is_tagged => Part(slot_of(tag)),
            _ => Part::default(),
        }
    }

    /// The part of a key that has no tag.
    pub(in crate::store::redis) fn part_of_name(&self, name: &str) -> Part {
        if self.is_tagged { Part(slot_of(name.as_bytes())) } else { Part::default() }
    }

    /// The one part that a check is about.
    ///
    /// # Errors
    /// If it is about several, which no call of the script can be.
    pub(in crate::store::redis) fn part_of(&self, check: &Check<'_>) -> Result<Part, InvalidInput> {
        if !self.is_tagged {
            return Ok(Part::default());
        }
        if let Some(one) = &self.one_tag {
            return Ok(Part(slot_of(one)));
        }
        let (mut tag, mut found) = (Vec::new(), None);
        let mut one = |tag: &mut Vec<u8>| {
            let part = Part(slot_of(tag));
            tag.clear();
            if *found.get_or_insert(part) == part { Ok(()) } else { Err(spanning(check)) }
        };
        for charge in check.charges() {
            tag_of_charge(charge, &mut tag)?;
            one(&mut tag)?;
        }
        for penalty in check.penalties() {
            tag_of_penalty(penalty, check.charges(), &mut tag)?;
            one(&mut tag)?;
        }
        Ok(found.unwrap_or_default())
    }
}

#[cold]
fn spanning(check: &Check<'_>) -> InvalidInput {
    let labels: Vec<&str> = check.charges().iter().map(|charge| charge.key().label()).collect();
    let got = format!("counters in several slots of a cluster ({})", labels.join(", "));
    InvalidInput::new(Field::Check, got, "counters with the same tag: one organisation, or one subject")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::{Name, Quota};

    fn name_of(charge: &Charge<'_>) -> String {
        let mut name = Vec::new();
        Layout::tagged("app:", None).counter(charge, &mut name);
        String::from_utf8(name).unwrap()
    }

    /// As a cluster reads it.
    fn hash_tag(key: &str) -> &str {
        let (_, rest) = key.split_once('{').unwrap();
        rest.split_once('}').unwrap().0
    }

    #[test]
    fn all_keys_of_a_counter_have_its_tag_and_no_route_is_one() {
        let layout = Layout::tagged("app:", None);
        let scope = OverrideScope::project("/datasets/{dataset_id}/search", "7", "42").unwrap();
        let name = Name::new("api{x}").unwrap();
        for text in ["10/s", "10/d", "10/s sliding_log", "10/s concurrency", "10/60s fixed_window"] {
            let quota: Quota = text.parse().unwrap();
            let subject = "/datasets/{dataset_id}/search:7:42";
            let charge = Charge::new(Key::new(name, subject).unwrap(), &quota).overridable(scope);
            let counter = name_of(&charge);
            assert!(counter.starts_with("app:{7}rk:"), "{counter}");
            let mut keys = vec![counter.clone()];
            keys.push(String::from_utf8(layout.receipt(1, 2, counter.as_bytes())).unwrap());
            keys.push(String::from_utf8(layout.id_of(&Check::one(&charge), b"{id}")).unwrap());
            for scope in [scope, scope.without_project()] {
                let mut key = Vec::new();
                layout.override_of(scope, &mut key);
                keys.push(String::from_utf8(key).unwrap());
            }
            assert!(keys.iter().all(|key| hash_tag(key) == "7"), "{keys:?}");
            assert!(keys.iter().all(|key| key.starts_with("app:{7}rk:")), "{keys:?}");
            assert!(keys.iter().all(|key| key.matches(['{', '}']).count() == 2), "{keys:?}");
            let part = layout.part_of(&Check::one(&charge)).unwrap();
            assert_eq!((part, layout.part_in(slot_of(b"7"))), (Part(slot_of(b"7")), part));
        }
    }

    #[test]
    fn a_check_of_several_slots_is_not_one_call() {
        let layout = Layout::tagged("", None);
        let quota: Quota = "10/s".parse().unwrap();
        let key = |subject| Key::new(Name::new("api").unwrap(), subject).unwrap();
        let mut charges = ratekeeper_core::Charges::new();
        charges.push(Charge::new(key("ann"), &quota)).unwrap();
        charges.push(Charge::new(key("ben"), &quota)).unwrap();
        let error = layout.part_of(&charges.check().unwrap()).unwrap_err();
        assert!(error.to_string().contains("several slots of a cluster (api, api)"), "{error}");
        assert_eq!(Layout::new("").part_of(&charges.check().unwrap()).unwrap(), Part(0));
        // However the slots were told apart, a server by itself has one part, and one tag one slot.
        assert_eq!(Layout::new("").part_in(7), Part(0));
        assert_eq!(Layout::tagged("", Some("all")).part_in(7), Part(slot_of(b"all")));
    }

    #[test]
    fn overrides_are_read_back() {
        let layout = Layout::tagged("app:", None);
        let cases = [("/a:b", "1", Some("2")), ("/{a}", "1", None), ("/a", "x:{y}", Some("%{z}*"))];
        for (endpoint, organisation, project) in cases {
            let scope = match project {
                Some(project) => OverrideScope::project(endpoint, organisation, project).unwrap(),
                None => OverrideScope::organisation(endpoint, organisation).unwrap(),
            };
            let mut key = Vec::new();
            layout.override_of(scope, &mut key);
            assert_eq!(layout.endpoint_of(&key, organisation, project).as_deref(), Some(endpoint));
            let owner = (endpoint.to_owned(), organisation.to_owned(), project.map(str::to_owned));
            assert_eq!(layout.scope_of(&key, project.is_some()), Some(owner));
        }
        let pattern = layout.override_pattern("1", Some("*"));
        assert_eq!(String::from_utf8(pattern).unwrap(), "app:{1}rk:p:*:1:\\*");
        assert_eq!(layout.overrides_pattern(false), b"app:{*}rk:o:*");
    }
}
