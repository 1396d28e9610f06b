//! Decisions and keys that are written in the memory of others are none the worse for it.

use ratekeeper::Admission;
use ratekeeper::policy::{Ask, RequestFacts};

use crate::world::World;

const POLICY: &str = r#"
    service = "search"
    [[rules]]
    name = "per-ip"
    keys = "ip:{client.ip}"
    quota = "3/min"
    unlimited = ["ip:192.0.2.9"]
    [[rules]]
    name = "per-user"
    keys = "user:{header.x-user}"
    quotas = ["2/s", "4/min"]
    mode = "monitor"
    [[rules]]
    name = "searches"
    when = "path == '/search'"
    keys = "{header.x-user}"
    quota = "2/min leaky_bucket"
    penalty = { denials = 2, within = "1min", duration = "10s" }
    [[rules]]
    name = "under-way"
    when = "method == 'PUT'"
    keys = "ip:{client.ip}"
    quota = "2/min concurrency"
"#;

/// Of many shapes: no rule, one and several, denied and watched, a key that is digested.
fn requests() -> Vec<RequestFacts> {
    let long = "x".repeat(500);
    let mut requests = Vec::new();
    for number in 0..120_u8 {
        let method = if number % 7 == 0 { "PUT" } else { "GET" };
        let path = if number % 3 == 0 { "/search" } else { "/" };
        let request = RequestFacts::new(method, path);
        let request = match number % 4 {
            0 => request.peer([192, 0, 2, 9]),
            1 => request.peer([10, 99, 100, number % 11]),
            2 => request.peer([0x2001, 0xdb8, 0, u16::from(number % 2), 0, 0, 0, 1]),
            _ => request,
        };
        requests.push(match number % 5 {
            0 => request,
            1 => request.header("x-user", long.as_str()),
            _ => request.header("x-user", format!("user-{}", number % 2)),
        });
    }
    requests
}

#[test]
fn what_is_written_over_says_the_same() {
    let (fresh, recycled) = (World::of(POLICY), World::of(POLICY));
    let (mut allowed, mut denied, mut holds) = (0, 0, Vec::new());
    for facts in requests() {
        let expected = fresh.ask(&facts);
        let admission = recycled.service.try_admit(&Ask::request(&facts)).unwrap().unwrap();
        assert_eq!(*admission.decision, expected, "{facts:?}");
        *(if expected.is_allowed() { &mut allowed } else { &mut denied }) += 1;
        // What the others hold is not given back either.
        holds.push(admission.hold);
        Admission::recycle(admission.decision);
        for world in [&fresh, &recycled] {
            world.wait(1);
        }
    }
    assert!(allowed > 20 && denied > 20, "{allowed} {denied}");
}
