//! Every call of the server, in one table. What is not in it is 404.
//!
//! Routing, 405 with `Allow`, who may call, the bounds of bodies and the labels of metrics follow
//! from it; tests compare it with `/openapi.json` and with the documentation. To add a call, add a row.

use futures_util::future::BoxFuture;
use http::request::Parts;
use serde_json::json;

use super::admin::{Caller, Role};
use super::api::{Answer, Api, JSON};
use super::http::{BATCH_BYTES_MAX, BODY_BYTES_MAX};
use super::{dashboard, health, openapi};
use Access::{Anyone, Gateway, Monitoring, Operate, Page, Read, Usage};
use Answering::Now;

/// A call.
#[derive(Debug)]
pub struct Call {
    /// Where it is.
    pub path: &'static str,
    /// How it is called.
    pub method: Method,
    /// Who may call it.
    pub access: Access,
    /// What it reads.
    pub body: Body,
    /// What it does.
    pub(super) handler: Handler,
}

/// How a call is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`, and with it `HEAD`.
    Get,
    /// `POST`.
    Post,
}

/// Who may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every client.
    Anyone,
    /// Gateways, by the address that they call from.
    Gateway,
    /// Every client, also on the connections that stay free for monitoring when all others are in use.
    Monitoring,
    /// Every client, where operators' calls are served: a page without data, which makes these calls itself.
    Page,
    /// Callers with a token that may see what one tenant has used.
    Usage,
    /// Callers with a token that may see everything.
    Read,
    /// Callers with a token that may change everything.
    Operate,
}

impl Access {
    /// Whether it takes a token.
    #[must_use]
    pub const fn takes_token(self) -> bool {
        matches!(self, Self::Usage | Self::Read | Self::Operate)
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::Gateway => "gateway",
            Self::Monitoring => "monitoring",
            Self::Page => "page",
            Self::Usage => "usage",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }

    /// Whether a caller with this role may call.
    pub(super) const fn is_for(self, role: &Role) -> bool {
        match (self, role) {
            (Self::Read, Role::Usage(_)) | (Self::Operate, Role::Usage(_) | Role::Read) => false,
            (
                Self::Anyone
                | Self::Gateway
                | Self::Monitoring
                | Self::Page
                | Self::Usage
                | Self::Read
                | Self::Operate,
                _,
            ) => true,
        }
    }
}

/// What a call reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    None,
    /// JSON of at most so many bytes.
    Json(usize),
}

/// What a call does.
pub(super) type Handler = for<'a> fn(Asked<'a>) -> Answering<'a>;

/// What a handler works with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) api: &'a Api,
    /// Who calls, of calls that take a token.
    pub(super) caller: &'a Caller,
    /// Empty if the call reads none.
    pub(super) body: &'a [u8],
    pub(super) is_stopping: bool,
    /// The head of the call, if it came over HTTP.
    pub(super) head: Option<&'a Parts>,
}

/// An answer, or the wait for it. What is waited for is on the heap, so that calls that need
/// not wait do not carry room for it from function to function.
#[allow(clippy::large_enum_variant, reason = "the large one is the usual one, and it is never kept")]
pub(super) enum Answering<'a> {
    Now(Answer),
    Later(BoxFuture<'a, Answer>),
}

impl Answering<'_> {
    #[inline]
    pub(super) async fn answer(self) -> Answer {
        match self {
            Self::Now(answer) => answer,
            Self::Later(answer) => answer.await,
        }
    }
}

impl Method {
    /// Whether this is the method of a request.
    pub(super) fn is(self, method: &http::Method) -> bool {
        match self {
            Self::Get => matches!(*method, http::Method::GET | http::Method::HEAD),
            Self::Post => *method == http::Method::POST,
        }
    }

    /// The value of `Allow`.
    pub(super) const fn allow(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
        }
    }
}

impl Call {
    const fn get(path: &'static str, access: Access, handler: Handler) -> Self {
        Self { path, method: Method::Get, access, body: Body::None, handler }
    }

