//! What is known of the files, and what becomes of what is new.

use std::collections::BTreeMap;
use std::mem;
use std::path::{Path, PathBuf};

use super::error::FileError;
use super::look::{Documents, Kind, Look, Parsed, Signature, Target};
use super::read::second_policy;
use crate::policy::spec::import::Sheet;
use crate::policy::{Place, Policies, PolicySpec, Problem, Problems};

/// What is known, and who is told.
#[derive(Debug)]
pub(super) struct Known {
    target: Target,
    policies: Policies,
    /// What was taken last.
    signature: Option<Signature>,
    /// Why the folder as a whole cannot be read.
    failed: Option<String>,
    /// What the policies were told about reading: why it failed, if it did.
    told: Option<Option<String>>,
    files: BTreeMap<PathBuf, File>,
}

/// What is known of one file.
#[derive(Debug, Default)]
struct File {
    hash: Option<blake3::Hash>,
    /// Why it cannot be read.
    failed: Option<String>,
    /// What is wrong with it.
    wrong: Option<Problems>,
    /// The service it is for, as it was last said in it.
    service: Option<String>,
    /// The service whose policy in force came from here. It differs from the
    /// other while what the file says now is refused.
    in_force: Option<String>,
    /// The file that is for the same service and comes before this one.
    first: Option<PathBuf>,
    /// Whether it is a part of a domain's policy, which may be in several files. The first of them has all of it.
    is_sheet: bool,
    /// The other parts that its policy was put together from.
    parts: Vec<PathBuf>,
}

type Read = BTreeMap<PathBuf, Result<PolicySpec, Problems>>;

impl Known {
    pub(super) fn new(target: Target, policies: Policies) -> Self {
        Self { target, policies, signature: None, failed: None, told: None, files: BTreeMap::new() }
    }

    /// What policies know of files that another watch has read: which of them are in force. What the files hold
    /// now has to be looked at.
    pub(super) fn resumed(target: Target, policies: Policies) -> Self {
        let mut known = Self::new(target, policies);
        for (source, service) in known.policies.in_force() {
            let path = PathBuf::from(source);
            let is_there = match known.target.kind {
                Kind::File(_) => path == known.target.path,
                Kind::Folder => path.parent() == Some(&known.target.path),
            };
            if is_there {
                let file =
                    File { service: Some(service.clone()), in_force: Some(service), ..File::default() };
                known.files.insert(path, file);
            }
        }
        known
    }

    pub(super) fn is(&self, seen: &Signature) -> bool {
        self.signature.as_ref() == Some(seen)
    }

    pub(super) fn refresh(&mut self) {
        self.take(self.target.look());
    }

    /// Tells the policies what is new.
    pub(super) fn take(&mut self, look: Look) {
        self.signature = Some(look.signature());
        self.failed = look.0.as_ref().err().cloned();
        if let Ok(documents) = look.0 {
            self.take_documents(&documents);
        }
        self.tell();
    }

    fn take_documents(&mut self, documents: &Documents) {
        let mut gone = mem::take(&mut self.files);
        for path in documents.keys() {
            self.files.insert(path.clone(), gone.remove(path).unwrap_or_default());
        }
        let mut read = self.changed(documents);
        self.compare(documents, &mut read);
        self.put_together(documents, &mut read);
        for (path, read) in read {
            self.install(&path, read);
        }
        for (path, file) in gone {
            self.withdraw(&path, file.in_force);
        }
    }

    /// Reads the documents that are others than before.
    fn changed(&mut self, documents: &Documents) -> Read {
        let mut read = Read::new();
        for ((path, file), document) in self.files.iter_mut().zip(documents.values()) {
            file.failed = document.as_ref().err().cloned();
            let Ok(document) = document else { continue };
            if file.hash.replace(document.hash) == Some(document.hash) {
                continue;
            }
            let parsed = document.parse(path);
            match &parsed {
                Ok(Parsed::Policy(spec)) => {
                    (file.service, file.is_sheet) = (Some(spec.service.clone()), false);
                }
                Ok(Parsed::Sheet(sheet)) => {
                    (file.service, file.is_sheet) = (Some(sheet.domain().to_owned()), true);
                }
                Err(_) => {}
            }
            read.insert(path.clone(), parsed.and_then(Parsed::alone));
        }
        read
    }

    /// Finds files that are for the same service. The first by name has it,
    /// whichever came first: so all instances decide alike, also after a start.
    fn compare(&mut self, documents: &Documents, read: &mut Read) {
        let mut firsts: BTreeMap<String, PathBuf> = BTreeMap::new();
        for ((path, file), document) in self.files.iter_mut().zip(documents.values()) {
            let Some(service) = &file.service else { continue };
            let first = firsts.entry(service.clone()).or_insert_with(|| path.clone());
            let first = (first != path).then(|| first.clone());
            let Ok(document) = document else { continue };
            if file.first != first {
                file.first = first;
                // It is the same, but what becomes of it is not.
                read.entry(path.clone()).or_insert_with(|| document.parse(path).and_then(Parsed::alone));
            }
        }
    }

