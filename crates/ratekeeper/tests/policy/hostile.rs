//! Requests that were made to be mistaken for others, to be seen, or to take up room.

use std::collections::BTreeSet;
use std::sync::Arc;

use ratekeeper::bounds::SUBJECT_PLAIN_BYTES_MAX;
use ratekeeper::policy::{Ask, Facts, KeyHashing, PolicyLimiter, RequestFacts, Scalar};
use ratekeeper::{ManualClock, MemoryStore, Timestamp};
use serde_json::json;

use crate::world::{World, now, without_mode};

fn hostile() -> Vec<String> {
    let texts = [
        "a",
        "b",
        "a:b",
        ":",
        "::",
        "a:y:b",
        "b:y:a",
        "{",
        "}",
        "{a}",
        "{{a}}",
        "%",
        "%3A",
        "a%3Ab",
        "%25",
        "%253A",
        "#",
        "\u{0}",
        "a\u{0}",
        "\n",
        "a\nb",
        "\r\n",
        " ",
        "a b",
        "\u{7f}",
        "\u{e9}",
        "e\u{301}",
        "\u{202e}a",
        "*",
        "a/b",
        "a//b",
        "..",
        "null",
        "true",
        "1",
        "0",
        "-0",
        "1e3",
        "\u{1f4a9}",
    ];
    let long = [SUBJECT_PLAIN_BYTES_MAX - 8, SUBJECT_PLAIN_BYTES_MAX, 1_000, 1 << 20].map(|n| "x".repeat(n));
    let almost = [format!("{}y", &long[3][1..]), format!("{}:", &long[3][1..])];
    texts.iter().map(ToString::to_string).chain(long).chain(almost).collect()
}

/// A policy that lets every subject in once a day.
fn once(keys: &str) -> World {
    World::of(&format!("service = 'api'\n[[rules]]\nname = 'once'\nquota = '1/d fixed_window'\n{keys}\n"))
}

/// Asks for all requests with two of the values, and expects that requests with
/// the same values share a subject, and no others do.
fn no_two_share(namespace: &str, request: impl Fn(&str, &str) -> RequestFacts) {
    let world = once(&format!("keys = 'x:{{{namespace}.x}}:y:{{{namespace}.y}}'"));
    let seen_as = |facts: &RequestFacts, name: &str| -> Option<String> {
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        match namespace {
            "header" => text(Facts::header(facts, name).and_then(|value| std::str::from_utf8(value).ok())),
            "query" => text(facts.query(name).as_deref()),
            "cookie" => text(facts.cookie(name)),
            _ => None,
        }
    };
    let (mut known, values) = (BTreeSet::new(), hostile());
    let is_long = |value: &str| value.len() > 100_000;
    for (n, x) in values.iter().enumerate() {
        for (m, y) in values.iter().enumerate() {
            // The long ones beside a few others will do.
            if (is_long(x) && m > 2 && n != m) || (is_long(y) && n > 2 && n != m) {
                continue;
            }
            let facts = request(x, y);
            let plain = matches!(namespace, "body" | "identity");
            let pair = if plain {
                Some(x.clone()).zip(Some(y.clone()))
            } else {
                seen_as(&facts, "x").zip(seen_as(&facts, "y"))
            };
            let decision = world.ask(&facts);
            match pair {
                None => assert!(decision.verdicts().is_empty(), "{namespace} {n} {m}"),
                Some(pair) => {
                    let is_new = known.insert(shortened(&pair));
                    assert_eq!(decision.is_allowed(), is_new, "{namespace} {n} {m}");
                }
            }
        }
    }
    assert!(known.len() > 500, "{namespace}: {}", known.len());
    let subjects = world.store.subjects();
    assert_eq!(subjects.len(), known.len());
    assert!(subjects.iter().all(|subject| subject.len() <= SUBJECT_PLAIN_BYTES_MAX), "{namespace}");
    let is_printable = |subject: &String| subject.chars().all(|c| !c.is_control() && c != '\u{202e}');
    assert!(subjects.iter().all(is_printable), "{namespace}");
}

/// Values with their lengths, so that they need not be kept.
fn shortened((x, y): &(String, String)) -> (usize, usize, String, String) {
    let ends = |text: &str| text.chars().take(50).chain(text.chars().rev().take(50)).collect::<String>();
    (x.len(), y.len(), ends(x), ends(y))
}

#[test]
fn no_two_requests_share_a_subject() {
    let get = || RequestFacts::new("GET", "/");
    no_two_share("header", |x, y| get().header("x", x).header("y", y));
    no_two_share("body", |x, y| get().json(json!({ "x": x, "y": y })));
    no_two_share("identity", |x, y| get().claim("x", x.to_owned()).claim("y", y.to_owned()));
    no_two_share("cookie", |x, y| get().header("cookie", format!("x={x}; y={y}")));
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    no_two_share("query", |x, y| RequestFacts::new("GET", &format!("/?x={}&y={}", encoded(x), encoded(y))));
    no_two_share("query", |x, y| RequestFacts::new("GET", &format!("/?x={x}&y={y}")));
}

#[test]
fn keys_of_the_programs_are_told_apart() {
    let world = once("caller_key = true");
    for key in hostile() {
        assert!(now(world.limiter.check("api", &key)).unwrap().is_allowed());
        assert!(!now(world.limiter.check("api", &key)).unwrap().is_allowed());
    }
    assert!(now(world.limiter.check("api", "")).unwrap().verdicts().is_empty(), "none is none");
    assert!(world.store.subjects().iter().all(|subject| subject.len() <= SUBJECT_PLAIN_BYTES_MAX));
}

