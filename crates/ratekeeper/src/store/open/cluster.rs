//! The part of a URL behind `redis+cluster://`: a few nodes of the cluster, which know the others, and who to be to them.

use super::hosts::Listed;

/// The most nodes of a cluster that a URL may name. They know the others.
pub const CLUSTER_SEEDS_MAX: usize = 16;
/// The port of a node, unless the URL names another.
const NODE_PORT: u16 = 6_379;
const NODES: Listed = Listed { what: "node", port: NODE_PORT, max: CLUSTER_SEEDS_MAX };
/// What may stand in the query.
const PARAMETER: &str = "protocol=";

/// `[user:password@]host[:port][,host[:port]][?query]`, taken apart.
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "a program without it only checks URLs"))]
pub(super) struct Nodes<'u> {
    /// With the `@` behind it.
    login: &'u str,
    pub(super) hosts: Vec<(&'u str, u16)>,
    query: &'u str,
}

impl<'u> Nodes<'u> {
    /// Or what is wrong, without anything that could be a password.
    pub(super) fn read(rest: &'u str) -> Result<Self, String> {
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before.split_once('/').unwrap_or((before, ""));
        if !path.is_empty() && path != "0" {
            return Err("a database of a cluster, which has number 0 only".to_owned());
        }
        let hosts_at = authority.rfind('@').map_or(0, |at| at + 1);
        let (login, hosts) = authority.split_at(hosts_at);
        if query.split('&').any(|pair| !pair.is_empty() && !pair.starts_with(PARAMETER)) {
            return Err("an unknown parameter".to_owned());
        }
        Ok(Self { login, hosts: NODES.read(hosts)?, query })
    }

    /// The URL of the first node.
    #[cfg(feature = "redis")]
    pub(super) fn server(&self, is_tls: bool) -> String {
        let scheme = if is_tls { "rediss" } else { "redis" };
        let (host, port) = self.hosts.first().copied().unwrap_or_default();
        format!("{scheme}://{}{host}:{port}/0?{}", self.login, self.query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_ports_and_one_login() {
        let read = Nodes::read("ann:p%40ss@a:7000,[::1]:7001,b").unwrap();
        assert_eq!(read.hosts, [("a", 7_000), ("[::1]", 7_001), ("b", NODE_PORT)]);
        assert_eq!(read.login, "ann:p%40ss@");
        for (text, why) in [
            ("a/1", "a database of a cluster, which has number 0 only"),
            ("a,", "a node without a host"),
            ("a:0", "a node whose port is no number from 1 to 65535"),
            ("a?service=x", "an unknown parameter"),
        ] {
            assert_eq!(Nodes::read(text).err().as_deref(), Some(why), "{text}");
        }
        assert!(Nodes::read(&vec!["a"; CLUSTER_SEEDS_MAX + 1].join(",")).is_err());
    }
}
