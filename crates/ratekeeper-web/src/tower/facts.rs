//! The facts of a request of the `http` crate.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Uri};
use ratekeeper::policy::{Body, Facts, Identity, JsonBody, Scalar, canonical_path};

use super::response::Dialect;

/// The address at the other end of the connection, as a request extension, for
/// servers that do not put it into requests in a way of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The route that the service matched, as a request extension, for routers other
/// than axum's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route(pub String);

/// A request, as policies see it.
#[derive(Debug)]
pub struct RequestRef<'a> {
    method: &'a Method,
    /// As the service sees it; [`asked_for`] knows what was asked for.
    uri: &'a Uri,
    /// In its one spelling, once a rule has asked for it.
    path: OnceCell<Cow<'a, str>>,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    body: Body<'a>,
}

impl<'a> RequestRef<'a> {
    /// A request of which these are the parts, and whose body nobody has read.
    #[must_use]
    pub fn new(parts: &'a Parts) -> Self {
        let Parts { method, uri, headers, extensions, .. } = parts;
        Self { method, uri, path: OnceCell::new(), headers, extensions, body: Body::Unread }
    }

    /// A request whose body nobody has read.
    #[must_use]
    pub fn of<B>(request: &'a Request<B>) -> Self {
        let (headers, extensions) = (request.headers(), request.extensions());
        let (method, uri, path) = (request.method(), request.uri(), OnceCell::new());
        Self { method, uri, path, headers, extensions, body: Body::Unread }
    }

    /// The same with what was read of its body.
    #[must_use]
    pub fn body(self, body: Body<'a>) -> Self {
        Self { body, ..self }
    }
}

impl Facts for RequestRef<'_> {
    fn method(&self) -> Option<&str> {
        Some(self.method.as_str())
    }

    fn path(&self) -> Option<&str> {
        Some(self.path.get_or_init(|| canonical_path(asked_for(self.uri, self.extensions).path())))
    }

    fn route(&self) -> Option<&str> {
        #[cfg(feature = "axum")]
        if let Some(matched) = self.extensions.get::<::axum::extract::MatchedPath>() {
            return Some(matched.as_str());
        }
        if let Some(Route(route)) = self.extensions.get() {
            return Some(route);
        }
        // The path of a gRPC call names its method.
        if Dialect::of(self.method, self.headers).is_grpc() { self.path() } else { None }
    }

    fn query_string(&self) -> Option<&str> {
        asked_for(self.uri, self.extensions).query()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name).map(http::HeaderValue::as_bytes)
    }

    fn header_from_end(&self, name: &str, back: usize) -> Option<&[u8]> {
        self.headers.get_all(name).iter().rev().nth(back).map(http::HeaderValue::as_bytes)
    }

    fn body(&self) -> Body<'_> {
        self.body
    }

    fn peer(&self) -> Option<IpAddr> {
        peer(self.extensions)
    }

    fn claim(&self, name: &str) -> Option<Scalar<'_>> {
        self.extensions.get::<Identity>()?.get(name)
    }
}

/// What was asked for. A router within another one sees its own part of the path, but two
/// of those parts may look the same.
fn asked_for<'a>(uri: &'a Uri, extensions: &'a Extensions) -> &'a Uri {
    #[cfg(feature = "axum")]
    if let Some(::axum::extract::OriginalUri(original)) = extensions.get() {
        return original;
    }
    #[cfg(not(feature = "axum"))]
    let _ = extensions;
    uri
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(::axum::extract::ConnectInfo(peer)) =
        extensions.get::<::axum::extract::ConnectInfo<SocketAddr>>()
    {
        return Some(peer.ip());
    }
    if let Some(Peer(peer)) = extensions.get() {
        return Some(*peer);
    }
    #[cfg(feature = "tonic")]
    if let Some(info) = extensions.get::<::tonic::transport::server::TcpConnectInfo>() {
        return info.remote_addr().as_ref().map(SocketAddr::ip);
    }
    extensions.get::<SocketAddr>().map(SocketAddr::ip)
}

/// Whether policies look into the body.
pub(super) fn is_looked_into(headers: &HeaderMap) -> bool {
    JsonBody::is_looked_into(headers.get(http::header::CONTENT_TYPE).map(http::HeaderValue::as_bytes))
}
