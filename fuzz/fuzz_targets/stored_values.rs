//! Values on a real server, made of real ones by the fuzzer's bytes; `make servers` puts the server in place. Run:
//! `make fuzz TARGET=stored_values`.
#![no_main]

use std::cell::RefCell;

use ratekeeper::RedisStore;
use ratekeeper_testkit::wait::PATIENCE;

#[path = "../../crates/ratekeeper/tests/redis/fuzzed_values.rs"]
mod fuzzed_values;

use fuzzed_values::FuzzedValues;

thread_local! {
    // One server for all inputs: it ends with this process.
    static VALUES: RefCell<FuzzedValues> =
        RefCell::new(FuzzedValues::new(|url| RedisStore::builder(url).deadline(PATIENCE)));
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| VALUES.with_borrow_mut(|values| values.run(bytes)));
