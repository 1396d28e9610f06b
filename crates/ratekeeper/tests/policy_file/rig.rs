//! A folder of its own for each test, the policies that come from it, and a way
//! to wait for what must happen.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ratekeeper::policy::source::file::{FileWatch, PolicyFile};
use ratekeeper::policy::{Policies, ServiceStatus};
use tempfile::TempDir;

/// Whatever must happen happens within this time, on the slowest machine.
const DEADLINE: Duration = Duration::from_secs(20);
/// Longer than the deadline: what passes was noticed, not found by polling.
pub(crate) const NEVER: Duration = Duration::from_secs(3_600);

pub(crate) struct Rig {
    folder: TempDir,
    pub(crate) policies: Policies,
}

/// A policy of one rule, which is called like its limit.
pub(crate) fn policy(service: &str, limit: u64) -> String {
    format!("service = '{service}'\n\n[[rules]]\nname = '{limit}'\nkeys = 'all'\nquota = '{limit}/s'\n")
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            policies: Policies::builder().mode(None).build().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Watches a file, with a debounce that suits a test.
    pub(crate) fn watch(&self, name: &str) -> FileWatch {
        source(&self.path(name)).start(&self.policies).unwrap()
    }

    /// The limit in force for a service.
    pub(crate) fn limit(&self, service: &str) -> Option<u64> {
        Some(self.policies.policy(service)?.rules().next().unwrap().parse().unwrap())
    }

    /// How many rules the policy in force has.
    pub(crate) fn rules(&self, service: &str) -> usize {
        self.policies.policy(service).map_or(0, |policy| policy.rules().count())
    }

    pub(crate) fn wait_for_limit(&self, service: &str, limit: Option<u64>) {
        self.wait(|| self.limit(service) == limit);
    }

    /// How many policies came into force, of all services.
    pub(crate) fn installs(&self) -> u64 {
        self.sum(|status| status.installed)
    }

    /// How many were refused.
    pub(crate) fn refusals(&self) -> u64 {
        self.sum(|status| status.refused)
    }

    fn sum(&self, count: impl Fn(&ServiceStatus) -> u64) -> u64 {
        self.policies.status().iter().map(count).sum()
    }

    /// Why a source has failed, if it has.
    pub(crate) fn failure(&self, name: &str) -> Option<String> {
        let source = self.path(name).display().to_string();
        let mut sources = self.policies.sources_status().into_iter();
        sources.find(|status| status.source == source).expect("a source that was read is known").failure
    }

    pub(crate) fn wait(&self, mut condition: impl FnMut() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < DEADLINE, "it never came true: {:#?}", self.policies.status());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A source that is not polled, with a debounce that suits a test.
pub(crate) fn source(path: &Path) -> PolicyFile {
    PolicyFile::new(path).debounce(Duration::from_millis(20)).poll_every(NEVER)
}
