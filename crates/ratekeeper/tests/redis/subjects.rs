//! Subjects and ids come from requests: none of them may be somebody else.

use std::collections::HashSet;
use std::time::Duration;

use ratekeeper::{Check, Origin, Reservation, Store};
use ratekeeper_testkit::servers::{Flavour, Server};

use crate::setup::{charge, is_allowed, keys, quota, store};

/// Subjects that would like to be somebody else.
fn hostile() -> Vec<Vec<u8>> {
    let mut subjects: Vec<Vec<u8>> = vec![
        b"a".into(),
        b"a:b".into(),
        b"a::b".into(),
        b":a".into(),
        b"a%3Ab".into(),
        b"a%253Ab".into(),
        b"{a}".into(),
        b"%7Ba%7D".into(),
        b"a b".into(),
        b"a\tb".into(),
        b"a\0b".into(),
        b"a\r\nSET x 1\r\n".into(),
        b"\xff\xfe".into(),
        b"\xc3\xa9".into(),
        b"rk:c:q:a".into(),
        b"*".into(),
        b"a*".into(),
        vec![b':'; 1_024],
        vec![b'%'; 1_024],
        vec![0; 1_024],
        vec![b'x'; 1_023],
        vec![b'x'; 1_024],
    ];
    subjects.extend((1..=8).map(|length| vec![b'{'; length]));
    subjects
}

#[tokio::test]
async fn no_subject_can_name_its_way_into_another_counter() {
    let server = Server::start(Flavour::Redis7);
    let store = store(&server, "").await;
    let subjects = hostile();
    let mut expected = 0;
    for text in ["1/h", "1/h fixed_window", "1/h sliding_log", "1/h concurrency"] {
        // Names, too, may have colons and dots.
        for name in ["q", "q:a", "q.a", "q%3Aa"] {
            let name = format!("{name} {text}");
            for subject in &subjects {
                let own = charge(&name, subject, quota(text));
                assert!(is_allowed(&store, &own).await, "{subject:?} under {name} is new");
                assert!(!is_allowed(&store, &own).await, "{subject:?} under {name} is counted");
                expected += 1;
            }
        }
    }
    for id in subjects.iter().filter(|id| id.len() <= 128) {
        let own = charge("ids", "all", quota("1000/h fixed_window"));
        let once = Reservation::once(id, Duration::from_secs(600)).unwrap();
        let decision = store.reserve(&Check::one(&own), &once).await.unwrap();
        assert_eq!(decision.origin(), Origin::Store, "{id:?} is new");
        expected += 1;
    }
    let keys: HashSet<String> = keys(&server).into_iter().collect();
    assert_eq!(keys.len(), expected + 1, "and the counter that all ids share");
    for key in keys {
        assert!(key.bytes().all(|byte| byte.is_ascii_graphic()), "{key:?} prints");
        assert!(!key.contains(['{', '}']), "{key:?} has no hash tag");
    }
}
