//! Where counters are, by its URL: the same to every command.

use ratekeeper_testkit::store_urls::{Place, cases};

use crate::{ratekeeper, text};

#[test]
fn check_and_doctor_take_every_url_of_the_table_or_refuse_it() {
    for case in cases() {
        let asked = ["--timeout", "100", "--store", &case.url];
        for command in [&["check", "user:1", "5/s"][..], &["doctor"]] {
            let output = ratekeeper(&[command, &asked].concat());
            let shown = text(&output.stdout) + &text(&output.stderr);
            case.assert_said("--store", &shown);
            match case.place {
                Some(Place::Memory) => assert_eq!(output.status.code(), Some(0), "{command:?}: {shown}"),
                // It was understood, but nothing listens there.
                Some(Place::Server | Place::Servers) => {
                    assert_ne!(output.status.code(), Some(0), "{command:?}: {shown}");
                    assert!(!shown.contains("--store: got"), "{command:?}: {shown}");
                }
                None => assert_eq!(output.status.code(), Some(2), "{command:?}: {shown}"),
            }
        }
    }
}

#[test]
fn a_server_does_not_start_with_a_wrong_url() {
    for case in cases().iter().filter(|case| case.place.is_none()) {
        let output = ratekeeper(&["serve", "--http", "127.0.0.1:0", "--store", &case.url]);
        case.assert_said("store", &text(&output.stderr));
        assert_ne!(output.status.code(), Some(0), "{}", case.url);
    }
}
