//! `GET /v1/forward-auth`: a gateway asks whether the request that it holds may pass.
//!
//! The gateway tells about the request in header fields, and passes its other fields on as they are. Only what the gateway
//! itself writes is believed: one family of fields, which the gateway's own configuration names, and each of them once.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::HOST;
use http::request::Parts;
use ratekeeper::policy::{Ask, Body, Facts, Scalar, canonical_path};
use ratekeeper::{Demand, Labels};
use ratekeeper_http::{Denial, Tally};

use super::facts::{address, split_origin};
use super::problem::Problem;
use super::told::Decided;
use super::{Answer, Api};
use crate::serve::calls::{Answering, later};

/// The status that a gateway is told although it understands 403 alone.
const STATUS_FIELD: &str = "x-ratekeeper-status";
/// Whose connection the gateway holds, behind those for whom that one speaks.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// What says that a request has a body: as the gateway passes it on, or tells of it where it keeps the body to itself.
const BODY_FIELDS: [&str; 4] =
    ["content-length", "transfer-encoding", "x-forwarded-content-length", "x-forwarded-transfer-encoding"];
/// What the address of the call may say.
const PARAMETERS: &str = "service=NAME, deny=429 or 403, fields=forwarded or original, each once";

/// The fields by which a gateway tells about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// `X-Forwarded-Method` and `X-Forwarded-Uri`: Traefik, Caddy, and what we ship for others.
    Forwarded,
    /// `X-Original-Method` and `X-Original-URI` or `X-Original-URL`: nginx as others set it up. The host is that of the
    /// URL: nobody knows whether such a gateway replaces an `X-Forwarded-Host`.
    Original,
}

/// What the address of a call says.
#[derive(Debug)]
struct Said {
    service: String,
    /// Whether a denial is 403, whatever it is.
    is_forbidden: bool,
    family: Family,
}

/// A request as a gateway tells about it.
#[derive(Debug)]
struct Passed<'h> {
    headers: &'h HeaderMap,
    method: &'h str,
    path: Cow<'h, str>,
    query: Option<&'h str>,
    host: Option<&'h str>,
    peer: IpAddr,
}

impl Api {
    /// Judges the request that a gateway tells about, and charges it.
    pub(in crate::serve) fn start_forward_auth<'a>(&'a self, head: Option<&Parts>) -> Answering<'a> {
        let asked = head.ok_or_else(|| Problem::new(400, "expected a call over HTTP")).and_then(|head| {
            let said = Said::read(head.uri.query().unwrap_or_default())?;
            Ok((self.passed_demand(&said, &head.headers)?, said.is_forbidden))
        });
        match asked {
            Ok((demand, is_forbidden)) if self.waits() => later(async move {
                let decided = self.check_demand(&demand).await;
                decided.map_or_else(Answer::from, |decided| self.told_gateway(&decided, is_forbidden))
            }),
            Ok((demand, is_forbidden)) => {
                let decided = self.check_now(&demand);
                Answering::Now(
                    decided.map_or_else(Answer::from, |decided| self.told_gateway(&decided, is_forbidden)),
                )
            }
            Err(problem) => Answering::Now(problem.into()),
        }
    }

    fn passed_demand(&self, said: &Said, headers: &HeaderMap) -> Result<Demand<'static>, Problem> {
        let service = self.service(Some(&said.service))?;
        let passed = Passed::read(headers, said.family)?;
        Ok(service.demand(&Ask::request(&passed)))
    }

    /// What the gateway copies into its own answer is in the fields, also in that of a request that may pass.
    fn told_gateway(&self, decided: &Decided, is_forbidden: bool) -> Answer {
        let labels = Labels::default();
        if Denial::of(&decided.decision, &self.options).is_none() {
            let fields = Tally::labelled(&decided.decision, labels).fields(&self.options).collect();
            return Answer { fields, ..Answer::of("text/plain; charset=utf-8", Vec::new()) };
        }
        let mut answer = self.told(decided, labels);
        answer.fields.push((STATUS_FIELD, answer.status.to_string().into()));
        if is_forbidden {
            answer.status = 403;
        }
        answer
    }
}

impl Said {
    /// A service has to be named, and nothing stands there twice: some gateways put what clients send behind an
    /// address that has no query of its own, and then clients would choose what they are limited by.
    fn read(query: &str) -> Result<Self, Problem> {
        let (mut service, mut is_forbidden, mut family) = (None, None, None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let is_new = match parameter.split_once('=') {
                Some(("service", name)) => service.replace(name.to_owned()).is_none(),
                Some(("deny", status @ ("429" | "403"))) => is_forbidden.replace(status == "403").is_none(),
                Some(("fields", "forwarded")) => family.replace(Family::Forwarded).is_none(),
                Some(("fields", "original")) => family.replace(Family::Original).is_none(),
                _ => false,
            };
            if !is_new {
                let got: String = parameter.chars().take(100).collect();
                return Err(Problem::new(400, format!("got `{got}` in the query; expected {PARAMETERS}")));
            }
        }
        let service = service.ok_or_else(|| {
            Problem::new(400, "service: expected it in the query, such as /v1/forward-auth?service=shop")
        })?;
        let (is_forbidden, family) = (is_forbidden.unwrap_or(false), family.unwrap_or(Family::Forwarded));
        Ok(Self { service, is_forbidden, family })
    }
}

