//! A request that a caller tells about, as policies see it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ratekeeper::policy::{Body, Facts, JsonBody, Scalar, canonical_path, parameter_of};

use super::call::PolicyRequest;
use super::problem::Problem;
use super::value::{Pairs, Query, Text};

/// The facts in a call. The body is parsed when it turns out that a rule looks into it.
#[derive(Debug)]
pub(super) struct CallFacts<'c> {
    call: &'c PolicyRequest<'c>,
    path: Option<Cow<'c, str>>,
    query: Option<&'c str>,
    peer: Option<IpAddr>,
    body: Option<JsonBody>,
}

impl<'c> CallFacts<'c> {
    pub(super) fn new(call: &'c PolicyRequest<'c>) -> Result<Self, Problem> {
        let peer = call.client.as_ref().map(|client| {
            let expected = "an IPv4 or IPv6 address, with a port or without";
            address(client.as_str()).ok_or_else(|| Problem::wrong("client", expected))
        });
        let target = call.path.as_ref().map(|path| split_origin(path.as_str()).1);
        let (path, mut query) = match target.and_then(|target| target.split_once('?')) {
            Some((path, query)) => (Some(path), Some(query)),
            None => (target, None),
        };
        match &call.query {
            Some(_) if query.is_some() => {
                return Err(Problem::wrong("query", "nothing beside a path that has a query"));
            }
            Some(Query::Sent(sent)) => query = Some(sent),
            Some(Query::Decoded(_)) | None => {}
        }
        if call.body.is_some() && call.is_unreadable() {
            return Err(Problem::wrong("body_unreadable", "nothing beside a body"));
        }
        let path = path.map(canonical_path);
        Ok(Self { call, path, query, peer: peer.transpose()?, body: None })
    }

    /// Parses the body, for rules that look into it.
    pub(super) fn read_body(&mut self) {
        if self.call.is_unreadable() {
            self.body = Some(JsonBody::of(None));
        } else if let Some(body) = self.call.body {
            self.body = Some(JsonBody::new(body.get().as_bytes()));
        }
    }
}

impl PolicyRequest<'_> {
    /// Whether the caller says that there is a body which nobody can read.
    fn is_unreadable(&self) -> bool {
        self.body_unreadable == Some(true)
    }
}

/// The host that may stand before the path of a target, and the rest: `http://host/path` is as good a first line of a
/// request as `/path` (RFC 9112, section 3.2.2), and servers route it by its path. What looks like a scheme further
/// behind, as in `/search?u=http://host/`, is a part of the path or of the query.
pub(super) fn split_origin(target: &str) -> (Option<&str>, &str) {
    let is_scheme = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let Some((_, rest)) = target.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return (None, target);
    };
    let (authority, path) = rest.find(['/', '?']).map_or((rest, "/"), |at| rest.split_at(at));
    // Who is calling may stand before it.
    (Some(authority.rsplit_once('@').map_or(authority, |(_, host)| host)), path)
}

/// An address, also as most programs write the other end of a connection: with its port.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    bare().or_else(with_port).or_else(in_brackets)
}

impl Facts for CallFacts<'_> {
    fn method(&self) -> Option<&str> {
        self.call.method.as_ref().map(Text::as_str)
    }

    fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    fn route(&self) -> Option<&str> {
        self.call.route.as_ref().map(Text::as_str)
    }

    fn query_string(&self) -> Option<&str> {
        self.query
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let headers = self.call.headers.as_ref()?;
        let mut of_name = headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        of_name.find_map(|(_, lines)| lines.nth(0)).map(str::as_bytes)
    }

    fn header_from_end(&self, name: &str, back: usize) -> Option<&[u8]> {
        let headers = self.call.headers.as_ref()?;
        let mut back = back;
        for (_, lines) in headers.iter().rev().filter(|(known, _)| known.eq_ignore_ascii_case(name)) {
            if let Some(line) = lines.nth_from_end(back) {
                return Some(line.as_bytes());
            }
            back -= (0..).take_while(|index| lines.nth(*index).is_some()).count();
        }
        None
    }

    fn header_lines(&self) -> usize {
        self.call.headers.as_ref().map_or(0, Pairs::len)
    }

    fn body(&self) -> Body<'_> {
        self.body.as_ref().map_or(Body::Absent, JsonBody::as_body)
    }

    fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    fn claim(&self, name: &str) -> Option<Scalar<'_>> {
        Some(match &self.call.identity.as_ref()?.get(name)?.0 {
            Scalar::Text(text) => Scalar::Text(Cow::Borrowed(text)),
            Scalar::Integer(number) => Scalar::Integer(*number),
            Scalar::Large(number) => Scalar::Large(*number),
            Scalar::Float(number) => Scalar::Float(*number),
            Scalar::Bool(truth) => Scalar::Bool(*truth),
        })
    }

    fn query(&self, name: &str) -> Option<Cow<'_, str>> {
        if let Some(Query::Decoded(parameters)) = &self.call.query {
            return parameters.get(name).map(|value| Cow::Borrowed(value.as_str()));
        }
        parameter_of(self.query?, name)
    }
}
