//! Envoy's rate limit service, asked as Envoy asks it: with the messages of its whole API.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::UInt64Value;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use ratekeeper::{ManualClock, RedisStore};
use ratekeeper_testkit::servers::{Flavour, Server};
use tokio::net::TcpStream;

use crate::client::PATIENCE;
use crate::rig::{RUNTIME, Rig, START, Setup};

pub(crate) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const OK: i32 = 1;
const OVER: i32 = 2;
const INVALID_ARGUMENT: i32 = 3;

const POLICY: &str = r#"
service = "shop"

[[rules]]
name = "per-user"
when = "descriptor_keys == 'user'"
keys = "user:{descriptor.user}"
quota = "3/min fixed_window aligned"

[[rules]]
name = "tokens"
when = "descriptor_keys == 'tokens,user'"
keys = "{descriptor.tokens}:{descriptor.user}"
quota = "100/h"

[[rules]]
name = "watched"
when = "descriptor_keys == 'watched'"
keys = "all"
quota = "1/10s fixed_window"
mode = "monitor"

[[rules]]
name = "off"
when = "descriptor_keys == 'off'"
keys = "all"
quota = "1/h"
mode = "off"

[[rules]]
name = "strict"
when = "descriptor_keys == 'strict'"
keys = "all"
quota = "5/h"
on_outage = "deny"
"#;

/// A connection of HTTP/2.
pub(crate) struct Connection(SendRequest<Full<Bytes>>);

/// What came back on a stream.
#[derive(Debug)]
pub(crate) struct GrpcReply {
    pub(crate) status: u16,
    /// `grpc-status`, wherever it stands; -1 if nowhere.
    pub(crate) code: i32,
    pub(crate) why: String,
    pub(crate) message: Bytes,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        RUNTIME.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            Self(sender)
        })
    }

    /// Sends bytes as the body of a call.
    pub(crate) fn send(&self, path: &str, fields: &[(&str, &str)], body: Vec<u8>) -> GrpcReply {
        let mut request = http::Request::post(format!("http://localhost{path}"));
        for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")].iter().chain(fields) {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let mut sender = self.0.clone();
        let exchange = async move {
            let response = sender.send_request(request).await.unwrap();
            let (head, body) = response.into_parts();
            let collected = body.collect().await.unwrap();
            let trailers = collected.trailers().cloned().unwrap_or_default();
            let field = |name: &str| {
                let value = head.headers.get(name).or_else(|| trailers.get(name));
                value.map(|value| value.to_str().unwrap().to_owned())
            };
            GrpcReply {
                status: head.status.as_u16(),
                code: field("grpc-status").map_or(-1, |code| code.parse().unwrap()),
                why: field("grpc-message").unwrap_or_default(),
                message: collected.to_bytes(),
            }
        };
        RUNTIME.block_on(async { tokio::time::timeout(PATIENCE, exchange).await }).expect("an answer in time")
    }

    pub(crate) fn call(
        &self,
        call: &RateLimitRequest,
        fields: &[(&str, &str)],
    ) -> Result<RateLimitResponse, GrpcReply> {
        let reply = self.send(SHOULD_RATE_LIMIT, fields, framed(&call.encode_to_vec()));
        assert_eq!(reply.status, 200);
        if reply.code != 0 {
            return Err(reply);
        }
        let (prefix, message) = reply.message.split_first_chunk::<5>().unwrap();
        assert_eq!((prefix[0], prefix[4] as usize), (0, message.len() & 0xff));
        Ok(RateLimitResponse::decode(message).unwrap())
    }

    pub(crate) fn ask(&self, call: &RateLimitRequest) -> RateLimitResponse {
        self.call(call, &[]).unwrap()
    }
}

pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
}

fn hits(descriptor: RateLimitDescriptor, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value: hits }), ..descriptor }
}

pub(crate) fn call(descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest { domain: "shop".to_owned(), descriptors: descriptors.to_vec(), hits_addend: 0 }
}

