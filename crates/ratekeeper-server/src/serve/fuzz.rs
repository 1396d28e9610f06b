//! What reads from sockets, on any bytes: for fuzzers and for tests.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use ratekeeper::policy::{Format, Policies, PolicyLimiter, PolicySpec};
use ratekeeper::{ManualClock, MemoryStore, Store, Timestamp};

use super::admin::{Caller, Keyring};
use super::api::{Answer, Api, EnvoyTerms};
use super::calls::{Asked, Body, CALLS};
use super::grpc::judged;
use super::resp::{Resp, replies_to};

/// How often a call may give way before it is answered.
const TURNS_MAX: usize = 10_000;
/// Of the one listener that has a password.
const PASSWORD: &str = "correct-horse-battery";
/// Looks at everything that a call can tell.
const POLICY: &str = r#"
    service = "fuzzed"

    [[rules]]
    name = "all"
    when = "method != 'x' || body.a.b > 1 || query.q == header.h || identity.n > 2.5"
    keys = ["a:{body.a}", "h:{header.x-key}:{cookie.c}", "u:{identity.user}", "q:{query.q}", "ip:{client.ip}"]
    fallback = "nobody"
    quota = "5/s"

    [[rules]]
    name = "priced"
    keys = "all"
    cost = "size(body.items) + 1"
    quotas = ["100/min fixed_window", "50/s leaky_bucket queue 10", "10/h concurrency"]

    [[rules]]
    name = "descriptors"
    when = "descriptor_keys != null && descriptor.b != 'x'"
    keys = ["a:{descriptor.a}:{descriptor['a#2']}", "k:{descriptor_keys}"]
    quotas = ["5/s", "7/min fixed_window"]

    [[rules]]
    name = "mine"
    caller_key = true
    quota = "5/s sliding_log"
"#;

fn api() -> &'static Arc<Api> {
    static API: OnceLock<Arc<Api>> = OnceLock::new();
    API.get_or_init(|| {
        let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(10_000, Arc::new(clock)));
        let policies = Policies::builder().mode(None).build().expect("nothing is asked of the environment");
        let spec = PolicySpec::read("fuzzed", Format::Toml, POLICY.as_bytes());
        policies.install("fuzzed", spec, None).expect("a good policy");
        Arc::new(Api::new(PolicyLimiter::on(store, policies)))
    })
}

/// Sends `body` to every call. Whatever it is, the answer has a status that says whose
/// fault it is, and is JSON.
///
/// # Panics
/// If it is not.
pub fn json_calls(body: &[u8]) {
    let (api, caller) = (api(), Caller::named("fuzzer"));
    for call in CALLS.iter().filter(|call| call.body != Body::None) {
        let answer =
            (call.handler)(Asked { api, caller: &caller, body, is_stopping: false, head: None }).answer();
        sound(&in_turns(answer).expect("memory does not wait"));
    }
}

/// Polls a call that waits for nothing, but may give way to others.
fn in_turns<T>(answer: impl Future<Output = T>) -> Option<T> {
    let (mut answer, mut context) = (pin!(answer), Context::from_waker(Waker::noop()));
    (0..TURNS_MAX).find_map(|_| match answer.as_mut().poll(&mut context) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    })
}

fn sound(answer: &Answer) {
    assert!(
        matches!(answer.status, 200 | 400 | 404 | 409 | 410 | 422 | 429 | 503),
        "a status of {}",
        answer.status
    );
    let told: Result<serde_json::Value, _> = serde_json::from_slice(&answer.body);
    assert!(told.is_ok_and(|told| told.is_object()), "{}", String::from_utf8_lossy(&answer.body));
    for (_, value) in &answer.fields {
        assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{value}");
    }
}

/// Sends `bytes` to the Redis protocol, in two pieces, with a password and without. Whatever they are, the replies are
/// replies, and who does not know the password is told nothing else than that.
///
/// # Panics
/// If they are not.
pub fn resp_commands(bytes: &[u8]) {
    static RESP: OnceLock<[Resp; 2]> = OnceLock::new();
    let [open, guarded] = RESP.get_or_init(|| {
        let keyring = Keyring::with_password(PASSWORD).expect("a good password");
        [None, Some(Arc::new(keyring))].map(|password| Resp::new(Arc::clone(api()), password))
    });
    let (one, two) = bytes.split_at(bytes.len() / 2);
    let is_known = bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes());
    for (resp, is_let_in) in [(open, true), (guarded, is_known)] {
        let replies = in_turns(replies_to(resp, one, two)).expect("memory does not wait");
        let mut rest = &*replies;
        while !rest.is_empty() {
            let is_nothing = [&b"-"[..], b"+OK", b"+RESET"].iter().any(|word| rest.starts_with(word));
            assert!(is_let_in || is_nothing, "told without a password: {}", rest.escape_ascii());
            rest = behind_a_reply(rest).unwrap_or_else(|| panic!("no reply: {}", rest.escape_ascii()));
        }
    }
}

/// Sends `message` to Envoy's rate limit service, judged in each way. Whatever it is, the answer is a message.
///
/// # Panics
/// If it is not.
pub fn grpc_calls(message: &[u8]) {
    for (takes_refunds, is_each) in [(false, false), (true, true)] {
        let answered = in_turns(judged(api(), message, EnvoyTerms { takes_refunds, is_each }));
        // Whether or not it is a call.
        let _ = answered.expect("memory does not wait");
    }
}

/// What stands behind the reply at the beginning of `bytes`, if it is a whole one.
fn behind_a_reply(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (line, behind) = (bytes.get(..end)?, bytes.get(end + 2..)?);
    let (kind, said) = line.split_first()?;
    let number = || std::str::from_utf8(said).ok()?.parse::<i64>().ok();
    let elements = match kind {
        b'+' | b'-' if !said.is_empty() => return Some(behind),
        b':' => return number().map(|_| behind),
        b'_' if said.is_empty() => return Some(behind),
        b'$' if number()? == -1 => return Some(behind),
        b'$' => {
            let length = usize::try_from(number()?).ok()?;
            return behind.get(length..)?.strip_prefix(b"\r\n");
        }
        b'*' => number()?,
        b'%' => 2 * number()?,
        _ => return None,
    };
    (0..elements).try_fold(behind, |behind, _| behind_a_reply(behind))
}