    const fn page(path: &'static str, handler: Handler) -> Self {
        Self::get(path, Page, handler)
    }

    const fn post(path: &'static str, access: Access, bytes_max: usize, handler: Handler) -> Self {
        Self { path, method: Method::Post, access, body: Body::Json(bytes_max), handler }
    }
}

/// An answer that takes a wait.
pub(super) fn later<'a>(answer: impl Future<Output = Answer> + Send + 'a) -> Answering<'a> {
    Answering::Later(Box::pin(answer))
}

/// All calls, those that are called most first.
pub static CALLS: [Call; 47] = [
    Call::post("/v1/limit", Anyone, BODY_BYTES_MAX, |asked| asked.api.start_limit(asked.body)),
    Call::post("/v1/check", Anyone, BODY_BYTES_MAX, |asked| asked.api.start_check(asked.body)),
    Call::get("/v1/forward-auth", Gateway, |asked| asked.api.start_forward_auth(asked.head)),
    Call::post("/v1/limit/batch", Anyone, BATCH_BYTES_MAX, |asked| later(asked.api.limit_batch(asked.body))),
    Call::post("/v1/check/batch", Anyone, BATCH_BYTES_MAX, |asked| later(asked.api.check_batch(asked.body))),
    Call::post("/v1/peek", Anyone, BODY_BYTES_MAX, |asked| later(asked.api.peek(asked.body))),
    Call::post("/v1/explain", Anyone, BODY_BYTES_MAX, |asked| later(asked.api.explain(asked.body))),
    Call::post("/v1/refund", Anyone, BODY_BYTES_MAX, |asked| later(asked.api.refund(asked.body))),
    Call::post("/v1/reserve", Anyone, BODY_BYTES_MAX, |asked| later(asked.api.reserve(asked.body))),
    Call::post("/v1/settle", Anyone, BODY_BYTES_MAX, |asked| later(asked.api.settle(asked.body))),
    Call::post("/v1/cancel", Anyone, BODY_BYTES_MAX, |asked| later(asked.api.cancel(asked.body))),
    Call::post("/v1/reset", Operate, BODY_BYTES_MAX, |asked| {
        later(asked.api.reset(asked.caller, asked.body))
    }),
    Call::get("/v1/hot-keys", Read, |asked| Now(Answer::json(&json!({ "keys": asked.api.hot.list() })))),
    Call::get("/v1/policies", Read, |asked| Now(Answer::json(&health::policies(asked.api)))),
    Call::post("/v1/overrides/set", Operate, BODY_BYTES_MAX, |asked| {
        later(asked.api.set_override(asked.caller, asked.body))
    }),
    Call::post("/v1/overrides/get", Read, BODY_BYTES_MAX, |asked| later(asked.api.get_override(asked.body))),
    Call::post("/v1/overrides/list", Read, BODY_BYTES_MAX, |asked| {
        later(asked.api.list_overrides(asked.body))
    }),
    Call::post("/v1/overrides/delete", Operate, BODY_BYTES_MAX, |asked| {
        later(asked.api.delete_override(asked.caller, asked.body))
    }),
    Call::post("/v1/overrides/clear", Operate, BODY_BYTES_MAX, |asked| {
        later(asked.api.clear_overrides(asked.caller, asked.body))
    }),
    Call::post("/v1/modes/set", Operate, BODY_BYTES_MAX, |asked| {
        later(asked.api.set_mode(asked.caller, asked.body))
    }),
    Call::post("/v1/modes/clear", Operate, BODY_BYTES_MAX, |asked| {
        later(asked.api.clear_mode(asked.caller, asked.body))
    }),
    Call::post("/v1/emergencies/set", Operate, BODY_BYTES_MAX, |asked| {
        later(asked.api.set_emergency(asked.caller, asked.body))
    }),
    Call::post("/v1/emergencies/clear", Operate, BODY_BYTES_MAX, |asked| {
        later(asked.api.clear_emergency(asked.caller, asked.body))
    }),
    Call::get("/v1/switches", Read, |asked| later(asked.api.switches())),
    Call::post("/v1/audit", Read, BODY_BYTES_MAX, |asked| later(asked.api.audit(asked.body))),
    Call::post("/v1/usage", Usage, BODY_BYTES_MAX, |asked| later(asked.api.usage(asked.caller, asked.body))),
    Call::post("/v1/inspect", Read, BODY_BYTES_MAX, |asked| later(asked.api.inspect(asked.body))),
    Call::post("/v1/explain/rules", Read, BODY_BYTES_MAX, |asked| later(asked.api.explain_rules(asked.body))),
    Call::post("/v1/counters/list", Read, BODY_BYTES_MAX, |asked| later(asked.api.list_counters(asked.body))),
    Call::post("/v1/counters/reset", Operate, BODY_BYTES_MAX, |asked| {
        later(asked.api.reset_key(asked.caller, asked.body))
    }),
    Call::post("/v1/policies/get", Read, BODY_BYTES_MAX, |asked| later(asked.api.get_policy(asked.body))),
    Call::get("/v1/dashboard", Read, |asked| later(dashboard::snapshot(asked.api, asked.is_stopping))),
    Call::get("/v1/dashboard/history", Read, |asked| Now(dashboard::history(asked.api))),
    Call::post("/v1/demo", Operate, BODY_BYTES_MAX, |asked| Now(asked.api.demo(asked.body))),
    Call::get("/metrics", Monitoring, |asked| later(health::metrics(asked.api, asked.is_stopping))),
    Call::get("/openapi.json", Anyone, |_| Now(Answer::of(JSON, openapi::text()))),
    Call::get("/healthz", Monitoring, |_| Now(Answer::of("text/plain; charset=utf-8", "ok\n"))),
    Call::get("/readyz", Monitoring, |asked| later(health::ready(asked.api, asked.is_stopping))),
    Call::get("/readyz/store", Monitoring, |asked| later(health::store_ready(asked.api))),
    Call::page("/dashboard", |_| Now(dashboard::HTML.answer())),
    Call::page("/dashboard/style.css", |_| Now(dashboard::STYLE.answer())),
    Call::page("/dashboard/main.js", |_| Now(dashboard::MAIN.answer())),
    Call::page("/dashboard/server.js", |_| Now(dashboard::SERVER.answer())),
    Call::page("/dashboard/dom.js", |_| Now(dashboard::DOM.answer())),
    Call::page("/dashboard/chart.js", |_| Now(dashboard::CHART.answer())),
    Call::page("/dashboard/view.js", |_| Now(dashboard::VIEW.answer())),
    Call::page("/dashboard/actions.js", |_| Now(dashboard::ACTIONS.answer())),
];

