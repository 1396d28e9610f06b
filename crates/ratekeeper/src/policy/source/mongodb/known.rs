//! What is known of every document, so that only changes are read and told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ::mongodb::bson::RawDocument;
use ratekeeper_core::NAME_BYTES_MAX;

use super::bson;
use super::copy::{Copied, json};
use super::documents::{Digest, Head, Id, digest, id, is_name, revision};
use crate::policy::book::Policies;
use crate::policy::document::{Node, Place};
use crate::policy::problem::{Problem, Problems, quoted};
use crate::policy::spec::PolicySpec;

/// The documents of a source, as they were when they were last read.
pub(super) struct Known {
    policies: Policies,
    services: BTreeMap<String, Service>,
    /// Documents that were refused because their ids are no names, and how they are shown.
    strangers: BTreeMap<Digest, String>,
    /// The services that should have a document, if they were named.
    expected: Option<BTreeSet<String>>,
    /// Whether documents are kept for a copy.
    keeps: bool,
    /// Whether the copy is older than what is in force.
    pub(super) is_unsaved: bool,
}

#[derive(Default)]
struct Service {
    /// Its `last_updated` when it was last read; `None`: read it again.
    revision: Option<Digest>,
    /// What it was when it was last read.
    content: Option<Digest>,
    /// Whether that was refused.
    is_refused: bool,
    /// What is in force.
    good: Option<Good>,
}

struct Good {
    content: Digest,
    json: Option<Arc<str>>,
}

impl Known {
    pub(super) fn new(policies: Policies, expected: Option<&[String]>, keeps: bool) -> Self {
        let expected = expected.map(|services| services.iter().cloned().collect());
        let (services, strangers) = (BTreeMap::new(), BTreeMap::new());
        Self { policies, services, strangers, expected, keeps, is_unsaved: false }
    }

    /// Puts what a copy holds into force, and says how many policies that were.
    pub(super) fn restore(&mut self, copied: Vec<Copied>) -> usize {
        let mut restored = 0;
        for Copied { service, document } in copied {
            if self.expected.as_ref().is_some_and(|expected| !expected.contains(&service))
                || !is_name(&service)
            {
                continue;
            }
            let spec = PolicySpec::from_service_document(&format!("copy of {}", source(&service)), &document);
            self.install(&service, spec, &document);
            restored += usize::from(self.services.get(&service).is_some_and(|service| !service.is_refused));
        }
        // What was just read need not be written.
        self.is_unsaved = false;
        restored
    }

    /// Withdraws what is gone, refuses what cannot be a service, and answers which documents to read.
    pub(super) fn compare(&mut self, heads: &[Head]) -> Vec<String> {
        let (mut present, mut strangers) = (BTreeSet::new(), BTreeSet::new());
        let mut changed = Vec::new();
        for head in heads {
            match &head.id {
                Id::Service(service) => {
                    let known = self.services.get(service).and_then(|known| known.revision);
                    if known.is_none() || known != head.revision {
                        changed.push(service.clone());
                    }
                    present.insert(service.as_str());
                }
                Id::Other(digest, shown) => {
                    strangers.insert(*digest);
                    self.refuse_stranger(*digest, shown);
                }
            }
        }
        self.withdraw(&present);
        self.forget_strangers(&strangers);
        self.miss(&present);
        changed
    }

    fn refuse_stranger(&mut self, digest: Digest, shown: &str) {
        if self.strangers.insert(digest, shown.to_owned()).is_some() {
            return;
        }
        let expected = format!("the name of a service: 1 to {NAME_BYTES_MAX} printable ASCII characters");
        let problem = Problem::new(Place::UNKNOWN, "_id", shown, expected);
        let source = format!("mongodb:{shown}");
        let problems = Problems::of(&source, [problem]);
        // Refusing is what was asked for.
        let _ = self.policies.install(&source, Err(problems), None);
    }

    fn forget_strangers(&mut self, present: &BTreeSet<Digest>) {
        self.strangers.retain(|digest, _| present.contains(digest));
    }

    fn withdraw(&mut self, present: &BTreeSet<&str>) {
        let is_gone = |service: &&String| !present.contains(service.as_str());
        let gone: Vec<String> = self.services.keys().filter(is_gone).cloned().collect();
        for service in gone {
            let was_there = self
                .services
                .get(&service)
                .is_some_and(|known| known.content.is_some() || known.good.is_some());
            if was_there {
                self.policies.withdraw(&source(&service), &service);
                self.services.remove(&service);
                self.is_unsaved = true;
                self.note_missing(service);
            }
        }
    }

    /// Says it, once, of every service that was named and has no document.
    fn miss(&mut self, present: &BTreeSet<&str>) {
        let Some(expected) = &self.expected else { return };
        let is_new =
            |service: &&String| !present.contains(service.as_str()) && !self.services.contains_key(*service);
        let missing: Vec<String> = expected.iter().filter(is_new).cloned().collect();
        for service in missing {
            let source = source(&service);
            let problem =
                Problem::new(Place::UNKNOWN, "", "no document", "one whose `_id` is the service's name");
            let _ = self.policies.install(&source, Err(Problems::of(&source, [problem])), Some(&service));
            self.note_missing(service);
        }
    }

    fn note_missing(&mut self, service: String) {
        if self.expected.as_ref().is_some_and(|expected| expected.contains(&service)) {
            self.services.insert(service, Service { is_refused: true, ..Service::default() });
        }
    }

    /// Takes a document that was read: puts it into force if it is new and good.
    pub(super) fn apply(&mut self, document: &RawDocument) {
        let Id::Service(service) = id(document) else { return };
        let (revision, content) = (revision(document), digest(document.as_bytes()));
        let known = self.services.entry(service.clone()).or_default();
        known.revision = revision;
        if known.content.replace(content) == Some(content) {
            return;
        }
        let source = source(&service);
        match bson::node(document) {
            Ok(node) => {
                let spec = PolicySpec::from_service_document(&source, &node);
                self.install(&service, spec, &node);
            }
            Err(problem) => {
                known.is_refused = true;
                let problems = Problems::of(&source, [problem]);
                let _ = self.policies.install(&source, Err(problems), Some(&service));
            }
        }
    }

    fn install(&mut self, service: &str, spec: Result<PolicySpec, Problems>, document: &Node) {
        let known = self.services.entry(service.to_owned()).or_default();
        let json = json(document);
        let content = digest(json.as_bytes());
        let is_in_force = known.good.as_ref().is_some_and(|good| good.content == content);
        if is_in_force && !known.is_refused {
            return;
        }
        let installed = self.policies.install(&source(service), spec, Some(service));
        known.is_refused = installed.is_err();
        if installed.is_ok() {
            let json = self.keeps.then(|| json.into());
            known.good = Some(Good { content, json });
            self.is_unsaved = true;
        }
    }

    /// The documents in force, for a copy.
    pub(super) fn kept(&self) -> Vec<Arc<str>> {
        let good = self.services.values().filter_map(|service| service.good.as_ref());
        good.filter_map(|good| good.json.clone()).collect()
    }
}

/// What problems call the document of a service.
fn source(service: &str) -> String {
    let is_plain = service.len() <= NAME_BYTES_MAX;
    if is_plain { format!("mongodb:{service}") } else { format!("mongodb:{}", quoted(service)) }
}
