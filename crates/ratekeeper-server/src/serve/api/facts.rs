//! A request that a caller tells about, as policies see it.

use std::borrow::Cow;
use std::net::IpAddr;

use ratekeeper::policy::{Body, Facts, Scalar, parameter_of};
use serde_json::Value as Json;

use super::call::PolicyRequest;
use super::problem::Problem;
use super::value::{Query, Text};

/// The facts in a call. The body is parsed when it turns out that a rule looks into it.
#[derive(Debug)]
pub(super) struct CallFacts<'c> {
    call: &'c PolicyRequest<'c>,
    path: Option<&'c str>,
    query: Option<&'c str>,
    peer: Option<IpAddr>,
    body: Option<Json>,
}

impl<'c> CallFacts<'c> {
    pub(super) fn new(call: &'c PolicyRequest<'c>) -> Result<Self, Problem> {
        let peer = call.client.as_ref().map(|client| {
            client.as_str().parse().map_err(|_| Problem::wrong("client", "an IPv4 or IPv6 address"))
        });
        let target = call.path.as_ref().map(Text::as_str);
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
        Ok(Self { call, path, query, peer: peer.transpose()?, body: None })
    }

    /// Parses the body, for rules that look into it.
    pub(super) fn read_body(&mut self) -> Result<(), Problem> {
        if let Some(body) = self.call.body {
            let body = serde_json::from_str(body.get());
            self.body = Some(body.map_err(|_| Problem::wrong("body", "JSON that is nested less deep"))?);
        }
        Ok(())
    }
}

impl Facts for CallFacts<'_> {
    fn method(&self) -> Option<&str> {
        self.call.method.as_ref().map(Text::as_str)
    }

    fn path(&self) -> Option<&str> {
        self.path
    }

    fn route(&self) -> Option<&str> {
        self.call.route.as_ref().map(Text::as_str)
    }

    fn query_string(&self) -> Option<&str> {
        self.query
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let headers = self.call.headers.as_ref()?;
        let mut of_name = headers.0.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        of_name.find_map(|(_, lines)| lines.nth(0)).map(str::as_bytes)
    }

    fn header_from_end(&self, name: &str, back: usize) -> Option<&[u8]> {
        let headers = self.call.headers.as_ref()?;
        let mut back = back;
        for (_, lines) in headers.0.iter().rev().filter(|(known, _)| known.eq_ignore_ascii_case(name)) {
            if let Some(line) = lines.nth_from_end(back) {
                return Some(line.as_bytes());
            }
            back -= (0..).take_while(|index| lines.nth(*index).is_some()).count();
        }
        None
    }

    fn body(&self) -> Body<'_> {
        self.body.as_ref().map_or(Body::Absent, Body::Json)
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