#[test]
fn odd_bytes_and_odd_bodies_are_never_an_error() {
    let keys = "keys = ['h:{header.x}', 'b:{body.x.y}', 'c:{identity.x}', 'p:{path}']\n\
                when = \"header.x != 'x' || body.x == 1\"\ncost = 'size(body.x)'";
    let world = once(keys);
    let bodies: [&[u8]; 7] = [
        b"\xff\xfe",
        b"{\"x\": 1e999}",
        b"{\"x\":",
        b"{\"x\": {\"y\": null}}",
        b"[[[[1]]]]",
        b"{\"x\": \"\\ud800\"}",
        &[b'['; 100_000],
    ];
    for body in bodies {
        for header in [&b"x"[..], b"\xff\x00", b"", b"y"] {
            let facts = RequestFacts::new("\u{0}", "/?x=%FF").header("x", header).body(body);
            let facts = facts.claim("x", f64::NAN).claim("y", Scalar::Large(u64::MAX));
            world.ask(&facts);
        }
    }
}

/// All the places of a request, each with a value that must not be seen.
const EVERYWHERE: &str = "'m:{method}:{path}:{route}', 'q:{query.q}', 'h:{header.h}', 'k:{cookie.k}', \
                          'b:{body.b}', 'i:{identity.i}', 'ip:{client.ip}'";

#[test]
fn hashed_keys_have_no_value_of_a_request_in_them() {
    let mut rules = String::from("service = 'api'\nhash_keys = true\n");
    for (n, key) in EVERYWHERE.split(", ").enumerate() {
        let custom = "[rules.custom]\n'q:hidden5' = '7/s'\n".repeat(usize::from(key.contains("'q:")));
        rules += &format!("[[rules]]\nname = 'r{n}'\nkeys = {key}\nquota = '5/s'\n{custom}");
    }
    rules += "[[rules]]\nname = 'own'\ncaller_key = true\nfallback = 'nobody'\nquota = '5/s'\n";
    let facts = RequestFacts::new("HIDDEN1", "/hidden2?q=hidden5")
        .route("/hidden4")
        .header("h", "hidden6")
        .header("cookie", "k=hidden7")
        .json(json!({ "b": "hidden8" }))
        .claim("i", "hidden9")
        .peer([81, 82, 83, 84]);
    let spec = crate::toml(&rules).unwrap();
    let secret = KeyHashing::secret(b"sixteen bytes or more").unwrap();
    let (open, closed) =
        (World::set_up(spec.clone(), without_mode()), World::set_up(spec, without_mode().hashing(secret)));
    for world in [&open, &closed] {
        let decision = world.service.check_now(&Ask::request(&facts).with_key("hidden10")).unwrap();
        assert_eq!(decision.verdicts().len(), 8, "all rules apply");
        assert_eq!(decision.verdicts()[1].remaining(), 6, "entries for a key are found all the same");
        for subject in world.store.subjects() {
            let lower = subject.to_lowercase();
            assert!(!lower.contains("hidden") && !lower.contains("81.82"), "{subject}");
        }
    }
    assert!(open.store.subjects().is_disjoint(&closed.store.subjects()), "the secret matters");
}

#[test]
fn made_up_keys_take_no_more_room_than_there_is() {
    const MOST: usize = 25_600;
    let clock = ManualClock::starting_at(Timestamp::from_secs(1_700_000_000));
    let store = Arc::new(MemoryStore::with_clock(MOST, Arc::new(clock)));
    let policies = without_mode().build().unwrap();
    let text = "service = 'api'\n[[rules]]\nname = 'r'\nkeys = 'k:{header.k}'\nquota = '2/d fixed_window'\n";
    policies.install("x", crate::toml(text), None).unwrap();
    let service = PolicyLimiter::on(Arc::clone(&store) as _, policies).service("api").unwrap();
    let ask = |key: String| {
        let facts = RequestFacts::new("GET", "/").header("k", key);
        service.check_now(&Ask::request(&facts)).unwrap()
    };
    let limited = || ask("limited".to_owned());
    assert!(limited().is_allowed() && limited().is_allowed() && !limited().is_allowed());
    for n in 0..10 * MOST {
        ask(format!("made-up-{n}"));
    }
    assert!(store.len() <= MOST, "{}", store.len());
    assert!(!limited().is_allowed(), "who is limited is not forgotten for it");
}

#[test]
fn a_client_is_its_address_or_its_network() {
    let world = once("keys = 'ip:{client.ip}'");
    let from =
        |address: &str| RequestFacts::new("GET", "/").peer(address.parse::<std::net::IpAddr>().unwrap());
    assert!(world.allows(&from("1.2.3.4")) && !world.allows(&from("::ffff:1.2.3.4")), "IPv4, by bits");
    assert!(world.allows(&from("1.2.3.5")) && !world.allows(&from("::ffff:102:305")));
    assert!(world.allows(&from("2001:db8::1")) && !world.allows(&from("2001:db8::2:3:4:5")), "one network");
    assert!(world.allows(&from("2001:db8:0:1::1")), "another");
    let spoofed = from("9.9.9.9").header("x-forwarded-for", "1.1.1.1").header("forwarded", "for=1.1.1.1");
    assert!(world.allows(&spoofed) && !world.allows(&from("9.9.9.9")), "nobody is trusted unless it is said");
}
