//! What bodies become on their way through a layer.

use bytes::Bytes;
use http::{Request, Response};
use ratekeeper::Hold;

use super::body::RequestBody;
use crate::response::ResponseBody;

/// What the bodies of requests become.
pub trait RequestBodies<B> {
    /// What the service gets.
    type Body;

    /// A request whose body nobody has touched.
    fn untouched(request: Request<B>) -> Request<Self::Body>;

    /// A body, the beginning of which may have been read.
    fn read(body: RequestBody<B>) -> Self::Body;
}

/// What the bodies of responses become.
pub trait ResponseBodies<B> {
    /// What the server gets.
    type Body;

    /// A response of the service, and what its request holds until it is sent.
    fn passed(response: Response<B>, hold: Option<Hold>) -> Response<Self::Body>;

    /// The body of a denial.
    fn denial(text: Bytes) -> Self::Body;
}

/// For any service: bodies in types of their own, which need no allocation.
#[derive(Clone, Copy, Debug)]
pub struct Wrapped;

impl<B> RequestBodies<B> for Wrapped {
    type Body = RequestBody<B>;

    fn untouched(request: Request<B>) -> Request<RequestBody<B>> {
        request.map(RequestBody::untouched)
    }

    fn read(body: RequestBody<B>) -> RequestBody<B> {
        body
    }
}

impl<B> ResponseBodies<B> for Wrapped {
    type Body = ResponseBody<B>;

    fn passed(response: Response<B>, hold: Option<Hold>) -> Response<ResponseBody<B>> {
        response.map(|body| ResponseBody::service(body, hold))
    }

    fn denial(text: Bytes) -> ResponseBody<B> {
        ResponseBody::denial(text)
    }
}

/// For axum, which has one type for all bodies: what nobody touches stays as it is, and
/// nothing has to be boxed once more.
#[cfg(feature = "axum")]
#[derive(Clone, Copy, Debug)]
pub struct Axum;

#[cfg(feature = "axum")]
impl RequestBodies<::axum::body::Body> for Axum {
    type Body = ::axum::body::Body;

    #[inline]
    fn untouched(request: Request<::axum::body::Body>) -> Request<::axum::body::Body> {
        request
    }

    fn read(body: RequestBody<::axum::body::Body>) -> ::axum::body::Body {
        body.into_body(::axum::body::Body::new)
    }
}

#[cfg(feature = "axum")]
impl ResponseBodies<::axum::body::Body> for Axum {
    type Body = ::axum::body::Body;

    #[inline]
    fn passed(response: Response<::axum::body::Body>, hold: Option<Hold>) -> Response<::axum::body::Body> {
        match hold {
            None => response,
            Some(hold) => {
                response.map(|body| ::axum::body::Body::new(ResponseBody::service(body, Some(hold))))
            }
        }
    }

    fn denial(text: Bytes) -> ::axum::body::Body {
        ::axum::body::Body::from(text)
    }
}
