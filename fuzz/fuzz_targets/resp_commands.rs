//! The Redis protocol on any bytes. Run: `make fuzz TARGET=resp_commands`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ratekeeper_server::serve::fuzz::resp_commands(bytes);
});
