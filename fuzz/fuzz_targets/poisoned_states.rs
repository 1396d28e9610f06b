//! States that no history makes, from any bytes. Run: `make fuzz TARGET=poisoned_states`.
#![no_main]

use ratekeeper_testkit::fuzz;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::poisoned_states(bytes));
