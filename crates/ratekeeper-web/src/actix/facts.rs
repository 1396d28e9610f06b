//! The facts of a request of actix-web.

use std::borrow::Cow;
use std::cell::{OnceCell, Ref};
use std::net::{IpAddr, SocketAddr};

use actix_web::dev::Extensions;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use actix_web::{HttpMessage as _, HttpRequest};
use ratekeeper::policy::{Body, Facts, Identity, JsonBody, Scalar, canonical_path};

/// A request, as policies see it. The caller is the [`Identity`] in its extensions.
///
/// It borrows the extensions while it is there, if a rule asks for the caller.
pub struct RequestRef<'a> {
    request: &'a HttpRequest,
    /// In its one spelling, once a rule has asked for it.
    path: OnceCell<Cow<'a, str>>,
    /// Found in the map of resources, which takes a search and a copy.
    route: OnceCell<Option<String>>,
    identity: OnceCell<Option<Ref<'a, Identity>>>,
    body: Body<'a>,
}

impl<'a> RequestRef<'a> {
    /// A request whose body nobody has read.
    #[must_use]
    pub fn new(request: &'a HttpRequest) -> Self {
        let (path, route, identity) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { request, path, route, identity, body: Body::Unread }
    }

    /// The same with what was read of its body.
    #[must_use]
    pub fn body(self, body: Body<'a>) -> Self {
        Self { body, ..self }
    }
}

impl std::fmt::Debug for RequestRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestRef").field("request", &self.request).finish_non_exhaustive()
    }
}

impl Facts for RequestRef<'_> {
    fn method(&self) -> Option<&str> {
        Some(self.request.method().as_str())
    }

    fn path(&self) -> Option<&str> {
        // As the router sees it, which decodes most escapes first.
        Some(self.path.get_or_init(|| canonical_path(self.request.match_info().as_str())))
    }

    fn route(&self) -> Option<&str> {
        let find = || self.request.resource_map().match_pattern(self.request.match_info().as_str());
        self.route.get_or_init(find).as_deref()
    }

    fn query_string(&self) -> Option<&str> {
        self.request.uri().query()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.request.headers().get(name).map(HeaderValue::as_bytes)
    }

    fn header_from_end(&self, name: &str, back: usize) -> Option<&[u8]> {
        self.request.headers().get_all(name).nth_back(back).map(HeaderValue::as_bytes)
    }

    fn body(&self) -> Body<'_> {
        self.body
    }

    fn peer(&self) -> Option<IpAddr> {
        self.request.peer_addr().as_ref().map(SocketAddr::ip)
    }

    fn claim(&self, name: &str) -> Option<Scalar<'_>> {
        let find = || Ref::filter_map(self.request.extensions(), Extensions::get).ok();
        self.identity.get_or_init(find).as_deref()?.get(name)
    }
}

/// Whether policies look into the body.
pub(super) fn is_looked_into(request: &HttpRequest) -> bool {
    JsonBody::is_looked_into(request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes))
}
