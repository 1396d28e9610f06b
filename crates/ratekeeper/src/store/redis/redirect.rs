//! What a node of a cluster says of keys that it does not have: where to go. It has done nothing then.

use std::fmt;

use redis::RedisError;

/// The longest name of a host that is followed, in bytes.
pub(super) const HOST_BYTES_MAX: usize = 255;

/// Where the keys of a call are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// On another node, from now on.
    Moved(Place),
    /// Perhaps on another node already, which is to be asked this once.
    Ask(Place),
    /// Some are here, some on another node: in between.
    TryAgain,
    /// On no node: their slot is not covered.
    NotServed,
}

/// Where a node is. The host is empty if it is that of the node that said so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Place {
    /// `host:port`; an address of IPv6 stands in brackets or not.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0)?;
        (host.len() <= HOST_BYTES_MAX).then(|| Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Redirect {
    /// `None` of an error that is none.
    pub(super) fn of(error: &RedisError) -> Option<Self> {
        let detail = error.detail().unwrap_or_default();
        match error.code()? {
            "MOVED" => place(detail).map(Self::Moved),
            "ASK" => place(detail).map(Self::Ask),
            // The call that was to bring the script was sent elsewhere.
            "TRYAGAIN" | "NOSCRIPT" => Some(Self::TryAgain),
            // The other reason to be down is that of all keys.
            "CLUSTERDOWN" if detail.contains("not served") => Some(Self::NotServed),
            _ => None,
        }
    }
}

/// `slot host:port`.
fn place(detail: &str) -> Option<Place> {
    Place::read(detail.split_ascii_whitespace().nth(1)?)
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved(place) => write!(f, "its keys have moved to {place}"),
            Self::Ask(place) => write!(f, "its keys are moving to {place}"),
            Self::TryAgain => f.write_str("its keys are moving"),
            Self::NotServed => f.write_str("no node has the slot of its keys"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(code: &str, detail: &str) -> Option<Redirect> {
        Redirect::of(&redis::make_extension_error(code.to_owned(), Some(detail.to_owned())))
    }

    #[test]
    fn nodes_say_where_keys_are() {
        let place = |host: &str, port| Place { host: host.to_owned(), port };
        let cases = [
            ("MOVED", "3999 127.0.0.1:6381", Some(Redirect::Moved(place("127.0.0.1", 6381)))),
            ("MOVED", "3999 :6381", Some(Redirect::Moved(place("", 6381)))),
            ("ASK", "3999 fe80::1:6381", Some(Redirect::Ask(place("fe80::1", 6381)))),
            ("TRYAGAIN", "Multiple keys request during rehashing of slot", Some(Redirect::TryAgain)),
            ("CLUSTERDOWN", "Hash slot not served", Some(Redirect::NotServed)),
            ("CLUSTERDOWN", "The cluster is down", None),
            ("MOVED", "3999", None),
            ("MOVED", "3999 host:0", None),
            ("MOVED", "3999 host:70000", None),
            ("ERR", "MOVED 3999 127.0.0.1:6381", None),
        ];
        for (code, detail, expected) in cases {
            assert_eq!(redirect(code, detail), expected, "{code} {detail}");
        }
    }
}