impl<'h> Passed<'h> {
    fn read(headers: &'h HeaderMap, family: Family) -> Result<Self, Problem> {
        let (method, host, target) = match family {
            Family::Forwarded => {
                let target = needed(headers, &["x-forwarded-uri"])?;
                let (host, path) = split_origin(target);
                let host = host.map_or_else(|| only(headers, "x-forwarded-host"), |host| Ok(Some(host)))?;
                (needed(headers, &["x-forwarded-method"])?, host, path)
            }
            Family::Original => {
                let (host, path) = original(headers)?;
                (needed(headers, &["x-original-method"])?, host, path)
            }
        };
        if !target.starts_with('/') {
            return Err(Problem::new(400, "the URI of the request: expected a path, such as /search?q=x"));
        }
        let (path, query) = split_query(target);
        Ok(Self { headers, method, path, query, host, peer: peer(headers)? })
    }
}

/// The one spelling of the path in a target, and the query behind it.
fn split_query(target: &str) -> (Cow<'_, str>, Option<&str>) {
    match target.split_once('?') {
        Some((path, query)) => (canonical_path(path), Some(query)),
        None => (canonical_path(target), None),
    }
}

/// The host and the rest of `X-Original-URL` or `X-Original-URI`. A gateway may set one of them and hand on the other as
/// a client has sent it, so two that differ are refused.
fn original(headers: &HeaderMap) -> Result<(Option<&str>, &str), Problem> {
    let names = ["x-original-url", "x-original-uri"];
    let (url, uri) = (only(headers, names[0])?, only(headers, names[1])?);
    if let (Some(url), Some(uri)) = (url, uri)
        && split_query(split_origin(url).1) != split_query(split_origin(uri).1)
    {
        let expected = "x-original-uri: expected the path and the query of x-original-url: the gateway has to replace, \
                        or to leave out, both of what clients send";
        return Err(Problem::new(400, expected));
    }
    url.map_or_else(|| needed(headers, &names), Ok).map(split_origin)
}

/// The address that the gateway itself has seen: the last of the list, which it has put there.
fn peer(headers: &HeaderMap) -> Result<IpAddr, Problem> {
    let last = headers.get_all(FORWARDED_FOR).iter().next_back().and_then(|line| line.to_str().ok());
    let last = last.and_then(|line| line.rsplit(',').next()).map(str::trim);
    last.and_then(address).ok_or_else(|| {
        Problem::new(
            400,
            "x-forwarded-for: expected the address of the client at its end: the gateway has to set it",
        )
    })
}

/// The value of the one field that there has to be, under one of its names.
fn needed<'h>(headers: &'h HeaderMap, names: &[&str]) -> Result<&'h str, Problem> {
    for name in names {
        if let Some(value) = only(headers, name)? {
            return Ok(value);
        }
    }
    let names = names.join(" or ");
    Err(Problem::new(400, format!("{names}: expected what the gateway was asked: it has to set it")))
}

/// The value of a field that stands there once at most: of two, nobody knows which is the gateway's.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Problem> {
    let mut lines = headers.get_all(name).iter();
    let (Some(line), second) = (lines.next(), lines.next()) else { return Ok(None) };
    match line.to_str() {
        Ok(value) if second.is_none() => Ok(Some(value)),
        Ok(_) => Err(Problem::new(
            400,
            format!(
                "{name}: got it more than once; expected one: the gateway has to replace what clients send"
            ),
        )),
        Err(_) => Err(Problem::new(400, format!("{name}: expected printable ASCII"))),
    }
}

/// Whether fields tell of a body, whatever the method. Who makes one up is limited by more rules, not by fewer.
fn has_body(headers: &HeaderMap) -> bool {
    let lines = BODY_FIELDS.iter().flat_map(|name| headers.get_all(*name));
    lines.into_iter().any(|line| !matches!(line.as_bytes().trim_ascii(), b"" | b"0"))
}

impl Facts for Passed<'_> {
    fn method(&self) -> Option<&str> {
        Some(self.method)
    }

    fn path(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn route(&self) -> Option<&str> {
        None
    }

    fn query_string(&self) -> Option<&str> {
        self.query
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        // Its own names this server.
        if name == HOST.as_str() {
            return self.host.map(str::as_bytes);
        }
        self.headers.get(name).map(http::HeaderValue::as_bytes)
    }

    fn header_from_end(&self, name: &str, back: usize) -> Option<&[u8]> {
        if name == HOST.as_str() {
            return self.host.filter(|_| back == 0).map(str::as_bytes);
        }
        self.headers.get_all(name).iter().rev().nth(back).map(http::HeaderValue::as_bytes)
    }

    /// The gateway keeps it to itself, and that is no absence.
    fn body(&self) -> Body<'_> {
        let has_none = matches!(self.method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
        if has_none && !has_body(self.headers) { Body::Absent } else { Body::Unreadable }
    }

    fn peer(&self) -> Option<IpAddr> {
        Some(self.peer)
    }

    fn claim(&self, _: &str) -> Option<Scalar<'_>> {
        None
    }
}
