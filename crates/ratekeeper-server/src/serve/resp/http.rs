//! HTTP that comes to this listener. A page can make its reader's browser send any lines to any port, behind lines of the
//! browser's own; were those merely unknown commands, the page's would be executed.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// At most one line in so long; connections in between are counted in the next.
const LOG_EVERY: Duration = Duration::from_secs(60);

pub(super) const REFUSAL: &str =
    "ERR this is HTTP, and here is the Redis protocol; expected a command. Nothing that follows is executed";

/// Whether what looks like a command is a line of HTTP: no request of a browser is without one of these before its body.
#[inline]
pub(super) fn is_line(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Connections that were ended because HTTP came, as far as they are not logged.
#[derive(Debug, Default)]
pub(super) struct Strays(Mutex<Unlogged>);

#[derive(Debug, Default)]
struct Unlogged {
    connections: u64,
    last_line: Option<Instant>,
}

impl Strays {
    #[cold]
    pub(super) fn note(&self, from: Option<IpAddr>) {
        let mut unlogged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unlogged.connections += 1;
        if unlogged.last_line.is_some_and(|last| last.elapsed() < LOG_EVERY) {
            return;
        }
        unlogged.last_line = Some(Instant::now());
        let connections = std::mem::take(&mut unlogged.connections);
        tracing::warn!(
            from = from.map(tracing::field::display),
            connections,
            "HTTP came to the listener for the Redis protocol, and the connection was ended: a page in a browser that means \
             no good, or a client with the wrong port"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::logs::tests::told;

    #[test]
    fn many_are_one_line() {
        let strays = Strays::default();
        let from = Some(IpAddr::from([192, 0, 2, 7]));
        let begun = told(|| (0..100).for_each(|_| strays.note(from)));
        assert_eq!(begun.lines().count(), 1, "{begun}");
        assert!(begun.contains("WARN") && begun.contains("from=192.0.2.7 connections=1"), "{begun}");
        strays.0.lock().unwrap().last_line = Instant::now().checked_sub(LOG_EVERY);
        assert!(told(|| strays.note(None)).contains("connections=100"));
    }
}