    /// Makes one policy of the files of a domain, in place of what each says alone. If one of them is wrong, all of it
    /// is: half a policy would limit half of what it should.
    fn put_together(&mut self, documents: &Documents, read: &mut Read) {
        let mut domains: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for (path, file) in self.files.iter().filter(|(_, file)| file.is_sheet) {
            let first = file.first.as_ref().unwrap_or(path);
            if self.files.get(first).is_some_and(|first| first.is_sheet) {
                domains.entry(first.clone()).or_default().extend((first != path).then(|| path.clone()));
            }
        }
        for (first, parts) in domains {
            for path in &parts {
                if let Some(file) = self.files.get_mut(path) {
                    (file.wrong, file.parts) = (None, Vec::new());
                }
            }
            let Some(file) = self.files.get_mut(&first) else { continue };
            let is_new = std::iter::once(&first).chain(&parts).any(|path| read.contains_key(path));
            if file.parts == parts && (parts.is_empty() || !is_new) {
                continue;
            }
            parts.iter().for_each(|path| drop(read.remove(path)));
            let all = || std::iter::once(&first).chain(&parts);
            let sheets: Result<Vec<Sheet>, Problems> = all().map(|path| sheet(path, documents)).collect();
            // What could not be read is looked at again, also if it comes back as it was.
            let is_readable = all().all(|path| documents.get(path).is_some_and(Result::is_ok));
            file.parts = if is_readable { parts } else { Vec::new() };
            read.insert(first, sheets.and_then(Sheet::policy));
        }
    }

    fn install(&mut self, path: &Path, read: Result<PolicySpec, Problems>) {
        let Some(file) = self.files.get_mut(path) else { return };
        let source = name(path);
        let read = read.and_then(|spec| match &file.first {
            Some(first) => Err(second_policy(path, &spec.service, first)),
            None => Ok(spec),
        });
        let new = read.as_ref().ok().map(|spec| spec.service.clone());
        let known = file.in_force.as_ref().or(file.service.as_ref());
        file.wrong = self.policies.install(&source, read, known.map(String::as_str)).err();
        if file.wrong.is_none() {
            self.came_into_force(path, new);
        }
    }

    fn came_into_force(&mut self, path: &Path, service: Option<String>) {
        for file in self.files.values_mut().filter(|file| file.in_force == service) {
            file.in_force = None;
        }
        let Some(file) = self.files.get_mut(path) else { return };
        let before = mem::replace(&mut file.in_force, service);
        let parts = file.parts.clone();
        self.withdraw(path, before);
        // What a part of it was on its own.
        for part in parts {
            let before = self.files.get_mut(&part).and_then(|file| file.in_force.take());
            self.withdraw(&part, before);
        }
    }

    /// Withdraws what came from a file, unless another one has it now.
    fn withdraw(&self, path: &Path, service: Option<String>) {
        let Some(service) = service else { return };
        let is_held = self.files.values().any(|file| file.in_force.as_ref() == Some(&service));
        if !is_held {
            self.policies.withdraw(&name(path), &service);
        }
    }

    pub(super) fn withdraw_all(&mut self) {
        for (path, file) in mem::take(&mut self.files) {
            self.withdraw(&path, file.in_force);
        }
    }

    /// Whether all is well with what was taken last.
    pub(super) fn outcome(&self) -> Result<(), FileError> {
        if let Some((path, reason)) = self.unreadable() {
            return Err(FileError::unreadable(path, reason));
        }
        let wrong: Vec<Problems> = self.files.values().filter_map(|file| file.wrong.clone()).collect();
        if wrong.is_empty() { Ok(()) } else { Err(FileError::Wrong(wrong)) }
    }

    /// The first that cannot be read, and why.
    fn unreadable(&self) -> Option<(&Path, &str)> {
        if let Some(reason) = &self.failed {
            return Some((&self.target.path, reason));
        }
        self.files.iter().find_map(|(path, file)| Some((path.as_path(), file.failed.as_deref()?)))
    }

    /// Tells whether everything can be read, if that is news. A folder is one
    /// source, however many files come and go in it.
    fn tell(&mut self) {
        let now = self.unreadable().map(|(path, reason)| match path.strip_prefix(&self.target.path) {
            Ok(within) if !within.as_os_str().is_empty() => format!("{}: {reason}", within.display()),
            _ => reason.to_owned(),
        });
        if self.told.as_ref() == Some(&now) {
            return;
        }
        match &now {
            Some(reason) => self.policies.source_failed(&name(&self.target.path), reason),
            None => self.policies.source_answered(&name(&self.target.path)),
        }
        self.told = Some(now);
    }
}

/// A part of a domain's policy as it is now.
fn sheet(path: &Path, documents: &Documents) -> Result<Sheet, Problems> {
    let wrong = |got: &str| {
        let problem = Problem::new(Place::UNKNOWN, "", got, "a part of its domain, as all files of it are");
        Err(Problems::of(&name(path), [problem]))
    };
    match documents.get(path) {
        Some(Ok(document)) => match document.parse(path)? {
            Parsed::Sheet(sheet) => Ok(sheet),
            Parsed::Policy(_) => wrong("a policy"),
        },
        Some(Err(reason)) => wrong(reason),
        None => wrong("no file"),
    }
}

/// What problems, logs and status call a file.
fn name(path: &Path) -> String {
    path.display().to_string()
}