impl Api {
    /// Answers the call at a path without HTTP, whoever may call it there: for the command line, which has the store itself.
    pub async fn answer(&self, caller: &Caller, path: &str, body: &[u8]) -> Option<Answer> {
        let call = Endpoint::at(path).call()?;
        Some((call.handler)(Asked { api: self, caller, body, is_stopping: false, head: None }).answer().await)
    }
}

/// The place of a call in the table: how metrics and traces refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint(usize);

impl Endpoint {
    /// For all that is not in the table.
    pub(super) const UNKNOWN: Self = Self(CALLS.len());
    pub(super) const COUNT: usize = CALLS.len() + 1;

    /// The call at a path.
    #[inline]
    pub(super) fn at(path: &str) -> Self {
        CALLS.iter().position(|call| call.path == path).map_or(Self::UNKNOWN, Self)
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }

    pub(super) fn call(self) -> Option<&'static Call> {
        CALLS.get(self.0)
    }

    pub(super) const fn index(self) -> usize {
        self.0
    }

    /// The label of metrics.
    pub(super) fn label(self) -> &'static str {
        self.call().map_or("unknown", |call| call.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_stands_twice_in_the_table() {
        for (index, call) in CALLS.iter().enumerate() {
            assert_eq!(Endpoint::at(call.path).index(), index, "{}", call.path);
        }
        assert_eq!(Endpoint::at("").call().map(|call| call.path), None);
    }
}
