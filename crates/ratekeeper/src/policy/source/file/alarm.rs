//! Says when to look: the operating system's notifications.
//!
//! They are a help, not a promise. What cannot be watched is found by polling.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::links::Way;
use super::look::{Kind, Target};
use super::read;

/// Wakes the thread when something has happened on the way to the files.
pub(super) struct Alarm {
    wake: SyncSender<()>,
    watcher: Option<RecommendedWatcher>,
    watched: Vec<PathBuf>,
    /// Read by the watcher's thread, written whenever it is armed.
    concern: Arc<Mutex<Concern>>,
    /// So that a watch that is refused is logged once.
    is_deaf: bool,
}

/// What matters of all that happens in the folders.
#[derive(Default)]
struct Concern {
    names: HashSet<OsString>,
    is_folder: bool,
}

impl Alarm {
    pub(super) fn new(wake: SyncSender<()>) -> Self {
        Self { wake, watcher: None, watched: Vec::new(), concern: Arc::default(), is_deaf: false }
    }

    /// Watches every folder that decides what is found. All of them anew, each
    /// time: the same name may be another folder by now.
    pub(super) fn arm(&mut self, target: &Target) {
        let mut way = Way::default();
        let leads_to = way.add(&target.path);
        let is_folder = matches!(target.kind, Kind::Folder);
        if is_folder {
            way.folders.extend(leads_to);
            for path in read::names(&target.path).unwrap_or_default() {
                way.add(&path);
            }
        }
        *self.concern.lock().unwrap_or_else(PoisonError::into_inner) =
            Concern { names: way.names, is_folder };
        let result = self.watch(way.folders.into_iter().collect());
        if let Err(error) = &result
            && !self.is_deaf
        {
            let path = target.path.display();
            tracing::warn!(%path, %error, "policy file cannot be watched, changes are found by polling");
        }
        self.is_deaf = result.is_err();
    }

    fn watch(&mut self, folders: Vec<PathBuf>) -> notify::Result<()> {
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            none => none.insert(watcher(self.wake.clone(), Arc::clone(&self.concern))?),
        };
        for folder in self.watched.drain(..) {
            // It may be gone, and its watch with it.
            let _ = watcher.unwatch(&folder);
        }
        self.watched = folders;
        // One that cannot be watched does not keep the others from it.
        let watch = |folder| watcher.watch(folder, RecursiveMode::NonRecursive);
        let results: Vec<_> = self.watched.iter().map(PathBuf::as_path).map(watch).collect();
        results.into_iter().collect()
    }
}

fn watcher(wake: SyncSender<()>, concern: Arc<Mutex<Concern>>) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        let is_concern = match event {
            Ok(event) => concern.lock().unwrap_or_else(PoisonError::into_inner).is_about(&event),
            Err(_) => true,
        };
        if is_concern {
            // If there is no room, a wake-up is waiting already.
            let _ = wake.try_send(());
        }
    })
}

impl Concern {
    fn is_about(&self, event: &Event) -> bool {
        // Reading is not changing; we read ourselves.
        if matches!(event.kind, EventKind::Access(_)) {
            return false;
        }
        let is_known = |name: &OsStr| self.names.contains(name) || (self.is_folder && read::is_policy(name));
        event.need_rescan()
            || event.paths.is_empty()
            || event.paths.iter().filter_map(|path| path.file_name()).any(is_known)
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("watched", &self.watched).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{AccessKind, CreateKind, Flag, ModifyKind};

    #[test]
    fn reading_and_other_files_wake_nobody() {
        let (write, read) = (EventKind::Modify(ModifyKind::Any), EventKind::Access(AccessKind::Any));
        let made = EventKind::Create(CreateKind::Any);
        let names = HashSet::from(["..data".into(), "policy.toml".into()]);
        // What happened, to which file, and whether it matters to a file and to
        // a folder.
        let cases = [
            (write, "/etc/policy.toml", true, true),
            (read, "/etc/policy.toml", false, false),
            (made, "/etc/..data", true, true),
            (write, "/etc/other.log", false, false),
            (made, "/etc/other.toml", false, true),
            (made, "/etc/.other.toml", false, false),
        ];
        for (kind, path, to_a_file, to_a_folder) in cases {
            let event = Event::new(kind).add_path(path.into());
            for (is_folder, expected) in [(false, to_a_file), (true, to_a_folder)] {
                let concern = Concern { names: names.clone(), is_folder };
                assert_eq!(concern.is_about(&event), expected, "{event:?}, {is_folder}");
            }
        }
        let lost = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert!(Concern::default().is_about(&lost), "events were lost: anything may have happened");
    }
}
