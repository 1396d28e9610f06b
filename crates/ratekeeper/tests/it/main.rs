//! The library from outside: one binary for all of its integration tests.

mod concurrency;
mod engine;
mod limiter;
mod memory;