fn user(name: &str) -> RateLimitDescriptor {
    descriptor(&[("user", name)])
}

fn codes(response: &RateLimitResponse) -> Vec<i32> {
    response.statuses.iter().map(|status| status.code).collect()
}

fn remaining(response: &RateLimitResponse) -> Vec<u32> {
    response.statuses.iter().map(|status| status.limit_remaining).collect()
}

fn field<'r>(response: &'r RateLimitResponse, name: &str) -> Option<&'r str> {
    let fields = &response.response_headers_to_add;
    fields.iter().find(|field| field.key == name).map(|field| field.value.as_str())
}

fn rig() -> (Rig, Connection) {
    let (rig, _) = Setup::policy(POLICY).in_memory();
    let connection = Connection::open(rig.grpc);
    (rig, connection)
}

#[test]
fn statuses_tell_of_each_descriptor_in_order() {
    let (rig, connection) = rig();
    let both = call(&[user("ann"), descriptor(&[("nobody", "knows")]), user("bob")]);
    let allowed = connection.ask(&both);
    assert_eq!((allowed.overall_code, codes(&allowed)), (OK, vec![OK, OK, OK]));
    assert_eq!(remaining(&allowed), [2, 0, 2]);
    let status = &allowed.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit, limit.name.as_str()), (3, 2, "per-user"));
    // The clock stands at 20 seconds of a minute.
    let reset = status.duration_until_reset.as_ref().unwrap();
    assert_eq!((reset.seconds, reset.nanos), (40, 0));
    assert!(allowed.statuses[1].current_limit.is_none() && allowed.raw_body.is_empty());
    assert_eq!(field(&allowed, "ratelimit-policy"), Some(r#""per-user";q=3;w=60"#));
    assert_eq!(field(&allowed, "ratelimit"), Some(r#""per-user";r=2;t=40"#));
    assert_eq!(field(&allowed, "retry-after"), None);

    // Two more of ann's alone; then the call of both is denied, and bob is charged nothing.
    (0..2).for_each(|_| assert_eq!(connection.ask(&call(&[user("ann")])).overall_code, OK));
    let denied = connection.ask(&both);
    assert_eq!((denied.overall_code, codes(&denied)), (OVER, vec![OVER, OK, OK]));
    assert_eq!(remaining(&denied), [0, 0, 2]);
    assert_eq!(field(&denied, "retry-after"), Some("40"));
    assert_eq!(field(&denied, "content-type"), Some("application/problem+json"));
    let body: serde_json::Value = serde_json::from_slice(&denied.raw_body).unwrap();
    assert_eq!((body["status"].as_u64(), &body["violated-policies"][0]), (Some(429), &"per-user".into()));
    assert_eq!(remaining(&connection.ask(&call(&[user("bob")]))), [1]);

    let metrics = rig.client().get("/metrics").text().to_owned();
    let counted = |line: &str| assert!(metrics.contains(line), "{line}\n{metrics}");
    counted("ratekeeper_grpc_calls_total{outcome=\"allowed\"} 4");
    counted("ratekeeper_grpc_calls_total{outcome=\"denied\"} 1");
}

#[test]
fn a_client_made_of_the_whole_api_understands_us() {
    let (rig, _) = rig();
    let told = RUNTIME.block_on(async {
        let mut client = RateLimitServiceClient::connect(format!("http://{}", rig.grpc)).await.unwrap();
        let told = client.should_rate_limit(call(&[user("ann")])).await.unwrap().into_inner();
        let refused = client.should_rate_limit(call(&[])).await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (tonic::Code::InvalidArgument, "descriptors: it is missing")
        );
        told
    });
    assert_eq!((told.overall_code, remaining(&told)), (OK, vec![2]));
}

#[test]
fn hits_are_those_of_the_descriptor_or_of_the_call() {
    let (_rig, connection) = rig();
    let tokens = descriptor(&[("tokens", "gpt"), ("user", "ann")]);
    let ask = |of_call, descriptor| {
        let told = connection.ask(&RateLimitRequest { hits_addend: of_call, ..call(&[descriptor]) });
        (told.overall_code, told.statuses[0].limit_remaining)
    };
    assert_eq!(ask(0, tokens.clone()), (OK, 99));
    assert_eq!(ask(9, tokens.clone()), (OK, 90));
    assert_eq!(ask(9, hits(tokens.clone(), 40)), (OK, 50));
    assert_eq!(ask(9, hits(tokens.clone(), 0)), (OK, 50), "a look charges nothing");
    assert_eq!(ask(51, tokens.clone()), (OVER, 50), "nor does a denial");
    assert_eq!(ask(50, tokens.clone()), (OK, 0));
    assert_eq!(ask(0, hits(tokens.clone(), 0)), (OVER, 0), "a look tells whether another would pass");
    assert_eq!(ask(0, hits(tokens.clone(), u64::MAX)), (OVER, 0));
    // What is only looked at spares the rest, too.
    let told = connection.ask(&call(&[user("ann"), hits(tokens, 0)]));
    assert_eq!((told.overall_code, codes(&told), remaining(&told)), (OVER, vec![OK, OVER], vec![3, 0]));
    assert_eq!(remaining(&connection.ask(&call(&[user("ann")]))), [2]);
}

#[test]
fn descriptors_that_count_the_same_are_charged_together() {
    let (_rig, connection) = rig();
    let told = connection.ask(&call(&[user("ann"), user("ann")]));
    assert_eq!((codes(&told), remaining(&told)), (vec![OK, OK], vec![1, 1]));
    let told = connection.ask(&call(&[user("ann"), user("ann")]));
    assert_eq!((told.overall_code, codes(&told)), (OVER, vec![OVER, OVER]));
    assert_eq!(remaining(&connection.ask(&call(&[user("ann")]))), [0]);
}

#[test]
fn a_limit_of_the_descriptor_replaces_that_of_the_rule() {
    let (_rig, connection) = rig();
    let with = |descriptor, requests_per_unit, unit| {
        let limit = Some(RateLimitOverride { requests_per_unit, unit });
        connection.call(&call(&[RateLimitDescriptor { limit, ..descriptor }]), &[])
    };
    let told = with(user("ann"), 10, 3).unwrap();
    let limit = told.statuses[0].current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit, limit.name.as_str()), (10, 3, "per-user"));
    assert_eq!(remaining(&told), [9]);
    // Without a rule, it is one of its own for all that the descriptor says.
    let other = || descriptor(&[("path", "/a,b=c"), ("empty", "")]);
    assert_eq!(remaining(&with(other(), 2, 4).unwrap()), [1]);
    assert_eq!(remaining(&with(other(), 2, 4).unwrap()), [0]);
    let denied = with(other(), 2, 4).unwrap();
    assert_eq!((denied.overall_code, codes(&denied)), (OVER, vec![OVER]));
    assert_eq!(field(&denied, "ratelimit-policy"), Some(r#""request-limit";q=2;w=86400"#));
    assert_eq!(
        with(descriptor(&[("path", "/other")]), 0, 1).unwrap().overall_code,
        OVER,
        "0 lets nothing pass"
    );
    assert_eq!(with(descriptor(&[("off", "")]), 1, 1).unwrap().statuses[0].current_limit, None);
    for unit in [0, 8] {
        let refused = with(user("ann"), 1, unit).unwrap_err();
        assert_eq!(refused.code, INVALID_ARGUMENT);
        assert!(refused.why.starts_with("descriptors[0]: limit.unit: expected SECOND"), "{}", refused.why);
    }
}

#[test]
fn modes_are_those_of_the_rules() {
    let (_rig, connection) = rig();
    let watched = call(&[descriptor(&[("watched", "")])]);
    for left in [0, 0] {
        let told = connection.ask(&watched);
        assert_eq!((told.overall_code, remaining(&told)), (OK, vec![left]));
        // No unit of Envoy's has ten seconds.
        assert_eq!(told.statuses[0].current_limit.as_ref().unwrap().unit, 0);
    }
    let off = connection.ask(&call(&[descriptor(&[("off", "")])]));
    assert_eq!((off.overall_code, off.statuses[0].current_limit.is_some()), (OK, false));
}

#[test]
fn what_is_missing_is_an_error_and_what_is_unknown_is_not_limited() {
    let (_rig, connection) = rig();
    let refused = |call: &RateLimitRequest| connection.call(call, &[]).unwrap_err();
    let nameless = refused(&RateLimitRequest { domain: String::new(), ..call(&[user("ann")]) });
    assert_eq!((nameless.code, nameless.why.as_str()), (INVALID_ARGUMENT, "domain: it is missing"));
    let empty = refused(&call(&[]));
    assert_eq!((empty.code, empty.why.as_str()), (INVALID_ARGUMENT, "descriptors: it is missing"));
    let unknown = RateLimitRequest { domain: "other".to_owned(), ..call(&[user("ann"), user("bob")]) };
    let told = connection.ask(&unknown);
    assert_eq!((told.overall_code, codes(&told)), (OK, vec![OK, OK]));
    assert!(told.response_headers_to_add.is_empty() && told.statuses[0].current_limit.is_none());
}

#[test]
fn each_descriptor_is_a_check_of_its_own_if_wanted() {
    let setup = Setup { grpc: |grpc| grpc.each_descriptor(true), ..Setup::policy(POLICY) };
    let (rig, _) = setup.in_memory();
    let connection = Connection::open(rig.grpc);
    (0..3).for_each(|_| drop(connection.ask(&call(&[user("ann")]))));
    let told = connection.ask(&call(&[user("ann"), user("bob")]));
    assert_eq!((told.overall_code, codes(&told), remaining(&told)), (OVER, vec![OVER, OK], vec![0, 2]));
    assert_eq!(remaining(&connection.ask(&call(&[user("bob")]))), [1], "it was charged");
}

#[test]
fn negative_hits_give_back_where_they_are_taken() {
    let back = |descriptor, units| RateLimitDescriptor { is_negative_hits: true, ..hits(descriptor, units) };
    let (_rig, connection) = rig();
    let refused = connection.call(&call(&[back(user("ann"), 1)]), &[]).unwrap_err();
    assert_eq!(refused.code, INVALID_ARGUMENT);
    assert!(
        refused.why.contains("is_negative_hits: got true") && refused.why.contains("--grpc-refunds"),
        "{}",
        refused.why
    );

    let server = Server::start(Flavour::Redis7);
    let on_redis = || {
        let clock = ManualClock::starting_at(START);
        let _within = RUNTIME.enter();
        let builder = RedisStore::builder(&server.url()).deadline(PATIENCE).clock(Arc::new(clock));
        builder.build().unwrap()
    };
    let setup = || Setup { grpc: |grpc| grpc.with_refunds(true), ..Setup::policy(POLICY) };
    for rig in [setup().in_memory().0, setup().start(Arc::new(on_redis()))] {
        let connection = Connection::open(rig.grpc);
        let left = |descriptor| connection.ask(&call(&[hits(descriptor, 0)])).statuses[0].limit_remaining;
        let ann = || user("ann");
        let tokens = || descriptor(&[("tokens", "t"), ("user", "ann")]);
        (0..2).for_each(|_| drop(connection.ask(&call(&[ann(), hits(tokens(), 30)]))));
        assert_eq!((left(ann()), left(tokens())), (1, 40));
        let told = connection.ask(&call(&[back(ann(), 1), back(tokens(), 15)]));
        assert_eq!((told.overall_code, codes(&told)), (OK, vec![OK, OK]));
        assert_eq!((left(ann()), left(tokens())), (2, 55));
        connection.ask(&call(&[back(ann(), 1_000), back(tokens(), 1_000)]));
        assert_eq!((left(ann()), left(tokens())), (3, 100), "never above full");
        connection.ask(&call(&[back(user("new"), 5), back(descriptor(&[("nobody", "knows")]), 5)]));
        assert_eq!(left(user("new")), 3);
    }
}

#[test]
fn the_caller_is_not_kept_waiting_for_the_store() {
    // A server that takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let store = {
        let _within = RUNTIME.enter();
        let url = format!("redis://{}", silent.local_addr().unwrap());
        RedisStore::builder(&url).deadline(PATIENCE).build().unwrap()
    };
    let rig = Setup::policy(POLICY).start(Arc::new(store));
    let connection = Connection::open(rig.grpc);
    let start = Instant::now();
    let fields = [("x-envoy-expected-rq-timeout-ms", "400")];
    let told = connection.call(&call(&[user("ann")]), &fields).unwrap();
    assert_eq!(told.overall_code, OK, "the rule lets pass in an outage");
    let denied =
        connection.call(&call(&[descriptor(&[("strict", "")])]), &[("grpc-timeout", "400m")]).unwrap();
    assert_eq!((denied.overall_code, codes(&denied)), (OVER, vec![OVER]));
    let body: serde_json::Value = serde_json::from_slice(&denied.raw_body).unwrap();
    assert_eq!(body["status"], 429, "it is what the proxy answers with");
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    let calls = rig.api.limiter().outages();
    assert!(calls.allowed >= 1 && calls.denied >= 1, "{calls:?}");
}

#[test]
fn health_is_told_and_watched() {
    const CHECK: &str = "/grpc.health.v1.Health/Check";
    let (rig, connection) = rig();
    let service = b"\x0a\x2benvoy.service.ratelimit.v3.RateLimitService";
    for named in [&b""[..], service] {
        let reply = connection.send(CHECK, &[], framed(named));
        assert_eq!((reply.code, &*reply.message), (0, &b"\0\0\0\0\x02\x08\x01"[..]), "{reply:?}");
    }
    assert_eq!(connection.send(CHECK, &[], framed(b"\x0a\x05other")).code, 5);
    let mut sender = connection.0.clone();
    let watched = RUNTIME.block_on(async {
        let request = http::Request::post("http://localhost/grpc.health.v1.Health/Watch");
        let request = request.header("content-type", "application/grpc");
        let request = request.body(Full::new(Bytes::from(framed(b"")))).unwrap();
        let mut body = sender.send_request(request).await.unwrap().into_body();
        let mut next = async || body.frame().await.unwrap().unwrap();
        let first = next().await.into_data().unwrap();
        rig.stop.drain(PATIENCE);
        let second = next().await.into_data().unwrap();
        rig.stop.finish();
        let end = next().await.into_trailers().unwrap();
        (first, second, end["grpc-status"].to_str().unwrap().to_owned())
    });
    let expected = (&b"\0\0\0\0\x02\x08\x01"[..], &b"\0\0\0\0\x02\x08\x02"[..], "14");
    assert_eq!((&*watched.0, &*watched.1, watched.2.as_str()), expected);
    let mut rig = rig;
    let served = rig.served.take().unwrap();
    assert!(RUNTIME.block_on(async { tokio::time::timeout(PATIENCE, served).await }).unwrap().unwrap());
}

#[test]
fn a_drain_sends_callers_elsewhere_and_loses_no_call() {
    let (mut rig, connection) = rig();
    assert_eq!(connection.ask(&call(&[user("ann")])).overall_code, OK);
    rig.stop.drain(Duration::from_secs(600));
    assert_eq!(connection.ask(&call(&[user("ann")])).overall_code, OK);
    // GOAWAY came with it.
    let start = Instant::now();
    while !connection.0.is_closed() {
        assert!(start.elapsed() < PATIENCE, "the connection stays open");
        std::thread::yield_now();
    }
    assert_eq!(Connection::open(rig.grpc).ask(&call(&[user("ann")])).overall_code, OK);
    rig.stop.finish();
    let served = rig.served.take().unwrap();
    assert!(RUNTIME.block_on(async { tokio::time::timeout(PATIENCE, served).await }).unwrap().unwrap());
}
