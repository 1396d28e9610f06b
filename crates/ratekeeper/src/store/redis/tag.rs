//! Which counters live together: the tag of a counter, and the slot of a cluster that a tag is in.
//!
//! A tag depends on the counter alone and is the same under every rule: the organisation, where the counter's own
//! subject names it, so that an organisation's counters and overrides share a slot; else the subject. It never
//! depends on the rest of a request: a counter of an address that went where a header says would be fresh for every
//! header.

use ratekeeper_core::{
    Charge, Field, InvalidInput, Key, Name, ORGANISATION_PLACES_MAX, OverrideScope, Penalty,
};

use super::layout::{escape, unescape};

/// The longest tag, in bytes: it stands in every key. Of what is longer, a digest is the tag.
const TAG_BYTES_MAX: usize = 64;
/// The slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// Writes the tag of a charge's counter.
pub(super) fn tag_of_charge(charge: &Charge<'_>, into: &mut Vec<u8>) -> Result<(), InvalidInput> {
    tag_of(charge.key(), charge.override_scope(), into)
}

/// Writes the tag of the counters of a penalty: that of its rule's charges, with which they share a value.
pub(super) fn tag_of_penalty(
    penalty: &Penalty<'_>,
    charges: &[Charge<'_>],
    into: &mut Vec<u8>,
) -> Result<(), InvalidInput> {
    let own = charges.get(penalty.charges.clone()).unwrap_or_default();
    match own.iter().find(|charge| charge.key().subject() == penalty.subject) {
        Some(charge) => tag_of_charge(charge, into),
        None => {
            write(penalty.subject, into);
            Ok(())
        }
    }
}

/// Writes the tag of a counter whose overrides, if it follows any, are those of `scope`.
///
/// # Errors
/// If the subject does not name the organisation: then its counters could not be where its overrides are.
pub(super) fn tag_of(
    key: Key<'_>,
    scope: Option<OverrideScope<'_>>,
    into: &mut Vec<u8>,
) -> Result<(), InvalidInput> {
    let Some(scope) = scope else {
        write(key.subject(), into);
        return Ok(());
    };
    let organisation = scope.organisation_id();
    if !places(key.subject()).any(|part| is_written_as(part, organisation)) {
        return Err(apart(key));
    }
    tag_of_organisation(organisation, into);
    Ok(())
}

/// Writes the tag of an organisation's overrides.
pub(super) fn tag_of_organisation(organisation: &str, into: &mut Vec<u8>) {
    write(organisation.as_bytes(), into);
}

/// Every tag that the counter of a key can have, for callers that do not know its organisation.
pub(super) fn tags_of_key(key: Key<'_>) -> Vec<Vec<u8>> {
    let mut tags: Vec<Vec<u8>> = Vec::new();
    let parts = places(key.subject()).flat_map(|part| {
        let decoded = std::str::from_utf8(part).ok().and_then(unescape).map(String::into_bytes);
        decoded.into_iter().chain([part.to_vec()])
    });
    for text in std::iter::once(key.subject().to_vec()).chain(parts).filter(|text| !text.is_empty()) {
        let mut tag = Vec::new();
        write(&text, &mut tag);
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    tags
}

/// Writes the tag of an id, which has a place of its own.
pub(super) fn tag_of_id(id: &[u8], into: &mut Vec<u8>) {
    write(id, into);
}

/// The slot of a cluster that a tag is in: CRC16 as Redis has it.
pub(super) fn slot_of(tag: &[u8]) -> u16 {
    let crc = tag.iter().fold(0, |crc: u16, byte| crc << 8 ^ CRC[usize::from(crc.to_be_bytes()[0] ^ byte)]);
    crc % SLOTS
}

/// The parts of a subject that can be its organisation.
fn places(subject: &[u8]) -> impl Iterator<Item = &[u8]> {
    subject.rsplit(|byte| *byte == b':').take(ORGANISATION_PLACES_MAX)
}

/// Templates escape the values they write into subjects.
fn is_written_as(part: &[u8], organisation: &str) -> bool {
    let decoded = || std::str::from_utf8(part).ok().and_then(unescape);
    part == organisation.as_bytes() || decoded().is_some_and(|text| text == organisation)
}

/// Escapes `text`, which is not empty, or takes a digest of it if it is long.
fn write(text: &[u8], into: &mut Vec<u8>) {
    let start = into.len();
    escape(text, false, into);
    if into.len() - start > TAG_BYTES_MAX {
        into.truncate(start);
        // Within the bounds of subjects and ids; and a tag that two texts share does no harm.
        let digest = Key::new(Name::RAW, text).map_or(0, |key| key.digest());
        into.extend_from_slice(format!("{digest:016x}").as_bytes());
    }
}

#[cold]
fn apart(key: Key<'_>) -> InvalidInput {
    let got =
        format!("{}, which follows overrides, on a key that does not name their organisation", key.label());
    let expected = "a key with the organisation as one of its last 8 parts, such as {identity.org}:{identity.user}: \
                    on several servers, a counter is where its organisation is";
    InvalidInput::new(Field::Key, got, expected)
}

/// CRC16/XMODEM, byte by byte. Ten lines that never change, rather than a crate that no longer does.
const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::{Charges, Enforcement, Quota};
    use ratekeeper_testkit::servers::{Flavour, Server};

    fn key<'a>(rule: &str, subject: &'a (impl AsRef<[u8]> + ?Sized)) -> Key<'a> {
        Key::new(Name::new(rule).unwrap(), subject).unwrap()
    }

    fn tag(key: Key<'_>, scope: Option<OverrideScope<'_>>) -> Result<String, InvalidInput> {
        let mut tag = Vec::new();
        tag_of(key, scope, &mut tag).map(|()| String::from_utf8(tag).unwrap())
    }

    #[test]
    fn the_tag_is_the_organisation_where_the_key_names_it_and_else_the_subject() {
        let acme = OverrideScope::project("/search", "acme", "42").unwrap();
        for subject in ["acme", "acme:42", "/search:acme:42", "user:7:acme", "acme:a:b:c:d:e:f:g"] {
            for rule in ["one", "other"] {
                assert_eq!(tag(key(rule, subject), Some(acme)).unwrap(), "acme", "{subject}");
                assert_eq!(tag(key(rule, subject), Some(acme.without_project())).unwrap(), "acme");
                assert_eq!(tag(key(rule, subject), None).unwrap(), subject);
            }
        }
        // As templates write them.
        let colon = OverrideScope::organisation("/search", "a:b %").unwrap();
        assert_eq!(tag(key("r", "user:a%3Ab%20%25"), Some(colon)).unwrap(), "a:b%20%25");
    }

    #[test]
    fn a_counter_that_does_not_name_its_organisation_is_refused() {
        for subject in ["10.0.0.7", "ip:10.0.0.7", "acm:e", "acmes", "ACME", "acme:1:2:3:4:5:6:7:8"] {
            let acme = OverrideScope::organisation("/search", "acme").unwrap();
            let error = tag(key("per-address", subject), Some(acme)).unwrap_err().to_string();
            assert!(error.contains("per-address, which follows overrides"), "{error}");
            assert!(error.contains("{identity.org}:{identity.user}"), "{error}");
        }
    }

    #[test]
    fn a_tag_has_no_braces_prints_and_is_bounded() {
        let (long, braces) = ("x".repeat(1_024), "{".repeat(40));
        let subjects: [&[u8]; 8] =
            [b"{a}", b"}", b"{", b"a b", b"\xff\x00", b"%7B", braces.as_bytes(), long.as_bytes()];
        let mut tags = std::collections::HashSet::new();
        for subject in subjects {
            let tag = tag(key("r", subject), None).unwrap();
            assert!(!tag.is_empty() && tag.len() <= TAG_BYTES_MAX, "{tag}");
            assert!(tag.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}".contains(&byte)), "{tag}");
            assert!(tags.insert(tag));
        }
        let digest = tag(key("r", long.as_str()), None).unwrap();
        assert_eq!(digest, tag(key("other", long.as_str()), None).unwrap(), "the same under every rule");
    }

    #[test]
    fn without_a_scope_the_tag_is_among_those_a_key_can_have() {
        let subjects = ["/a:b:7:42", "acme:42", "a%3Ab:7", "100%:7", "7"];
        for subject in subjects {
            let tags = tags_of_key(key("r", subject));
            assert!(tags.len() <= 1 + 2 * ORGANISATION_PLACES_MAX, "{tags:?}");
            let mut scopes = vec![None];
            for organisation in ["7", "42", "acme", "a:b", "100%", "/a"] {
                scopes.push(Some(OverrideScope::organisation("/e", organisation).unwrap()));
            }
            for scope in scopes {
                let Ok(tag) = tag(key("r", subject), scope) else { continue };
                assert!(tags.contains(&tag.clone().into_bytes()), "{tag} of {subject} is not in {tags:?}");
            }
        }
    }

    #[test]
    fn a_penalty_is_where_the_charges_of_its_rule_are() {
        let quota: Quota = "1/1h fixed_window".parse().unwrap();
        let rule = Name::new("penal").unwrap();
        let scope = OverrideScope::organisation("/a", "acme").unwrap();
        let mut charges = Charges::new();
        charges.push(Charge::new(key("first", "bob"), &quota)).unwrap();
        charges.push(Charge::new(Key::new(rule, "acme:ann").unwrap(), &quota).overridable(scope)).unwrap();
        let name = |quota| Name::joined(rule, quota).unwrap();
        let penalty = |charges| Penalty {
            gate: (name("penalty"), &quota),
            strikes: (name("strikes"), &quota),
            offences: None,
            sentences: std::slice::from_ref(&quota),
            subject: b"acme:ann",
            enforcement: Enforcement::Enforce,
            charges,
            counts: true,
        };
        let check = charges.check().unwrap();
        for (of, expected) in [(1..2, "acme"), (0..2, "acme"), (0..1, "acme:ann"), (0..0, "acme:ann")] {
            let mut tag = Vec::new();
            tag_of_penalty(&penalty(of), check.charges(), &mut tag).unwrap();
            assert_eq!(String::from_utf8(tag).unwrap(), expected);
        }
    }

    #[test]
    fn organisations_and_subjects_spread_over_the_slots() {
        const NODES: u16 = 3;
        for pattern in ["", "org-", "user:"] {
            let mut counts = [0_u32; NODES as usize];
            let mut slots = std::collections::HashSet::new();
            for number in 0..30_000 {
                let slot = slot_of(format!("{pattern}{number}").as_bytes());
                counts[usize::from(slot / (SLOTS / NODES + 1))] += 1;
                slots.insert(slot);
            }
            assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{pattern}: {counts:?}");
            assert!(slots.len() > usize::from(SLOTS) * 3 / 4, "{pattern}: {} slots", slots.len());
        }
    }

    #[test]
    fn slots_are_those_of_a_cluster() {
        assert_eq!(slot_of(b"123456789"), 0x31c3 % SLOTS, "the check value of CRC16/XMODEM");
        for flavour in [Flavour::Redis7, Flavour::Valkey9] {
            let server = Server::start_with(flavour, &[("cluster-enabled", "yes")]);
            let mut tags: Vec<String> = (0..40).map(|number| format!("org-{number}")).collect();
            tags.extend(["a", "acme:42", "a:b%20%25", "100%25"].map(str::to_owned));
            for tag in tags {
                let keys = [tag.clone(), format!("app:{{{tag}}}rk:c:r%7Bx%7D:s")];
                for key in keys {
                    let slot = server.cli(&["CLUSTER", "KEYSLOT", &key]);
                    assert_eq!(slot, slot_of(tag.as_bytes()).to_string(), "{key} on {flavour}");
                }
            }
        }
    }
}
