//! The JSON entry points of the HTTP API on any bytes. Run: `make fuzz TARGET=json_calls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ratekeeper_server::serve::fuzz::json_calls(bytes);
});
