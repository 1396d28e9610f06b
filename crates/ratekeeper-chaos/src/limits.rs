//! The limits under which the load runs, twice: as policies for those that ask, and as numbers for the checker.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// How a quota counts, in the checker's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// At most the limit in each window; windows begin with a call and do not overlap.
    Windows,
    /// At most the limit in any stretch of a window's length.
    Trailing,
    /// A bucket of the burst that is filled with the limit per window.
    Bucket { burst: u64 },
}

/// A quota that the checker holds admissions against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) rule: &'static str,
    pub(crate) kind: Kind,
    pub(crate) limit: u64,
    pub(crate) window_micros: u64,
    /// Whose quota it is.
    pub(crate) subject: Subject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Tenant,
    Address,
}

/// A service whose policy is loaded, with its rules.
pub(crate) struct Service {
    pub(crate) name: &'static str,
    /// What its rules say to an outage.
    on_outage: &'static str,
    pub(crate) limits: &'static [Limit],
}

/// So many tenants ask, ...
pub(crate) const TENANTS: usize = 8;
/// ... from so many addresses.
pub(crate) const ADDRESSES: usize = 3;

const SECOND: u64 = 1_000_000;

/// Each service has another algorithm and another answer to an outage. The last has two counters, which lie in two
/// slots or on two servers where there are several; it denies in an outage, so that what the store admits is charged to both.
pub(crate) const SERVICES: [Service; 4] = [
    Service {
        name: "windows",
        on_outage: "allow",
        limits: &[Limit {
            rule: "per-tenant",
            kind: Kind::Windows,
            limit: 8,
            window_micros: SECOND,
            subject: Subject::Tenant,
        }],
    },
    Service {
        name: "log",
        on_outage: "deny",
        limits: &[Limit {
            rule: "per-tenant",
            kind: Kind::Trailing,
            limit: 8,
            window_micros: SECOND,
            subject: Subject::Tenant,
        }],
    },
    Service {
        name: "bucket",
        on_outage: "local",
        limits: &[Limit {
            rule: "per-tenant",
            kind: Kind::Bucket { burst: 16 },
            limit: 8,
            window_micros: SECOND,
            subject: Subject::Tenant,
        }],
    },
    Service {
        name: "pair",
        on_outage: "deny",
        limits: &[
            Limit {
                rule: "per-tenant",
                kind: Kind::Windows,
                limit: 16,
                window_micros: 2 * SECOND,
                subject: Subject::Tenant,
            },
            Limit {
                rule: "per-address",
                kind: Kind::Trailing,
                limit: 40,
                window_micros: 2 * SECOND,
                subject: Subject::Address,
            },
        ],
    },
];

impl Limit {
    /// The quota as policies have it, with `times` the limit.
    fn text(&self, times: u64) -> String {
        let (limit, seconds) = (self.limit * times, self.window_micros / SECOND);
        match self.kind {
            Kind::Windows => format!("{limit}/{seconds}s fixed_window"),
            Kind::Trailing => format!("{limit}/{seconds}s sliding_log"),
            Kind::Bucket { burst } => format!("{limit}/{seconds}s burst {}", burst * times),
        }
    }
}

impl Service {
    pub(crate) fn named(name: &str) -> Option<(usize, &'static Self)> {
        SERVICES.iter().enumerate().find(|(_, service)| service.name == name)
    }

    /// Its policy, with `times` the limits.
    pub(crate) fn policy(&self, times: u64) -> String {
        let mut text = format!("service = \"{}\"\non_outage = \"{}\"\n", self.name, self.on_outage);
        for limit in self.limits {
            let key = match limit.subject {
                Subject::Tenant => "tenant:{identity.tenant}",
                Subject::Address => "address:{identity.address}",
            };
            let (rule, quota) = (limit.rule, limit.text(times));
            let _ = write!(text, "[[rules]]\nname = \"{rule}\"\nkeys = \"{key}\"\nquota = \"{quota}\"\n");
        }
        text
    }
}

/// Writes a policy for each service into a folder.
pub(crate) fn write_policies(folder: &Path, times: u64) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for service in &SERVICES {
        fs::write(folder.join(format!("{}.toml", service.name)), service.policy(times))?;
    }
    Ok(())
}
