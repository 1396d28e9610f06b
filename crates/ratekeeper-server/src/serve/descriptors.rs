//! Descriptors: the system gives a process so many, and every connection takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that connections leave for everything else: listeners, the store, files
/// that are watched, and a connection that is only accepted to be refused.
const RESERVED: u64 = 64;

/// Raises what the system gives to what `connections` need; returns how many of them
/// there can be.
pub(super) fn for_connections(connections: usize) -> usize {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(RESERVED);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < wanted) else { return connections };
    let raised = wanted.min(maximum.unwrap_or(wanted));
    // Only if there is something to gain: in a sandbox, asking alone may be forbidden.
    let is_raised =
        raised > current && setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok();
    let descriptors = if is_raised { raised } else { current };
    let possible = connections.min(within(descriptors));
    if possible < connections {
        tracing::warn!(
            connections_max = possible,
            asked_for = connections,
            descriptors,
            "the system gives too few file descriptors for all connections; expected a higher limit (ulimit -n, LimitNOFILE)"
        );
    }
    possible
}

/// How many connections there can be with so many descriptors.
fn within(descriptors: u64) -> usize {
    let possible = descriptors - RESERVED.min(descriptors / 2);
    usize::try_from(possible.max(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_left_for_everything_else() {
        assert_eq!(
            [within(65_536), within(1_024), within(100), within(40), within(1)],
            [65_472, 960, 50, 20, 1]
        );
    }
}
