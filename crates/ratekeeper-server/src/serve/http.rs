//! HTTP/1.1 and HTTP/2 on a connection: which call it is, its body within bounds, its answer.
//!
//! There is no framework between a connection and a call: hyper reads the head, a table
//! has the call, and most calls are answered without waiting for anything.

mod answer;
pub(super) mod body;
mod connection;
mod framing;
mod head;
mod response;
pub(super) mod room;
mod watched;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ratekeeper::policy::Network;

use self::answer::AnswerBody;
use self::connection::Connection;
use self::response::{no_room, refused, response, response_in, unread};
use self::room::{Room, Taken};
use super::admin::{Admin, Caller};
use super::api::{Answer, Api, Problem};
use super::calls::{Access, Asked, Body, Call, Endpoint, Method};
use super::http2::STREAM_HEADS_BYTES_MAX;
use super::listener::{Finishing, Place, Protocol, Serving, Stop, Stream};
use super::origin::is_of_a_page;
use super::otlp::{Collector, Exporting, Tracer};

/// The longest body of a call, in bytes.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// The longest body of a batch, in bytes.
pub const BATCH_BYTES_MAX: usize = 2 << 20;
/// The most bytes of memory that the bodies of all calls and their answers take together,
/// unless told otherwise. Short ones are not counted: they are part of what a connection takes.
pub const BODIES_BYTES_MAX: usize = 64 << 20;
/// The same for answers that only tell, such as metrics: they are there also when calls
/// have no room left.
pub const TOLD_BYTES_MAX: usize = 16 << 20;
/// The most bytes that are kept of a head that is not complete.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most header lines of a request.
pub const HEAD_LINES_MAX: usize = 64;
/// How long a connection may be without a request under way, unless told otherwise;
/// it is noticed after twice that at the latest.
pub const IDLE_DEFAULT: Duration = Duration::from_secs(30);
/// How long is waited for a body, unless told otherwise.
pub const BODY_WAIT_DEFAULT: Duration = Duration::from_secs(10);

/// What is said on a connection that is one too many.
const TOO_MANY: &str = "too many connections";

/// The HTTP API as something that listens.
#[derive(Debug)]
pub struct Http {
    api: Arc<Api>,
    admin: Arc<Admin>,
    stop: Stop,
    idle: Duration,
    body_wait: Duration,
    bodies: Room,
    told: Room,
    /// What the heads of streams of HTTP/2 take.
    heads: Room,
    tracer: Option<Arc<Tracer>>,
    side: Side,
    /// Whose word is taken for the requests of others.
    gateways: Vec<Network>,
    /// Of calls that take no token.
    nobody: Caller,
}

/// Which calls a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    All,
    /// Those that take no token.
    Callers,
    /// Those that take one, pages that make them, and what monitoring asks.
    Operators,
}

impl Side {
    fn serves(self, call: &Call) -> bool {
        match self {
            Self::All => true,
            Self::Callers => !call.access.takes_token() && call.access != Access::Page,
            Self::Operators => match call.access {
                Access::Anyone => call.method == Method::Get,
                access => access != Access::Gateway,
            },
        }
    }
}

impl Http {
    /// Serves `api`, what is for operators to those that `admin` admits.
    #[must_use]
    pub fn new(api: Arc<Api>, admin: impl Into<Arc<Admin>>, stop: Stop) -> Self {
        Self {
            api,
            admin: admin.into(),
            stop,
            idle: IDLE_DEFAULT,
            body_wait: BODY_WAIT_DEFAULT,
            bodies: Room::of(BODIES_BYTES_MAX),
            told: Room::of(TOLD_BYTES_MAX),
            heads: Room::of(STREAM_HEADS_BYTES_MAX),
            tracer: None,
            side: Side::All,
            gateways: Vec::new(),
            nobody: Caller::named(""),
        }
    }

    /// The networks that gateways call from. Without any, none may tell about the requests of others.
    #[must_use]
    pub fn gateways(self, gateways: Vec<Network>) -> Self {
        Self { gateways, ..self }
    }

    /// The calls that take a token apart from all others, for a listener of their own: first what callers are served,
    /// then what operators are.
    #[must_use]
    pub fn operators_apart(self) -> (Self, Self) {
        let operators = Self {
            tracer: self.tracer.clone(),
            idle: self.idle,
            body_wait: self.body_wait,
            side: Side::Operators,
            ..Self::new(Arc::clone(&self.api), Arc::clone(&self.admin), self.stop.clone())
        };
        (Self { side: Side::Callers, ..self }, operators)
    }

    /// The most bytes that the bodies of all calls and their answers take together; see [`BODIES_BYTES_MAX`].
    #[must_use]
    pub fn bodies_max(self, bytes: usize) -> Self {
        Self { bodies: Room::of(bytes), ..self }
    }

    /// How long a connection may be without a request, and how long is waited for a body.
    #[must_use]
    pub fn patience(self, idle: Duration, body_wait: Duration) -> Self {
        Self { idle, body_wait, ..self }
    }

