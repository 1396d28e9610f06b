//! The facts of a request as plain data.

use std::net::IpAddr;

use serde_json::Value as Json;

use super::{Body, Descriptor, Facts, Identity, JsonBody, Scalar, canonical_path};

/// The facts of a request as plain data, for whoever has no request at hand:
/// tests, replays, an API that is told about requests elsewhere.
///
/// ```
/// use ratekeeper::policy::{Addresses, Request, RequestFacts, Template};
///
/// let facts = RequestFacts::new("POST", "/v1/search?page=2")
///     .header("X-Api-Key", "abc")
///     .claim("org", "acme");
/// let template = Template::parse("{identity.org}:{header.x-api-key}:{query.page}")?;
/// let addresses = Addresses::default();
/// let subject = template.resolve(&Request::new(&facts, &addresses)).expect("all are there");
/// assert_eq!(subject.as_str(), "acme:abc:2");
/// # Ok::<(), ratekeeper::policy::SyntaxError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RequestFacts {
    method: Option<String>,
    path: Option<String>,
    query: Option<String>,
    route: Option<String>,
    headers: Vec<(String, Vec<u8>)>,
    body: JsonBody,
    peer: Option<IpAddr>,
    identity: Identity,
    descriptor: Option<Descriptor<'static>>,
}

impl RequestFacts {
    /// A request for `target`, a path with or without a query, in whatever spelling it was sent.
    #[must_use]
    pub fn new(method: impl Into<String>, target: &str) -> Self {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let path = Some(canonical_path(path).into_owned());
        Self { method: Some(method.into()), path, query, ..Self::default() }
    }

    /// Sets the route that was matched.
    #[must_use]
    pub fn route(self, route: impl Into<String>) -> Self {
        Self { route: Some(route.into()), ..self }
    }

    /// Adds a header line.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.into()));
        self
    }

    /// Sets the body, already parsed.
    #[must_use]
    pub fn json(self, body: Json) -> Self {
        Self { body: JsonBody::parsed(body), ..self }
    }

    /// Sets the body from what was read; see [`JsonBody::new`].
    #[must_use]
    pub fn body(self, bytes: &[u8]) -> Self {
        Self { body: JsonBody::new(bytes), ..self }
    }

    /// Sets a body that could not be read whole.
    #[must_use]
    pub fn unreadable_body(self) -> Self {
        Self { body: JsonBody::of(None), ..self }
    }

    /// Sets the address at the other end of the connection.
    #[must_use]
    pub fn peer(self, peer: impl Into<IpAddr>) -> Self {
        Self { peer: Some(peer.into()), ..self }
    }

    /// Adds a claim about the caller: `org`, `project`, `user`, `plan`, or any
    /// other.
    #[must_use]
    pub fn claim(self, name: &str, value: impl Into<Scalar<'static>>) -> Self {
        let identity = self.identity.claim(name.to_owned(), value);
        Self { identity, ..self }
    }

    /// Sets all that is known about the caller.
    #[must_use]
    pub fn identity(self, identity: Identity) -> Self {
        Self { identity, ..self }
    }

    /// Sets what a proxy tells instead of a request.
    #[must_use]
    pub fn descriptor(self, descriptor: Descriptor<'static>) -> Self {
        Self { descriptor: Some(descriptor), ..self }
    }
}

impl Facts for RequestFacts {
    fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    fn route(&self) -> Option<&str> {
        self.route.as_deref()
    }

    fn query_string(&self) -> Option<&str> {
        self.query.as_deref()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_slice())
    }

    fn header_from_end(&self, name: &str, back: usize) -> Option<&[u8]> {
        let mut lines = self.headers.iter().rev().filter(|(key, _)| key == name);
        lines.nth(back).map(|(_, value)| value.as_slice())
    }

    fn header_lines(&self) -> usize {
        self.headers.len()
    }

    fn body(&self) -> Body<'_> {
        self.body.as_body()
    }

    fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    fn claim(&self, name: &str) -> Option<Scalar<'_>> {
        self.identity.get(name)
    }

    fn descriptor(&self) -> Option<&Descriptor<'_>> {
        self.descriptor.as_ref()
    }
}
