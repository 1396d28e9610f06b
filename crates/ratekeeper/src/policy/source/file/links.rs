//! Which folders decide what is found under a path.
//!
//! Kubernetes replaces a `ConfigMap` by renaming a link: `policy.toml` leads to
//! `..data/policy.toml`, and `..data` to a folder with a date for a name. So the
//! folder of every link on the way is watched, not only the last one.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// How many links are followed, as on Linux.
const LINKS_MAX: usize = 40;

/// The way to a file.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// The folders in which the way can change, without links in their names.
    pub(super) folders: BTreeSet<PathBuf>,
    /// The names on the way: what else happens in those folders matters to
    /// nobody.
    pub(super) names: HashSet<OsString>,
}

enum Step {
    Root(PathBuf),
    Up,
    Into(OsString),
}

impl Way {
    /// Adds the way to `path`, as far as it exists; where it ends, the rest may
    /// appear. Returns where it leads.
    pub(super) fn add(&mut self, path: &Path) -> Option<PathBuf> {
        let path = std::path::absolute(path).ok()?;
        let mut ahead = steps(&path);
        let (mut at, mut links) = (PathBuf::new(), 0);
        while let Some(step) = ahead.pop_front() {
            let name = match step {
                Step::Root(root) => {
                    at.push(root);
                    continue;
                }
                Step::Up => {
                    at.pop();
                    continue;
                }
                Step::Into(name) => name,
            };
            let next = at.join(&name);
            self.names.insert(name);
            let metadata = fs::symlink_metadata(&next).ok();
            let is_link = metadata.as_ref().is_some_and(fs::Metadata::is_symlink);
            if is_link || metadata.is_none() || ahead.is_empty() {
                self.folders.insert(at.clone());
            }
            if !is_link {
                metadata?;
                at = next;
                continue;
            }
            links += 1;
            let target = fs::read_link(&next).ok().filter(|_| links <= LINKS_MAX)?;
            for step in steps(&target).into_iter().rev() {
                ahead.push_front(step);
            }
        }
        Some(at)
    }
}

/// A root replaces what is before it, which is what [`PathBuf::push`] does too.
fn steps(path: &Path) -> VecDeque<Step> {
    let step = |component: Component<'_>| match component {
        Component::Prefix(_) | Component::RootDir => Some(Step::Root(PathBuf::from(component.as_os_str()))),
        Component::CurDir => None,
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Into(name.to_owned())),
    };
    path.components().filter_map(step).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn way(path: &Path) -> (Vec<PathBuf>, Option<PathBuf>) {
        let mut way = Way::default();
        let leads_to = way.add(path);
        (way.folders.into_iter().collect(), leads_to)
    }

    #[test]
    fn every_folder_with_a_link_is_on_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("..1")).unwrap();
        fs::write(root.join("..1/policy.toml"), "").unwrap();
        symlink("..1", root.join("..data")).unwrap();
        symlink("..data/policy.toml", root.join("policy.toml")).unwrap();
        let expected = (vec![root.clone(), root.join("..1")], Some(root.join("..1/policy.toml")));
        assert_eq!(way(&root.join("policy.toml")), expected);
        assert_eq!(way(&root.join("..1/../policy.toml")), expected);

        fs::create_dir(root.join("elsewhere")).unwrap();
        symlink(root.join("policy.toml"), root.join("elsewhere/link.toml")).unwrap();
        let (folders, leads_to) = way(&root.join("elsewhere/link.toml"));
        assert_eq!(folders, [root.clone(), root.join("..1"), root.join("elsewhere")]);
        assert_eq!(leads_to, expected.1);
    }

    #[test]
    fn what_is_missing_is_expected_where_the_way_ends() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        assert_eq!(way(&root.join("a/b/policy.toml")), (vec![root.clone()], None));
        symlink("a/b", root.join("dangling")).unwrap();
        assert_eq!(way(&root.join("dangling")), (vec![root.clone()], None));
        symlink("circle", root.join("circle")).unwrap();
        assert_eq!(way(&root.join("circle")), (vec![root.clone()], None));
    }
}
