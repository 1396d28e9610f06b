//! Quotas, names and keys from any bytes. Run: `make fuzz TARGET=quota_text`.
#![no_main]

use ratekeeper_testkit::fuzz;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz::quota_text(bytes);
    fuzz::names_and_keys(bytes);
});
