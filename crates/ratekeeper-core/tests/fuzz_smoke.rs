//! The fuzz targets on random input, in every test run. `make fuzz` runs them
//! for as long as one likes.

use proptest::prelude::any;
use proptest::test_runner::{Config, TestRunner};
use ratekeeper_testkit::{ModelEngine, fuzz, history};

#[test]
fn any_text_is_a_quota_or_is_refused() {
    let mut runner =
        TestRunner::new(Config { cases: 20_000, failure_persistence: None, ..Config::default() });
    // Mostly characters that mean something, so that some of it parses.
    runner
        .run(&"[0-9]{1,12}[ /]?(per )?[0-9]{0,3}[a-z ]{0,12}[0-9_:+-]{0,6}", |text| {
            fuzz::quota_text(text.as_bytes());
            Ok(())
        })
        .unwrap();
    runner
        .run(&proptest::collection::vec(any::<u8>(), 0..300), |bytes| {
            fuzz::quota_text(&bytes);
            fuzz::names_and_keys(&bytes);
            Ok(())
        })
        .unwrap();
}

#[test]
fn any_bytes_are_a_history_that_does_not_panic() {
    let mut runner = TestRunner::new(Config { cases: 500, failure_persistence: None, ..Config::default() });
    runner
        .run(&proptest::collection::vec(any::<u8>(), 32), |bytes| {
            let events = fuzz::history_of(&bytes, 50);
            history::run(&mut ModelEngine::default(), &events).unwrap();
            Ok(())
        })
        .unwrap();
}