    /// Sends traces and metrics to a collector, within a tokio runtime; what is returned
    /// sends what is left when everything has been served.
    #[must_use]
    pub fn traced(self, collector: Collector) -> (Self, Exporting) {
        let tracer = Arc::new(Tracer::default());
        let sending = collector.start(Arc::clone(&self.api), Arc::clone(&tracer), self.stop.clone());
        (Self { tracer: Some(tracer), ..self }, sending)
    }

    /// Finds the call and answers it.
    async fn call(
        &self,
        request: http::Request<Incoming>,
        place: &Place,
        from: Option<IpAddr>,
    ) -> (Endpoint, Response<AnswerBody>) {
        let (head, body) = request.into_parts();
        let endpoint = Endpoint::at(head.uri.path());
        let call = endpoint.call();
        if let Err(problem) = head::sound(&head) {
            return (endpoint, unread(problem));
        }
        let response = match call {
            _ if place.is_spare() && call.is_none_or(|call| call.access != Access::Monitoring) => {
                self.api.metrics.connection_refused();
                unread(Problem::new(503, TOO_MANY))
            }
            None => response(Problem::new(404, "there is no such call; /openapi.json tells of all").into()),
            Some(call) if !self.side.serves(call) => refused(
                Problem::new(404, "another listener of this server serves this call").into(),
                call.body,
            ),
            Some(call) if !call.method.is(&head.method) => {
                let allowed = call.method.allow();
                let mut response = response(Problem::new(405, format!("expected {allowed}")).into());
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
                response
            }
            Some(call) if call.access == Access::Page && self.admin.is_off() => {
                refused(Admin::off().into(), call.body)
            }
            // Without a value to move: this is the way of every call.
            Some(call) if !call.access.takes_token() => match self.admitted(call, &head, from) {
                Ok(()) => self.answer(call, &self.nobody, (&head, body)).await,
                Err(problem) => refused(problem.into(), call.body),
            },
            Some(call) => match self.admin.admits(&head, call.access, from) {
                Ok(caller) => self.answer(call, &caller, (&head, body)).await,
                Err(refusal) => refused(refusal, call.body),
            },
        };
        (endpoint, response)
    }

    /// Calls that take a token have a rule of their own. Of all others, those that change
    /// or tell something of counters are not for pages in browsers, and what gateways tell is not for others.
    fn admitted(&self, call: &Call, head: &Parts, from: Option<IpAddr>) -> Result<(), Problem> {
        match call.method {
            _ if call.access == Access::Gateway && !self.is_gateway(from) => Err(Problem::new(
                403,
                "this address is no gateway's, so nothing that it says of requests is believed; expected one of \
                 forward-auth-from",
            )),
            Method::Post if is_of_a_page(&head.headers) => Err(Problem::new(
                403,
                "a page in a browser sent this, as Origin or Sec-Fetch-Site says; expected a call by a service, \
                 without them",
            )),
            _ => Ok(()),
        }
    }

    fn is_gateway(&self, from: Option<IpAddr>) -> bool {
        from.is_some_and(|from| self.gateways.iter().any(|network| network.contains(from)))
    }

    /// Reads what the call reads, and answers it. There is room for the answer to a body before
    /// anything is decided.
    #[inline]
    async fn answer(
        &self,
        call: &Call,
        caller: &Caller,
        (head, body): (&Parts, Incoming),
    ) -> Response<AnswerBody> {
        let Body::Json(max) = call.body else {
            return response_in(&self.told, Taken::default(), self.handle(call, caller, (head, &[])).await);
        };
        let body = match self.bodies.read(body, max, self.body_wait).await {
            Ok(body) => body,
            Err(problem) => return unread(problem),
        };
        match self.bodies.for_answer_to(&body.bytes) {
            Ok(taken) => {
                response_in(&self.bodies, taken, self.handle(call, caller, (head, &body.bytes)).await)
            }
            Err(problem) => no_room(problem),
        }
    }

    #[inline]
    async fn handle(&self, call: &Call, caller: &Caller, (head, body): (&Parts, &[u8])) -> Answer {
        let is_stopping = self.stop.is_stopping();
        let asked = Asked { api: &self.api, caller, body, is_stopping, head: Some(head) };
        (call.handler)(asked).answer().await
    }
}

impl Protocol for Http {
    fn name(&self) -> &'static str {
        "HTTP"
    }

    fn opened(&self) {
        self.api.metrics.connection_opened();
    }

    fn closed(&self) {
        self.api.metrics.connection_closed();
    }

    fn refused(&self) -> &'static [u8] {
        self.api.metrics.connection_refused();
        b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
          content-type: application/problem+json\r\ncontent-length: 97\r\n\r\n\
          {\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\"detail\":\"too many connections\"}"
    }

    fn serve(self: Arc<Self>, stream: Stream, finishing: Finishing, place: Place) -> Serving {
        let from = stream.peer();
        match stream {
            Stream::Plain(stream) => {
                Box::pin(Connection::serve(self, TokioIo::new(stream), finishing, place, from))
            }
            Stream::Tls(stream) => {
                Box::pin(Connection::serve(self, TokioIo::new(stream), finishing, place, from))
            }
        }
    }
}
