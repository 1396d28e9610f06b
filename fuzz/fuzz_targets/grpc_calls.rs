//! Envoy's rate limit service on any message. Run: `make fuzz TARGET=grpc_calls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|message: &[u8]| {
    ratekeeper_server::serve::fuzz::grpc_calls(message);
});
