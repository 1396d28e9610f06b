//! Any history on the model: nothing may panic or overflow. Run:
//! `make fuzz TARGET=model_history`.
#![no_main]

use ratekeeper_testkit::{ModelEngine, fuzz, history};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let events = fuzz::history_of(bytes, 100);
    history::run(&mut ModelEngine::default(), &events).expect("the model agrees with itself");
});
